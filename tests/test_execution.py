"""Runs on images: what is trained, chosen, measured and written; stopped at any moment, and on several devices."""

import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import kill_and_resume
import numpy as np
import pytest
import torch

from cissl import checkpoints, datasets, records, task
from cissl.execution import Machine, execute
from cissl.run import Run
from cissl.task import prepare, probabilities

SMALL = {
    "dataset": "digits", "method": "mean-teacher+scl", "steps": 60, "validation_per_class": 15, "validations": 4,
    "labeled": 60, "unlabeled_total": 200, "labeled_batch": 8, "unlabeled_batch": 8,
}  # fmt: skip
CPU = Machine(accelerator="cpu")
VARYING = ("seconds",)


def comparable(folder):
    """Everything that a run left, wall times aside."""
    result = json.loads((folder / "result.json").read_text())
    with np.load(folder / "weights.npz") as weights:
        arrays = {name: weights[name].tobytes() for name in weights}
    kept = {name: value for name, value in result.items() if name not in VARYING}
    return kept, arrays, (folder / "steps.csv").read_text()


def small(**changes):
    return Run(**{**SMALL, **changes})


def test_a_run_is_chosen_by_the_student_on_the_validation_samples(tmp_path):
    result = execute(small(), tmp_path, machine=CPU)
    steps = [seen["step"] for seen in result["validation"]]
    errors = [seen["student_error"] for seen in result["validation"]]
    assert steps == [15, 30, 45, 60]
    assert result["best_step"] == steps[errors.index(min(errors))]
    assert result["status"] == "done"
    assert set(result["final"]) == {"student", "teacher"}
    if result["best_step"] == 60:
        assert result["final"]["student"] == result["student"]
    assert not list(tmp_path.glob("checkpoint-*"))


def test_the_chosen_weights_are_those_that_are_kept(tmp_path):
    # A learning rate that spoils the end: the best is not the last.
    for seed in range(6):
        result = execute(small(learning_rate=1.0, schedule="constant", seed=seed), tmp_path / str(seed), machine=CPU)
        if result["status"] == "done" and result["best_step"] != 60:
            break
    else:
        pytest.fail("no seed was best before its end")
    task = prepare(small(learning_rate=1.0, schedule="constant", seed=seed))
    with np.load(tmp_path / str(seed) / "weights.npz") as weights:
        state = {name: torch.from_numpy(weights[f"student/{name}"]) for name in task.student.state_dict()}
    task.student.load_state_dict(state)
    x, y = task.samples["test"]
    error = float((probabilities(task.student, x).argmax(1) != y).mean())
    assert error == result["student"]["error"]


def test_without_validation_the_last_step_counts(tmp_path):
    result = execute(small(validations=0), tmp_path, machine=CPU)
    assert result["best_step"] is None
    assert result["student"] == result["final"]["student"]


@pytest.mark.parametrize("method", ["supervised", "pi", "vat+em+sntg", "ict", "pseudo-label+scl"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_every_method_trains_on_images(method, precision):
    result = execute(small(method=method, precision=precision, steps=12, validations=1), machine=CPU)
    assert result["status"] == "done"


@pytest.mark.parametrize("reweight", ["in", "cb", "focal"])
def test_every_reweighting_trains_on_images(reweight):
    assert execute(small(reweight=reweight, steps=6, validations=0), machine=CPU)["status"] == "done"


def test_a_folder_of_another_run_is_refused(tmp_path):
    execute(small(steps=4, validations=0), tmp_path, machine=CPU)
    with pytest.raises(ValueError, match=r"holds another run \(options.*|seed 0 there, 1 here"):
        execute(small(steps=4, validations=0, seed=1), tmp_path, machine=CPU)


def test_a_folder_where_nothing_was_trained_yet_is_nobodys(tmp_path):
    """The first try had a mistake in it: the corrected command may go to the same folder."""
    with pytest.raises(ValueError, match="unknown network"):
        execute(small(network="convnett"), tmp_path, machine=CPU)
    assert execute(small(steps=4, validations=0), tmp_path, machine=CPU)["status"] == "done"


def test_a_folder_with_checkpoints_of_another_run_is_refused(tmp_path):
    def stop(status):
        if status.step >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(small(), tmp_path, stop, Machine(accelerator="cpu", checkpoint_every=10))
    with pytest.raises(ValueError, match=r"holds another run \(seed 0 there, 1 here\)"):
        execute(small(seed=1), tmp_path, machine=CPU)
    assert checkpoints.newest_first(tmp_path)


def test_a_device_that_is_not_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=r"this machine cannot train on 1 x cuda: .*not available"):
        execute(small(), machine=Machine(accelerator="cuda"))


def test_a_second_process_in_the_same_folder_is_refused(tmp_path):
    with records.only_process(tmp_path), pytest.raises(ValueError, match="another process is training"):
        execute(small(), tmp_path, machine=CPU)


def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(tmp_path, capsys):
    execute(small(), tmp_path / "whole", machine=CPU)

    def stop(status):
        if status.step >= 40:
            raise KeyboardInterrupt

    machine = Machine(accelerator="cpu", checkpoint_every=7)
    with pytest.raises(KeyboardInterrupt):
        execute(small(), tmp_path / "stopped", stop, machine)
    assert [int(path.stem[-9:]) for path in checkpoints.newest_first(tmp_path / "stopped")] == [35, 28]
    execute(small(), tmp_path / "stopped", machine=machine)
    assert "Going on after step 35 of 60" in capsys.readouterr().err
    execute(small(), tmp_path / "undisturbed", machine=machine)
    assert comparable(tmp_path / "stopped") == comparable(tmp_path / "undisturbed")
    # How often it is saved changes nothing but how finely steps.csv is written.
    assert comparable(tmp_path / "stopped")[:2] == comparable(tmp_path / "whole")[:2]


def test_killed_at_twenty_moments_it_ends_as_if_it_had_never_stopped(tmp_path):
    description = {**SMALL, "steps": 1000, "validations": 6}
    context = multiprocessing.get_context("forkserver")  # imports once, so that a life starts at once
    context.set_forkserver_preload(["cissl.execution", "sklearn.datasets", "kill_and_resume"])

    def start(name):
        arguments = (str(tmp_path / name), description, str(tmp_path / f"{name}.log"))
        process = context.Process(target=kill_and_resume.train, args=arguments)
        process.start()
        return process

    processes, moments, folder = [start("undisturbed")], random.Random(0), tmp_path / "killed"
    try:
        for _ in range(20):
            process = start("killed")
            processes.append(process)
            # From its first checkpoint on: each life gets somewhere, and then dies at any point of a step.
            seen = set(folder.glob("checkpoint-*"))
            while process.is_alive() and set(folder.glob("checkpoint-*")) == seen:
                time.sleep(0.002)
            time.sleep(moments.uniform(0, 0.05))
            process.kill()
            process.join()
            assert process.exitcode == -signal.SIGKILL, "it ended before it could be killed twenty times"
        processes.append(start("killed"))
        for process in (processes[-1], processes[0]):
            process.join(100)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
    assert (tmp_path / "killed.log").read_text().count("Going on after") >= 18
    assert comparable(folder) == comparable(tmp_path / "undisturbed")


TWO = [
    "--dataset", "digits", "--network", "mlp", "--labeled", "60", "--unlabeled-total", "200",
    "--learning-rate", "0.02", "--accelerator", "cpu",
]  # fmt: skip
# On the loopback address only.
ALONE = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def train(out, *more, launcher=(sys.executable, "-m")):
    command = [*launcher, "cissl", "train", *TWO, "--out", str(out), *more]
    return subprocess.run(command, env=ALONE, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    done = train(folder, "--steps", "40")
    assert done.returncode == 0, done.stderr
    with np.load(folder / "weights.npz") as weights:
        return {name: weights[name] for name in weights}


@pytest.mark.parametrize("launcher", ["cissl", "torchrun"])
def test_two_processes_train_one_run(launcher, alone, tmp_path):
    """The global batch is split: without BatchNorm in the way, the result is the same but for rounding."""
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                "--master-port", "29631", "-m")  # fmt: skip
    launchers = {"cissl": (sys.executable, "-m"), "torchrun": torchrun}
    devices = ("--devices", "2") if launcher == "cissl" else ()  # torchrun has said it
    done = train(tmp_path, "--steps", "40", *devices, launcher=launchers[launcher])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Test error in % at") == 1
    with np.load(tmp_path / "weights.npz") as weights:
        for name in alone:
            np.testing.assert_allclose(weights[name], alone[name], rtol=1e-3, atol=1e-5)


def test_what_two_processes_began_one_finishes(tmp_path):
    more = ["--steps", "600", "--checkpoint-every", "20"]
    two = subprocess.Popen(
        [sys.executable, "-m", "cissl", "train", *TWO, "--out", str(tmp_path), *more, "--devices", "2"],
        env=ALONE, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("checkpoint-*")) and two.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        os.killpg(two.pid, signal.SIGKILL)
        two.wait()
    done = train(tmp_path, *more)
    assert done.returncode == 0, done.stderr
    assert "Going on after step" in done.stderr
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "done"


def test_statistics_are_synchronised_on_gpus_only(tmp_path):
    done = train(tmp_path, "--steps", "4", "--devices", "2", "--sync-batchnorm")
    assert done.returncode != 0
    assert "sync_batchnorm needs GPUs" in done.stderr


def test_a_full_disk_is_a_sentence_and_costs_nothing(tmp_path, monkeypatch):
    """The disk fills up at the third checkpoint; with room again, the run goes on from the second."""
    machine, saves = Machine(accelerator="cpu", checkpoint_every=10), []
    real = checkpoints.save

    def save(folder, step, state):
        saves.append(step)
        if len(saves) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(folder, step, state)

    monkeypatch.setattr(checkpoints, "save", save)
    with pytest.raises(OSError, match=r"cannot write to .*No space left.*start the same command again"):
        execute(small(), tmp_path / "full", machine=machine)
    monkeypatch.undo()
    assert [path.stem[-2:] for path in checkpoints.newest_first(tmp_path / "full")] == ["20", "10"]
    execute(small(), tmp_path / "full", machine=machine)
    execute(small(), tmp_path / "room", machine=machine)
    assert comparable(tmp_path / "full") == comparable(tmp_path / "room")


BAD = {
    "an empty unlabeled set": ({"unlabeled_total": 0}, "trains on unlabeled samples and there are none"),
    "a class too small": ({"labeled": 1700, "imbalance": 1}, "samples and needs"),
    "gcn+zca of vectors": ({"dataset": "two-moons", "preprocessing": "gcn+zca"}, "is for images"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_an_error_before_training(changes, message):
    given = changes if "dataset" in changes else {**SMALL, **changes}
    with pytest.raises(ValueError, match=message):
        execute(Run(**given), machine=CPU)


def test_nan_pixels_and_labels_out_of_range_are_refused():
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"NaN|finite"):
        datasets.Dataset("mine", np.full_like(x, np.nan), y, x, y, ("a", "b"))
    with pytest.raises(ValueError, match="label"):
        datasets.Dataset("mine", x, y + 1, x, y, ("a", "b"))


def test_a_network_that_predicts_no_numbers_has_diverged_not_failed(monkeypatch):
    """Losses over batch statistics can stay finite while the running ones overflow."""
    real = task.probabilities
    monkeypatch.setattr(task, "probabilities", lambda network, x: real(network, x) * np.nan)
    result = execute(small(), machine=CPU)
    assert (result["status"], result["diverged_at"]) == ("diverged", 15)
    assert result["student"] is result["final"] is None


def test_curves_for_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    execute(small(), tmp_path, machine=CPU)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {"loss", "consistency", "learning_rate", "student_error", "teacher_error"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("student_error")] == [15, 30, 45, 60]
