"""Data sets by name, as plain arrays: images uint8 (n, c, h, w), feature vectors float32 (n, d), labels int64.

The official files are used as they are published, packed or unpacked, and never written out anew: a tar archive is
read member by member, so that nothing in it can reach a place outside. Every content that is used is checked against
its SHA-256, and nothing is ever unpickled.
"""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cissl.downloads import Bar, retrieve
from cissl.names import imported, is_own, unknown
from cissl.randomness import stream

Array = npt.NDArray[Any]
Contents = dict[str, bytes]  # the name of an official file -> what is in it
Arrays = tuple[Array, Array, Array, Array]  # train_x, train_y, test_x, test_y


@dataclass(frozen=True)
class Dataset:
    """A training and a test set; a label is an index into `class_names`."""

    name: str
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Report here what would otherwise be a strange result of training."""
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise ValueError(
                f"{self.name}: training samples are of shape {self.train_x.shape[1:]}, test samples of shape "
                f"{self.test_x.shape[1:]}: make them the same"
            )
        for part, x, y in (("training", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            _validate(f"{self.name}, {part} set", x, y, self.n_classes)

    @property
    def n_classes(self) -> int:
        """How many classes there are, whether or not each has a sample."""
        return len(self.class_names)


def _validate(what: str, x: Array, y: Array, n_classes: int) -> None:
    if x.dtype not in (np.uint8, np.float32):
        raise ValueError(f"{what}: expected samples as one uint8 or float32 array, all of one size, got {x.dtype}")
    if y.dtype != np.int64 or y.shape != (len(x),):
        raise ValueError(f"{what}: expected {len(x)} int64 labels for {len(x)} samples, got {y.dtype} {y.shape}")
    if x.dtype == np.float32 and not np.isfinite(x).all():
        raise ValueError(f"{what}: sample {int(np.argwhere(~np.isfinite(x))[0, 0])} has a NaN or an infinity in it")
    if len(y) and (y.min() < 0 or y.max() >= n_classes):
        raise ValueError(f"{what}: labels have to be 0 to {n_classes - 1}, got {y.min()} to {y.max()}")


@dataclass(frozen=True)
class Content:
    """One official file as it is read, unpacked."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Download:
    """One file of the official place, with the checksum published for it, and what it holds."""

    url: str
    checksum: str
    contents: tuple[Content, ...]

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before any of its files is there."""

    title: str
    shape: tuple[int, ...]
    train: int
    test: int
    class_names: tuple[str, ...]
    make: Callable[[int], Arrays] | None = None  # of the sets that need no files: from a seed
    parse: Callable[[Contents], Arrays] | None = None  # of the others: from their files
    downloads: tuple[Download, ...] = ()
    folder: str = ""  # what the official archive unpacks to


# ---- Sets that are made, not fetched


def two_moons(seed: int) -> Arrays:
    """The paper's first toy set: 6,000 points on two half circles with noise 0.15."""
    from sklearn.datasets import make_moons

    x, y = make_moons(6000, noise=0.15, random_state=stream(seed, "data") % 2**32)
    return _toy(x, y)


def four_spins(seed: int) -> Arrays:
    """The paper's second toy set: four spiral arms of 1,500 points."""
    rng = np.random.default_rng(stream(seed, "data"))
    arms = []
    for arm in range(4):
        r = np.array([1.0, 0.0]) + np.array([0.3, 0.1]) * rng.standard_normal((1500, 2))
        angle = 2 * np.pi * arm / 4 + 0.7 * np.exp(r[:, 0])
        cos, sin = np.cos(angle), np.sin(angle)
        # The row vector r times [[cos, -sin], [sin, cos]], each point with its own angle.
        arms.append(np.stack([r[:, 0] * cos + r[:, 1] * sin, r[:, 1] * cos - r[:, 0] * sin], axis=1))
    return _toy(np.concatenate(arms), np.repeat(np.arange(4), 1500))


def _toy(x: Array, y: Array) -> Arrays:
    """Toy runs are evaluated on all points, those trained on included, as in the paper."""
    x, y = x.astype(np.float32), y.astype(np.int64)
    return x, y, x, y


def digits(seed: int) -> Arrays:
    """The 8 x 8 digits that scikit-learn brings along; the last quarter of each class (other writers) is the test set.

    The seed changes nothing: the set and its split are always the same.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.rint(bunch.images[:, None] * (255 / 16)).astype(np.uint8)  # 17 grey levels, on the scale of the others
    y = bunch.target.astype(np.int64)
    test = np.zeros(len(y), bool)
    for c in range(10):
        members = np.flatnonzero(y == c)
        test[members[len(members) * 3 // 4 :]] = True
    return x[~test], y[~test], x[test], y[test]


# ---- Official formats


def _cifar(contents: Contents, train: tuple[str, ...], test: str, label_bytes: int) -> Arrays:
    """Records of labels (CIFAR-100: coarse, fine; the last is used) and 3 x 32 x 32 pixels."""

    def read(name: str) -> tuple[Array, Array]:
        records = np.frombuffer(contents[name], np.uint8).reshape(-1, label_bytes + 3072)
        return records[:, label_bytes:].reshape(-1, 3, 32, 32), records[:, label_bytes - 1].astype(np.int64)

    parts = [read(name) for name in train]
    test_x, test_y = read(test)
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), test_x.copy(), test_y


def cifar10(contents: Contents) -> Arrays:
    """The binary release of CIFAR-10."""
    return _cifar(contents, tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", 1)


def cifar100(contents: Contents) -> Arrays:
    """The binary release of CIFAR-100, with its fine labels."""
    return _cifar(contents, ("train.bin",), "test.bin", 2)


def svhn(contents: Contents) -> Arrays:
    """The cropped digits of SVHN: X is (32, 32, 3, n), and label 10 is the digit 0."""
    from scipy.io import loadmat

    def read(name: str) -> tuple[Array, Array]:
        matrices = loadmat(io.BytesIO(contents[name]), variable_names=["X", "y"])
        x = np.ascontiguousarray(matrices["X"].transpose(3, 2, 0, 1))
        return x, matrices["y"].ravel().astype(np.int64) % 10

    return *read("train_32x32.mat"), *read("test_32x32.mat")


def fashion_mnist(contents: Contents) -> Arrays:
    """Fashion-MNIST in the idx format: two zero bytes, the type, the number of axes, their lengths, the data."""

    def read(name: str) -> Array:
        content = contents[name]
        axes = content[3]
        shape = np.frombuffer(content, ">u4", axes, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)

    def pair(split: str) -> tuple[Array, Array]:
        x, y = read(f"{split}-images-idx3-ubyte"), read(f"{split}-labels-idx1-ubyte")
        return x[:, None].copy(), y.astype(np.int64)

    return *pair("train"), *pair("t10k")


# ---- The table: names, sizes, official places, checksums

TORONTO = "https://www.cs.toronto.edu/~kriz"
STANFORD = "http://ufldl.stanford.edu/housenumbers"
ZALANDO = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
TEN_DIGITS = tuple("0123456789")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


def _single(url: str, checksum: str, size: int, sha256: str) -> Download:
    """A file that holds one content: itself, or what it is the gzip of."""
    return Download(url, checksum, (Content(url.rsplit("/", 1)[1].removesuffix(".gz"), size, sha256),))


DATASETS: dict[str, Entry] = {
    "two-moons": Entry("two half circles, the paper's toy set", (2,), 6000, 6000, ("0", "1"), two_moons),
    "four-spins": Entry("four spiral arms, the paper's toy set", (2,), 6000, 6000, tuple("0123"), four_spins),
    "digits": Entry("handwritten digits, from scikit-learn", (1, 8, 8), 1343, 454, TEN_DIGITS, digits),
    "cifar10": Entry(
        "photographs of ten kinds of things",
        (3, 32, 32),
        50_000,
        10_000,
        CIFAR10,
        parse=cifar10,
        folder="cifar-10-batches-bin",
        downloads=(
            Download(
                f"{TORONTO}/cifar-10-binary.tar.gz",
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                tuple(
                    Content(name, 30_730_000, sha256)
                    for name, sha256 in (
                        ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                        ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
                        ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
                        ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
                        ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
                        ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
                    )
                ),
            ),
        ),
    ),
    "cifar100": Entry(
        "photographs of a hundred kinds of things",
        (3, 32, 32),
        50_000,
        10_000,
        tuple(CIFAR100.split()),
        parse=cifar100,
        folder="cifar-100-binary",
        downloads=(
            Download(
                f"{TORONTO}/cifar-100-binary.tar.gz",
                "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                tuple(
                    Content(name, size, sha256)
                    for name, size, sha256 in (
                        ("train.bin", 153_700_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
                        ("test.bin", 30_740_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
                    )
                ),
            ),
        ),
    ),
    "svhn": Entry(
        "house numbers, single digits cut out of street photographs",
        (3, 32, 32),
        73_257,
        26_032,
        TEN_DIGITS,
        parse=svhn,
        downloads=tuple(
            _single(f"{STANFORD}/{name}_32x32.mat", f"sha256:{sha256}", size, sha256)
            for name, size, sha256 in (
                ("train", 182_040_794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
                ("test", 64_275_384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
            )
        ),
    ),
    "fashion-mnist": Entry(
        "pictures of clothes, in grey",
        (1, 28, 28),
        60_000,
        10_000,
        FASHION,
        parse=fashion_mnist,
        # The published MD5 is that of the gzip file and serves for fetching. The content's SHA-256 decides otherwise:
        # distributions pack the same content anew.
        downloads=(
            _single(
                f"{ZALANDO}/train-images-idx3-ubyte.gz",
                "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                47_040_016,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            _single(
                f"{ZALANDO}/train-labels-idx1-ubyte.gz",
                "md5:25c81989df183df01b3e8a0aad5dffbe",
                60_008,
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            ),
            _single(
                f"{ZALANDO}/t10k-images-idx3-ubyte.gz",
                "md5:bef4ecab320f06d8554ea6380940ec79",
                7_840_016,
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            ),
            _single(
                f"{ZALANDO}/t10k-labels-idx1-ubyte.gz",
                "md5:bb300cfdad3c16e7a12a480ee83cd310",
                10_008,
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ),
    ),
}


# ---- Finding and loading


def entry(name: str) -> Entry:
    """What is known of the data set of that name."""
    if name not in DATASETS:
        raise unknown("data set", name, (*DATASETS, "module:callable"))
    return DATASETS[name]


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Where files are looked for and fetched to: the one given, else CISSL_DATA, else the platform's cache folder."""
    import pooch

    return Path(data_dir or os.environ.get("CISSL_DATA") or pooch.os_cache("cissl")).expanduser()


def load(name: str, data_dir: str | os.PathLike[str] | None = None, seed: int = 0) -> Dataset:
    """The data set of that name, or your own as `module:callable` (see `own`).

    Of those named here only the toy sets are drawn from `seed`. Nothing is fetched (see `fetch`).
    """
    if is_own(name):
        return own(name, seed)
    known = entry(name)
    if known.make is not None:
        return Dataset(name, *known.make(seed), known.class_names)
    contents: Contents = {}
    for download in known.downloads:
        contents |= _obtain(name, download, data_folder(data_dir))
    assert known.parse is not None  # a set that is not made is parsed
    return Dataset(name, *known.parse(contents), known.class_names)


def own(name: str, seed: int) -> Dataset:
    """Call `module:callable` with the seed: it returns (train_x, train_y, test_x, test_y), or a `Dataset`.

    Samples are uint8 images (n, c, h, w) or features (n, d), labels whole numbers from 0. A set that is not drawn from
    a seed ignores it.
    """
    make = imported("data set", name)
    try:
        made = make(seed)
    except Exception as error:
        raise ValueError(f"{name} is called as {name.split(':')[1]}({seed}) and failed: {error}") from error
    if isinstance(made, Dataset):
        return made
    if not isinstance(made, tuple) or len(made) != 4:
        raise ValueError(f"{name}: expected (train_x, train_y, test_x, test_y), got {type(made).__name__}")
    train_x, test_x = (x.astype(np.float32) if x.dtype == np.float64 else x for x in map(np.asarray, made[::2]))
    train_y, test_y = (y.astype(np.int64) if y.dtype.kind in "iu" else y for y in map(np.asarray, made[1::2]))
    n_classes = max((int(y.max()) + 1 for y in (train_y, test_y) if y.dtype == np.int64 and len(y)), default=0)
    return Dataset(name, train_x, train_y, test_x, test_y, tuple(map(str, range(n_classes))))


def fetch(name: str, data_dir: str | os.PathLike[str] | None = None, bar: Bar | None = None) -> list[str]:
    """Download into DATA/NAME what is not there yet, and return the names of the files that were downloaded.

    A file is written beside its place and moved there once its checksum is right. `bar(file name)` gives a progress
    bar as pooch wants it: an object with `total`, `update(bytes)`, `reset()` and `close()`.
    """
    folder, fetched = data_folder(data_dir), []
    for download in entry(name).downloads:
        try:
            _obtain(name, download, folder)
        except ValueError:
            retrieve(name, download.url, folder / name / download.name, download.checksum, bar)
            fetched.append(download.name)
    return fetched


def files(name: str, data_dir: str | os.PathLike[str] | None = None) -> dict[str, Path | None]:
    """Where each download of a data set is found, packed or unpacked and not yet checked, or None."""
    found: dict[str, Path | None] = {}
    for download in entry(name).downloads:
        loose, packed = _find(name, download, data_folder(data_dir))
        complete = len(loose) == len(download.contents)
        found[download.name] = next(iter(loose.values())).parent if complete else packed
    return found


def _find(name: str, download: Download, folder: Path) -> tuple[dict[str, Path], Path | None]:
    """The unpacked files of a download that exist, and the packed one; this data set's own folders come first."""
    inner = entry(name).folder
    places = [folder / name / inner, folder / name, folder / inner, folder]

    def first(file: str) -> Path | None:
        return next((place / file for place in places if (place / file).is_file()), None)

    loose = {content.name: path for content in download.contents if (path := first(content.name))}
    return loose, first(download.name)


def _obtain(name: str, download: Download, folder: Path) -> Contents:
    """The contents of one download, checked: from unpacked files if all are there and right, else from the packed."""
    loose, packed = _find(name, download, folder)
    absent = [content.name for content in download.contents if content.name not in loose]
    problems: list[str] = []
    if not absent:
        try:
            return {content.name: _checked(content, loose[content.name]) for content in download.contents}
        except (OSError, ValueError) as error:
            problems.append(str(error))
    if packed is not None and packed not in loose.values():
        try:
            return _unpack(packed, download, entry(name).folder)
        except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError) as error:
            problems.append(f"{packed} cannot be used: {error}")
    if absent and packed is None:
        unpacked = "" if absent == [download.name] else f", and unpacked {', '.join(absent)} missing as well"
        problems.append(f"no {download.name} in {folder / name} or {folder}{unpacked}")
    raise ValueError(
        f"{name}: {'; '.join(problems)}. Run `cissl data fetch {name}`, or get {download.name} from {download.url} and "
        f"put it at {folder / name / download.name}"
    )


def _checked(content: Content, path: Path) -> bytes:
    data = path.read_bytes()
    _check(content, data, str(path))
    return data


def _check(content: Content, data: bytes, where: str) -> None:
    if len(data) != content.size:
        raise ValueError(f"{where} has {len(data):,} bytes where the official file has {content.size:,}")
    if (digest := hashlib.sha256(data).hexdigest()) != content.sha256:
        raise ValueError(f"{where} is not the official file: its SHA-256 is {digest}, expected {content.sha256}")


def _unpack(packed: Path, download: Download, folder: str) -> Contents:
    """Read the contents out of a packed file into memory, at most as many bytes as there should be."""
    contents: Contents = {}
    if packed.name.endswith(".tar.gz"):
        wanted = {f"{folder}/{content.name}": content for content in download.contents}
        with tarfile.open(packed, "r:gz") as tar:
            for member in tar:
                content = wanted.get(member.name)
                if content is not None and member.isreg() and (stream := tar.extractfile(member)):
                    contents[content.name] = stream.read(content.size + 1)
    else:
        (content,) = download.contents
        with gzip.open(packed) as unzipped:
            contents[content.name] = unzipped.read(content.size + 1)
    for content in download.contents:
        if content.name not in contents:
            raise ValueError(f"{content.name} is not in it")
        _check(content, contents[content.name], f"{content.name} in it")
    return contents
