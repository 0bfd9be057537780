"""Preprocessing: equal to a slow float64 loop, learnt from training samples only, and kept whole or not at all."""

import numpy as np
import pytest

from cissl import preprocessing
from cissl.preprocessing import fit, gcn, prepare

RNG = np.random.default_rng(0)


def images(n=60, c=3, h=4, w=4):
    smooth = RNG.integers(0, 256, (n, c, 1, 1)) + RNG.normal(0, 30, (n, c, h, w)) + np.linspace(0, 60, w)
    return np.clip(smooth, 0, 255).astype(np.uint8)


def slow_gcn(x):
    out = np.zeros(x.shape)
    for i, image in enumerate(x.astype(np.float64)):
        centred = image - image.mean()
        length = np.sqrt((centred**2).sum())
        out[i] = centred if length < 1e-10 else 55 * centred / length
    return out


def slow_zca(train, x):
    flat, d = slow_gcn(train).reshape(len(train), -1), train[0].size
    mean = flat.mean(0)
    covariance = np.zeros((d, d))
    for row in flat:
        covariance += np.outer(row - mean, row - mean) / len(flat)
    values, vectors = np.linalg.eigh(covariance + 0.1 * np.eye(d))
    matrix = sum(np.outer(v, v) / np.sqrt(value) for value, v in zip(values, vectors.T, strict=True))
    return ((slow_gcn(x).reshape(len(x), -1) - mean) @ matrix).reshape(x.shape)


def test_gcn_equals_the_loop():
    x = images()
    out = gcn(x)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, slow_gcn(x), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(out.reshape(60, -1), axis=1), 55, rtol=1e-5)
    np.testing.assert_allclose(out.reshape(60, -1).mean(1), 0, atol=1e-5)


def test_gcn_leaves_an_empty_image_alone():
    x = np.full((2, 3, 4, 4), 77, np.uint8)
    x[1, 0, 0, 0] = 78
    out = gcn(x)
    assert np.all(out[0] == 0)
    assert np.linalg.norm(out[1]) == pytest.approx(55)


@pytest.mark.parametrize("block", [7, 2000])
def test_zca_equals_the_loop_whatever_the_block(monkeypatch, block):
    monkeypatch.setattr(preprocessing, "BLOCK", block)
    train, test = images(), images(n=9)
    out_train, out_test = prepare("gcn+zca", train, test)
    assert out_train.dtype == out_test.dtype == np.float32
    np.testing.assert_allclose(out_train, slow_zca(train, train), atol=2e-3)
    np.testing.assert_allclose(out_test, slow_zca(train, test), atol=2e-3)


def test_zca_whitens_what_varies_and_keeps_small_what_does_not():
    train = images(n=3000)
    out, _ = prepare("gcn+zca", train, train[:1])
    flat = out.reshape(len(out), -1).astype(float)
    np.testing.assert_allclose(flat.mean(0), 0, atol=1e-4)
    # Variance λ becomes λ / (λ + 0.1); GCN took one direction away, the mean: λ = 0 there.
    before = np.linalg.eigvalsh(np.cov(slow_gcn(train).reshape(len(train), -1).T, bias=True))
    after = np.linalg.eigvalsh(np.cov(flat.T, bias=True))
    np.testing.assert_allclose(after, before / (before + 0.1), atol=1e-3)
    assert after[0] == pytest.approx(0, abs=1e-3)
    assert after[1] > 0.9


def test_standardize_is_per_channel_of_images_and_per_feature_of_vectors(monkeypatch):
    monkeypatch.setattr(preprocessing, "BLOCK", 7)
    x = images()
    out, test = prepare("standardize", x, x[:5])
    np.testing.assert_allclose(out, (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True), atol=1e-4)
    np.testing.assert_array_equal(test, out[:5])
    vectors = np.stack([RNG.normal(5, 2, 50), np.full(50, 3.3), 1e4 + RNG.normal(0, 1e-1, 50)], 1).astype(np.float32)
    out, _ = prepare("standardize", vectors, vectors)
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-2)
    np.testing.assert_allclose(out.std(0), [1, 0, 1], atol=1e-3)
    # What never varied in training says nothing, whatever it is later.
    assert prepare("standardize", vectors, vectors[:1] + 1)[1][0, 1] == 0


def test_none_brings_pixels_to_one_and_leaves_other_numbers():
    x = images()
    out, _ = prepare("none", x, x)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, x / 255, atol=1e-7)
    vectors = RNG.normal(size=(5, 2)).astype(np.float32)
    np.testing.assert_array_equal(prepare("none", vectors, vectors)[0], vectors)


@pytest.mark.parametrize("name", ["none", "standardize", "gcn+zca"])
def test_the_input_is_left_alone_and_an_empty_test_set_stays_empty(name):
    train = images()
    before = train.copy()
    _, test = prepare(name, train, train[:0])
    np.testing.assert_array_equal(train, before)
    assert test.shape == (0, 3, 4, 4)


def test_zca_is_fitted_once_for_the_same_images(tmp_path, monkeypatch):
    train = images()
    first, _ = prepare("gcn+zca", train, train, tmp_path / "cache")
    (kept,) = (tmp_path / "cache").iterdir()
    assert kept.suffix == ".npz"
    with monkeypatch.context() as patched:
        patched.setattr(preprocessing, "gcn_zca", lambda x: pytest.fail("fitted again"))
        np.testing.assert_array_equal(prepare("gcn+zca", train, train, tmp_path / "cache")[0], first)
    changed = train.copy()
    changed[0, 0, 0, 0] ^= 1
    prepare("gcn+zca", changed, changed, tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 2


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:3000] + b"x" * 9 + b[3009:]]
)
def test_a_damaged_kept_matrix_is_fitted_anew(tmp_path, damage):
    train = images()
    first, _ = prepare("gcn+zca", train, train, tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    np.testing.assert_array_equal(prepare("gcn+zca", train, train, tmp_path)[0], first)
    assert len(kept.read_bytes()) == len(whole)


def test_a_full_disk_leaves_nothing_half_written_and_the_run_goes_on(tmp_path, monkeypatch):
    def full(stream, **arrays):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    train = images()
    with pytest.warns(UserWarning, match="cannot be kept for the next run .*No space left"):
        out, _ = prepare("gcn+zca", train, train, tmp_path)
    np.testing.assert_allclose(out, slow_zca(train, train), atol=2e-3)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_done_is_said():
    with pytest.raises(ValueError, match="unknown preprocessing 'zca': did you mean 'gcn\\+zca'"):
        fit("zca", images())
    with pytest.raises(ValueError, match=r"gcn\+zca is for images .* got samples of shape \(2,\): use standardize"):
        fit("gcn+zca", np.zeros((5, 2), np.float32))
    with pytest.raises(ValueError, match=r"needs training samples \(n, …\), got an array of shape \(0, 3, 4, 4\)"):
        fit("none", images(n=0))
