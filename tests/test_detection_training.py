"""Training a detector: its description, its batches, the losses of a step, and a run that is stopped and goes on."""

from functools import partial

import numpy as np
import pytest
import torch
from detection_files import picture, tiny_data

from cissl.detection import shapes, ssd
from cissl.detection.batches import PictureBatches
from cissl.detection.data import DetectionData
from cissl.detection.description import DetectionRun
from cissl.detection.training import METHODS, DetectionStep, assemble, load, weights_file
from cissl.execution import Machine, Trainable, execute

SMALL = {"dataset": "shapes", "batch": 4, "steps": 12}


def run_of(**changes):
    return DetectionRun(**{**SMALL, **changes})


def batches(data=None, **changes):
    data = data or tiny_data()
    settings = {"labeled": data.labeled, "unlabeled": data.unlabeled, "batch": 4, "size": 96, "seed": 3}
    return PictureBatches(**{**settings, **changes})


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# ---- The description


def test_the_defaults_are_the_papers():
    run = DetectionRun()
    assert (run.dataset, run.backbone, run.size, run.batch, run.steps) == ("voc", "vgg16", 300, 32, 120_000)
    assert (run.learning_rate, run.momentum, run.weight_decay, run.nesterov) == (1e-3, 0.9, 5e-4, False)
    assert (run.augmentation, run.weights) == ("ssd", "vgg16-ssd")
    rates = [run.rate(step) for step in (1, 80_000, 80_001, 100_000, 100_001, 120_000)]
    assert rates == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4, 1e-5, 1e-5])
    cut = DetectionRun(steps=120)
    assert [cut.rate(step) for step in (80, 81, 101)] == pytest.approx([1e-3, 1e-4, 1e-5])


def test_a_description_is_frozen_and_named_by_its_hash():
    run = run_of(method="csd", seed=4)
    assert DetectionRun(**run.model_dump()) == run
    assert DetectionRun(**run.model_dump()).name == run.name != run_of(method="csd", seed=5).name
    assert run.changed(steps=7).steps == 7
    assert run_of().backbone == "small"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"method": "csd+sc"}, "method: input should be 'supervised', 'csd-cls'"),
        ({"backbone": "vgg"}, "backbone: input should be 'vgg16' or 'small'"),
        ({"backbone": "vgg16", "size": 512}, "SSD300 on vgg16 takes 300 pixels"),
        ({"size": 100}, "size: the small backbone takes a multiple of 32 from 96, got 100"),
        ({"weights": "file"}, "weights are those of VGG16"),
        ({"validations": 3}, "a detector has no validation pictures"),
        ({"files": {"labeled": "a"}}, "files are the annotations and pictures of the data set coco"),
        ({"dataset": "coco", "files": {"labeled": "a", "images": "b"}}, "give some with --unlabeled"),
        ({"step": 3}, "unknown field of a run 'step': did you mean 'steps'"),
    ],
)
def test_a_mistake_is_named(fields, said):
    with pytest.raises(ValueError, match=said.replace("+", r"\+")):
        run_of(**fields)


def test_weights_that_are_not_there_say_where_to_get_them(tmp_path):
    with pytest.raises(ValueError, match=r"there are no weights .*: run `cissl data fetch vgg16-ssd`"):
        weights_file("vgg16-ssd", tmp_path)
    (tmp_path / "mine.pth").touch()
    assert weights_file(str(tmp_path / "mine.pth"), tmp_path) == tmp_path / "mine.pth"


# ---- Batches


def test_first_the_labeled_pictures_then_all_of_them():
    made = batches(batch=2)  # 5 labeled, 9 unlabeled
    assert made.first_steps == 3
    firsts = np.concatenate([made.chosen(step) for step in (1, 2, 3)])
    assert sorted(firsts[:5]) == list(range(5))
    assert (firsts < 5).all()
    later = np.concatenate([made.chosen(step) for step in range(4, 11)])
    assert sorted(later) == list(range(14))
    supervised = batches(batch=5, unlabeled=[])
    assert all(sorted(supervised.chosen(step)) == list(range(5)) for step in (1, 2, 7))


def test_a_batch_says_what_is_labeled_and_where_its_objects_are():
    made = batches(augmentation="none", weight=lambda step: step / 10)
    for step in (1, 5):
        batch = made.step(step)
        assert batch["images"].shape == (4, 3, 96, 96)
        assert batch["images"].dtype == torch.uint8
        assert batch["labeled"].tolist() == (made.chosen(step) < 5).tolist()
        assert batch["weight"].item() == pytest.approx(step / 10)
        for place, number in enumerate(made.chosen(step)):
            if number < 5:
                box = batch["boxes"][place, 0] * torch.tensor([60.0, 48, 60, 48])
                assert box.tolist() == pytest.approx([1 + number, 4, 21 + number, 24], abs=1e-4)
                assert batch["classes"][place].tolist() == [0, 1 if number % 3 else 2]
            else:
                assert batch["classes"][place].tolist() == [-1, -1]
    assert not made.step(5)["labeled"].all()


@pytest.mark.parametrize("augmentation", ["ssd", "light"])
def test_what_is_on_an_unlabeled_picture_is_not_looked_at(augmentation):
    data = tiny_data()
    nothing = np.zeros((0, 4)), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
    blind = [type(p)(p.name, p.source, *nothing) for p in data.unlabeled]
    seeing, other = batches(data, augmentation=augmentation), batches(data, unlabeled=blind, augmentation=augmentation)
    assert all(same(seeing.step(step), other.step(step)) for step in range(1, 8))


def test_a_batch_is_a_function_of_seed_and_step():
    first, fresh, other = batches(), batches(), batches(seed=4)
    steps = [first.step(step) for step in range(1, 6)]
    assert same(steps[4], fresh.step(5))
    assert not torch.equal(steps[4]["images"], other.step(5)["images"])
    assert not torch.equal(steps[0]["images"], steps[1]["images"])


def test_every_step_draws_its_own_view_of_a_picture():
    one = batches(labeled=tiny_data().labeled[:1], unlabeled=[], batch=2)
    first, second = one.step(1)["images"], one.step(2)["images"]
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def test_batches_made_ahead_in_threads_are_the_same():
    plain, ahead = batches(), batches(background=True)
    assert all(same(plain.step(step), ahead.step(step)) for step in (1, 2, 3, 4, 5))
    ahead.pool.shutdown()


def test_processes_share_a_batch():
    whole = batches().step(5)
    shares = [batches(shard=(rank, 2)).step(5) for rank in (0, 1)]
    for name in ("images", "boxes", "classes", "labeled"):
        assert torch.equal(torch.stack([shares[0][name], shares[1][name]], 1).flatten(0, 1), whole[name])
    with pytest.raises(ValueError, match="3 pictures a batch cannot be shared by 2 processes"):
        batches(batch=3, shard=(0, 2))


def test_no_shape_depends_on_the_draw():
    made = batches()
    shapes_of = [{name: value.shape for name, value in made.step(step).items()} for step in range(1, 9)]
    assert all(shape == shapes_of[0] for shape in shapes_of)


# ---- A step


def detector(confident=True):
    """A small detector, and one that takes some priors for objects."""
    network = ssd.small(3, torch.Generator().manual_seed(1))
    if confident:
        with torch.no_grad():
            for head in network.class_heads:
                head.weight.mul_(4)
    return network


def losses_of(method, batch, network=None):
    step = DetectionStep(method, network or detector())
    return step(batch), step


def a_batch(**changes):
    made = batches(constants={"suppression": torch.tensor([1.0, 0.5, 0.1])}, **changes)
    return made.step(5)


@pytest.mark.parametrize("method", METHODS)
def test_a_step_has_the_terms_of_its_method(method):
    losses, _ = losses_of(method, a_batch())
    named = {"localisation", "classification"}
    if method != "supervised":
        named |= {"consistency_classification"} | ({"consistency_localisation"} if "cls" not in method else set())
    assert losses.keys() == named | {"loss"}
    assert losses["loss"].item() == pytest.approx(sum(losses[name].item() for name in named), rel=1e-5)
    assert all(losses[name] > 0 for name in named)


def test_the_network_sees_pictures_and_their_mirror_images_in_one_pass():
    seen, batch = [], a_batch()
    network = detector()
    network.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    losses_of("csd", batch, network)
    losses_of("supervised", batch, network)
    assert [len(images) for images in seen] == [8, 4]
    assert torch.equal(seen[0][:4], seen[1])
    assert torch.equal(seen[0][4:], seen[1][..., torch.arange(95, -1, -1)])


TERMS = ("localisation", "classification", "consistency_classification", "consistency_localisation")


@pytest.mark.parametrize("term", TERMS)
def test_every_term_teaches_the_network(term):
    losses, step = losses_of("csd", a_batch())
    losses[term].backward()
    heads = step.student.offset_heads if "localisation" in term else step.student.class_heads
    reached = {
        name for name, parameter in step.named_parameters() if parameter.grad is not None and parameter.grad.any()
    }
    assert {name for name, _ in step.named_parameters() if "body" in name and "stages.0" in name} <= reached
    assert any(parameter.grad.any() for parameter in heads.parameters() if parameter.grad is not None)


def test_every_parameter_gets_a_gradient():
    losses, step = losses_of("csd+scl", a_batch())
    losses["loss"].backward()
    assert all(parameter.grad is not None for parameter in step.parameters())


def test_suppression_by_equal_counts_is_csd():
    batch = a_batch()
    plain, _ = losses_of("csd", {name: value for name, value in batch.items() if name != "suppression"})
    equal, _ = losses_of("csd+scl", {**batch, "suppression": torch.ones(3)})
    less, _ = losses_of("csd+scl", batch)
    assert {name: value.item() for name, value in plain.items()} == {
        name: value.item() for name, value in equal.items()
    }
    assert less["consistency_classification"] < plain["consistency_classification"]
    assert less["consistency_localisation"].item() == plain["consistency_localisation"].item()


def test_the_suppression_of_a_run_is_never_above_one():
    data = tiny_data()
    constants = assemble(run_of(method="csd+scl"), data).batches.constants
    assert constants["suppression"].tolist() == pytest.approx(
        [n / max(data.labeled_counts) for n in data.labeled_counts]
    )
    assert constants["suppression"].max() == 1
    assert assemble(run_of(method="csd"), data).batches.constants == {}


def test_without_a_labeled_picture_there_is_consistency_only():
    batch = a_batch()
    batch["labeled"] = torch.zeros(4, dtype=torch.bool)
    losses, step = losses_of("csd", batch)
    assert losses["localisation"] == losses["classification"] == 0
    losses["loss"].backward()
    assert any(parameter.grad.any() for parameter in step.parameters())


def test_the_consistency_has_its_weight():
    full, half = a_batch(), a_batch()
    full["weight"], half["weight"] = torch.tensor(1.0), torch.tensor(0.5)
    (full, _), (half, _) = losses_of("csd", full), losses_of("csd", half)
    for name in ("consistency_classification", "consistency_localisation"):
        assert half[name].item() == pytest.approx(full[name].item() / 2)
    assert half["classification"].item() == full["classification"].item()


def test_one_colour_no_object_and_boxes_without_area_give_numbers():
    nothing = picture("nothing")
    flat = picture("flat", ("cat", (10, 10, 10, 30)), ("dog", (5, 5, 5, 5)))
    made = batches(DetectionData("odd", ("cat", "dog", "person"), [flat], [nothing], []), batch=2)
    for step in (1, 2, 3):
        losses, module = losses_of("csd", made.step(step))
        losses["loss"].backward()
        assert all(value.isfinite() for value in losses.values())
        assert all(p.grad.isfinite().all() for p in module.parameters() if p.grad is not None)


# ---- A run


def trained(folder=None, data=None, machine=None, **changes):
    run = run_of(**changes)
    prepare = lambda device, shard: assemble(run, data or tiny_data(), device, None, shard)  # noqa: E731
    return execute(run, folder, machine=machine or Machine(accelerator="cpu"), prepare=prepare)


def weights(folder):
    with np.load(folder / "weights.npz") as saved:
        return dict(saved)


def test_a_run_says_what_was_measured_and_on_what(tmp_path):
    result = trained(tmp_path, method="csd+scl", steps=3)
    student = result["student"]
    assert len(student["average_precision"]) == 3
    assert 0 <= student["map"] <= 1
    assert {"major_ap", "minor_ap", "head_ap", "tail_ap", "metric"} <= student.keys()
    assert result["labeled_counts"] == [5, 3, 2]
    assert result["class_names"] == ["cat", "dog", "person"]
    assert result["pictures"] == {"labeled": 5, "unlabeled": 9, "test": 2}
    assert (
        (tmp_path / "steps.csv").read_text().startswith("step,learning_rate,loss,localisation,classification,consist")
    )
    assert isinstance(assemble(run_of(), tiny_data()), Trainable)


class Killed(Exception):
    pass


def test_a_run_that_was_stopped_ends_as_if_it_had_not(tmp_path):
    """Stopped after the checkpoint of step 8, between two steps."""
    machine = Machine(accelerator="cpu", checkpoint_every=4)
    whole = trained(tmp_path / "whole", machine=machine)
    run = run_of()

    def prepare(device, shard, until):
        task = assemble(run, tiny_data(), device, None, shard)
        step = task.batches.step

        def stopping(number):
            if number > until:
                raise Killed
            return step(number)

        task.batches.step = stopping
        return task

    for until in (3, 6, 11):
        with pytest.raises(Killed):
            execute(run, tmp_path / "stopped", machine=machine, prepare=partial(prepare, until=until))
    again = trained(tmp_path / "stopped", machine=machine)
    assert {**again, "seconds": 0} == {**whole, "seconds": 0}
    before, after = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_network_that_says_no_numbers_has_diverged():
    result = trained(method="supervised", learning_rate=1e20, steps=3)
    assert (result["status"], result["student"]) == ("diverged", None)


def test_without_test_pictures_there_is_nothing_to_say():
    data = tiny_data(test=0)
    result = trained(data=data, method="supervised", steps=1)
    assert (result["status"], result["student"]["map"]) == ("done", None)


def test_bf16_trains_and_stays_close():
    exact, rough = (trained(method="csd", steps=1, precision=precision) for precision in ("32-true", "bf16-mixed"))
    assert rough["status"] == exact["status"] == "done"


def test_a_detector_learns(tmp_path):
    """Rectangles of three colours, a few dozen steps, no augmentation: it finds those that it has seen."""
    data = tiny_data(labeled=6, unlabeled=0, test=0)
    seen = DetectionData("seen", data.class_names, data.labeled, [], data.labeled)
    result = trained(data=seen, method="supervised", steps=80, augmentation="none", learning_rate=0.02, batch=6)
    assert result["student"]["map"] > 0.6


def test_supervised_learning_loads_no_unlabeled_pictures(monkeypatch):
    monkeypatch.setattr(shapes, "load", lambda seed: tiny_data())
    assert load(run_of(method="supervised")).unlabeled == []
    assert len(load(run_of(method="csd")).unlabeled) == 9
    assert len(load(run_of(method="supervised"), unlabeled=True).unlabeled) == 9
