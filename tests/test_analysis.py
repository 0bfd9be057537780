"""The gradient difference between Mean Teacher and Π, and the files of the toy study's analysis."""

import numpy as np
import pytest
import torch
from torch.func import functional_call

from cissl import Run, analysis, execute, losses, networks, records
from cissl.recipes.toy import DATASETS, METHODS, analyse, gradient_difference, toy

NOISE = 0.15


def network(seed, n_classes=3):
    return networks.build("toy-mlp", (2,), n_classes, torch.Generator().manual_seed(seed)).double()


def moved(student, by, seed=1):
    """The student's teacher: a copy at a distance."""
    teacher, generator = network(0), torch.Generator().manual_seed(seed)
    state = {
        n: p + by * torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in student.named_parameters()
    }
    teacher.load_state_dict({name: value.detach() for name, value in state.items()})
    return teacher


def points(n=12, seed=2):
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def measured(student, teacher, x, noise=NOISE):
    return analysis.gradient_difference(student, teacher, x, noise, torch.Generator().manual_seed(5))


def gradient(student, target, seen, compared):
    """∇θ of ½ ‖f_θ(seen) − f_target(compared)‖² by autograd, the target held still."""
    wanted = target(compared[None]).softmax(1)[0].detach()
    loss = 0.5 * (student(seen[None]).softmax(1)[0] - wanted).square().sum()
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(student.parameters()))])


def approximation(student, teacher, point):
    """Jᵀ J (θ − θ′) with the Jacobian of all probabilities written out."""
    parameters = {name: p.detach() for name, p in student.named_parameters()}

    def predict(*values):
        return functional_call(student, dict(zip(parameters, values, strict=True)), (point[None],)).softmax(1)[0]

    jacobian = torch.autograd.functional.jacobian(predict, tuple(parameters.values()))
    flat = torch.cat([part.flatten(1) for part in jacobian], 1)
    lag = torch.cat(
        [(p - q).detach().flatten() for p, q in zip(student.parameters(), teacher.parameters(), strict=True)]
    )
    return flat.T @ (flat @ lag)


def test_the_difference_is_that_of_two_gradients():
    student, x = network(0), points()
    teacher = moved(student, 0.1)
    generator = torch.Generator().manual_seed(5)
    first, second = (x + NOISE * torch.randn(x.shape, generator=generator, dtype=x.dtype) for _ in range(2))
    found = measured(student, teacher, x)
    assert set(found) == {"confidence", "exact_norm", "predicted_norm", "cosine"}
    for i, point in enumerate(x):
        to_teacher = gradient(student, teacher, first[i], second[i])
        exact = to_teacher - gradient(student, student, first[i], second[i])
        predicted = approximation(student, teacher, point)
        cosine = torch.nn.functional.cosine_similarity(exact, predicted, 0)
        assert found["exact_norm"][i] == pytest.approx(exact.norm().item(), rel=1e-9)
        assert found["predicted_norm"][i] == pytest.approx(predicted.norm().item(), rel=1e-9)
        assert found["cosine"][i] == pytest.approx(cosine.item(), rel=1e-9)
        assert found["confidence"][i] == pytest.approx(student(point[None]).softmax(1).max().item(), rel=1e-12)


def test_the_papers_approximation_becomes_exact_as_lag_and_noise_vanish():
    student, x = network(0), points()
    errors = []
    for by in (1e-4, 1e-5, 1e-6):
        found = measured(student, moved(student, by), x, noise=0.0)
        errors.append(np.abs(found["exact_norm"] / found["predicted_norm"] - 1).max())
        assert found["cosine"].min() > 1 - 1e4 * by**2
    assert errors[2] < 1e-4
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.05)  # the error is of the order of the lag
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.05)


def test_far_from_the_boundary_neither_method_says_anything():
    student, x = network(0), points()
    near = measured(student, moved(student, 0.05), x)
    with torch.no_grad():
        student.classifier.bias += torch.tensor([60.0, 0.0, 0.0])  # certain everywhere
    far = measured(student, moved(student, 0.05), x)
    assert far["confidence"].min() > 1 - 1e-12
    assert near["exact_norm"].min() > 1e-6 > 1e-30 > far["exact_norm"].max()
    assert near["predicted_norm"].min() > 1e-6 > 1e-30 > far["predicted_norm"].max()
    assert np.isfinite(far["cosine"]).all()


def test_a_teacher_that_does_not_lag_is_pi():
    student = network(0)
    found = measured(student, moved(student, 0.0), points())
    for name in ("exact_norm", "predicted_norm", "cosine"):
        assert np.abs(found[name]).max() == 0


def test_measuring_changes_neither_network_nor_the_global_random_state():
    student = network(0)
    teacher, state = moved(student, 0.1), torch.get_rng_state()
    before = [p.clone() for net in (student, teacher) for p in net.parameters()]
    measured(student, teacher, points())
    after = [p for net in (student, teacher) for p in net.parameters()]
    assert all(torch.equal(p, q) for p, q in zip(before, after, strict=True))
    assert all(p.grad is None for p in after)
    assert torch.equal(torch.get_rng_state(), state)


# ---- The toy study


def test_the_toy_study_is_table_1():
    runs = toy()
    assert len(runs) == len(set(runs)) == 40
    assert {(run.dataset, run.method) for run in runs} == {(d, m) for d in DATASETS for m in METHODS}
    assert {run.seed for run in runs} == {0, 1, 2, 3, 4}
    assert {run.steps for run in runs} == {5000}


def test_a_toy_study_of_ones_own():
    assert {run.method for run in toy(methods=["all"])} == {
        *("supervised", "pi", "mean-teacher", "vat+em", "vat+em+sntg", "pseudo-label", "ict", "mean-teacher+scl")
    }
    chosen = toy(seeds=2, methods=["vat+sntg+em", "pi", "vat+em+sntg", "pi"], steps=7)
    assert [(run.dataset, run.method, run.seed) for run in chosen] == [
        (dataset, method, seed) for dataset in DATASETS for method in ("vat+em+sntg", "pi") for seed in (0, 1)
    ]
    assert {run.steps for run in chosen} == {7}


def test_a_wrong_toy_study_is_told():
    with pytest.raises(ValueError, match="needs at least 1 seed, got 0"):
        toy(seeds=0)
    with pytest.raises(ValueError, match="did you mean 'mean-teacher'"):
        toy(methods=["pi", "mean-techer"])


def arrays(path):
    with np.load(path) as saved:
        return {name: saved[name] for name in saved}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A folder in which the second of three runs of Mean Teacher is done, the first diverged, the third not there."""
    folder, runs = tmp_path_factory.mktemp("study"), toy(seeds=3, methods=["pi", "mean-teacher"], steps=20)
    mine = [run for run in runs if (run.dataset, run.method) == ("two-moons", "mean-teacher")]
    records.write_json(folder / mine[0].name / "result.json", {"status": "diverged"})
    execute(mine[1], folder / mine[1].name)
    state = torch.get_rng_state()
    analyse(runs, folder)
    assert torch.equal(torch.get_rng_state(), state)
    return mine[1], folder


def test_suppression_is_written_for_both_forms(study):
    found = arrays(study[1] / "analysis" / "suppression.npz")
    assert found["weights"].shape == (len(found["labels"]), len(found["ratio"])) == (6, 101)
    assert np.allclose(found["weights"][-1], found["ratio"])  # linear
    for label, weights in zip(found["labels"][:-1], found["weights"][:-1], strict=True):
        beta = float(label.split("= ")[1])
        assert np.allclose(weights, beta ** (1 - found["ratio"]))


def test_the_gradient_difference_is_of_the_first_seed_that_finished(study):
    run, folder = study
    found = arrays(folder / "analysis" / "gradient_difference.npz")
    again = gradient_difference(run, folder / run.name / "weights.npz")
    assert found.keys() == again.keys()
    assert all(np.array_equal(found[name], again[name]) for name in found)
    unlabeled = arrays(folder / run.name / "boundary.npz")["unlabeled_points"]
    assert np.array_equal(found["points"], unlabeled[::2])  # 1,500 of 3,000
    assert found["exact_norm"].max() > 0
    student = networks.build("toy-mlp", (2,), 2, torch.Generator().manual_seed(0))
    saved = arrays(folder / run.name / "weights.npz")
    student.load_state_dict({name: torch.from_numpy(saved[f"student/{name}"]) for name in student.state_dict()})
    confidence = losses.probabilities(student(torch.from_numpy(found["points"]))).detach().max(1).values
    assert found["confidence"] == pytest.approx(confidence.numpy(), abs=1e-5)


def test_without_a_finished_mean_teacher_there_is_no_gradient_difference(tmp_path):
    analyse([Run(dataset="four-spins", method="mean-teacher"), *toy(seeds=1)], tmp_path)
    assert [path.name for path in (tmp_path / "analysis").iterdir()] == ["suppression.npz"]
