"""`cissl train` as its users meet it: what it prints, what it refuses, and how it goes on."""

import json
import re
import subprocess
import sys

import pytest

from cissl import execution

TOY = ("train", "--dataset", "two-moons", "--out", "one", "--steps", 5)
DIGITS = (
    "train", "--dataset", "digits", "--network", "mlp", "--labeled", 60, "--unlabeled-total", 200, "--accelerator",
    "cpu", "--out", "one", "--steps", 20,
)  # fmt: skip


def test_a_run_is_trained_once_and_printed_as_often_as_one_asks(cissl, tmp_path):
    code, out, err = cissl(*TOY)
    assert code == 0
    result = json.loads((tmp_path / "one" / "result.json").read_text())
    title, head, student, teacher, labeled, unlabeled, written = out.splitlines()
    assert title == "Test error in % at the last step"
    assert head.split() == ["all", "major", "minor", "balanced"]
    for who, line in [("student", student), ("teacher", teacher)]:
        name, *shown = line.split()
        assert name == who
        found = [result[who][key] for key in ("error", "major_error", "minor_error", "balanced_error")]
        assert shown == [f"{100 * number:.2f}" for number in found]
        assert len(line) == len(head)
    assert labeled.endswith(f": {', '.join(map(str, result['labeled_counts']))}")
    assert unlabeled.split()[1:] == [f"{n}," for n in result["unlabeled_counts"][:-1]] + [
        str(result["unlabeled_counts"][-1])
    ]
    assert written == "Written: one/result.json"
    assert re.fullmatch(
        r"step 5 of 5, 0 s left, [\d.]+ steps/s, loss .*, supervised .*, consistency .*, lr 0.02\n", err
    )

    code, again, err = cissl(*TOY)
    assert (code, err) == (0, "")
    assert again == "This run is done already.\n" + out


def test_every_setting_reaches_the_description(cissl, tmp_path):
    given = {
        "method": "vat", "labeled": 40, "imbalance": 4.0, "unlabeled": "half", "unlabeled-total": 90, "reweight": "in",
        "validation-per-class": 2, "network": "mlp", "preprocessing": "none", "steps": 3, "learning-rate": 0.01,
        "validations": 1, "precision": "bf16-mixed", "seed": 7,
    }  # fmt: skip
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    more = ("--option", "epsilon=2", "--sync-batchnorm", "--accelerator", "cpu", "--checkpoint-every", 1)
    code, _, err = cissl("train", "--dataset", "digits", "--out", "one", *words, *more)
    assert code == 0
    assert "validation error" in err
    described = json.loads((tmp_path / "one" / "run.json").read_text())
    assert {name: described[name.replace("-", "_")] for name in given} == given
    assert described["options"]["epsilon"] == 2
    assert described["sync_batchnorm"] is True


def test_the_validation_is_told_until_the_next(cissl, monkeypatch):
    monkeypatch.setattr("cissl.cli_train.EVERY_LINE", 0.0)
    code, _, err = cissl(*DIGITS, "--validation-per-class", 3, "--validations", 2, "--checkpoint-every", 5)
    assert code == 0
    told = [
        re.search(r"step (\d+) of 20, .*?(validation error [\d.]+ % \(teacher [\d.]+ %\))?$", line)
        for line in err.splitlines()
    ]
    assert [line[1] for line in told] == ["5", "10", "15", "20"]
    assert told[0][2] is None
    assert told[1][2] == told[2][2] is not None


def test_on_a_terminal_there_is_a_bar(cissl, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, _, err = cissl(*TOY)
    assert code == 0
    assert "5/5" in err
    assert "steps/s" in err


def test_a_run_that_diverges_is_said_to(cissl, tmp_path):
    code, out, _ = cissl(*DIGITS, "--learning-rate", 1e9)
    assert code == 0
    at = json.loads((tmp_path / "one" / "result.json").read_text())["diverged_at"]
    assert out.startswith(f"The loss was not a finite number at step {at}: the run diverged.\n")
    assert "Try a smaller --learning-rate." in out


def test_ctrl_c_says_how_to_go_on(cissl, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(execution.checkpoints, "remove", interrupt)  # at the very end
    code, out, err = cissl(*TOY)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "Stopped; the same command goes on from the last checkpoint."
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert cissl(*TOY)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dataset", "cifar11"), "unknown data set 'cifar11': did you mean 'cifar10'?"),
        (("--dataset", "cifar10", "--data-dir", "none"), "cifar10: no cifar-10-binary.tar.gz in none/cifar10 or none"),
        (("--method", "mean-techer"), "did you mean 'mean-teacher'?"),
        (("--option", "beta"), "--option takes name=value, such as beta=0.3, got 'beta'"),
        (("--option", "beta=much"), "beta should be a number above 0 and at most 1, got 'much'"),
        (("--option", "bta=0.3"), "did you mean 'beta'?"),
        (("--network", "toy-mpl"), "did you mean 'toy-mlp'?"),
        (("--network", "convnet"), "convnet is for images"),
        (("--network", "nowhere:net"), "if it lies in this folder, set PYTHONPATH=."),
        (("--precision", "fp16"), "precision: input should be '32-true' or 'bf16-mixed', got 'fp16'"),
        (("--unlabeled-total", 0), "the run trains on unlabeled samples and there are none"),
        (("--labeled", 4000), "class 0 has 3000 samples and needs"),
        (("--on-shortage", "cup"), "on_shortage: input should be 'error' or 'cap', got 'cup'"),
        (("--labeled", 1), "1 samples cannot give each of 2 classes at least one"),
        (("--cuda-graphs", "--accelerator", "cpu"), "CUDA graphs are for one CUDA device"),
        (("--out", "file"), "cannot write to file: File exists"),
        (("--out", "file/under"), "cannot write to file/under: Not a directory"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(arguments, said, cissl, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, out, err = cissl(*TOY, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("**/result.json"))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_warning_is_one_sentence_too(tmp_path):
    (tmp_path / "file").write_text("mine")
    more = ("--preprocessing", "gcn+zca", "--data-dir", "file", "--steps", 1)
    command = [sys.executable, "-m", "cissl", *map(str, (*DIGITS, *more))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr.startswith("warning: ZCA cannot be kept for the next run (")
    assert ".py:" not in done.stderr


SLURM = {"SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NAME": "job"}


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        ({}, 1),
        ({"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "3"}, 3),
        (SLURM, 2),
        ({**SLURM, "SLURM_JOB_NAME": "bash"}, 1),  # a shell on a node is no step of several tasks
    ],
)
def test_the_launcher_says_how_many_devices(environment, devices, cissl, monkeypatch):
    class Asked(ValueError):
        pass

    def execute(run, folder, watch, machine):
        raise Asked(f"{machine.devices} devices")

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(execution, "execute", execute)
    assert cissl(*TOY)[2] == f"error: {devices} devices\n"
    assert cissl(*TOY, "--devices", 5)[2] == "error: 5 devices\n"
