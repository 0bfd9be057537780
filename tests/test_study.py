"""Executing a study: the same results however it is spread over processes, and whatever is killed on the way."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from processes import gone, members, started

from cissl import Run, leases, records, study
from cissl.processes import Processes, Worker, cores
from cissl.recipes import toy
from cissl.study import Ended, InHere, execute_study, groups, pending

CHOSEN = {"seeds": 2, "methods": ["supervised", "mean-teacher+scl"], "steps": 250}
RUNS = toy(**CHOSEN)  # four groups of two seeds

# The study as a program: a line for each time that it tells its progress, the failures at the end.
LAUNCHER = f"""
import sys
from pathlib import Path
from cissl.processes import Processes
from cissl.recipes import toy
from cissl.study import InHere, execute_study

def tell(steps, finished):
    print(steps, finished, flush=True)

if __name__ == "__main__":
    folder, jobs = Path(sys.argv[1]), int(sys.argv[2])
    workers = Processes(folder, jobs) if jobs > 1 else InHere(folder)
    failures = execute_study(toy(**{CHOSEN}), folder, workers, tell)
    print("failures:", failures)
"""


def nothing(*told):
    pass


class Told:
    """Progress, added up."""

    def __init__(self):
        self.steps, self.finished = 0, 0

    def __call__(self, steps, finished):
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
    assert execute_study(RUNS, folder, InHere(folder), told) == []
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
    assert execute_study(runs, tmp_path, InHere(tmp_path), nothing) == []
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    told = Told()
    assert execute_study(runs, tmp_path, Processes(tmp_path, 2), told) == []
    assert (told.steps, told.finished) == (0, 0)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == written


def test_a_study_uses_one_thread_and_puts_the_number_back(tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        execute_study([quick()], tmp_path, InHere(tmp_path), nothing)
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
    failures = execute_study([broken, unknown, impossible, fine], tmp_path, InHere(tmp_path), told)
    # What is wrong with a description is so the second time too; the rest is tried twice.
    assert [failure.runs for failure in failures] == [[unknown], [impossible], [broken]]
    log = tmp_path / broken.name / "output.log"
    assert failures[2].reason == f"RuntimeError: out of patience (the traceback is in {log})"
    assert log.read_text().count("Traceback") == 2
    assert "did you mean 'mlp'" in failures[0].reason
    assert "class 0 has 3000 samples" in failures[1].reason
    assert records.read_result(tmp_path / fine.name)["status"] == "done"
    assert (told.steps, told.finished) == (30 + 3 + 3 + 3, 1)
    tries = [records.read_json(tmp_path / run.name / "failure.json")["tries"] for run in (broken, unknown)]
    assert tries == [2, 1]
    assert not list(tmp_path.rglob(leases.NAME))


def flaky(shape, n_classes):
    """A network that fails once, whatever process it is in: the second time it finds that it did."""

    class Flaky(torch.nn.Linear):
        def forward(self, x):
            mark = os.environ["FLAKY"]
            if self.training and len(x) == 100 and not os.path.exists(mark):
                open(mark, "w").close()
                os._exit(3) if multiprocessing.parent_process() else exec("raise RuntimeError('not yet')")
            return super().forward(x)

    return Flaky(shape[0], n_classes)


@pytest.mark.parametrize("jobs", [0, 1])
def test_what_failed_is_tried_once_more(tmp_path, monkeypatch, jobs):
    monkeypatch.setenv("FLAKY", str(tmp_path / "failed-once"))
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    folder, told, run = tmp_path / "study", Told(), quick(network="test_study:flaky", steps=30)
    workers = Processes(folder, jobs) if jobs else InHere(folder)
    assert execute_study([run], folder, workers, told) == []
    assert (tmp_path / "failed-once").exists()
    assert (told.steps, told.finished) == (30, 1)
    assert not (folder / run.name / "failure.json").exists()


def test_the_same_command_again_gives_a_failed_run_another_chance(tmp_path):
    run = quick()
    records.write_json(tmp_path / run.name / "failure.json", {"reason": "the disk was full", "tries": 2})
    assert execute_study([run], tmp_path, InHere(tmp_path), nothing) == []
    assert not (tmp_path / run.name / "failure.json").exists()


def test_an_interrupt_is_no_failure_of_a_run(tmp_path):
    def interrupt(steps, finished):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute_study([quick()], tmp_path, InHere(tmp_path), interrupt)
    assert pending([quick()], tmp_path) == [quick()]
    assert not list(tmp_path.rglob("output.log"))


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "runs"):
        with pytest.raises(OSError, match=r"cannot write to .* give another folder with --out"):
            execute_study(RUNS, folder, InHere(folder), nothing)


def test_a_failure_is_of_the_runs_without_a_result(tmp_path, monkeypatch):
    """The disk fills up after the first of two seeds was written."""
    write, room = records.write_json, [4]  # two descriptions, one result; the second result is one too many

    def write_json(path, content):
        room[0] -= 1
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(records, "write_json", write_json)
    monkeypatch.setattr(study, "Ended", lambda elsewhere, reason=None, tries=1: Ended(elsewhere, reason, 1))
    told, pair = Told(), [quick(seed=0), quick(seed=1)]
    (failure,) = execute_study(pair, tmp_path, InHere(tmp_path), told)
    assert failure.runs == [pair[1]]
    assert "No space left on device" in failure.reason
    assert (told.steps, told.finished) == (6, 1)
    monkeypatch.undo()
    assert execute_study(pair, tmp_path, InHere(tmp_path), nothing) == []
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
def test_two_processes_give_the_same_and_one_that_is_killed_costs_nothing_but_time(tmp_path, undisturbed):
    killed = []

    class Kill(Told):
        def __call__(self, steps, finished):
            super().__call__(steps, finished)
            if not killed:  # the first word that comes: one process is in the middle of its first group
                killed.append(multiprocessing.active_children()[0])
                killed[0].kill()

    told = Kill()
    assert execute_study(RUNS, tmp_path, Processes(tmp_path, 2), told) == []
    assert killed[0].exitcode == -signal.SIGKILL
    assert (told.steps, told.finished) == (len(RUNS) * 250, len(RUNS))
    assert outcome(tmp_path) == undisturbed
    assert not list(tmp_path.rglob(leases.NAME))


def always_killed(shape, n_classes):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("no_child_left")
def test_a_run_that_always_dies_fails_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    deadly, fine, told = quick(network="test_study:always_killed"), quick(), Told()
    (failure,) = execute_study([deadly, fine], tmp_path, Processes(tmp_path, 1), told)
    assert failure.runs == [deadly]
    assert "its process was killed" in failure.reason
    assert records.read_json(tmp_path / deadly.name / "failure.json") == {"reason": failure.reason, "tries": 2}
    assert pending([deadly, fine], tmp_path) == [deadly]
    assert (told.steps, told.finished) == (6, 1)


def talkative(shape, n_classes):
    print("a word to the user", flush=True)
    os.write(2, b"a word from a library\n")
    return torch.nn.Linear(shape[0], n_classes)


@pytest.mark.usefixtures("no_child_left")
def test_what_a_run_prints_is_in_its_log(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    runs = [quick(network="test_study:talkative"), quick()]
    assert execute_study(runs, tmp_path, Processes(tmp_path, 1), nothing) == []
    assert "a word to the user" in (log := (tmp_path / runs[0].name / "output.log").read_text())
    assert "a word from a library" in log
    assert not (tmp_path / runs[1].name / "output.log").exists()  # it had nothing to say
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("no_child_left")
def test_an_interrupt_ends_every_process(tmp_path):
    workers = Processes(tmp_path, 2)
    started_with = []

    def interrupt(steps, finished):
        started_with.extend(worker.process for worker in workers.workers)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute_study(RUNS, tmp_path, workers, interrupt)
    assert len(started_with) == 2
    assert not any(process.is_alive() for process in started_with)


@pytest.mark.usefixtures("no_child_left")
def test_a_process_that_died_takes_no_more_work(tmp_path):
    workers, told = Processes(tmp_path, 1), []
    workers.give([quick()])
    while not (ended := workers.wait(60, lambda group, steps: told.append(steps))):
        pass
    assert (told, ended) == ([3], [([quick()], Ended([]))])
    (worker,) = workers.workers
    worker.process.kill()
    worker.process.join()
    workers.give([quick(seed=1)])  # goes to a new one
    while not (ended := workers.wait(60, lambda group, steps: told.append(steps))):
        pass
    assert ended == [([quick(seed=1)], Ended([]))]
    workers.stop()
    assert pending([quick(), quick(seed=1)], tmp_path) == []


@pytest.mark.usefixtures("no_child_left")
def test_a_process_that_dies_at_work_says_how(tmp_path):
    worker = Worker(tmp_path, study.Machine())
    worker.give([quick()])
    worker.process.kill()
    ended = worker.hear()
    while not isinstance(ended, Ended):
        ended = worker.hear()
    assert ended.reason is None or "was killed" in ended.reason
    worker.kill()


# ---- Two launchers on one folder, and studies side by side


def test_two_launchers_share_the_work_and_do_nothing_twice(tmp_path, undisturbed, monkeypatch):
    """Both in this process, in turns: each notes what it trains."""
    trained = []
    real = study.execute_seeds

    def noting(runs, folders, watch):
        trained.extend(run.name for run in runs)
        return real(runs, folders, watch)

    monkeypatch.setattr(study, "execute_seeds", noting)
    told, failures = (Told(), Told()), []

    def launch(which):
        failures.extend(execute_study(RUNS, tmp_path, InHere(tmp_path), told[which]))

    threads = [threading.Thread(target=launch, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(trained) == sorted(run.name for run in RUNS)
    assert [(t.steps, t.finished) for t in told] == [(len(RUNS) * 250, len(RUNS))] * 2
    assert outcome(tmp_path) == undisturbed


def test_what_another_launcher_does_is_waited_for_and_its_failure_is_ours(tmp_path, monkeypatch):
    runs = [quick(seed=seed, network="mlp", noise=0.1 + seed) for seed in range(3)]
    other = leases.Leases(tmp_path)
    with other:
        assert other.take([run.name for run in runs[:2]]) == [run.name for run in runs[:2]]
        looks = []

        def look(self):
            looks.append(len(self.elsewhere))
            if len(looks) == 3:  # meanwhile the other is done with one, and has failed at the other
                records.write_json(tmp_path / runs[0].name / "result.json", {"status": "done"})
                records.write_json(tmp_path / runs[1].name / "failure.json", {"reason": "no memory", "tries": 2})
                other.give_back([run.name for run in runs[:2]])
            real(self)

        real = study.Launch.look_elsewhere
        monkeypatch.setattr(study.Launch, "look_elsewhere", look)
        monkeypatch.setattr(study, "LOOK_AGAIN", 0.01)
        told = Told()
        failures = execute_study(runs, tmp_path, InHere(tmp_path), told)
    assert looks[:3] == [2, 2, 2]
    assert [(failure.runs, failure.reason) for failure in failures] == [([runs[1]], "no memory")]
    assert records.read_result(tmp_path / runs[2].name)["status"] == "done"
    assert (told.steps, told.finished) == (9, 2)


def test_what_a_dead_launcher_left_is_done(tmp_path):
    run = quick()
    dead = leases.Leases(tmp_path)
    dead.take([run.name])  # never kept fresh, never given back
    path = tmp_path / run.name / leases.NAME
    old = path.stat().st_mtime - leases.DEAD_AFTER - 1
    os.utime(path, (old, old))
    assert execute_study([run], tmp_path, InHere(tmp_path), nothing) == []
    assert records.read_result(tmp_path / run.name)["status"] == "done"


def test_a_run_of_two_studies_is_done_once(tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    runs = [quick(), quick(seed=1)]
    assert execute_study(runs, one, InHere(one), nothing) == []
    (one / "study.json").write_text("{}")
    monkeypatch.setattr(study, "execute_seeds", lambda *_: pytest.fail("trained again"))
    told = Told()
    assert execute_study(runs, two, InHere(two), told) == []
    assert (told.steps, told.finished) == (0, 0)
    assert outcome(two, runs) == outcome(one, runs)
    # Each study can be thrown away on its own.
    (one / runs[0].name / "result.json").unlink()
    assert records.read_result(two / runs[0].name) is not None


def test_a_run_that_another_study_is_at_is_waited_for(tmp_path, monkeypatch):
    one, two, run = tmp_path / "one", tmp_path / "two", quick()
    one.mkdir()
    (one / "study.json").write_text("{}")
    monkeypatch.setattr(study, "execute_seeds", lambda *_: pytest.fail("trained here"))
    monkeypatch.setattr(study, "LOOK_AGAIN", 0.01)
    with leases.Leases(one) as theirs:
        theirs.take([run.name])

        def finish(self):
            if self.elsewhere:
                records.write_json(one / run.name / "result.json", {"status": "diverged"})
            real(self)

        real = study.Launch.look_elsewhere
        monkeypatch.setattr(study.Launch, "look_elsewhere", finish)
        assert execute_study([run], two, InHere(two), nothing) == []
    assert json.loads((two / run.name / "result.json").read_text()) == {"status": "diverged"}


def test_a_run_that_was_taken_away_stops_and_is_nobodys_failure(tmp_path, monkeypatch):
    """Such as on a machine that slept: another has gone on with it."""
    monkeypatch.setattr(leases.Leases, "tell", lambda self, step, resumed=False: (_ for _ in ()).throw(leases.Lost))
    ended = study.work([quick()], tmp_path, [], nothing, study.Machine())
    assert ended == Ended([quick()])


# ---- As a program that is killed


def test_the_program_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path, undisturbed):
    """Six times, without a chance to clean up."""
    killed = f"""
import os, random, signal, time
{LAUNCHER.split("if __name__")[0]}
random, alive = random.Random(1), 0
for moment in range(6):
    child = os.fork()
    if child == 0:
        execute_study(toy(**{CHOSEN}), Path(sys.argv[1]), InHere(Path(sys.argv[1])), lambda *told: None)
        os._exit(0)
    time.sleep(random.uniform(0.0, 0.6))
    os.kill(child, signal.SIGKILL)
    alive += os.WIFSIGNALED(os.waitpid(child, 0)[1])
assert alive > 0
if __name__ {LAUNCHER.split("if __name__")[1]}
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
