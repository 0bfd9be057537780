"""CSD and its suppression: the formula, the mirror, and images or priors that say nothing."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cissl.detection import multibox, ssd
from cissl.detection.consistency import consistency, csd_weight, mirrored_back
from cissl.losses import suppression_weights


def outputs(seed, n=2, p=9, k=4):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(n, p, last, generator=generator, dtype=torch.float64) for last in (k, 4, k, 4)]
    return [tensor.requires_grad_() for tensor in made]


def slow(logits, offsets, mirrored, mirrored_offsets, weights):
    """Number by number, of the mirrored image's outputs as the network gave them at each prior's partner."""
    classification = localisation = kept = 0
    for n in range(len(logits)):
        for i in range(logits.shape[1]):
            a, b = logits[n, i].tolist(), mirrored[n, i].tolist()
            if max(a[1:]) <= a[0]:
                continue
            p, q = ([math.exp(x) / sum(map(math.exp, row)) + 1e-7 for x in row] for row in (a, b))
            there = sum(x * math.log(x / y) for x, y in zip(p, q, strict=True))
            back = sum(y * math.log(y / x) for x, y in zip(p, q, strict=True))
            classification += weights[max(range(len(a) - 1), key=lambda c: a[c + 1])] * (there + back) / 2
            x, y, w, h = (offsets[n, i] - mirrored_offsets[n, i] * torch.tensor([-1, 1, 1, 1])).tolist()
            localisation += (x**2 + y**2 + w**2 + h**2) / 4
            kept += 1
    return classification / max(kept, 1), localisation / max(kept, 1)


@given(seed=st.integers(0, 10**6), counts=st.lists(st.integers(1, 50), min_size=3, max_size=3))
def test_both_terms_are_those_of_a_slow_loop(seed, counts):
    logits, offsets, mirrored, mirrored_offsets = outputs(seed)
    suppression = suppression_weights(torch.tensor(counts, dtype=torch.float64), form="linear")
    in_place = mirrored_back(mirrored, mirrored_offsets, torch.arange(9))
    found = consistency(logits, offsets, *in_place, suppression)
    expected = slow(logits, offsets, mirrored, mirrored_offsets, [n / max(counts) for n in counts])
    assert [found["classification"].item(), found["localisation"].item()] == pytest.approx(expected, abs=1e-12)


def test_equal_counts_suppress_nothing_and_no_weight_is_above_one():
    made = outputs(0)
    plain, equal = consistency(*made), consistency(*made, suppression_weights([7, 7, 7], form="linear"))
    assert {name: term.item() for name, term in plain.items()} == {name: term.item() for name, term in equal.items()}
    voc2007 = [306, 354, 486, 290, 505, 229, 1250, 376, 798, 259, 215, 510, 362, 339, 4690, 512, 257, 248, 297, 324]
    weights = suppression_weights(voc2007, form="linear")
    assert weights.max() == 1
    assert weights.min() == pytest.approx(215 / 4690)


def test_suppression_acts_on_classification_alone_by_the_class_of_the_unflipped_image():
    logits, offsets, mirrored, mirrored_offsets = outputs(0, n=1, p=1)
    with torch.no_grad():
        logits[:] = torch.tensor([0.0, 1, 5, 2])
        mirrored[:] = torch.tensor([0.0, 1, 2, 5])
    plain = consistency(logits, offsets, mirrored, mirrored_offsets)
    suppressed = consistency(logits, offsets, mirrored, mirrored_offsets, torch.tensor([1.0, 0.25, 0.5]))
    assert suppressed["classification"].item() == pytest.approx(0.25 * plain["classification"].item())
    assert suppressed["localisation"].item() == plain["localisation"].item() > 0


def test_what_the_unflipped_image_calls_background_does_not_count():
    logits, offsets, mirrored, mirrored_offsets = outputs(0, n=1, p=2)
    with torch.no_grad():
        logits[0] = torch.tensor([[9.0, 1, 2, 3], [0, 1, 2, 3]])
        mirrored[0] = torch.tensor([[0.0, 5, 2, 3], [9, 1, 2, 3]])  # the other way round: not asked
    found = consistency(logits, offsets, mirrored, mirrored_offsets)
    sum(found.values()).backward()
    for given_ in (logits, offsets, mirrored, mirrored_offsets):
        assert given_.grad[0, 0].eq(0).all()
        assert given_.grad[0, 1].ne(0).any()
    alone = consistency(logits[:, 1:], offsets[:, 1:], mirrored[:, 1:], mirrored_offsets[:, 1:])
    assert {name: term.item() for name, term in found.items()} == {name: term.item() for name, term in alone.items()}


@pytest.mark.parametrize("sure", [0.0, 500.0])
def test_no_prior_kept_gives_zero_and_certainty_no_nan(sure):
    made = outputs(0)
    with torch.no_grad():
        made[0][:] = torch.tensor([sure, 0, 0, 0])  # background, or a tie with it
        made[2][:] = torch.tensor([-sure, 0, 0, 0])
    found = consistency(*made)
    sum(found.values()).backward()
    assert [term.item() for term in found.values()] == [0, 0]
    assert all(tensor.grad.eq(0).all() for tensor in made)
    with torch.no_grad():
        made[0][:] = torch.tensor([-sure - 1, sure, 0, 0])
    found = consistency(*made)
    sum(found.values()).backward()
    assert all(tensor.grad.isfinite().all() for tensor in made)
    assert all(term.isfinite() for term in found.values())


def test_each_divergence_teaches_only_the_side_that_is_not_its_target():
    logits, offsets, mirrored, mirrored_offsets = outputs(3, n=1, p=1)
    with torch.no_grad():
        logits[0, 0, 0] = -5
    consistency(logits, offsets, mirrored, mirrored_offsets)["classification"].backward()
    p, q = logits.detach().softmax(2), mirrored.detach().softmax(2)
    # The gradient of KL(target || softmax) is softmax - target.
    torch.testing.assert_close(logits.grad, (p - q) / 2, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(mirrored.grad, (q - p) / 2, atol=1e-5, rtol=1e-5)


def test_mirroring_back_is_its_own_inverse():
    network = ssd.small(3, torch.Generator().manual_seed(0))
    logits, offsets = network(torch.rand(2, 3, 96, 96) * 255)
    again = mirrored_back(*mirrored_back(logits, offsets, network.mirror), network.mirror)
    assert again[0].equal(logits)
    assert again[1].equal(offsets)


def symmetric(network):
    """The network made the same from left and right: it then says of a mirrored image what it says of the image."""
    network = copy.deepcopy(network)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.weight.copy_((module.weight + module.weight.flip(3)) / 2)
        for head in network.offset_heads:  # what is symmetric can only say "in the middle"
            head.weight[::4] = 0
    return network


def test_an_image_and_its_mirror_are_consistent_for_a_symmetric_network_and_for_no_other():
    network = ssd.small(3, torch.Generator().manual_seed(0)).double()
    images = 255 * torch.rand(2, 3, 96, 96, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def terms(network):
        logits, offsets = network(torch.cat([images, images.flip(3)]))
        return consistency(logits[:2], offsets[:2], *mirrored_back(logits[2:], offsets[2:], network.mirror))

    assert all(term.item() < 1e-20 for term in terms(symmetric(network)).values())
    assert all(term.item() > 1e-4 for term in terms(network).values())


TERMS = ("localisation", "classification", "mirror localisation", "mirror classification")


def all_terms(network, images, boxes, classes):
    n = len(images)
    logits, offsets = network(torch.cat([images, images.flip(3)]))
    wanted, targets = multibox.match(boxes, classes, network.priors)
    labeled = torch.ones(n, dtype=torch.bool)
    losses = multibox.multibox_loss(logits[:n], offsets[:n], targets, wanted, labeled)
    mirrored = mirrored_back(logits[n:], offsets[n:], network.mirror)
    again = consistency(logits[:n], offsets[:n], *mirrored)
    return dict(zip(TERMS, (*losses.values(), again["localisation"], again["classification"]), strict=True))


@pytest.mark.parametrize("term", TERMS)
def test_the_gradient_of_each_term_reaches_the_network(term):
    network = ssd.small(3, torch.Generator().manual_seed(0))
    images = 255 * torch.rand(2, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    boxes = torch.tensor([[[0.1, 0.1, 0.3, 0.4]], [[0.02, 0.05, 0.98, 0.9]]])
    terms = all_terms(network, images, boxes, torch.tensor([[0], [2]]))
    terms[term].backward()
    heads, others = network.class_heads, network.offset_heads
    if term.endswith("localisation"):
        heads, others = others, heads
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.body.parameters())
    assert any(parameter.grad.abs().sum() > 0 for parameter in heads.parameters())
    assert all(parameter.grad is None or parameter.grad.eq(0).all() for parameter in others.parameters())


@pytest.mark.parametrize("colour", [0.0, 110.0, 255.0])
def test_images_of_one_colour_and_objects_without_area_give_no_nan(colour):
    network = ssd.small(3, torch.Generator().manual_seed(0))
    boxes, classes = torch.tensor([[[0.3, 0.3, 0.3, 0.3]], [[0.0, 0.0, 0.0, 1.0]]]), torch.tensor([[0], [2]])
    terms = all_terms(network, torch.full((2, 3, 96, 96), colour), boxes, classes)
    sum(terms.values()).backward()
    assert all(term.isfinite() for term in terms.values())
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize("scale", [1, 1000])
def test_the_weight_follows_the_papers_schedule_at_any_length(scale):
    steps = 120_000 // scale
    at = {t: csd_weight(t // scale, steps) for t in (0, 16_000, 32_000, 60_000, 100_000, 110_000, 120_000)}
    expected = [0, math.exp(-5 / 4), 1, 1, 1, math.exp(-12.5 / 4), math.exp(-12.5)]
    assert list(at.values()) == pytest.approx(expected)
    curve = [csd_weight(t, 120) for t in range(121)]
    assert curve[:33] == sorted(curve[:33])
    assert curve[100:] == sorted(curve[100:], reverse=True)
