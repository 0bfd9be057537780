"""Views: every sample has its own draw, and the batch equals what a loop over its samples would make."""

import numpy as np
import pytest
import torch

from cissl.views import Views, crop, flip, gaussian_noise

CIFAR = Views(flip=True, crop=2, noise=0.15)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=64, c=3, h=8, w=8, dtype=torch.float32):
    return torch.randn(n, c, h, w, generator=seeded(123), dtype=dtype)


@pytest.mark.parametrize(("h", "w", "padding"), [(8, 8, 2), (5, 9, 3), (6, 4, 1), (3, 3, 2)])
def test_a_crop_is_pad_and_cut_of_each_image(h, w, padding):
    x = images(h=h, w=w)
    out = crop(padding)(x, seeded(7))
    shift = torch.randint(-padding, padding + 1, (2, len(x), 1), generator=seeded(7))
    for i in range(len(x)):
        pads = ((0, 0), (padding, padding), (padding, padding))
        padded = np.pad(x[i].numpy(), pads, mode="reflect")
        top, left = padding + int(shift[0, i, 0]), padding + int(shift[1, i, 0])
        np.testing.assert_array_equal(out[i].numpy(), padded[:, top : top + h, left : left + w])


def test_crops_reach_every_place_equally_often_and_differ_between_samples():
    x = torch.arange(64.0).view(1, 1, 8, 8).expand(5000, 1, 8, 8)
    out = crop(2)(x, seeded())
    # The pixel at (3, 3) tells the shift of its image: 25 of them.
    values, counts = out[:, 0, 3, 3].unique(return_counts=True)
    assert values.tolist() == [8.0 * (3 + dy) + 3 + dx for dy in range(-2, 3) for dx in range(-2, 3)]
    assert counts.min() > 140
    assert counts.max() < 260


def test_a_flip_mirrors_half_of_the_images_each_on_its_own():
    x = images(n=4000, c=1, h=2, w=3)
    out = flip(x, seeded())
    mirrored = (out == x.flip(3)).flatten(1).all(1)
    same = (out == x).flatten(1).all(1)
    assert (mirrored ^ same).all()
    assert 0.47 < mirrored.double().mean() < 0.53
    # No two samples always share their draw.
    draws = torch.stack([(flip(x[:6], seeded(s)) != x[:6]).flatten(1).any(1) for s in range(60)])
    for i in range(6):
        for j in range(i):
            assert 10 < (draws[:, i] == draws[:, j]).sum() < 50


def test_noise_has_its_deviation_and_is_independent_everywhere():
    x = images(n=500)
    noise = gaussian_noise(0.15)(x, seeded()) - x
    assert noise.std().item() == pytest.approx(0.15, rel=0.01)
    assert abs(noise.mean().item()) < 0.001
    per_sample = noise.flatten(1)
    correlation = (per_sample / per_sample.norm(dim=1, keepdim=True)) @ (per_sample / per_sample.norm(dim=1)[:, None]).T
    assert correlation.fill_diagonal_(0).abs().max() < 0.5


def test_views_are_flip_then_crop_then_noise():
    x = images()
    g = seeded(3)
    torch.testing.assert_close(CIFAR(x, seeded(3)), gaussian_noise(0.15)(crop(2)(flip(x, g), g), g))
    assert torch.equal(Views()(x, seeded()), x)
    assert torch.equal(Views(crop=2)(x, seeded(1)), crop(2)(x, seeded(1)))


def test_a_view_is_a_function_of_its_generator_and_leaves_its_input_alone():
    x = images()
    before, state = x.clone(), torch.get_rng_state()
    assert torch.equal(CIFAR(x, seeded(1)), CIFAR(x, seeded(1)))
    assert not torch.equal(CIFAR(x, seeded(1)), CIFAR(x, seeded(2)))
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_memory_layout_changes_nothing():
    x = images()
    assert torch.equal(CIFAR(x.contiguous(memory_format=torch.channels_last), seeded(1)), CIFAR(x, seeded(1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_kind_and_device_are_kept(dtype):
    out = CIFAR(images(dtype=dtype), seeded())
    assert out.dtype == dtype
    assert out.device == torch.device("cpu")
    assert out.shape == (64, 3, 8, 8)


def test_vectors_of_many_runs_at_once_take_noise():
    x = torch.zeros(5 * 100, 2)
    out = Views(noise=0.15)(x, seeded())
    assert out.std().item() == pytest.approx(0.15, rel=0.1)
    assert out.view(5, 100, 2)[0].ne(out.view(5, 100, 2)[1]).all()


def test_what_cannot_be_done_is_said():
    with pytest.raises(ValueError, match=r"for images \(n, c, h, w\), got a batch of shape \(6, 2\)"):
        CIFAR(torch.zeros(6, 2), seeded())
    with pytest.raises(ValueError, match="less than the image's size: 3 x 8, padding 3"):
        crop(3)(images(h=3), seeded())
    with pytest.raises(ValueError, match="has to be >= 0, got -1"):
        Views(crop=-1)
    with pytest.raises(ValueError, match="has to be >= 0, got nan"):
        gaussian_noise(float("nan"))
