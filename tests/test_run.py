"""The description of a run, and what executing it gives."""

import csv
import itertools
import json
import pickle
import random

import numpy as np
import pytest
import torch

from cissl import (
    Run,
    datasets,
    execute,
    execute_seeds,
    execution,
    metrics,
    networks,
    preprocessing,
    protocol,
    records,
    schedules,
)
from cissl.methods import PAPER as PAPER_METHODS
from cissl.randomness import stream
from cissl.task import prepare

STEPS = 12


def toy(**fields):
    return Run(**{"dataset": "two-moons", "method": "mean-teacher+scl", "steps": STEPS, **fields})


def together(run, folder=None, watch=None):
    """A run in the way that many seeds at once go."""
    return execute_seeds([run], [folder], watch)[0]


def untimed(result):
    return {name: value for name, value in result.items() if name != "seconds"}


def weights(folder):
    with np.load(folder / "weights.npz") as saved:
        return {name: saved[name] for name in saved}


def same_weights(one, other):
    mine, theirs = weights(one), weights(other)
    return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)


# ---- The description


@pytest.mark.parametrize(("dataset", "labeled", "unlabeled"), [("two-moons", 12, 3000), ("four-spins", 11, 2658)])
def test_a_toy_run_is_the_papers(dataset, labeled, unlabeled):
    run = Run(dataset=dataset)
    assert run.method == "mean-teacher+scl"
    assert run.options == {"consistency_weight": 8.0, "teacher_decay": 0.95, "beta": 0.5, "form": "linear"}
    assert (run.labeled, run.unlabeled_total, run.unlabeled, run.imbalance) == (labeled, unlabeled, "same", 5)
    assert (run.network, run.noise, run.validation_per_class) == ("toy-mlp", 0.15, 0)
    assert (run.steps, run.labeled_batch, run.unlabeled_batch) == (5000, 20, 80)
    assert (run.learning_rate, run.schedule, run.momentum, run.weight_decay) == (0.1, "step", 0.9, 0)
    assert [run.rate(4000), run.rate(4001)] == pytest.approx([0.1, 0.02])
    assert run.ramped(1999) < run.ramped(2000) == 1


def test_an_image_run_is_the_papers():
    run = Run(dataset="cifar10")
    assert run.options == {"consistency_weight": 8.0, "teacher_decay": 0.95, "beta": 0.5, "form": "exponential"}
    assert (run.network, run.steps, run.labeled_batch, run.unlabeled_batch) == ("wide-resnet-28-2", 500_000, 50, 50)
    assert (run.learning_rate, run.schedule, run.momentum, run.weight_decay) == (0.1, "cosine", 0.9, 1e-4)
    assert run.rate(300_001) == pytest.approx(0.05)  # half of the 600k
    assert run.ramped(199_999) < run.ramped(200_000) == 1


@pytest.mark.parametrize(
    ("dataset", "labeled", "validation", "shortage", "flip", "noise"),
    [("cifar10", 4000, 500, "error", True, 0.15), ("svhn", 1000, 732, "cap", False, 0.0)],
)
def test_both_image_sets_are_whitened_and_viewed_as_in_the_paper(dataset, labeled, validation, shortage, flip, noise):
    run = Run(dataset=dataset)
    assert run.preprocessing == "gcn+zca"
    assert (run.flip, run.crop, run.noise) == (flip, 2, noise)
    assert (run.labeled, run.validation_per_class, run.on_shortage) == (labeled, validation, shortage)


def test_hyper_parameters_depend_on_the_data_set_where_the_papers_do():
    epsilon = {name: Run(dataset=name, method="vat").options["epsilon"] for name in ("cifar10", "svhn", "two-moons")}
    assert epsilon == {"cifar10": 6, "svhn": 1, "two-moons": 1}
    assert Run(dataset="cifar10", method="vat", options={"epsilon": 2}).options["epsilon"] == 2
    assert Run(dataset="two-moons", options={"form": "exponential"}).options["form"] == "exponential"


@pytest.mark.parametrize(
    ("fields", "labeled", "unlabeled"),
    [
        ({"dataset": "two-moons", "method": "supervised"}, 100, 0),
        ({"dataset": "cifar10", "method": "supervised"}, 100, 0),
        ({"dataset": "two-moons", "method": "supervised", "unlabeled_batch": 0}, 20, 0),
        ({"dataset": "two-moons", "method": "supervised+em"}, 20, 80),  # this one has a use for unlabeled samples
        ({"dataset": "two-moons", "method": "pi", "labeled_batch": 30}, 30, 80),
    ],
)
def test_supervised_learning_fills_the_batch_with_labeled_samples(fields, labeled, unlabeled):
    run = Run(**fields)
    assert (run.labeled_batch, run.unlabeled_batch) == (labeled, unlabeled)


@pytest.mark.parametrize("method", [*PAPER_METHODS, "supervised+em"])
def test_a_description_comes_back_from_its_own_text(method):
    run = Run(dataset="four-spins", method=method, seed=7)
    for again in (Run(**json.loads(json.dumps(run.model_dump()))), pickle.loads(pickle.dumps(run))):
        assert again == run
        assert again.name == run.name
        assert hash(again) == hash(run)


def test_the_name_is_of_what_is_described_not_of_how_it_is_written():
    given = {"dataset": "two-moons", "method": "vat+em+sntg", "options": {"epsilon": 2.0, "xi": 0.01}, "imbalance": 5.0}
    name = Run(**given).name
    assert Run(**dict(reversed(given.items()))).name == name
    assert Run(**{**given, "options": {"xi": 0.01, "epsilon": 2}, "imbalance": 5}).name == name
    assert Run(**{**given, "method": "vat+sntg+em"}).name == name  # modifiers in any order
    assert Run(**given, steps=5000, momentum=0.9, seed=0).name == name  # defaults written out


DIFFERENT = {
    "dataset": "four-spins",
    "labeled": 13,
    "imbalance": 6,
    "unlabeled": "half",
    "unlabeled_total": 2999,
    "validation_per_class": 1,
    "method": "mean-teacher",
    "options": {"beta": 0.4},
    "reweight": "in",
    "network": "mlp",
    "noise": 0.1,
    "steps": 4999,
    "labeled_batch": 21,
    "unlabeled_batch": 81,
    "learning_rate": 0.2,
    "schedule": "cosine",
    "momentum": 0.8,
    "weight_decay": 0.1,
    "ramp": 0.3,
    "seed": 1,
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_every_field_is_part_of_the_name(field):
    run, other = Run(dataset="two-moons"), Run(**{"dataset": "two-moons", field: DIFFERENT[field]})
    assert other.name != run.name
    assert other != run


def test_a_run_cannot_be_changed():
    run = toy()
    with pytest.raises(ValueError, match="frozen"):
        run.seed = 3


def test_a_copy_with_another_method_is_of_that_method():
    run = toy()
    assert run.made.name == "mean-teacher+scl"
    assert run.model_copy(update={"method": "pi", "options": {}}).made.name == "pi"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dataset": None}, "dataset"),
        ({"dataset": ["two-moons"]}, "dataset: input should be a valid string, got ['two-moons']"),
        ({"dataset": "two-moon"}, "unknown data set 'two-moon': did you mean 'two-moons'? Choose from: two-moons,"),
        ({"step": 3}, "unknown field of a run 'step': did you mean 'steps'?"),
        ({"Seed": 3}, "did you mean 'seed'?"),
        ({"method": "mean-techer"}, "unknown method 'mean-techer': did you mean 'mean-teacher'?"),
        ({"method": "pi+slc"}, "did you mean 'scl'?"),
        ({"method": "supervised+scl"}, "+scl acts on the consistency of unlabeled samples and 'supervised' has none"),
        ({"method": 3}, "method: input should be a valid string, got 3"),
        ({"options": {"bta": 0.5}}, "unknown option of the method 'mean-teacher+scl': 'bta': did you mean 'beta'?"),
        ({"options": {"epsilon": 1}}, "Choose from: consistency_weight, teacher_decay, beta, form"),
        ({"options": {"beta": 2}}, "beta should be a number above 0 and at most 1, got 2"),
        ({"options": {"beta": float("nan")}}, "beta should be a number"),
        ({"options": {"form": "liner"}}, "did you mean 'linear'?"),
        ({"options": {1: 2}}, "options.1"),
        ({"options": 3}, "options: input should be a valid dictionary, got 3"),
        ({"unlabeled": "halve"}, "unlabeled: input should be 'same', 'half' or 'uniform', got 'halve'"),
        ({"reweight": "inverse"}, "reweight: input should be 'ce', 'in', 'focal' or 'cb', got 'inverse'"),
        ({"schedule": "linear"}, "schedule: input should be 'cosine', 'step' or 'constant', got 'linear'"),
        ({"method": "ict", "reweight": "in"}, "use reweight='ce' with it"),
        ({"imbalance": 0.5}, "imbalance: input should be greater than or equal to 1, got 0.5"),
        ({"imbalance": float("inf")}, "imbalance: input should be a finite number, got inf"),
        ({"learning_rate": float("inf")}, "learning_rate: input should be a finite number, got inf"),
        ({"ramp": float("nan")}, "ramp: input should be"),
        ({"labeled": 0, "steps": -1}, "steps: input should be greater than 0, got -1; labeled: input should be gr"),
        ({"seed": -1}, "seed: input should be greater than or equal to 0, got -1"),
        ({"seed": 1.5}, "seed: input should be a valid integer"),
        ({"unlabeled_batch": 0}, "'mean-teacher+scl' learns from unlabeled samples: give unlabeled_batch at least 1"),
    ],
)
def test_a_wrong_description_is_told_in_a_sentence(fields, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the sentence is looked at below
        Run(**{"dataset": "two-moons", **fields})
    assert type(caught.value) is ValueError
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_without_a_data_set_is_asked_for_one():
    with pytest.raises(ValueError, match="a run needs a dataset: give one"):
        Run()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"network": "toy-mpl"}, "did you mean 'toy-mlp'"),
        ({"network": "cnn13"}, "cnn13 is for images"),
        ({"labeled": 4000}, "class 0 has 3000 samples and needs"),
        ({"unlabeled_total": 0}, "trains on unlabeled samples and there are none"),
    ],
)
def test_what_the_data_cannot_give_is_told_before_training(fields, said):
    with pytest.raises(ValueError, match=said):
        execute(toy(**fields))


# ---- One run


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """An executed run: (run, folder, result)."""
    folder = tmp_path_factory.mktemp("run") / "deep" / "er"
    run = toy(seed=3)
    return run, folder, execute(run, folder)


def test_the_result_says_what_was_run_and_how_it_ended(done):
    run, folder, result = done
    assert result["run"] == run.model_dump()
    assert (result["status"], result["diverged_at"], result["steps"]) == ("done", None, STEPS)
    assert sorted(result["labeled_counts"]) == [2, 10]
    assert sorted(result["unlabeled_counts"]) == [500, 2500]
    assert set(result["versions"]) == {"cissl", "torch", "numpy", "python"}
    assert result["versions"]["torch"] == torch.__version__
    assert result["seconds"] > 0
    assert f"{torch.get_num_threads()} threads" in result["hardware"]
    for who in ("student", "teacher"):
        assert 0 <= result[who]["error"] <= 1
        assert np.shape(result[who]["confusion"]) == (2, 2)
        assert np.sum(result[who]["confusion"]) == 6000  # all points, those trained on included
    assert json.loads((folder / "result.json").read_text()) == result
    assert json.loads((folder / "run.json").read_text()) == run.model_dump()


def test_the_folder_holds_whole_files_and_nothing_else(done):
    files = {path.name for path in done[1].iterdir()} - {".lock", "tensorboard"}
    assert files == {"run.json", "steps.csv", "weights.npz", "boundary.npz", "boundary-steps.npz", "result.json"}


def test_the_weights_kept_are_those_that_were_evaluated(done):
    run, folder, result = done
    data, saved = loaded(run), weights(folder)
    counts = np.array(result["labeled_counts"])
    for who in ("student", "teacher"):
        network = networks.build("toy-mlp", (2,), 2, torch.Generator().manual_seed(0))
        network.load_state_dict({n: torch.from_numpy(saved[f"{who}/{n}"]) for n in network.state_dict()})
        with torch.no_grad():
            predicted = network(torch.from_numpy(data.test_x)).softmax(1).numpy()
        assert metrics.evaluate(predicted, data.test_y, counts)["error"] == pytest.approx(
            result[who]["error"], abs=1e-3
        )


def test_training_moves_student_and_teacher_apart_from_where_they_began(done):
    run, folder, _ = done
    saved = weights(folder)
    began = networks.build("toy-mlp", (2,), 2, torch.Generator().manual_seed(stream(run.seed, "init"))).state_dict()
    for name, start in began.items():
        moved = {who: np.abs(saved[f"{who}/{name}"] - start.numpy()).max() for who in ("student", "teacher")}
        assert moved["student"] > moved["teacher"] > 0


def test_the_curve_has_a_row_per_stretch_with_every_loss(tmp_path):
    execute(toy(steps=150), tmp_path)
    with (tmp_path / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["100", "150"]
    assert [float(row["learning_rate"]) for row in rows] == pytest.approx([0.1, 0.02])  # after 120 of 150
    for row in rows:
        assert float(row["supervised"]) + float(row["consistency"]) == pytest.approx(float(row["loss"]), rel=1e-4)


def test_the_boundary_is_a_picture_of_the_student_over_the_points(done):
    run, folder, result = done
    data, saved = loaded(run), weights(folder)
    with np.load(folder / "boundary.npz") as arrays:
        picture = {name: arrays[name] for name in arrays}
    height, width = len(picture["y"]), len(picture["x"])
    assert picture["probability"].shape == picture["winner"].shape == (height, width)
    assert (picture["probability"].dtype, picture["winner"].dtype) == (np.float16, np.uint8)
    assert sorted(np.bincount(picture["labeled_classes"])) == sorted(result["labeled_counts"])
    assert sorted(np.bincount(picture["unlabeled_classes"])) == sorted(result["unlabeled_counts"])
    for axis, along in enumerate(("x", "y")):
        assert picture[along][0] < data.train_x[:, axis].min() < data.train_x[:, axis].max() < picture[along][-1]
    network = networks.build("toy-mlp", (2,), 2, torch.Generator().manual_seed(0))
    network.load_state_dict({n: torch.from_numpy(saved[f"student/{n}"]) for n in network.state_dict()})
    for row, column in ((0, width - 1), (height - 1, 0), (height // 2, width // 3)):
        point = torch.tensor([[picture["x"][column], picture["y"][row]]])
        confidence, winner = network(point).softmax(1).max(1)
        assert picture["winner"][row, column] == winner.item()
        assert picture["probability"][row, column] == pytest.approx(confidence.item(), abs=1e-3)


def film(folder):
    with np.load(folder / "boundary-steps.npz") as arrays:
        return {name: arrays[name] for name in arrays}


@pytest.mark.parametrize("do", [execute, together])
def test_the_boundary_is_seen_on_its_way_and_the_run_is_the_same_without(do, tmp_path, monkeypatch):
    run = toy(steps=250, seed=1)
    seen = do(run, tmp_path / "seen")
    pictures = film(tmp_path / "seen")
    assert pictures["steps"].tolist() == [0, 100, 200, 250]
    assert pictures["confidence"].shape == (4, len(pictures["y"]), len(pictures["x"]))
    assert all((one != other).any() for one, other in itertools.pairwise(pictures["confidence"]))
    with np.load(tmp_path / "seen" / "boundary.npz") as last:  # the same corners, in 255ths
        corners = last["probability"][:: len(last["y"]) - 1, :: len(last["x"]) - 1]
    assert pictures["confidence"][-1][::63, ::63] / 255 == pytest.approx(corners.astype(np.float32), abs=0.004)
    monkeypatch.setattr(execution.Film, "look", lambda *_: None)
    assert untimed(do(run, tmp_path / "unseen")) == untimed(seen)
    assert same_weights(tmp_path / "seen", tmp_path / "unseen")
    for name in ("steps.csv", "boundary.npz"):
        assert (tmp_path / "seen" / name).read_bytes() == (tmp_path / "unseen" / name).read_bytes()
    assert not (tmp_path / "unseen" / "boundary-steps.npz").exists()


def test_a_run_that_was_stopped_has_seen_all_of_its_boundary(tmp_path):
    def stop(status):
        if status.step == 200:
            raise KeyboardInterrupt

    run, machine = toy(steps=300), execution.Machine(checkpoint_every=100)
    with pytest.raises(KeyboardInterrupt):
        execute(run, tmp_path / "stopped", stop, machine)
    execute(run, tmp_path / "stopped", machine=machine)
    execute(run, tmp_path / "whole", machine=machine)
    stopped, whole = film(tmp_path / "stopped"), film(tmp_path / "whole")
    assert whole["steps"].tolist() == [0, 100, 200, 300]
    assert all(np.array_equal(stopped[name], whole[name]) for name in whole)


def test_a_long_run_is_seen_about_as_often_as_a_short_one():
    class Plane:
        def snapshot(self):
            return np.zeros((2, 2), dtype=np.uint8)

        def film(self, steps, snapshots):
            return {}

    for steps in (5_000, 500_000):
        seen = execution.Film(Plane(), steps, True)
        for step in range(0, steps + 1, 100):
            seen.look(step)
        assert seen.steps[0] == 0
        assert seen.steps[-1] == steps
        assert len(seen.steps) == execution.SNAPSHOTS + 1


def loaded(run):
    return datasets.load(run.dataset, seed=run.seed)


def global_states():
    """Not Python's own: the type checker of the tests draws from that."""
    return np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


@pytest.mark.parametrize("method", ["supervised", "mean-teacher+scl", "vat+em+sntg", "ict"])
def test_a_run_neither_follows_nor_moves_the_global_random_state(method, tmp_path):
    results = []
    for number in range(2):
        random.seed(number)
        np.random.seed(number)
        torch.manual_seed(number)
        before = global_states()
        results.append(untimed(execute(toy(method=method), tmp_path / str(number))))
        assert global_states() == before
    assert results[0] == results[1]
    assert same_weights(tmp_path / "0", tmp_path / "1")


def test_another_seed_is_another_run(done, tmp_path):
    execute(toy(seed=4), tmp_path)
    mine, theirs = weights(done[1]), weights(tmp_path)
    assert all(not np.array_equal(mine[name], theirs[name]) for name in mine)


def test_a_method_without_a_teacher_has_none(tmp_path):
    result = execute(toy(method="pi"), tmp_path)
    assert result["teacher"] is None
    assert {name.split("/")[0] for name in weights(tmp_path)} == {"student"}


def test_reweighting_changes_what_is_learnt(tmp_path):
    for reweight in ("ce", "in", "focal", "cb"):
        execute(toy(method="supervised", reweight=reweight), tmp_path / reweight)
    seen = {weights(tmp_path / reweight)["student/first.weight"].tobytes() for reweight in ("ce", "in", "focal", "cb")}
    assert len(seen) == 4


def test_a_run_that_is_done_is_not_done_again(done, tmp_path):
    kept = {**done[2], "seconds": 123.0}
    records.write_json(tmp_path / "result.json", kept)
    assert execute(done[0], tmp_path) == kept
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_folder_may_be_named_by_a_string(done, tmp_path):
    assert untimed(execute(done[0], str(tmp_path / "run"))) == untimed(done[2])
    assert (tmp_path / "run" / "result.json").is_file()


@pytest.mark.parametrize("do", [execute, together])
def test_a_folder_that_cannot_be_written_is_told_before_training(do, tmp_path):
    (tmp_path / "file").write_text("mine")

    def never(*told):
        raise AssertionError("trained first")

    with pytest.raises(OSError, match=r"cannot write to .*file.*give another folder"):
        do(toy(), tmp_path / "file" / "run", never)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_half_written_result_is_a_clear_error(done, tmp_path):
    (tmp_path / "result.json").write_text('{"status": "do')
    with pytest.raises(ValueError, match=r"result\.json is no valid JSON .* delete"):
        execute(done[0], tmp_path)


# ---- Runs that diverge


@pytest.fixture
def bursting(monkeypatch):
    """Makes the step of that number so long that nothing is left of the network."""

    def burst(at):
        monkeypatch.setattr(schedules, "learning_rate", lambda schedule, step, steps: 1e30 if step == at else 1.0)

    return burst


@pytest.mark.parametrize("do", [execute, together])
@pytest.mark.parametrize(("burst", "diverged"), [(1, 2), (7, 8), (110, 111)])
def test_a_run_diverges_at_the_first_step_whose_loss_is_no_number(do, burst, diverged, bursting, tmp_path):
    bursting(burst)
    run, folder = toy(steps=250), tmp_path / "run"
    told = []
    result = do(run, folder, lambda *steps: told.append(steps))
    assert (result["status"], result["diverged_at"]) == ("diverged", diverged)
    assert result["student"] is result["teacher"] is None
    assert {path.name for path in folder.iterdir()} - {".lock", "tensorboard"} == {
        "run.json",
        "steps.csv",
        "result.json",
    }
    assert records.read_result(folder) == result
    assert len(told) == (1 if diverged <= 100 else 2)  # the rest is not trained
    assert execute(run, folder) == result  # nor is it tried again


@pytest.mark.parametrize("do", [execute, together])
def test_a_last_step_that_leaves_a_network_without_predictions_is_divergence_too(do, bursting):
    bursting(STEPS)  # every loss was a number, and every weight still is
    result = do(toy())
    assert (result["status"], result["diverged_at"]) == ("diverged", STEPS)
    assert result["student"] is result["teacher"] is None


def sometimes_huge(shape, n_classes):
    """A network that half of the seeds start so large that the second step's loss overflows."""
    network = torch.nn.Sequential(torch.nn.Linear(shape[0], 8), torch.nn.Linear(8, n_classes))
    if torch.rand(()) < 0.5:
        with torch.no_grad():
            network[0].weight.fill_(1e20)
            network[1].weight.copy_(torch.linspace(-1e15, 1e15, 8 * n_classes).view(n_classes, 8))
    return network


def test_a_diverged_seed_leaves_the_others_alone(tmp_path):
    runs = [toy(network="test_run:sometimes_huge", steps=110, seed=seed) for seed in range(4)]
    alone = [together(run, tmp_path / "alone" / run.name) for run in runs]
    assert {result["diverged_at"] for result in alone} == {None, 2}
    at_once = execute_seeds(runs, [tmp_path / "at-once" / run.name for run in runs])
    assert [untimed(result) for result in at_once] == [untimed(result) for result in alone]
    for run in runs:
        curves = [(tmp_path / how / run.name / "steps.csv").read_text() for how in ("alone", "at-once")]
        assert curves[0] == curves[1]


# ---- Many seeds at once


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_a_seed_is_the_same_to_the_bit_however_many_are_trained_with_it(method, tmp_path):
    runs = [toy(method=method, seed=seed) for seed in range(5)]
    whole = execute_seeds(runs, [tmp_path / "all" / run.name for run in runs])
    for part in ([2], [4, 1]):
        chosen = [runs[seed] for seed in part]
        results = execute_seeds(chosen, [tmp_path / "part" / run.name for run in chosen])
        assert [untimed(result) for result in results] == [untimed(whole[seed]) for seed in part]
        assert all(same_weights(tmp_path / "all" / run.name, tmp_path / "part" / run.name) for run in chosen)


@pytest.mark.parametrize("dataset", ["two-moons", "four-spins"])
@pytest.mark.parametrize("method", PAPER_METHODS)
def test_seeds_at_once_are_the_runs_one_by_one(dataset, method, tmp_path):
    # VAT's direction comes from a difference of nearly equal numbers, which magnifies what float32 rounds.
    within = 1e-3 if method.startswith("vat") else 2e-5
    runs = [toy(dataset=dataset, method=method, seed=seed, steps=5) for seed in range(2)]
    execute_seeds(runs, [tmp_path / "at-once" / run.name for run in runs])
    for run in runs:
        execute(run, tmp_path / "one-by-one" / run.name)
        mine, theirs = (weights(tmp_path / how / run.name) for how in ("at-once", "one-by-one"))
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert mine[name] == pytest.approx(theirs[name], rel=1e-4, abs=within)


def test_seeds_at_once_use_one_thread_and_put_the_number_back():
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        execute_seeds([toy(seed=seed) for seed in range(2)], watch=lambda status: seen.append(torch.get_num_threads()))
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_seeds_that_are_done_are_left_out(tmp_path):
    runs = [toy(seed=seed) for seed in range(3)]
    fresh = execute_seeds(runs)
    folders = [tmp_path / run.name for run in runs]
    kept = {**fresh[1], "seconds": 123.0}
    records.write_json(folders[1] / "result.json", kept)
    results = execute_seeds(runs, folders)
    assert results[1] == kept
    assert [untimed(result) for result in results] == [untimed(result) for result in fresh]
    assert [path.name for path in folders[1].iterdir()] == ["result.json"]
    assert execute_seeds(runs, folders) == results
    assert execute_seeds([]) == []


def test_seeds_at_once_may_differ_in_their_seed_only():
    with pytest.raises(ValueError, match="may differ in their seed only"):
        execute_seeds([toy(seed=0), toy(seed=1, noise=0.2)])
    with pytest.raises(ValueError, match="a folder for each of 2 runs, got 1"):
        execute_seeds([toy(seed=0), toy(seed=1)], [None])


def test_a_network_with_running_statistics_is_refused_for_seeds_at_once():
    runs = [toy(network="test_run:batch_normed", seed=seed) for seed in range(2)]
    with pytest.raises(ValueError, match="needs a network without running statistics"):
        execute_seeds(runs)
    assert execute(runs[0])["status"] == "done"


def batch_normed(shape, n_classes):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, n_classes))


def test_the_split_is_the_protocols(done):
    run, folder, _ = done
    data = loaded(run)
    parts = protocol.split(data.train_y, labeled=12, imbalance=5, unlabeled_total=3000, seed=3, n_classes=2)
    with np.load(folder / "boundary.npz") as arrays:
        assert np.array_equal(arrays["labeled_points"], data.train_x[parts.labeled])
        assert np.array_equal(arrays["unlabeled_points"], data.train_x[parts.unlabeled])


@pytest.mark.parametrize("name", ["none", "standardize", "gcn+zca"])
def test_a_task_holds_the_parts_of_the_split_each_preprocessed_and_none_in_another(name, tmp_path):
    task = prepare(Run(dataset="digits", preprocessing=name, labeled=50), data_dir=tmp_path)
    data, parts, batches = task.data, task.split, task.batches
    fitted = preprocessing.fit(name, data.train_x, None)
    assert not set(batches.labeled) & set(batches.unlabeled)
    for part in ("labeled", "unlabeled"):
        mine, theirs = getattr(batches, part), getattr(parts, part)
        torch.testing.assert_close(batches.x[mine], torch.from_numpy(fitted(data.train_x[theirs])))
        assert batches.labels[mine].tolist() == data.train_y[theirs].tolist()
    torch.testing.assert_close(task.samples["test"][0], torch.from_numpy(fitted(data.test_x)))
    torch.testing.assert_close(task.samples["validation"][0], torch.from_numpy(fitted(data.train_x[parts.validation])))
