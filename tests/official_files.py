"""Small files in the official formats of the image sets, and a server on this machine to fetch them from."""

import contextlib
import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import tarfile
import threading

import numpy as np
from scipy.io import savemat

from cissl import datasets
from cissl.datasets import Content

RNG = np.random.default_rng(0)


def pixels(n, *shape):
    return RNG.integers(0, 256, (n, *shape), dtype=np.uint8)


def cifar_file(x, *labels):
    return np.concatenate([np.stack(labels, 1).astype(np.uint8), x.reshape(len(x), -1)], 1).tobytes()


def idx_file(x):
    return bytes([0, 0, 8, x.ndim]) + np.array(x.shape, ">u4").tobytes() + x.tobytes()


def mat_file(x, y):
    stream = io.BytesIO()
    savemat(stream, {"X": x.transpose(2, 3, 1, 0), "y": y[:, None]}, do_compression=True)
    return stream.getvalue()


def tar_file(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for member, content in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


@dataclasses.dataclass
class Small:
    """A data set of a few samples: what should be read, the official files, and what is downloaded."""

    name: str
    expected: tuple
    contents: dict
    packed: dict


def cifar10():
    xs, ys = [pixels(4, 3, 32, 32) for _ in range(6)], [RNG.integers(0, 10, 4) for _ in range(6)]
    files = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    contents = {f: cifar_file(x, y) for f, x, y in zip(files, xs, ys, strict=True)}
    # The order inside an archive is not the order of the batches.
    members = [(f"cifar-10-batches-bin/{f}", contents[f]) for f in reversed(files)]
    members.insert(2, ("cifar-10-batches-bin/readme.html", b"read me"))
    expected = (np.concatenate(xs[:5]), np.concatenate(ys[:5]), xs[5], ys[5])
    return Small("cifar10", expected, contents, {"cifar-10-binary.tar.gz": tar_file(members)})


def cifar100():
    x, y, test_x, test_y = pixels(5, 3, 32, 32), np.arange(5) * 20, pixels(3, 3, 32, 32), np.array([99, 0, 7])
    contents = {"train.bin": cifar_file(x, y // 5, y), "test.bin": cifar_file(test_x, test_y // 5, test_y)}
    members = [(f"cifar-100-binary/{f}", c) for f, c in contents.items()]
    return Small("cifar100", (x, y, test_x, test_y), contents, {"cifar-100-binary.tar.gz": tar_file(members)})


def svhn():
    x, y, test_x, test_y = pixels(5, 3, 32, 32), np.array([10, 1, 9, 10, 2]), pixels(2, 3, 32, 32), np.array([3, 10])
    contents = {"train_32x32.mat": mat_file(x, y), "test_32x32.mat": mat_file(test_x, test_y)}
    return Small("svhn", (x, np.array([0, 1, 9, 0, 2]), test_x, np.array([3, 0])), contents, contents)


def fashion():
    x, y, test_x, test_y = pixels(5, 28, 28), np.array([0, 9, 3, 3, 1]), pixels(2, 28, 28), np.array([8, 2])
    contents = {
        "train-images-idx3-ubyte": idx_file(x),
        "train-labels-idx1-ubyte": idx_file(y.astype(np.uint8)),
        "t10k-images-idx3-ubyte": idx_file(test_x),
        "t10k-labels-idx1-ubyte": idx_file(test_y.astype(np.uint8)),
    }
    packed = {f"{f}.gz": gzip.compress(c) for f, c in contents.items()}
    return Small("fashion-mnist", (x[:, None], y, test_x[:, None], test_y), contents, packed)


MAKERS = {"cifar10": cifar10, "cifar100": cifar100, "svhn": svhn, "fashion-mnist": fashion}


def register(small, monkeypatch, base=None):
    """Put the small files' sizes and checksums in the place of the official ones."""
    known = datasets.DATASETS[small.name]
    downloads = []
    for download in known.downloads:
        contents = tuple(
            Content(c.name, len(small.contents[c.name]), hashlib.sha256(small.contents[c.name]).hexdigest())
            for c in download.contents
        )
        checksum = "sha256:" + hashlib.sha256(small.packed[download.name]).hexdigest()
        url = f"{base}/{download.name}" if base else download.url
        downloads.append(dataclasses.replace(download, url=url, checksum=checksum, contents=contents))
    entry = dataclasses.replace(known, downloads=tuple(downloads))
    monkeypatch.setitem(datasets.DATASETS, small.name, entry)
    return small


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, without a log."""

    def log_message(self, *args):
        """Say nothing."""


@contextlib.contextmanager
def serving(folder):
    """Serve the folder; its address."""
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}"
        finally:
            httpd.shutdown()
            thread.join()
