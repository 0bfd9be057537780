"""Augmentation: what is painted at a box is found at the box that comes out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cissl.detection import augment

seeds = st.integers(0, 2**32)
FULL = np.array([0.0, 0.0, 1.0, 1.0])


def painted(generator):
    """A black image with a red rectangle, and the rectangle's box."""
    height, width = generator.integers(40, 120, 2)
    y0, x0 = generator.integers(0, height - height // 3), generator.integers(0, width - width // 3)
    y1, x1 = generator.integers(y0 + height // 3, height + 1), generator.integers(x0 + width // 3, width + 1)
    image = np.zeros((height, width, 3), np.uint8)
    image[y0:y1, x0:x1, 0] = 255
    box = np.array([[x0 / width, y0 / height, x1 / width, y1 / height]], np.float32)
    return augment.Sample(image, box, np.array([4]))


def where_it_is_red(view):
    red = view[..., 0] > 127  # black is 0, what is beside the image 123
    columns, rows = np.flatnonzero(red.any(0)), np.flatnonzero(red.any(1))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])


@given(seed=seeds, size=st.sampled_from([96, 97]))
def test_an_object_is_where_its_box_says(seed, size):
    generator = np.random.default_rng(seed)
    sample = painted(generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augment, "distort", lambda image, generator: image)
        view, boxes, classes = augment.augment(sample, size, generator)
    assert view.shape == (size, size, 3)
    assert boxes.dtype == np.float32
    assert len(boxes) == len(classes) == 1  # a crop has the centre of an object in it, and there is one
    assert classes[0] == 4
    # A pixel at the image's border may be filled, another be divided between the object and its surroundings.
    assert np.abs(where_it_is_red(view) - boxes[0] * size).max() < 1.6


@given(seed=seeds)
def test_every_object_that_stays_keeps_its_class(seed):
    image = np.zeros((80, 80, 3), np.uint8)
    places = [(0, 0), (0, 50), (50, 0)]
    for colour, (y, x) in enumerate(places):
        image[y : y + 30, x : x + 30, colour] = 255
    corners = np.array([[x, y, x + 30, y + 30] for y, x in places], np.float32) / 80
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augment, "distort", lambda image, generator: image)
        sample = augment.Sample(image, corners, np.arange(3))
        view, boxes, classes = augment.augment(sample, 96, np.random.default_rng(seed))
    assert len(boxes) == len(classes) > 0
    for (x0, y0, x1, y1), of in zip(boxes * 96, classes, strict=True):
        assert view[int((y0 + y1) / 2), int((x0 + x1) / 2)].argmax() == of


@given(seed=seeds)
def test_nothing_given_is_changed_and_the_same_draws_give_the_same_view(seed):
    sample = painted(np.random.default_rng(seed))
    before = [part.copy() for part in sample]
    for part in sample:
        part.flags.writeable = False
    first, second = (augment.augment(sample, 96, np.random.default_rng(seed)) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert all((a == b).all() for a, b in zip(sample, before, strict=True))
    assert first.image.dtype == np.uint8


def test_views_differ_and_are_mirrored_every_second_time():
    sample = painted(np.random.default_rng(0))
    views = [augment.augment(sample, 32, np.random.default_rng(seed)) for seed in range(40)]
    assert len({view.image.tobytes() for view in views}) == 40
    image = np.zeros((50, 50, 3), np.uint8)
    image[:, :25] = 255  # light at the left; the centre of its box is in every view
    sample = augment.Sample(image, np.array([[0, 0, 0.5, 1]], np.float32), np.array([0]))
    left = 0
    for seed in range(200):
        view, boxes, _ = augment.augment(sample, 32, np.random.default_rng(seed))
        half = view[:, :16].mean() - view[:, 16:].mean()
        left += boxes[0, 0] < 1 - boxes[0, 2] if half else 0.5
    assert 60 < left < 140


def test_boxes_are_mirrored():
    boxes = np.array([[0.1, 0.2, 0.4, 0.9]], np.float32)
    np.testing.assert_allclose(augment.mirror(boxes), [[0.6, 0.2, 0.9, 0.9]], rtol=1e-6)


def test_expansion_keeps_shape_and_image_and_happens_every_second_time():
    windows = np.array([augment.expansion(np.random.default_rng(seed)) for seed in range(400)])
    assert 150 < (windows == FULL).all(1).sum() < 250
    sides = windows[:, 2:] - windows[:, :2]
    np.testing.assert_allclose(sides[:, 0], sides[:, 1])
    assert sides.min() == 1
    assert 3.8 < sides.max() <= 4
    assert (windows[:, :2] <= 0).all()
    assert (windows[:, 2:] >= 1 - 1e-9).all()


def slow_iou(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


@given(seed=seeds, least=st.sampled_from(augment.LEAST_OVERLAPS), aspect=st.floats(0.5, 2))
def test_a_crop_is_in_the_window_and_holds_an_object(seed, least, aspect):
    generator = np.random.default_rng(seed)
    low = generator.uniform(0, 0.6, (3, 2))
    boxes = np.concatenate([low, low + generator.uniform(0.1, 0.4, (3, 2))], 1).astype(np.float32)
    window = np.array([-0.4, -1.0, 1.1, 1.0]) if seed % 2 else FULL
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augment, "LEAST_OVERLAPS", (least,))
        crop = augment.crop(window, boxes, aspect, generator)
    if least is None or (crop == window).all():
        assert least is None or least >= 0.5 or seed % 2, "low overlaps are found"
        return
    assert (window[:2] <= crop[:2]).all()
    assert (crop[2:] <= window[2:] + 1e-9).all()
    fractions = (crop[2:] - crop[:2]) / (window[2:] - window[:2])
    assert fractions.min() >= 0.3
    assert 0.5 <= aspect * fractions[0] / fractions[1] <= 2
    assert max(slow_iou(crop, box) for box in boxes.tolist()) >= least - 1e-6
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    assert ((crop[:2] <= centres) & (centres <= crop[2:])).all(1).any()


def test_every_kind_of_crop_is_drawn():
    box = np.array([[0.1, 0.1, 0.9, 0.9]], np.float32)
    crops = np.array([augment.crop(FULL, box, 1.0, np.random.default_rng(seed)) for seed in range(300)])
    overlaps = np.array([slow_iou(crop, box[0]) for crop in crops])
    assert 20 < (crops == FULL).all(1).sum() < 120
    assert overlaps.min() < 0.3
    assert (overlaps > 0.9).any()


def test_boxes_are_cut_at_the_window_and_left_out_where_their_centre_is():
    boxes = np.array([[0.0, 0.0, 0.6, 0.4], [0.6, 0.6, 1.0, 1.0], [0.5, 0.1, 0.5, 0.1]], np.float32)
    inside, numbers = augment.within(boxes, np.array([0.2, 0.0, 0.7, 0.5]))
    np.testing.assert_allclose(inside, [[0, 0, 0.8, 0.8], [0.6, 0.2, 0.6, 0.2]], atol=1e-6)
    assert numbers.tolist() == [0, 2]


@given(seed=seeds)
def test_an_image_without_objects_shows_itself_in_every_view(seed):
    image = np.full((50, 80, 3), 250, np.uint8)
    nothing = augment.Sample(image, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augment, "distort", lambda image, generator: image)
        view, boxes, classes = augment.augment(nothing, 96, np.random.default_rng(seed))
    assert boxes.shape == (0, 4)
    assert len(classes) == 0
    assert (view == 250).all(2).any()


def test_objects_without_area_stay_finite():
    boxes = np.array([[0.3, 0.3, 0.3, 0.3], [0.0, 0.5, 1.0, 0.5]], np.float32)
    sample = augment.Sample(np.zeros((30, 30, 3), np.uint8), boxes, np.array([0, 1]))
    for seed in range(20):
        assert np.isfinite(augment.augment(sample, 32, np.random.default_rng(seed)).boxes).all()


def test_a_window_beside_the_image_is_filled_and_nothing_is_stretched():
    image = np.full((20, 20, 3), 7, np.uint8)
    assert (augment.render(image, np.array([2.0, 2.0, 3.0, 3.0]), 8) == augment.MEAN).all()
    view = augment.render(image, np.array([-1.0, -0.5, 1.0, 1.5]), 8)
    seen = (view == 7).all(2)
    assert seen[2:6, 4:].all()
    assert seen.sum() == 16
    ramp = np.repeat(np.arange(64, dtype=np.uint8)[:, None, None] * 4, 64, 1).repeat(3, 2)
    half = augment.render(ramp, np.array([0.0, 0.25, 1.0, 0.75]), 32)
    np.testing.assert_allclose(half[:, 0, 0], ramp[16:48, 0, 0], atol=1)
    np.testing.assert_allclose(augment.resize(ramp, 64), ramp)


def test_distortions_stay_in_their_ranges():
    grey = np.full((4, 4, 3), 100, np.uint8)
    seen = np.array([augment.distort(grey, np.random.default_rng(seed)).mean() for seed in range(300)])
    assert (seen == 100).any()
    assert seen.min() >= round((100 - 32) * 0.5) - 1
    assert seen.max() <= round((100 + 32) * 1.5) + 1
    assert seen.min() < 60
    assert seen.max() > 150
    red = np.zeros((2, 2, 3), np.uint8)
    red[..., 0] = 200
    colours = np.array([augment.distort(red, np.random.default_rng(seed))[0, 0] for seed in range(300)]).astype(int)
    assert (colours[:, 0] >= colours[:, 1:].max(1)).all()  # by 18 degrees it stays red
    assert (colours[:, 1] > colours[:, 2] + 10).any()  # towards yellow
    assert (colours[:, 2] > colours[:, 1] + 10).any()  # and towards violet, around the circle


@pytest.mark.parametrize("level", [0, 255])
def test_an_image_of_one_colour_is_no_trouble(level):
    sample = augment.Sample(np.full((8, 8, 3), level, np.uint8), np.array([[0, 0, 1, 1]], np.float32), np.array([0]))
    for seed in range(20):
        assert augment.augment(sample, 16, np.random.default_rng(seed)).image.shape == (16, 16, 3)
