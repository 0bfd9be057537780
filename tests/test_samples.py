"""Samples of any origin: the same numbers, whether they lie in memory, on the disk, in parts or in a Dataset."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from cissl import preprocessing
from cissl import samples as module
from cissl.samples import (
    FromDataset,
    Joined,
    Samples,
    as_raw,
    check_finite,
    fingerprint,
    from_dataset,
    on_disk,
    prepared,
)

CPU = torch.device("cpu")


def table(n=10, d=3):
    return np.random.default_rng(0).normal(5, 2, (n, d))


class Pairs(Dataset):
    def __init__(self, x, y=None):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        return self.x[place] if self.y is None else (torch.as_tensor(self.x[place]), torch.tensor(self.y[place]))


@pytest.fixture
def mapped(tmp_path):
    def save(array):
        np.save(tmp_path / "x.npy", array)
        return np.load(tmp_path / "x.npy", mmap_mode="r")

    return save


def test_what_is_read_by_batches_is_what_would_lie_in_memory(mapped):
    x = table()
    fitted = preprocessing.fit("features", x)
    at_once, by_batches = prepared(x, fitted, CPU), prepared(mapped(x), fitted, CPU)
    assert isinstance(at_once, torch.Tensor)
    assert isinstance(by_batches, Samples)
    assert by_batches.shape == at_once.shape
    for which in (slice(2, 5), torch.tensor([7, 0, 7, 3])):
        torch.testing.assert_close(by_batches[which], at_once[which], rtol=0, atol=0)


def test_parts_are_one_after_the_other(mapped):
    first, second = table(4), table(6) + 1
    whole = Joined([mapped(first), second])
    np.testing.assert_array_equal(whole[:], np.concatenate([first, second]))
    np.testing.assert_array_equal(whole[np.array([9, 0, 4, 3])], np.concatenate([first, second])[[9, 0, 4, 3]])
    assert (whole.shape, whole.size, whole.ndim) == ((10, 3), 30, 2)
    assert on_disk(whole)
    assert not on_disk(Joined([first, second]))


def test_views_of_mapped_arrays_lie_on_the_disk_too(mapped):
    images = mapped(np.zeros((4, 6, 5, 3), np.uint8))
    raw = as_raw(images)
    assert raw.shape == (4, 3, 6, 5)
    assert on_disk(raw)
    assert on_disk(images[1:, ::2])
    assert not on_disk(np.array(images))


def test_more_than_fits_is_read_by_batches(monkeypatch):
    monkeypatch.setattr(module, "IN_MEMORY", 100)
    assert isinstance(prepared(table(), preprocessing.fit("features", table()), CPU), Samples)


def test_a_dataset_is_an_array_of_its_samples(monkeypatch):
    x = table().astype(np.float32)
    raw, labels = from_dataset(Pairs(x, np.arange(10)))
    np.testing.assert_array_equal(raw, x)
    assert labels == list(range(10))
    assert from_dataset(Pairs(x))[1] is None
    monkeypatch.setattr(module, "IN_MEMORY", 100)
    raw, labels = from_dataset(Pairs(x, np.arange(10)))
    assert isinstance(raw, FromDataset)
    assert on_disk(raw)
    np.testing.assert_array_equal(raw[2:4], x[2:4])
    assert labels == list(range(10))


def test_datasets_that_cannot_serve_are_explained():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(ValueError, match="use a map-style Dataset"):
        module.is_dataset(Stream())
    with pytest.raises(ValueError, match="item 1 of the Dataset is of shape"):
        from_dataset(Pairs([np.zeros(3), np.zeros(4)]))
    with pytest.raises(ValueError, match="holds 0 samples"):
        from_dataset(Pairs([]))


def test_images_are_taken_channels_first():
    images = np.random.default_rng(0).integers(0, 255, (2, 5, 4, 3), dtype=np.uint8)
    np.testing.assert_array_equal(as_raw(images), np.moveaxis(images, 3, 1))
    np.testing.assert_array_equal(as_raw(torch.tensor(np.moveaxis(images, 3, 1))), np.moveaxis(images, 3, 1))
    assert as_raw(images[..., 0]).shape == (2, 1, 5, 4)
    assert as_raw(table()) is None  # scikit-learn checks tables


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 3, 8, 8)), "looks as if the channels came first"),
        (np.zeros((2, 3, 8, 8, 8)), r"a table \(n, features\) or images"),
        (np.zeros((2, 8, 8), complex), "samples are numbers, got an array of complex128"),
        (np.zeros((0, 8, 8)), "there are no samples"),
    ],
)
def test_what_cannot_be_samples_is_explained(given, message):
    with pytest.raises(ValueError, match=message):
        as_raw(given)


def test_missing_numbers_are_found_in_any_block(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 4)
    x = table()
    check_finite(x)
    x[9, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        check_finite(x)


def test_the_fingerprint_is_of_the_numbers(mapped):
    x = table()
    assert fingerprint(x) == fingerprint(mapped(x)) != fingerprint(x + 1)
    assert fingerprint(x, np.arange(10)) != fingerprint(x, np.arange(10)[::-1])
