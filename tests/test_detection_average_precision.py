"""Average precision: VOC's, against going from detection to detection; COCO's, against its definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cissl.detection import average_precision as ap


def random_images(seed, images=4, classes=3, most=6):
    """Objects anywhere, and detections near some of them and elsewhere."""
    rng = np.random.default_rng(seed)
    found, truth = [], []
    for _ in range(images):
        m = rng.integers(0, most)
        low = rng.uniform(0, 0.6, (m, 2))
        objects = np.concatenate([low, low + rng.uniform(0.05, 0.4, (m, 2))], 1)
        of = rng.integers(0, classes, m)
        truth.append(ap.Truth(objects.astype(np.float32), of, rng.random(m) < 0.25))
        near = rng.integers(0, m, 2 * m) if m else np.zeros(0, int)
        boxes = [*(objects[near] + rng.normal(0, 0.03, (len(near), 4))), *rng.uniform(0, 1, (2, 4))]
        guessed = [*np.where(rng.random(len(near)) < 0.8, of[near], rng.integers(0, classes, len(near))), 0, 1]
        scores = rng.random(len(boxes)).astype(np.float32)
        found.append(ap.Found(np.array(boxes, np.float32), scores, np.array(guessed)))
    return found, truth


def iou(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    area = [max(x[2] - x[0], 0) * max(x[3] - x[1], 0) for x in (a, b)]
    return width * height / (sum(area) - width * height)


def slow_voc(found, truth, c, overlap, points):
    """As the challenge's own evaluation goes: through all detections by falling score."""
    objects = [
        {"box": box, "difficult": bool(hard), "image": i, "taken": False}
        for i, real in enumerate(truth)
        for box, of, hard in zip(real.boxes.tolist(), real.classes, real.difficult, strict=True)
        if of == c
    ]
    total = sum(not one["difficult"] for one in objects)
    guesses = [
        (-score, i, box)
        for i, image in enumerate(found)
        for box, score, of in zip(image.boxes.tolist(), image.scores.tolist(), image.classes, strict=True)
        if of == c
    ]
    right, wrong, curve = 0, 0, []
    for _, i, box in sorted(guesses):
        best, nearest = -1.0, None
        for one in objects:
            if one["image"] == i and iou(box, one["box"]) > best:
                best, nearest = iou(box, one["box"]), one
        if nearest is not None and best >= overlap:
            if nearest["difficult"]:
                continue
            hit, nearest["taken"] = not nearest["taken"], True
        else:
            hit = False
        right, wrong = right + hit, wrong + (not hit)
        curve.append((right, right / (right + wrong)))
    if total == 0:
        return math.nan
    if points == "11":
        return sum(max((p for r, p in curve if 10 * r >= t * total), default=0.0) for t in range(11)) / 11
    area = 0.0
    for at, (r, _) in enumerate(curve):
        before = curve[at - 1][0] if at else 0
        area += (r - before) / total * max(p for _, p in curve[at:])
    return area


@pytest.mark.parametrize("points", ["11", "all"])
@given(seed=st.integers(0, 10**6), overlap=st.sampled_from([0.3, 0.5, 0.7]))
def test_it_is_that_of_going_from_detection_to_detection(points, seed, overlap):
    found, truth = random_images(seed)
    expected = [slow_voc(found, truth, c, overlap, points) for c in range(4)]
    np.testing.assert_allclose(ap.average_precision(found, truth, 4, overlap, points), expected, atol=1e-12)


def scene(scores, hits, missed=0, difficult=()):
    """One image: a detection of each score, on an object of its own or on none; objects that nothing finds."""
    n = len(scores)
    boxes = np.array([[i, 0, i + 0.5, 1] for i in range(n + missed)], np.float32)
    there = [i for i, hit in enumerate(hits) if hit] + list(range(n, n + missed))
    hard = np.array([i in difficult for i in there], bool)
    real = ap.Truth(boxes[there], np.zeros(len(there), int), hard)
    return [ap.Found(boxes[:n], np.array(scores, np.float32), np.zeros(n, int))], [real]


def test_known_curves():
    found, truth = scene([0.9, 0.8, 0.7], [1, 1, 1])
    assert ap.average_precision(found, truth, 1)[0] == 1
    found, truth = scene([0.9, 0.8, 0.7], [0, 1, 1])
    assert ap.average_precision(found, truth, 1)[0] == pytest.approx(2 / 3)
    assert ap.average_precision(found, truth, 1, points="all")[0] == pytest.approx(2 / 3)
    found, truth = scene([0.9, 0.8], [1, 0], missed=1)
    assert ap.average_precision(found, truth, 1)[0] == pytest.approx(6 / 11)  # recalls 0 to 0.5
    assert ap.average_precision(found, truth, 1, points="all")[0] == pytest.approx(0.5)
    found, truth = scene([0.9, 0.8, 0.7], [1, 1, 1], missed=7)  # 0.3 in binary is more than 3 / 10
    assert ap.average_precision(found, truth, 1)[0] == pytest.approx(4 / 11)


def test_a_difficult_object_is_neither_missed_nor_found():
    plain = ap.average_precision(*scene([0.9, 0.7], [1, 0]), 1)
    found = scene([0.9, 0.8, 0.7], [1, 1, 0], difficult={1})
    assert ap.average_precision(*found, 1) == plain
    assert ap.average_precision(*scene([0.9], [1], missed=2, difficult={1, 2}), 1)[0] == 1
    only = scene([0.9], [1], difficult={0})
    assert np.isnan(ap.average_precision(*only, 1)[0])


def test_the_second_detection_of_an_object_is_a_false_alarm_and_one_at_the_limit_a_hit():
    box = np.array([[0.0, 0.0, 1.0, 1.0]])
    real = [ap.Truth(box, np.array([0]), np.array([False]))]
    twice = ap.Found(box.repeat(2, 0), np.array([0.5, 0.9]), np.array([0, 0]))
    assert ap.average_precision([twice], real, 1)[0] == 1
    limit = ap.Found(np.array([[0.0, 0.0, 0.5, 1.0]]), np.array([0.9]), np.array([0]))
    assert ap.average_precision([limit], real, 1, overlap=0.5)[0] == 1
    assert ap.average_precision([limit], real, 1, overlap=0.51)[0] == 0


def test_classes_without_objects_do_not_count_and_nothing_at_all_is_nan():
    found, truth = random_images(3)
    of_classes = ap.average_precision(found, truth, 5)
    assert np.isnan(of_classes[3:]).all()
    assert ap.mean_average_precision(of_classes) == pytest.approx(of_classes[:3].mean())
    assert math.isnan(ap.mean_average_precision(of_classes[3:]))
    assert np.isnan(ap.average_precision([], [], 2)).all()
    nothing = [ap.Found(np.zeros((0, 4)), np.zeros(0), np.zeros(0, int))] * len(truth)
    assert ap.average_precision(nothing, truth, 3).tolist() == [0, 0, 0]


def test_what_does_not_fit_is_said():
    found, truth = random_images(0)
    with pytest.raises(ValueError, match="of the same images, got 3 and 4"):
        ap.average_precision(found[:3], truth, 3)
    with pytest.raises(ValueError, match="'11' or 'all', got '12'"):
        ap.average_precision.__wrapped__(found, truth, 3, points="12")


# ---- COCO


def slow_coco(found, truth, sizes, c, overlap):
    """COCO's definition for one class, without crowds: precision at 101 recalls."""
    guesses, objects = [], 0
    for image, real, size in zip(found, truth, sizes, strict=True):
        scale = np.tile(size, 2)
        there = [(box * scale).tolist() for box, of in zip(real.boxes, real.classes, strict=True) if of == c]
        objects += len(there)
        free = set(range(len(there)))
        mine = [
            (-s, (b * scale).tolist())
            for b, s, of in zip(image.boxes, image.scores, image.classes, strict=True)
            if of == c
        ]
        for score, box in sorted(mine):
            best = max(free, key=lambda o: iou(box, there[o]), default=None)
            hit = best is not None and iou(box, there[best]) >= overlap
            free -= {best} if hit else set()
            guesses.append((score, hit))
    if objects == 0:
        return math.nan
    hits = np.cumsum([hit for _, hit in sorted(guesses, key=lambda guess: guess[0])])
    precision = hits / np.arange(1, len(hits) + 1)
    return np.mean([precision[hits / objects >= t].max(initial=0) for t in np.linspace(0, 1, 101)])


def test_cocos_average_precision_is_its_definition():
    pytest.importorskip("faster_coco_eval")
    found, truth = random_images(5, images=6)
    truth = [real._replace(difficult=np.zeros(len(real.boxes), bool)) for real in truth]
    # Boxes whose corners are exchanged are no detections in COCO's format.
    found = [ap.Found(*(part[(f.boxes[:, 2:] > f.boxes[:, :2]).all(1)] for part in f)) for f in found]
    sizes = [(500, 375), (333, 500), (640, 480)] * 2
    measured = ap.coco_average_precision(found, truth, sizes, 4)
    at = {t: [slow_coco(found, truth, sizes, c, t / 100) for c in range(3)] for t in range(50, 100, 5)}
    assert measured["ap50"] == pytest.approx(np.mean(at[50]), abs=1e-6)
    assert measured["ap75"] == pytest.approx(np.mean(at[75]), abs=1e-6)
    assert measured["ap"] == pytest.approx(np.mean(list(at.values())), abs=1e-6)
    assert 0 < measured["ap"] < measured["ap50"]


def test_cocos_sizes_are_in_pixels_and_difficult_objects_are_ignored(capfd):
    pytest.importorskip("faster_coco_eval")
    found, truth = scene([0.9], [1], missed=1, difficult={1})
    found, truth = ([image._replace(boxes=image.boxes / 5) for image in images] for images in (found, truth))
    assert ap.coco_average_precision(found, truth, [(100, 100)], 1)["ap_small"] == pytest.approx(1)  # 10 x 20 pixels
    large = ap.coco_average_precision(found, truth, [(2000, 1000)], 1)
    assert large["ap"] == large["ap_large"] == pytest.approx(1)
    assert math.isnan(large["ap_small"])
    nothing = [ap.Found(*(part[:0] for part in image)) for image in found]
    assert ap.coco_average_precision(nothing, truth, [(100, 100)], 1)["ap"] == 0
    assert "".join(capfd.readouterr()) == ""
