"""Boxes: both forms, overlaps, offsets, mirrors; boxes without area."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from cissl.detection import boxes


def random_boxes(n, seed=0, least=0.02):
    generator = torch.Generator().manual_seed(seed)
    low, sides = torch.rand(2, n, 2, generator=generator, dtype=torch.float64)
    return torch.cat([low, low + least + sides], 1)


def slow_iou(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    both = width * height
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def test_both_forms_of_a_box():
    corners = torch.tensor([[0.2, 0.1, 0.4, 0.5]])
    torch.testing.assert_close(boxes.to_centres(corners), torch.tensor([[0.3, 0.3, 0.2, 0.4]]))
    many = random_boxes(20)
    torch.testing.assert_close(boxes.to_corners(boxes.to_centres(many)), many)


@given(seed=st.integers(0, 10**6))
def test_overlaps_are_those_of_a_slow_loop(seed):
    a, b = random_boxes(5, seed), random_boxes(4, seed + 1)
    slow = torch.tensor([[slow_iou(x, y) for y in b.tolist()] for x in a.tolist()], dtype=torch.float64)
    torch.testing.assert_close(boxes.iou(a, b), slow, rtol=1e-12, atol=1e-12)


def test_overlaps_of_known_boxes():
    box = torch.tensor([[0.0, 0.0, 0.5, 0.5]])
    others = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.25, 0.0, 0.75, 0.5], [0.5, 0.0, 1.0, 0.5], [0.0, 0.0, 1.0, 1.0]])
    torch.testing.assert_close(boxes.iou(box, others), torch.tensor([[1.0, 1 / 3, 0.0, 0.25]]))


def test_groups_of_boxes_overlap_in_their_group_or_with_those_of_all():
    groups, own = random_boxes(12).view(3, 4, 4), random_boxes(6, 1).view(3, 2, 4)
    for n in range(3):
        assert boxes.iou(groups, own)[n].equal(boxes.iou(groups[n], own[n]))
        assert boxes.iou(groups, own[0])[n].equal(boxes.iou(groups[n], own[0]))


@given(seed=st.integers(0, 10**6))
def test_decoding_undoes_encoding(seed):
    wanted, priors = random_boxes(6, seed), boxes.to_centres(random_boxes(6, seed + 1))
    torch.testing.assert_close(boxes.decode(boxes.encode(wanted, priors), priors), wanted)


def test_offsets_by_hand():
    prior = torch.tensor([[0.5, 0.5, 0.2, 0.4]])
    assert boxes.encode(boxes.to_corners(prior), prior).abs().max() < 1e-5
    box = boxes.to_corners(torch.tensor([[0.52, 0.46, 0.2 * 2.718281828, 0.4]]))
    torch.testing.assert_close(boxes.encode(box, prior), torch.tensor([[1.0, -1.0, 5.0, 0.0]]), atol=1e-5, rtol=1e-5)


def test_a_mirrored_box_is_on_the_other_side():
    torch.testing.assert_close(boxes.flip(torch.tensor([[0.1, 0.2, 0.4, 0.9]])), torch.tensor([[0.6, 0.2, 0.9, 0.9]]))
    many = random_boxes(20)
    torch.testing.assert_close(boxes.flip(boxes.flip(many)), many)
    torch.testing.assert_close(boxes.iou(boxes.flip(many), boxes.flip(many)), boxes.iou(many, many))


def test_a_box_without_area_overlaps_nothing_and_everything_about_it_is_finite():
    point, line = [0.3, 0.3, 0.3, 0.3], [0.2, 0.1, 0.2, 0.9]
    empty = torch.tensor([point, line, [0.0, 0.0, 0.0, 0.0]], requires_grad=True)
    priors = boxes.to_centres(random_boxes(3)).float()
    overlaps = boxes.iou(empty, torch.cat([empty, boxes.to_corners(priors)]))
    offsets = boxes.encode(empty, priors)
    assert overlaps.eq(0).all()
    assert offsets.isfinite().all()
    (overlaps.sum() + offsets.sum()).backward()
    assert empty.grad.isfinite().all()
    torch.testing.assert_close(boxes.decode(offsets, priors), empty, atol=1e-4, rtol=0)
    assert boxes.area(torch.tensor([[0.5, 0.5, 0.1, 0.1]])).item() == 0  # corners exchanged
