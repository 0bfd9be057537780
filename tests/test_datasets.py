"""Data sets: small files in the official formats are read as the formats say, and every wrong file is reported."""

import tarfile

import numpy as np
import pytest
from official_files import MAKERS, cifar10, register, serving, svhn, tar_file, write

from cissl import datasets
from cissl.datasets import Dataset

# ---- Toy sets and digits


@pytest.mark.parametrize(("name", "counts"), [("two-moons", [3000] * 2), ("four-spins", [1500] * 4)])
def test_toy_sets_are_evaluated_on_all_their_points(name, counts):
    data = datasets.load(name, seed=1)
    assert data.train_x.shape == (6000, 2)
    assert data.train_x.dtype == np.float32
    assert np.bincount(data.train_y).tolist() == counts
    np.testing.assert_array_equal(data.train_x, data.test_x)
    np.testing.assert_array_equal(data.train_y, data.test_y)


@pytest.mark.parametrize("name", ["two-moons", "four-spins"])
def test_toy_sets_come_from_their_seed_alone(name):
    first = datasets.load(name, seed=3).train_x
    np.random.seed(7)
    before = np.random.get_state()[1].copy()
    np.testing.assert_array_equal(first, datasets.load(name, seed=3).train_x)
    np.testing.assert_array_equal(before, np.random.get_state()[1])
    assert not np.array_equal(first, datasets.load(name, seed=4).train_x)


def test_two_moons_are_half_circles_with_noise_of_0_15():
    data = datasets.load("two-moons")
    x, y = data.train_x.astype(float), data.train_y
    centre = np.where(y[:, None] == 0, [0.0, 0.0], [1.0, 0.5])
    radius = np.linalg.norm(x - centre, axis=1)
    assert radius.mean() == pytest.approx(1.0, abs=0.02)
    assert radius.std() == pytest.approx(0.15, rel=0.03)
    assert x[y == 0, 1].mean() > 0.5 > 0 > x[y == 1, 1].mean()


def test_four_spins_are_turned_back_to_straight_arms():
    data = datasets.load("four-spins")
    for arm in range(4):
        x = data.train_x[data.train_y == arm].astype(float)
        # Turning keeps the length, so r₁ ≈ |x| where the arm is thin; the angle follows from it.
        r1 = np.linalg.norm(x, axis=1)
        angle = 2 * np.pi * arm / 4 + 0.7 * np.exp(r1)
        back = np.stack([x[:, 0] * np.cos(angle) - x[:, 1] * np.sin(angle)], 1)[:, 0]
        assert r1.mean() == pytest.approx(1.0, abs=0.03)
        assert r1.std() == pytest.approx(0.3, abs=0.02)
        assert np.median(back / r1) > 0.98


def test_digits_are_a_fixed_stratified_split_without_a_download():
    data = datasets.load("digits")
    assert data.train_x.dtype == np.uint8
    assert data.train_x.max() == 255
    assert data.train_x.min() == 0
    shares = np.bincount(data.train_y) / (np.bincount(data.train_y) + np.bincount(data.test_y))
    assert np.all(np.abs(shares - 0.75) < 0.005)
    np.testing.assert_array_equal(data.test_x, datasets.load("digits", seed=5).test_x)
    # Nothing is in both, up to drawings that happen to be equal.
    train = {x.tobytes() for x in data.train_x}
    assert sum(x.tobytes() in train for x in data.test_x) == 0


@pytest.mark.parametrize("name", ["two-moons", "four-spins", "digits"])
def test_the_table_is_right_about_what_is_made(name):
    data, known = datasets.load(name), datasets.DATASETS[name]
    assert (len(data.train_x), len(data.test_x)) == (known.train, known.test)
    assert data.train_x.shape[1:] == known.shape
    assert data.n_classes == len(known.class_names) == data.train_y.max() + 1


def test_the_table_of_official_files_fits_its_formats():
    for name, samples in (("cifar10", 60_000 * 3073), ("cifar100", 60_000 * 3074)):
        known = datasets.DATASETS[name]
        assert sum(c.size for d in known.downloads for c in d.contents) == samples
        assert len(known.class_names) == {"cifar10": 10, "cifar100": 100}[name]
    sizes = [c.size for d in datasets.DATASETS["fashion-mnist"].downloads for c in d.contents]
    assert sizes == [16 + 60_000 * 784, 8 + 60_000, 16 + 10_000 * 784, 8 + 10_000]
    for known in datasets.DATASETS.values():
        for download in known.downloads:
            assert download.url.startswith("http")
            kind, _, digest = download.checksum.partition(":")
            assert len(digest) == {"md5": 32, "sha256": 64}[kind]
            assert all(len(c.sha256) == 64 for c in download.contents)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match="unknown data set 'cifar-10': did you mean 'cifar10'"):
        datasets.load("cifar-10")


# ---- Official files, small


@pytest.fixture(params=MAKERS)
def small(request, monkeypatch):
    return register(MAKERS[request.param](), monkeypatch)


@pytest.fixture
def cifar(monkeypatch):
    return register(cifar10(), monkeypatch)


def check(small, folder):
    data = datasets.load(small.name, folder)
    for got, expected in zip((data.train_x, data.train_y, data.test_x, data.test_y), small.expected, strict=True):
        np.testing.assert_array_equal(got, expected)
    for x in (data.train_x, data.test_x):
        assert x.dtype == np.uint8
        assert x.flags["C_CONTIGUOUS"]
        assert x.flags["WRITEABLE"]


def test_packed_files_are_read(small, tmp_path):
    write(tmp_path / small.name, small.packed)
    before = sorted(p.name for p in tmp_path.rglob("*"))
    check(small, tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before  # nothing is written when reading
    found = datasets.files(small.name, tmp_path)
    assert all(path is not None and path.exists() for path in found.values())


@pytest.mark.parametrize("where", ["own", "official", "both", "flat"])
def test_unpacked_files_are_read_wherever_one_would_put_them(small, tmp_path, where):
    inner = datasets.DATASETS[small.name].folder
    places = {"own": small.name, "official": inner, "both": f"{small.name}/{inner}", "flat": "."}
    write(tmp_path / places[where], small.contents)
    check(small, tmp_path)


def test_the_folder_is_the_argument_else_the_variable_else_the_platforms_cache(cifar, tmp_path, monkeypatch):
    write(tmp_path / "a" / "cifar10", cifar.packed)
    monkeypatch.setenv("CISSL_DATA", str(tmp_path / "a"))
    assert len(datasets.load("cifar10").test_x) == 4
    with pytest.raises(ValueError, match=r"no cifar-10-binary.tar.gz"):
        datasets.load("cifar10", tmp_path / "b")
    monkeypatch.delenv("CISSL_DATA")
    assert datasets.data_folder().name == "cissl"


def test_nothing_there_says_which_file_from_where_to_put_where(small, tmp_path):
    download = datasets.DATASETS[small.name].downloads[0]
    with pytest.raises(ValueError, match=f"^{small.name}: no {download.name}") as error:
        datasets.load(small.name, tmp_path)
    assert f"cissl data fetch {small.name}" in str(error.value)
    assert download.url in str(error.value)
    assert str(tmp_path / small.name / download.name) in str(error.value)
    assert set(datasets.files(small.name, tmp_path).values()) == {None}


def test_a_missing_split_is_named(monkeypatch, tmp_path):
    small = register(svhn(), monkeypatch)
    write(tmp_path, {"train_32x32.mat": small.contents["train_32x32.mat"]})
    with pytest.raises(ValueError, match=r"svhn: no test_32x32.mat in .*housenumbers/test_32x32.mat and put it at"):
        datasets.load("svhn", tmp_path)


def test_a_missing_batch_is_named(cifar, tmp_path):
    del cifar.contents["data_batch_3.bin"]
    write(tmp_path / "cifar-10-batches-bin", cifar.contents)
    with pytest.raises(ValueError, match=r"no cifar-10-binary.tar.gz in .*, and unpacked data_batch_3.bin missing"):
        datasets.load("cifar10", tmp_path)


def test_truncated_and_changed_unpacked_files_are_refused(small, tmp_path):
    name, content = next(iter(small.contents.items()))
    write(tmp_path, small.contents | {name: content[:-1]})
    with pytest.raises(ValueError, match=f"{name} has {len(content) - 1:,} bytes where the official file has") as error:
        datasets.load(small.name, tmp_path)
    assert "cannot be used" not in str(error.value)  # there is no packed file that could be
    write(tmp_path, {name: content[:-1] + bytes([content[-1] ^ 1])})
    with pytest.raises(ValueError, match=f"{name} is not the official file: its SHA-256 is"):
        datasets.load(small.name, tmp_path)


@pytest.mark.parametrize("keep", [0, 1, 15, 0.5, 0.9])
def test_truncated_packed_files_are_refused(small, tmp_path, keep):
    name, content = next(iter(small.packed.items()))
    content = content[: keep if isinstance(keep, int) else int(len(content) * keep)]
    write(tmp_path / small.name, small.packed | {name: content})
    with pytest.raises(ValueError, match=rf"{name} (cannot be used|has {len(content):,} bytes)"):
        datasets.load(small.name, tmp_path)


@pytest.mark.parametrize("place", [0, 0.5, 0.9])
def test_packed_files_damaged_inside_are_refused(small, tmp_path, place):
    name, content = next(iter(small.packed.items()))
    start = 10 + int(len(content) * place)  # 10: right behind the header, where gzip says how it goes on
    write(tmp_path / small.name, small.packed | {name: content[:start] + b"\xff" * 64 + content[start + 64 :]})
    with pytest.raises(ValueError, match=rf"{name} (cannot be used|is not the official file)"):
        datasets.load(small.name, tmp_path)


def test_a_right_packed_file_helps_where_the_unpacked_ones_are_damaged(cifar, tmp_path):
    write(tmp_path / "cifar10", cifar.contents | cifar.packed | {"test_batch.bin": b"torn"})
    check(cifar, tmp_path)


def test_an_archive_with_other_content_is_refused(cifar, tmp_path):
    members = [(f"cifar-10-batches-bin/{f}", c) for f, c in cifar.contents.items()]
    changed = tar_file([*members[:-1], (members[-1][0], b"x" * len(members[-1][1]))])
    write(tmp_path / "cifar10", {"cifar-10-binary.tar.gz": changed})
    with pytest.raises(ValueError, match=r"test_batch.bin in it is not the official file"):
        datasets.load("cifar10", tmp_path)
    bomb = tar_file([*members[:-1], (members[-1][0], b"x" * 10_000_000)])
    write(tmp_path / "cifar10", {"cifar-10-binary.tar.gz": bomb})
    with pytest.raises(ValueError, match=r"test_batch.bin in it has 12,293 bytes"):  # and not ten million in memory
        datasets.load("cifar10", tmp_path)
    write(tmp_path / "cifar10", {"cifar-10-binary.tar.gz": tar_file(members[:-1])})
    with pytest.raises(ValueError, match=r"cannot be used: test_batch.bin is not in it"):
        datasets.load("cifar10", tmp_path)


def test_a_malicious_archive_reaches_nothing_outside(cifar, tmp_path):
    data = tmp_path / "data"
    secret = tmp_path / "secret"
    secret.write_bytes(cifar.contents["test_batch.bin"])
    link = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
    link.type, link.linkname = tarfile.SYMTYPE, str(secret)
    members = [(f"cifar-10-batches-bin/{f}", c) for f, c in cifar.contents.items() if f != "test_batch.bin"]
    evil = [
        ("../../evil", b"1"),
        (str(tmp_path / "evil"), b"2"),
        ("cifar-10-batches-bin/../../evil", b"3"),
        (link, b""),
    ]
    write(data / "cifar10", {"cifar-10-binary.tar.gz": tar_file(evil + members)})
    with pytest.raises(ValueError, match=r"test_batch.bin is not in it"):
        datasets.load("cifar10", data)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["cifar-10-binary.tar.gz", "cifar10", "data", "secret"]


# ---- Fetching, from a server on this machine


@pytest.fixture
def server(tmp_path):
    """The folder that is served, and where."""
    with serving(tmp_path / "official") as base:
        yield tmp_path / "official", base


@pytest.mark.parametrize("name", MAKERS)
def test_fetch_gets_what_is_missing_and_nothing_twice(name, server, tmp_path, monkeypatch):
    root, base = server
    small = register(MAKERS[name](), monkeypatch, base)
    write(root, small.packed)
    assert datasets.fetch(name, tmp_path / "data") == list(small.packed)
    check(small, tmp_path / "data")
    assert datasets.fetch(name, tmp_path / "data") == []
    assert sorted(p.name for p in (tmp_path / "data" / name).iterdir()) == sorted(small.packed)
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "data" / name).iterdir()} == {0o644}


def test_fetch_replaces_a_damaged_file_and_shows_progress(server, tmp_path, monkeypatch):
    root, base = server
    small = register(cifar10(), monkeypatch, base)
    write(root, small.packed)
    write(tmp_path / "data" / "cifar10", {"cifar-10-binary.tar.gz": b"torn"})

    class Bar:
        """What pooch calls."""

        total = 0
        seen = 0

        def update(self, n):
            self.seen += n

        def reset(self):
            self.seen = 0

        def close(self):
            self.closed = True

    bars = {}
    assert datasets.fetch("cifar10", tmp_path / "data", lambda file: bars.setdefault(file, Bar())) == list(small.packed)
    check(small, tmp_path / "data")
    bar = bars["cifar-10-binary.tar.gz"]
    assert bar.total == bar.seen == len(small.packed["cifar-10-binary.tar.gz"])
    assert bar.closed


def test_a_wrong_download_leaves_nothing_behind(server, tmp_path, monkeypatch):
    root, base = server
    register(cifar10(), monkeypatch, base)
    write(root, {"cifar-10-binary.tar.gz": b"not the archive"})
    with pytest.raises(ValueError, match=r"cifar-10-binary.tar.gz could not be fetched .*put it at .*/data/cifar10/"):
        datasets.fetch("cifar10", tmp_path / "data")
    assert list((tmp_path / "data" / "cifar10").iterdir()) == []


def test_no_network_says_which_file_from_where_to_put_where(tmp_path, monkeypatch):
    register(cifar10(), monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(ValueError, match=r"^cifar10: cifar-10-binary.tar.gz could not be fetched") as error:
        datasets.fetch("cifar10", tmp_path)
    assert "Get it from http://127.0.0.1:1/cifar-10-binary.tar.gz" in str(error.value)
    assert f"put it at {tmp_path / 'cifar10' / 'cifar-10-binary.tar.gz'}" in str(error.value)
    assert list((tmp_path / "cifar10").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path, monkeypatch):
    register(cifar10(), monkeypatch, "http://127.0.0.1:1")
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError, match=r"cifar-10-binary.tar.gz could not be fetched .*(Not a directory|File exists)"
    ):
        datasets.fetch("cifar10", tmp_path / "file")


def test_sets_that_are_made_need_no_fetching(tmp_path):
    assert datasets.fetch("digits", tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


# ---- What a Dataset refuses


def dataset(**changes):
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 1, 0])
    return Dataset(
        **({"name": "mine", "train_x": x, "train_y": y, "test_x": x, "test_y": y, "class_names": ("a", "b")} | changes)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_y": np.array([0, 1, 2, 0])}, "mine, training set: labels have to be 0 to 1, got 0 to 2"),
        ({"test_y": np.array([0, 1, -1, 0])}, "mine, test set: labels have to be 0 to 1, got -1 to 1"),
        ({"train_y": np.array([0, 1])}, r"expected 4 int64 labels for 4 samples, got int64 \(2,\)"),
        ({"train_y": np.zeros(4)}, r"got float64 \(4,\)"),
        ({"test_x": np.full((4, 2), np.nan, np.float32)}, "test set: sample 0 has a NaN"),
        (
            {"test_x": np.zeros((4, 3), np.float32)},
            r"training samples are of shape \(2,\), test samples of shape \(3,\)",
        ),
        ({"train_x": np.zeros((4, 2))}, "uint8 or float32 array, all of one size, got float64"),
    ],
)
def test_bad_arrays_are_refused(changes, message):
    assert dataset().n_classes == 2
    with pytest.raises(ValueError, match=message):
        dataset(**changes)
