"""Executing a study: the same results however it is spread over processes, and whatever is killed on the way."""

import multiprocessing
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from processes import gone, members, started

from cissl import Run, records, study
from cissl.recipes import toy
from cissl.study import Worker, cores, execute_study, groups, pending

CHOSEN = {"seeds": 2, "methods": ["supervised", "mean-teacher+scl"], "steps": 250}
RUNS = toy(**CHOSEN)  # four groups of two seeds

# The study as a program: a line for each time that it tells its progress, the failures at the end.
LAUNCHER = f"""
import sys
from pathlib import Path
from cissl.recipes import toy
from cissl.study import execute_study

def tell(steps, finished):
    print(steps, finished, flush=True)

failures = execute_study(toy(**{CHOSEN}), Path(sys.argv[1]), int(sys.argv[2]), tell)
print("failures:", failures)
"""


def nothing(steps, finished):
    pass


class Told:
    """Progress, added up."""

    def __init__(self):
        self.steps, self.finished = 0, 0

    def __call__(self, steps, finished):
        assert steps >= 0
        self.steps, self.finished = self.steps + steps, self.finished + finished


def outcome(folder, runs=RUNS):
    """All that a study's runs left, but how long they took."""
    found = {}
    for run in runs:
        result = records.read_result(folder / run.name)
        assert result is not None
        with np.load(folder / run.name / "weights.npz") as saved:
            weights = {name: saved[name].tobytes() for name in saved}
        curve = (folder / run.name / "steps.csv").read_text()
        found[run.name] = ({**result, "seconds": None}, weights, curve)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    told = Told()
    assert execute_study(RUNS, folder, 1, told) == []
    assert (told.steps, told.finished) == (len(RUNS) * 250, len(RUNS))
    return outcome(folder)


# ---- Which runs, and which of them together


def test_seeds_are_together_and_nothing_else_is():
    together = groups(RUNS)
    assert [[run.seed for run in group] for group in together] == [[0, 1]] * 4
    assert len({(group[0].dataset, group[0].method) for group in together}) == 4
    assert sorted(run.name for group in together for run in group) == sorted(run.name for run in RUNS)
    changed = [Run(**{**RUNS[0].model_dump(), "noise": noise}) for noise in (0.1, 0.2)]
    assert groups([*changed, RUNS[0], RUNS[1]]) == [[changed[0]], [changed[1]], [RUNS[0], RUNS[1]]]


def test_many_seeds_are_shared_out():
    runs = toy(seeds=47, methods=["pi"])
    assert [len(group) for group in groups(runs)] == [20, 20, 7] * 2


def test_a_network_that_is_not_made_for_it_trains_alone():
    runs = [Run(dataset="digits", network="convnet", seed=seed) for seed in (0, 1)]
    assert groups(runs) == [[runs[0]], [runs[1]]]


def test_what_is_done_and_what_is_twice_there_waits_no_more(tmp_path):
    records.write_json(tmp_path / RUNS[1].name / "result.json", {"status": "diverged"})
    assert pending([RUNS[0], RUNS[1], RUNS[2], RUNS[0]], tmp_path) == [RUNS[0], RUNS[2]]


def test_there_is_at_least_one_core():
    assert 1 <= cores() <= (os.cpu_count() or 1)


# ---- In this process


def test_a_study_that_is_done_is_not_done_again(tmp_path):
    runs = RUNS[:2]
    assert execute_study(runs, tmp_path, 1, nothing) == []
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    told = Told()
    assert execute_study(runs, tmp_path, 2, told) == []
    assert (told.steps, told.finished) == (0, 0)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == written


def test_a_study_uses_one_thread_and_puts_the_number_back(tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        execute_study([quick()], tmp_path, 1, nothing)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert records.read_result(tmp_path / quick().name)["hardware"].endswith(" 1 threads")


def quick(**fields):
    return Run(**{"dataset": "two-moons", "method": "pi", "steps": 3, **fields})


def failing(shape, n_classes):
    """A network that gives up in training, on its fourth batch."""

    class Failing(torch.nn.Linear):
        passes = 0

        def forward(self, x):
            self.passes += self.training and len(x) == 100
            if self.passes > 6:
                raise RuntimeError("out of patience")
            return super().forward(x)

    return Failing(shape[0], n_classes)


def test_a_run_that_fails_leaves_the_others_and_its_traceback(tmp_path):
    broken = quick(network="test_study:failing", steps=30)
    unknown, impossible, fine = quick(network="mpl"), quick(labeled=4000), quick()
    told = Told()
    failures = execute_study([broken, unknown, impossible, fine], tmp_path, 1, told)
    assert [failure.runs for failure in failures] == [[broken], [unknown], [impossible]]
    log = tmp_path / broken.name / "error.log"
    assert failures[0].reason == f"RuntimeError: out of patience (the traceback is in {log})"
    assert "Traceback" in log.read_text()
    assert "did you mean 'mlp'" in failures[1].reason
    assert "class 0 has 3000 samples" in failures[2].reason
    assert records.read_result(tmp_path / fine.name)["status"] == "done"
    assert (told.steps, told.finished) == (30 + 3 + 3 + 3, 1)


def test_an_interrupt_is_no_failure_of_a_run(tmp_path):
    def interrupt(steps, finished):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute_study([quick()], tmp_path, 1, interrupt)
    assert pending([quick()], tmp_path) == [quick()]
    assert not list(tmp_path.rglob("error.log"))


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "runs"):
        with pytest.raises(OSError, match=r"cannot write to .* give another folder with --out"):
            execute_study(RUNS, folder, 1, nothing)


def test_a_failure_is_of_the_runs_without_a_result(tmp_path, monkeypatch):
    """The disk fills up after the first of two seeds was written."""
    write, room = records.write_json, [4]  # two descriptions, one result; the second result is one too many

    def write_json(path, content):
        room[0] -= 1
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(records, "write_json", write_json)
    told, pair = Told(), [quick(seed=0), quick(seed=1)]
    (failure,) = execute_study(pair, tmp_path, 1, told)
    assert failure.runs == [pair[1]]
    assert "No space left on device" in failure.reason
    assert (told.steps, told.finished) == (6, 1)
    monkeypatch.undo()
    assert execute_study(pair, tmp_path, 1, nothing) == []
    assert pending(pair, tmp_path) == []


# ---- In two processes


@pytest.fixture
def no_child_left():
    assert multiprocessing.active_children() == []
    yield
    left = multiprocessing.active_children()
    for child in left:
        child.kill()
        child.join()
    assert left == []


@pytest.mark.usefixtures("no_child_left")
def test_two_processes_give_the_same_and_one_that_is_killed_costs_its_group_only(tmp_path, undisturbed):
    killed = []

    class Kill(Told):
        def __call__(self, steps, finished):
            super().__call__(steps, finished)
            if not killed:  # the first word that comes: one process is in the middle of its first group
                killed.append(multiprocessing.active_children()[0])
                killed[0].kill()

    told = Kill()
    (failure,) = execute_study(RUNS, tmp_path, 2, told)
    assert killed[0].exitcode == -signal.SIGKILL
    assert "its process was killed" in failure.reason
    assert failure.runs in groups(RUNS)
    assert pending(RUNS, tmp_path) == failure.runs
    assert (told.steps, told.finished) == (len(RUNS) * 250, len(RUNS) - 2)
    assert execute_study(RUNS, tmp_path, 2, nothing) == []
    assert outcome(tmp_path) == undisturbed


def test_an_interrupt_ends_every_process(tmp_path, monkeypatch):
    """Stand-ins for the processes: each has told of a step already."""
    ended = []

    class StandIn:
        def __init__(self, folder, group, progress, machine):
            self.connection, theirs = multiprocessing.Pipe()
            theirs.send((1, None))
            self.told = lambda steps: progress(steps, 0)

        def hear(self):
            return self.connection.recv()

        def kill(self):
            ended.append(self)

    def interrupt(steps, finished):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "Worker", StandIn)
    with pytest.raises(KeyboardInterrupt):
        execute_study(RUNS, tmp_path, 3, interrupt)
    assert len(ended) == 3


@pytest.mark.usefixtures("no_child_left")
def test_a_process_that_died_takes_no_more_work(tmp_path):
    worker = Worker(tmp_path, [quick()], nothing, None)
    heard = [worker.hear() for _ in range(2)]
    assert heard == [(3, None), (None, None)]
    worker.process.kill()
    worker.process.join()
    assert not worker.give([quick(seed=1)], nothing)
    steps, reason = worker.hear()
    assert steps is None
    assert "was killed" in reason
    worker.dismiss()
    assert pending([quick(), quick(seed=1)], tmp_path) == [quick(seed=1)]


# ---- As a program that is killed


def test_the_program_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path, undisturbed):
    """Six times, without a chance to clean up."""
    killed = f"""
import os, random, signal, time
{LAUNCHER.split("failures =")[0]}
random, alive = random.Random(1), 0
for moment in range(6):
    child = os.fork()
    if child == 0:
        execute_study(toy(**{CHOSEN}), Path(sys.argv[1]), 1, lambda *told: None)
        os._exit(0)
    time.sleep(random.uniform(0.0, 0.6))
    os.kill(child, signal.SIGKILL)
    alive += os.WIFSIGNALED(os.waitpid(child, 0)[1])
assert alive > 0
failures = {LAUNCHER.split("failures =")[1]}
"""
    command = [sys.executable, "-c", killed, str(tmp_path), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["failures: []"], done.stderr
    assert outcome(tmp_path) == undisturbed


def test_when_the_program_is_killed_its_processes_end_and_the_next_one_goes_on(tmp_path, undisturbed):
    with started("-c", LAUNCHER, tmp_path, 2) as program:
        for _ in range(3):
            assert program.stdout.readline()
        assert len(members(program.pid)) >= 3
        program.kill()
        assert gone(program.pid)
        assert program.stderr.read() == ""
    assert pending(RUNS, tmp_path)
    # Two that start at once on one folder do not hinder each other.
    with started("-c", LAUNCHER, tmp_path, 1) as one, started("-c", LAUNCHER, tmp_path, 1) as other:
        for program in (one, other):
            told, complaints = program.communicate()
            assert told.splitlines()[-1:] == ["failures: []"], complaints
            assert (program.returncode, complaints) == (0, "")
    assert outcome(tmp_path) == undisturbed
