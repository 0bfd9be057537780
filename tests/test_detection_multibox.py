"""Matching, hard negatives and the MultiBox loss, against slow loops."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cissl.detection import boxes, multibox, priors, ssd

PRIORS = priors.priors(ssd.small_maps(96))
SOME = PRIORS[torch.arange(0, len(PRIORS), 7)].double()


def objects(n, m, seed=0, absent=0.3):
    """Boxes and classes of n images, up to m in each; -1 is padding."""
    generator = torch.Generator().manual_seed(seed)
    centre = 0.2 + 0.6 * torch.rand(n, m, 2, generator=generator, dtype=torch.float64)
    sides = 0.05 + 0.35 * torch.rand(n, m, 2, generator=generator, dtype=torch.float64)
    classes = torch.randint(0, 3, (n, m), generator=generator)
    classes[torch.rand(n, m, generator=generator) < absent] = -1
    return boxes.to_corners(torch.cat([centre, sides], 2)), classes


def slow_match(real, classes, made, threshold):
    """One image: for each prior the number of its object, or None."""
    overlaps = boxes.iou(real, boxes.to_corners(made)).tolist()
    owners = []
    for p in range(len(made)):
        reached = [(overlaps[o][p], -o) for o in range(len(real)) if classes[o] >= 0 and overlaps[o][p] >= threshold]
        owners.append(-max(reached)[1] if reached else None)
    claims = {}
    for o in range(len(real)):
        best = max(overlaps[o])
        if classes[o] >= 0 and best > 0:
            claims.setdefault(overlaps[o].index(best), []).append((best, -o))
    for p, claimants in claims.items():
        owners[p] = -max(claimants)[1]
    return owners


@given(seed=st.integers(0, 10**6), threshold=st.sampled_from([0.3, 0.5, 0.7]))
def test_matching_is_that_of_a_slow_loop(seed, threshold):
    real, classes = objects(2, 4, seed)
    offsets, targets = multibox.match(real, classes, SOME, threshold)
    for n in range(2):
        owners = slow_match(real[n], classes[n], SOME, threshold)
        assert targets[n].tolist() == [0 if o is None else int(classes[n, o]) + 1 for o in owners]
        mine = [p for p, o in enumerate(owners) if o is not None]
        wanted = boxes.encode(real[n][[owners[p] for p in mine]], SOME[mine])
        torch.testing.assert_close(offsets[n][mine], wanted)


def test_every_object_claims_a_prior_however_little_they_overlap():
    tiny = torch.tensor([[[0.501, 0.502, 0.503, 0.504], [0.0, 0.0, 0.004, 1.0]]])
    _, targets = multibox.match(tiny, torch.tensor([[0, 2]]), PRIORS)
    assert boxes.iou(tiny[0], boxes.to_corners(PRIORS)).max() < 0.5
    assert sorted(targets[targets > 0].tolist()) == [1, 3]


def test_of_two_claims_on_one_prior_the_larger_overlap_wins_in_any_order():
    made = torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.1, 0.1, 0.05, 0.05]])
    near, far = [0.3, 0.3, 0.7, 0.7], [0.3, 0.3, 0.7, 0.6]
    for order, expected in (([near, far], 1), ([far, near], 2)):
        _, targets = multibox.match(torch.tensor([order]), torch.tensor([[0, 1]]), made)
        assert targets.tolist() == [[expected, 0]]


def test_nothing_to_match_is_background_everywhere():
    nowhere = torch.full((1, 2), -1)
    for real, classes in (
        (torch.zeros(1, 0, 4), torch.zeros(1, 0, dtype=torch.long)),
        (torch.zeros(1, 2, 4), nowhere),
        (torch.tensor([[[0.2, 0.2, 0.6, 0.6]] * 2]), nowhere),
        (torch.tensor([[[0.3, 0.3, 0.3, 0.3], [0.2, 0.4, 0.9, 0.4]]]), nowhere + 2),  # without area
    ):
        offsets, targets = multibox.match(real, classes, PRIORS)
        assert targets.eq(0).all()
        assert offsets.isfinite().all()
        assert offsets.shape == (1, len(PRIORS), 4)


def test_hard_negatives_are_the_largest_losses_three_for_each_positive_of_the_image():
    loss = torch.tensor([[9.0, 1, 8, 3, 7, 2], [1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 1, 1]])
    positive = torch.tensor([[1, 0, 0, 0, 0, 0], [0] * 6, [0, 0, 1, 0, 0, 0]], dtype=torch.bool)
    chosen = multibox.hard_negatives(loss, positive)
    assert chosen.int().tolist() == [[0, 0, 1, 1, 1, 0], [0] * 6, [1, 1, 0, 1, 0, 0]]
    assert multibox.hard_negatives(loss, positive, ratio=1).sum(1).tolist() == [1, 0, 1]
    most = torch.tensor([[True, True, True, True, False, False]])
    assert multibox.hard_negatives(loss[:1], most).int().tolist() == [[0, 0, 0, 0, 1, 1]]


def slow_loss(logits, offsets, classes, wanted, labeled):
    """The two terms, number by number."""
    localisation = classification = positives = 0.0
    for n in range(len(logits)):
        if not labeled[n]:
            continue
        losses = []
        for p in range(logits.shape[1]):
            row = logits[n, p].tolist()
            losses.append(math.log(sum(math.exp(x) for x in row)) - row[classes[n, p]])
        mine = [p for p in range(logits.shape[1]) if classes[n, p] > 0]
        others = sorted((p for p in range(logits.shape[1]) if p not in mine), key=lambda p: -losses[p])
        classification += sum(losses[p] for p in mine + others[: 3 * len(mine)])
        for p in mine:
            for said, right in zip(offsets[n, p].tolist(), wanted[n, p].tolist(), strict=True):
                off = abs(said - right)
                localisation += off**2 / 2 if off < 1 else off - 0.5
        positives += len(mine)
    return localisation / max(positives, 1), classification / max(positives, 1)


@given(seed=st.integers(0, 10**6), labeled=st.lists(st.booleans(), min_size=3, max_size=3))
def test_the_loss_is_that_of_a_slow_loop(seed, labeled):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 12, 4, generator=generator, dtype=torch.float64)
    offsets, wanted = 2 * torch.randn(2, 3, 12, 4, generator=generator, dtype=torch.float64)
    classes = torch.randint(-6, 4, (3, 12), generator=generator).clamp(min=0)
    losses = multibox.multibox_loss(logits, offsets, classes, wanted, torch.tensor(labeled))
    slow = slow_loss(logits, offsets, classes, wanted, labeled)
    assert [losses["localisation"].item(), losses["classification"].item()] == pytest.approx(slow, abs=1e-12)


def test_unlabeled_images_and_images_without_objects_teach_nothing_and_nothing_is_nan():
    real, classes = objects(2, 3, absent=0.0)
    wanted, targets = multibox.match(real.float(), classes, PRIORS)
    logits = torch.zeros(2, len(PRIORS), 4, requires_grad=True)
    offsets = torch.zeros(2, len(PRIORS), 4, requires_grad=True)
    losses = multibox.multibox_loss(logits, offsets, targets, wanted, torch.tensor([True, False]))
    sum(losses.values()).backward()
    for gradient in (logits.grad, offsets.grad):
        assert gradient[0].abs().sum() > 0
        assert gradient[1].eq(0).all()
    for labeled, classes_of in (([False, False], targets), ([True, True], torch.zeros_like(targets))):
        losses = multibox.multibox_loss(logits, offsets, classes_of, wanted, torch.tensor(labeled))
        assert [loss.item() for loss in losses.values()] == [0, 0]
