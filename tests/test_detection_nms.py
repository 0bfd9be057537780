"""NMS and detections, against going from box to box."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cissl.detection import boxes, nms, priors, ssd


def crowd(n, seed):
    """Boxes in a heap, so that many overlap."""
    generator = torch.Generator().manual_seed(seed)
    centre = 0.4 + 0.2 * torch.rand(n, 2, generator=generator)
    sides = 0.1 + 0.2 * torch.rand(n, 2, generator=generator)
    return boxes.to_corners(torch.cat([centre, sides], 1)), torch.rand(n, generator=generator)


def greedy(corners, scores, overlap):
    """From the highest score to the lowest, each against those that were kept."""
    kept = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        if all(boxes.iou(corners[i : i + 1], corners[j : j + 1]).item() <= overlap for j in kept):
            kept.append(i)
    return kept


@given(seed=st.integers(0, 10**6), n=st.integers(0, 20), overlap=st.sampled_from([0.2, 0.45, 0.7]))
def test_the_boxes_kept_are_those_of_going_from_box_to_box(seed, n, overlap):
    corners, scores = crowd(n, seed)
    assert nms.nms(corners, scores, overlap).tolist() == greedy(corners, scores.tolist(), overlap)


def test_a_row_of_boxes_that_drop_one_another_is_followed_to_its_end():
    left = 0.01 * torch.arange(40)
    corners = torch.stack([left, torch.zeros(40), left + 0.02, torch.ones(40)], 1)
    assert nms.nms(corners, 1 - left, overlap=0.3).tolist() == list(range(0, 40, 2))
    assert nms.batched_nms(corners.expand(3, -1, -1), 0.3).int().tolist() == [[1, 0] * 20] * 3


def test_groups_know_nothing_of_each_other_and_twins_lose_to_the_first():
    twins = torch.tensor([[0.1, 0.1, 0.5, 0.5]] * 3)
    apart = torch.tensor([[0.1, 0.1, 0.2, 0.2], [0.3, 0.3, 0.4, 0.4], [0.1, 0.1, 0.2, 0.2]])
    kept = nms.batched_nms(torch.stack([twins, apart]))
    assert kept.tolist() == [[True, False, False], [True, True, False]]
    half = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.5, 1.0]])
    assert nms.batched_nms(half, overlap=0.5).all()  # no more than that
    assert nms.batched_nms(half, overlap=0.49).tolist() == [True, False]
    empty = torch.tensor([[0.3, 0.3, 0.3, 0.3]] * 3)
    assert nms.batched_nms(empty).all()


PRIORS = priors.priors(ssd.small_maps(96))


def outputs(images, classes, seed, p=850):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(images, p, classes + 1, generator=generator)
    return logits, torch.randn(images, p, 4, generator=generator)


def slow(logits, offsets, made, score, overlap, per_class, per_image):
    """One image."""
    corners = boxes.decode(offsets, made).clamp(0, 1)
    likely, found = logits.softmax(1), []
    for c in range(logits.shape[1] - 1):
        best = sorted(range(len(made)), key=lambda i: -likely[i, c + 1].item())[:per_class]
        best = [i for i in best if likely[i, c + 1] > score]
        kept = greedy(corners[best], likely[best, c + 1].tolist(), overlap)
        found += [(likely[best[k], c + 1].item(), c, corners[best[k]].tolist()) for k in kept]
    return sorted(found, reverse=True)[:per_image]


@pytest.mark.parametrize("settings", [(0.01, 0.45, 12, 15), (0.6, 0.3, 200, 200), (0.9, 0.7, 5, 3)])
def test_detections_are_those_of_a_slow_loop(settings):
    some = PRIORS[::20]
    logits, offsets = outputs(2, 3, 0, len(some))
    for n, found in enumerate(nms.detections(logits, offsets, some, *settings)):
        expected = slow(logits[n], offsets[n], some, *settings)
        assert len(found.scores) == len(expected) > 0
        assert found.classes.tolist() == [c for _, c, _ in expected]
        torch.testing.assert_close(found.scores, torch.tensor([s for s, _, _ in expected]))
        torch.testing.assert_close(found.boxes, torch.tensor([b for _, _, b in expected]))


def test_detections_are_inside_the_image_by_falling_score_and_as_many_as_asked_for():
    logits, offsets = outputs(2, 20, 1)
    for found in nms.detections(logits, 10 * offsets, PRIORS):
        assert len(found.boxes) == len(found.scores) == len(found.classes) == 200
        assert found.boxes.min() >= 0
        assert found.boxes.max() <= 1
        assert found.scores.equal(found.scores.sort(descending=True).values)
        assert set(found.classes.tolist()) <= set(range(20))


def test_nothing_found_is_an_empty_table_and_images_differ_in_number():
    logits, offsets = outputs(3, 2, 0)
    logits[0] = torch.tensor([20.0, 0, 0])
    logits[1, 1:] = torch.tensor([20.0, 0, 0])
    logits[1, 0] = torch.tensor([0.0, 0, 20])
    nothing, one, many = nms.detections(logits, offsets, PRIORS)
    assert nothing.boxes.shape == (0, 4)
    assert len(nothing.scores) == len(nothing.classes) == 0
    assert one.classes.tolist() == [1]
    assert len(many.scores) > 1
    alone = nms.detections(logits[2:], offsets[2:], PRIORS)[0]
    assert alone.boxes.equal(many.boxes)
    assert nms.detections(logits[:0], offsets[:0], PRIORS) == []


def test_a_network_that_predicts_no_numbers_finds_nothing():
    logits, offsets = outputs(1, 2, 0)
    assert len(nms.detections(torch.full_like(logits, torch.nan), offsets, PRIORS)[0].scores) == 0
    huge = nms.detections(logits, offsets * 1e4, PRIORS)[0]
    assert huge.boxes.isfinite().all()
