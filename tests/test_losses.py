"""Every loss against a slow loop over samples and classes (tests/reference.py), and what it does at the edges."""

import io
import math

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

import cissl
from cissl import losses
from cissl.losses import SuppressedConsistencyLoss, suppression_weights

DIVERGENCES = {
    losses.squared_error: reference.squared_error,
    losses.kl_divergence: reference.kl_divergence,
    losses.soft_cross_entropy: reference.soft_cross_entropy,
}
OF_A_LABEL = {
    losses.cross_entropy: reference.cross_entropy,
    losses.focal: lambda z, y: reference.focal(z, y, 2.0),
    **{
        (lambda z, y, g=g: losses.focal(z, y, g)): (lambda z, y, g=g: reference.focal(z, y, g))
        for g in (0.0, 0.5, 1.0, 3.0)
    },
}
NAMES = {"ids": lambda f: f.__name__ if callable(f) else None}


@st.composite
def samples(draw, largest=30.0):
    """(logits, target probabilities with zeros among them, labels)"""
    n, k = draw(st.integers(1, 5)), draw(st.integers(2, 6))
    value = st.floats(-largest, largest, allow_subnormal=False)
    row = st.lists(value, min_size=k, max_size=k)
    z = draw(st.lists(row, min_size=n, max_size=n))
    share = st.sampled_from([0.0, 0.0, 0.2, 0.7, 1.0])
    q = draw(st.lists(st.lists(share, min_size=k, max_size=k), min_size=n, max_size=n))
    q = [[value + (c == 0 and not any(one)) for c, value in enumerate(one)] for one in q]
    q = [[value / sum(one) for value in one] for one in q]
    y = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    return double(z), double(q), torch.tensor(y)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def each(function, z, *others):
    """What the slow formula says of every sample."""
    rows = zip(z.tolist(), *(other.tolist() for other in others), strict=True)
    return double([function(*row) for row in rows])


def random(n, k, seed=0, scale=3.0):
    g = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(n, k, generator=g, dtype=torch.float64)
    q = torch.rand(n, k, generator=g, dtype=torch.float64)
    return z, q / q.sum(1, keepdim=True), torch.randint(k, (n,), generator=g)


# --- formulas ---


@pytest.mark.parametrize("divergence", DIVERGENCES, **NAMES)
@given(samples())
def test_divergences_are_their_formulas(divergence, case):
    z, q, _ = case
    torch.testing.assert_close(divergence(z, q), each(DIVERGENCES[divergence], z, q), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("loss", OF_A_LABEL, **NAMES)
@given(samples())
def test_losses_of_a_label_are_their_formulas(loss, case):
    z, _, y = case
    torch.testing.assert_close(loss(z, y), each(OF_A_LABEL[loss], z, y), rtol=1e-10, atol=1e-12)


@given(samples())
def test_entropy_is_its_formula(case):
    z = case[0]
    torch.testing.assert_close(losses.entropy(z), each(reference.entropy, z), rtol=1e-11, atol=1e-12)


@given(samples())
def test_probabilities_are_theirs(case):
    z = case[0]
    torch.testing.assert_close(losses.probabilities(z), each(reference.softmax, z), rtol=1e-12, atol=0)
    torch.testing.assert_close(losses.log_probabilities(z), each(reference.log_softmax, z), rtol=1e-12, atol=1e-13)


def test_numbers_one_can_check_by_hand():
    z, q = double([[0.0, math.log(3)]]), double([[1.0, 0.0]])  # probabilities ¼ and ¾
    assert losses.squared_error(z, q).item() == pytest.approx(0.75**2)  # mean over two classes, not their sum
    assert losses.kl_divergence(z, q).item() == pytest.approx(math.log(4))
    assert losses.kl_divergence(z, double([[0.5, 0.5]])).item() == pytest.approx(math.log(4 / 3) / 2)
    assert losses.soft_cross_entropy(z, double([[0.5, 0.5]])).item() == pytest.approx(math.log(16 / 3) / 2)
    assert losses.cross_entropy(z, torch.tensor([1])).item() == pytest.approx(math.log(4 / 3))
    assert losses.focal(z, torch.tensor([0]), 1.0).item() == pytest.approx(0.75 * math.log(4))
    assert losses.focal(z, torch.tensor([0])).item() == pytest.approx(0.75**2 * math.log(4))
    assert losses.entropy(z).item() == pytest.approx(math.log(4) / 4 + 3 * math.log(4 / 3) / 4)


@given(samples())
def test_cross_entropy_is_divergence_and_the_targets_own_entropy(case):
    z, q, _ = case
    own = -torch.xlogy(q, q).sum(1)
    torch.testing.assert_close(losses.soft_cross_entropy(z, q), losses.kl_divergence(z, q) + own)


def test_divergences_vanish_where_both_sides_agree():
    z = random(6, 4)[0]
    for divergence in (losses.squared_error, losses.kl_divergence):
        assert divergence(z, losses.probabilities(z)).abs().max() < 1e-14


# --- one number per sample, whatever the shape ---


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("k", [2, 7])
def test_one_number_per_sample(n, k):
    z, q, y = random(n, k)
    for loss in DIVERGENCES:
        assert loss(z, q).shape == (n,)
    for loss in OF_A_LABEL:
        assert loss(z, y).shape == (n,)
    assert losses.entropy(z).shape == (n,)


def test_samples_do_not_see_each_other():
    z, q, y = random(7, 3)
    for loss, other in [*((d, q) for d in DIVERGENCES), *((d, y) for d in OF_A_LABEL)]:
        apart = torch.cat([loss(z[i : i + 1], other[i : i + 1]) for i in range(7)])
        torch.testing.assert_close(loss(z, other), apart, rtol=1e-13, atol=1e-15)


# --- gradients ---


@pytest.mark.parametrize("divergence", DIVERGENCES, **NAMES)
def test_gradients_of_divergences(divergence):
    z, q, _ = random(4, 3)
    q[0] = double([0.0, 1.0, 0.0])
    assert torch.autograd.gradcheck(lambda logits: divergence(logits, q), z.requires_grad_())


@pytest.mark.parametrize("loss", OF_A_LABEL, **NAMES)
def test_gradients_of_losses_of_a_label(loss):
    z, _, y = random(4, 3)
    assert torch.autograd.gradcheck(lambda logits: loss(logits, y), z.requires_grad_())


def test_the_gradient_of_entropy_goes_through_both_factors():
    assert torch.autograd.gradcheck(losses.entropy, random(4, 3)[0].requires_grad_())


@pytest.mark.parametrize("divergence", DIVERGENCES, **NAMES)
def test_targets_carry_no_gradient(divergence):
    z, q, _ = random(4, 3)
    z.requires_grad_()
    q.requires_grad_()
    divergence(z, q).sum().backward()
    assert z.grad.abs().sum() > 0
    assert q.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_stay_finite(dtype):
    z = torch.tensor([[1e4, -1e4, 0], [-1e4, -1e4, 1e4], [1e4, 1e4, -1e4], [0, 0, 0]], dtype=dtype)
    for y in range(3):
        labels, q = torch.full((4,), y), torch.eye(3, dtype=dtype)[y].expand(4, 3)
        found = [(loss, labels) for loss in OF_A_LABEL] + [(loss, q) for loss in DIVERGENCES]
        for loss, other in [*found, (lambda logits, _: losses.entropy(logits), q)]:
            logits = z.clone().requires_grad_()
            value = loss(logits, other)
            value.sum().backward()
            assert torch.isfinite(value).all()
            assert torch.isfinite(logits.grad).all()
    certain = torch.tensor([[1e4, -1e4, 0]], dtype=dtype)
    assert losses.cross_entropy(certain, torch.tensor([1])).item() == pytest.approx(2e4)
    assert losses.kl_divergence(certain, torch.tensor([[0, 1.0, 0]], dtype=dtype)).item() == pytest.approx(2e4)
    assert losses.entropy(certain).item() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_keep_the_type_of_their_logits(dtype):
    z, q, y = random(3, 2)
    z, q = z.to(dtype), q.to(dtype)
    found = [loss(z, q) for loss in DIVERGENCES] + [loss(z, y) for loss in OF_A_LABEL]
    assert {value.dtype for value in [*found, losses.entropy(z), losses.smooth_neighbors(z, y)]} == {dtype}


# --- focal ---


def test_focal_without_focus_is_cross_entropy():
    z, _, y = random(9, 4)
    torch.testing.assert_close(losses.focal(z, y, 0.0), losses.cross_entropy(z, y), rtol=0, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_focal_has_a_finite_gradient_where_the_label_is_certain(gamma, dtype):
    z = torch.tensor([[40.0, 0.0], [200.0, -200.0], [3e3, 0.0]], dtype=dtype, requires_grad=True)
    loss = losses.focal(z, torch.tensor([0, 0, 0]), gamma)
    loss.sum().backward()
    assert loss.abs().max() < 1e-6
    assert torch.isfinite(z.grad).all()
    assert z.grad.abs().max() < 1e-6


def test_focal_tells_near_certain_samples_apart():
    z = torch.tensor([[30.0, 0.0]], dtype=torch.float64)  # 1 − p = 9e-14
    doubt = math.exp(-30) / (1 + math.exp(-30))
    assert losses.focal(z, torch.tensor([0]), 0.5).item() == pytest.approx(doubt**0.5 * doubt, rel=1e-9)
    assert losses.focal(z, torch.tensor([0]), 2.0).item() == pytest.approx(doubt**2 * doubt, rel=1e-9)


def test_a_negative_gamma_is_refused():
    with pytest.raises(ValueError, match="focal loss needs gamma >= 0, got -1"):
        losses.focal(*random(2, 2)[::2], gamma=-1.0)


# --- weights per class ---

class_counts = st.lists(st.integers(1, 100_000), min_size=1, max_size=12)


@given(counts=class_counts, beta=st.floats(0.01, 1.0), form=st.sampled_from(["exponential", "linear"]))
def test_suppression_is_its_formula(counts, beta, form):
    found = suppression_weights(torch.tensor(counts, dtype=torch.float64), beta, form)
    torch.testing.assert_close(found, double(reference.suppression(counts, beta, form)), rtol=1e-12, atol=0)
    assert found[int(np.argmax(counts))] == 1  # exactly
    assert (found <= 1).all()
    assert (found > 0).all()


def test_suppression_by_hand():
    counts = [100, 50, 0]
    assert suppression_weights(counts).tolist() == pytest.approx([1, 0.5**0.5, 0.5])
    assert suppression_weights(counts, beta=0.25).tolist() == pytest.approx([1, 0.5, 0.25])
    assert suppression_weights(counts, form="linear").tolist() == [1, 0.5, 0]
    assert suppression_weights(counts, 0.25, "linear").tolist() == [1, 0.5, 0]  # the linear form knows no β


def test_beta_one_suppresses_nothing():
    assert suppression_weights([1612, 27, 16], beta=1.0).tolist() == [1, 1, 1]
    assert suppression_weights([7, 7, 7]).tolist() == [1, 1, 1]
    assert suppression_weights([7, 7, 7], form="linear").tolist() == [1, 1, 1]


@given(class_counts)
def test_inverse_weights_are_their_formula(counts):
    found = losses.inverse_weights(torch.tensor(counts, dtype=torch.float64))
    torch.testing.assert_close(found, double(reference.class_weights(counts, "in")), rtol=1e-11, atol=0)
    assert found.mean().item() == pytest.approx(1, abs=1e-12)


@given(counts=class_counts, beta=st.floats(0.5, 0.99999))
def test_class_balanced_weights_are_their_formula(counts, beta):
    found = losses.class_balanced_weights(torch.tensor(counts, dtype=torch.float64), beta)
    torch.testing.assert_close(found, double(reference.class_weights(counts, "cb", beta)), rtol=1e-9, atol=0)
    assert found.mean().item() == pytest.approx(1, abs=1e-12)


def test_class_balanced_weights_are_not_all_one():
    counts = [1612, 966, 579, 347, 208, 125, 75, 45, 27, 16]
    found = losses.class_balanced_weights(torch.tensor(counts, dtype=torch.float64))
    assert found.tolist() == pytest.approx(reference.class_weights(counts, "cb", 0.9999), rel=1e-9)
    assert found[-1] / found[0] > 50  # β = 0 would weigh all the same
    assert found[-1] / found[0] < 1612 / 16  # 1/N_c is its limit
    # A larger class hardly counts more once its effective number is reached.
    assert losses.class_balanced_weights([10**6, 10**7]).tolist() == pytest.approx([1, 1])


def test_class_balanced_weights_are_exact_in_single_precision():
    counts = torch.tensor([3.0, 2.0, 1.0])
    found = losses.class_balanced_weights(counts)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(reference.class_weights([3, 2, 1], "cb"), rel=1e-6)


WEIGHTS = (suppression_weights, losses.inverse_weights, losses.class_balanced_weights)


@pytest.mark.parametrize("weights", WEIGHTS, **NAMES)
def test_counts_come_in_any_form(weights, unchecked):
    expected = weights([9, 5, 2])
    assert expected.dtype == torch.float32
    frozen = np.array([9, 5, 2])
    frozen.flags.writeable = False
    for counts in [
        (9, 5, 2),
        [9.0, 5.0, 2.0],
        [np.int64(9), np.int64(5), np.int64(2)],
        np.array([9, 5, 2]),
        np.array([9, 5, 2], np.uint16),
        np.array([9, 5, 2], ">i4"),
        np.array([9.0, 5.0, 2.0]),
        np.sort(np.array([9, 2, 5]))[::-1],
        frozen,
        torch.tensor([9, 5, 2]),
        torch.tensor([9, 5, 2], dtype=torch.int32),
        torch.tensor([9.0, 5.0, 2.0]),
    ]:
        assert torch.equal(weights(counts), expected)
        assert weights(counts).dtype == torch.float32


@pytest.mark.parametrize("weights", WEIGHTS, **NAMES)
def test_weights_have_the_counts_floating_type_else_the_default_one(weights):
    assert weights(torch.tensor([9, 5], dtype=torch.float64)).dtype == torch.float64
    assert weights(torch.tensor([9, 5])).dtype == torch.float32
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        exact = weights([9, 5])
        assert exact.dtype == torch.float64
        # Computed in double precision, not rounded and made longer.
        assert torch.equal(exact, weights(torch.tensor([9, 5], dtype=torch.float64)))
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("weights", WEIGHTS, **NAMES)
@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([], r"one count per class, got shape \(0,\): pass e.g. numpy.bincount"),
        ([[3, 2]], r"one count per class, got shape \(1, 2\)"),
        (torch.tensor(3), r"one count per class, got shape \(\)"),
        ([3, -1], r"finite and not negative, got \[3.0, -1.0\]"),
        ([3, math.nan], "finite and not negative"),
        ([math.inf, 3], "finite and not negative"),
        ([0, 0], "^class_counts are all 0: count the labeled training samples of each class$"),
        (["many", "few"], "could not convert string to float: '(many|few)'"),
    ],
)
def test_counts_that_are_none(weights, counts, message, unchecked):
    with pytest.raises(ValueError, match=message):
        weights(counts)


@pytest.mark.parametrize("weights", [losses.inverse_weights, losses.class_balanced_weights], **NAMES)
def test_a_class_without_samples_has_no_inverse(weights):
    with pytest.raises(ValueError, match=rf"{weights.__name__} divides by each class's count, and class 1 has no lab"):
        weights([3, 0, 2, 0])


@pytest.mark.parametrize("beta", [0.0, -0.5, 1.1, math.nan])
def test_suppression_needs_a_beta(beta):
    with pytest.raises(ValueError, match=r"beta should be in \(0, 1\], got"):
        suppression_weights([3, 2], beta)


@pytest.mark.parametrize("beta", [0.0, 1.0, -1.0, math.nan])
def test_class_balance_needs_a_beta(beta):
    with pytest.raises(ValueError, match=r"beta should be in \(0, 1\), got"):
        losses.class_balanced_weights([3, 2], beta)


def test_an_unknown_form_is_named(unchecked):
    with pytest.raises(ValueError, match="form should be one of exponential, linear; got 'square'"):
        suppression_weights([3, 2], form="square")


# --- smooth neighbours ---


@given(
    pairs=st.integers(0, 4),
    odd=st.booleans(),
    dims=st.integers(1, 5),
    margin=st.sampled_from([0.3, 1.0, 2.5]),
    seed=st.integers(0, 50),
)
def test_neighbors_are_their_formula(pairs, odd, dims, margin, seed):
    n = 2 * pairs + odd
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(n, dims, generator=g, dtype=torch.float64)
    classes = torch.randint(2, (n,), generator=g)
    found = losses.smooth_neighbors(features, classes, margin)
    rows = list(zip(features.tolist(), classes.tolist(), strict=True))
    paired = [(rows[i], rows[i + pairs]) for i in range(pairs)]
    expected = double([reference.neighbor(a, b, one == other, margin) for (a, one), (b, other) in paired])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_neighbors_by_hand():
    features = double([[0.0, 0.0], [3.0, 3.0], [0.0, 0.0], [0.5, 0.5], [4.0, 2.0], [0.0, 0.2], [9.0, 9.0]])
    classes = torch.tensor([0, 1, 0, 1, 1, 0, 5])
    # Pairs (0, 3): d = ½, apart; (1, 4): d² = 1, together; (2, 5): d² = 0.02, together; the last is dropped.
    found = losses.smooth_neighbors(features, classes)
    assert found.tolist() == pytest.approx([0.25, 1.0, 0.02])
    assert losses.smooth_neighbors(features, classes, 2.0).tolist() == pytest.approx([1.5**2, 1.0, 0.02])
    assert losses.smooth_neighbors(features, classes, 0.4).tolist() == pytest.approx([0, 1.0, 0.02])


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_features_have_a_finite_gradient(same, dtype):
    features = torch.ones(4, 3, dtype=dtype, requires_grad=True)
    loss = losses.smooth_neighbors(features, torch.tensor([0, 0, 0, 0] if same else [0, 1, 1, 0]))
    loss.sum().backward()
    assert torch.isfinite(features.grad).all()
    torch.testing.assert_close(loss.detach(), torch.full((2,), 0.0 if same else 1.0, dtype=dtype), rtol=0, atol=1e-5)


def test_gradients_of_neighbors():
    features = random(7, 3, scale=0.5)[0].requires_grad_()
    classes = torch.tensor([0, 1, 1, 0, 0, 1, 2])
    assert torch.autograd.gradcheck(lambda f: losses.smooth_neighbors(f, classes), features)


def test_feature_maps_are_flattened():
    features, _, classes = random(6, 5)
    found = losses.smooth_neighbors(features, classes)
    assert found.shape == (3,)
    assert torch.equal(losses.smooth_neighbors(features[:, :, None, None], classes), found)
    four = losses.smooth_neighbors(features[:, :4].reshape(6, 1, 2, 2), classes)
    assert torch.equal(four, losses.smooth_neighbors(features[:, :4], classes))


# --- the loss for one's own loop ---


def loop(student, teacher, counts, beta=0.5, form="exponential", divergence="squared-error"):
    weight = reference.suppression(counts, beta, form)
    differ = reference.squared_error if divergence == "squared-error" else reference.kl_divergence
    rows = list(zip(student.tolist(), teacher.tolist(), strict=True))
    return sum(weight[reference.argmax(s)] * differ(s, reference.softmax(t)) for s, t in rows) / len(rows)


@pytest.mark.parametrize("divergence", ["squared-error", "kl"])
@pytest.mark.parametrize("form", ["exponential", "linear"])
@pytest.mark.parametrize("n", [1, 2, 9])
def test_the_module_is_the_loop(n, form, divergence):
    counts = [40, 10, 3]
    student, teacher = random(n, 3)[0], random(n, 3, seed=1)[0]
    criterion = cissl.SuppressedConsistencyLoss(counts, 0.3, form=form, divergence=divergence).double()
    found = criterion(student, teacher)
    assert found.shape == ()
    weights = suppression_weights(counts, 0.3, form)  # the module was made in single precision
    assert found.item() == pytest.approx(loop(student, teacher, counts, 0.3, form, divergence), rel=1e-6)
    plain = (losses.squared_error if divergence == "squared-error" else losses.kl_divergence)(
        student, losses.probabilities(teacher)
    )
    assert found.item() == pytest.approx((weights[student.argmax(1)] * plain).mean().item(), rel=1e-12)


@pytest.mark.parametrize("divergence", ["squared-error", "kl"])
def test_the_gradient_reaches_the_student_and_never_the_teacher(divergence):
    student, teacher = (random(5, 3, seed)[0].requires_grad_() for seed in (0, 1))
    criterion = SuppressedConsistencyLoss([40, 10, 3], divergence=divergence)
    criterion(student, teacher).backward()
    assert (student.grad.abs().sum(1) > 0).all()
    assert teacher.grad is None
    assert list(criterion.parameters()) == []
    assert torch.autograd.gradcheck(lambda z: criterion(z, teacher), student)


@pytest.mark.parametrize("divergence", ["squared-error", "kl"])
def test_the_students_class_decides_and_the_lowest_of_equals(divergence):
    teacher = double([[0.0, 3.0, 0.0]])
    plain = SuppressedConsistencyLoss([1, 1, 1], divergence=divergence)
    criterion = SuppressedConsistencyLoss([100, 50, 10], divergence=divergence)
    for student, weight in [([0, 0, 1], 0.5**0.9), ([0, 1, 1], 0.5**0.5), ([1, 1, 1], 1.0), ([0, 2, 1], 0.5**0.5)]:
        student = double([student])
        assert criterion(student, teacher).item() == pytest.approx(weight * plain(student, teacher).item(), rel=1e-6)


def test_beta_one_is_plain_consistency():
    student, teacher = random(5, 3)[0], random(5, 3, seed=1)[0]
    found = SuppressedConsistencyLoss([40, 10, 3], beta=1.0)(student, teacher)
    assert found.item() == losses.squared_error(student, losses.probabilities(teacher)).sum().item() / 5


def test_no_sample_is_no_loss():
    student = torch.zeros(0, 3, requires_grad=True)
    loss = SuppressedConsistencyLoss([3, 2, 1])(student, torch.zeros(0, 3))
    loss.backward()
    assert loss.item() == 0
    assert student.grad.shape == (0, 3)


def test_the_module_moves_with_its_model():
    criterion = SuppressedConsistencyLoss(np.array([3, 2, 1]))
    assert criterion.weights.dtype == torch.float32
    model = torch.nn.Sequential(criterion).double()
    assert criterion.weights.dtype == torch.float64
    assert model.to("meta")[0].weights.device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_loss_has_the_type_of_the_logits(dtype):
    z = random(4, 3)[0].to(dtype)
    assert SuppressedConsistencyLoss([3, 2, 1])(z, z.flip(0)).dtype == dtype


def test_the_weights_are_saved_with_the_model():
    saved = SuppressedConsistencyLoss([3, 2, 1], beta=0.3)
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded = SuppressedConsistencyLoss([1, 1, 1])
    loaded.load_state_dict(torch.load(file))
    z, t = random(4, 3)[0], random(4, 3, seed=1)[0]
    assert loaded(z, t) == saved(z, t)
    assert list(saved.state_dict()) == ["weights"]


def test_wrong_shapes_say_what_was_expected(unchecked):
    criterion = SuppressedConsistencyLoss([3, 2, 1])
    z = torch.zeros(4, 3)
    for student, teacher in [(z, z[:2]), (z[0], z[0]), (z[None], z[None]), (z, z[:, :2]), (z[:1], z)]:
        with pytest.raises(ValueError, match=r"logits of one shape \(samples, classes\), got \(.*\) and \(.*\)"):
            criterion(student, teacher)
    with pytest.raises(ValueError, match=r"logits are of 2 classes, class_counts of 3: pass one count per class"):
        criterion(z[:, :2], z[:, :2])
    with pytest.raises(ValueError, match="divergence should be one of squared-error, kl; got 'mse'"):
        SuppressedConsistencyLoss([3, 2], divergence="mse")
    with pytest.raises(ValueError, match="class_counts are all 0"):
        SuppressedConsistencyLoss([0, 0])


def test_the_module_tells_what_it_is():
    text = repr(SuppressedConsistencyLoss([4, 2], divergence="kl"))
    assert text == "SuppressedConsistencyLoss(divergence='kl', weights=[1.0, 0.7071])"
