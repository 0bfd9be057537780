"""The studies: which runs they are, and that shared cells are shared."""

from collections import Counter

import pytest

from cissl import Run, recipes
from cissl.recipes import digits, fashion, imbalance_factor, label_count, reweighting, toy
from cissl.recipes.grids import grid
from cissl.report import paper


def setting(run):
    return run.changed().model_dump_json(exclude={"seed"})


def test_the_papers_tables_are_378_settings_and_1890_runs():
    tables = [(make, data) for make in (imbalance_factor, label_count, reweighting) for data in ("cifar10", "svhn")]
    sizes = [len({setting(run) for run in make(dataset=data)}) for make, data in tables]
    assert sizes == [88, 88, 66, 66, 76, 76]
    runs = {run for make, data in tables for run in make(dataset=data)}
    assert len(runs) == 1890
    assert len({setting(run) for run in runs}) == 378
    assert set(Counter(run.seed for run in runs).values()) == {378}
    # The paper's own cells at 4k labels and ρ = 100 stand in all three tables.
    shared = set(imbalance_factor()) & set(label_count()) & set(reweighting())
    assert len({setting(run) for run in shared}) == 1 + 6 * 3


@pytest.mark.parametrize("name", ["imbalance-factor", "label-count", "reweighting"])
@pytest.mark.parametrize("dataset", ["cifar10", "svhn"])
def test_every_cell_of_the_papers_tables_has_its_run(name, dataset):
    """And every run its cell. Supervised learning has one for all three kinds of unlabeled data."""
    cells = {
        (run.method, run.reweight, unlabeled, run.imbalance, run.labeled)
        for run in recipes.STUDIES[name](dataset=dataset, seeds=1)
        for unlabeled in (("same", "half", "uniform") if run.method == "supervised" else (run.unlabeled,))
    }
    published = {key for key in paper._published() if key[:2] == (name, dataset)}
    assert len(cells) == len(published)
    for method, reweight, unlabeled, imbalance, labeled in cells:
        assert paper.lookup(name, dataset, method, reweight, unlabeled, imbalance, labeled) is not None


def test_the_toy_study_is_forty_runs():
    runs = toy()
    assert len(set(runs)) == len(runs) == 40
    assert {(run.dataset, run.labeled, run.steps) for run in runs} == {
        ("two-moons", 12, 5000),
        ("four-spins", 11, 5000),
    }
    assert len(toy(methods=["all"], seeds=2)) == 2 * 8 * 2


def test_digits_and_fashion():
    runs = digits()
    assert len(runs) == len(set(runs)) == 5 * (22 + 57)
    assert Counter(run.reweight for run in digits(seeds=1)) == {"ce": 22, "in": 19, "focal": 19, "cb": 19}
    assert {run.dataset for run in runs} == {"digits"}
    assert len(digits(methods=["ict"], seeds=1)) == 3
    assert {(run.labeled, run.imbalance) for run in fashion()} == {(250, 100.0)}
    # Supervised learning looks at no unlabeled data: it is the same run for every kind of them.
    assert {run.unlabeled for run in fashion() if run.method != "supervised"} == {"uniform"}
    assert len(fashion()) == 20


@pytest.mark.parametrize("name", recipes.STUDIES)
def test_a_study_takes_seeds_methods_and_fields_and_says_what_it_is(name):
    study = recipes.STUDIES[name]
    runs = study(seeds=2, steps=7)
    assert {run.steps for run in runs} == {7}
    assert {run.seed for run in runs} == {0, 1}
    assert study.__doc__.splitlines()[0].endswith(".")
    with pytest.raises(ValueError, match="at least 1 seed"):
        study(seeds=0)
    with pytest.raises(ValueError, match="did you mean"):
        study(methods=["supervisd"])


def test_a_data_set_that_the_paper_does_not_have():
    with pytest.raises(ValueError, match=r"unknown data set of this study: 'cifar100': did you mean 'cifar10'\?"):
        label_count(dataset="cifar100")


# ---- Grids


def test_a_grid_is_every_combination_in_the_order_of_its_fields():
    runs = grid(2, ["pi", "supervised"], dataset=["two-moons", "four-spins"], noise=[0.1, 0.2])
    assert [(r.dataset, r.noise, r.method, r.seed) for r in runs] == [
        (dataset, noise, method, seed)
        for dataset in ("two-moons", "four-spins")
        for noise in (0.1, 0.2)
        for method in ("pi", "supervised")
        for seed in (0, 1)
    ]
    assert runs[0] == Run(dataset="two-moons", noise=0.1, method="pi", seed=0)


def test_options_go_to_the_methods_that_have_them():
    runs = grid([3], ["mean-teacher", "mean-teacher+scl"], dataset="four-spins", options={"beta": [0.3, 0.5]})
    assert [(run.method, run.options.get("beta"), run.seed) for run in runs] == [
        ("mean-teacher", None, 3),
        ("mean-teacher+scl", 0.3, 3),
        ("mean-teacher+scl", 0.5, 3),
    ]
    with pytest.raises(ValueError, match=r"unknown option of mean-teacher: 'beta'"):
        grid([3], ["mean-teacher"], dataset="four-spins", options={"beta": 0.3})


def test_what_comes_out_twice_is_there_once():
    runs = grid(1, ["supervised", "pi"], dataset="digits", unlabeled=["same", "uniform"])
    assert [(run.method, run.unlabeled) for run in runs] == [
        ("supervised", "same"),
        ("pi", "same"),
        ("pi", "uniform"),
    ]


def test_a_method_may_be_given_as_a_field():
    assert grid(1, dataset="digits", method=["pi", "vat"]) == grid(1, ["pi", "vat"], dataset="digits")
    assert [run.method for run in grid(1, dataset="digits")] == ["mean-teacher+scl"]


def test_a_run_changed_is_the_same_run_but_for_that():
    run = Run(dataset="digits", method="vat", options={"epsilon": 2.0}, seed=4)
    changed = run.changed(steps=9)
    assert changed.model_dump() == {**run.model_dump(), "steps": 9}
    with pytest.raises(ValueError, match="method says which run it is"):
        run.changed(method="pi")
    with pytest.raises(ValueError, match="did you mean 'steps'"):
        run.changed(step=9)
