"""The command line, as its users meet it: the toy study, its mistakes and its interruptions."""

import csv
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from processes import blocks, gone, members, started

from cissl import __version__, datasets, methods, networks, recipes, records, report
from cissl.recipes import toy
from cissl.study import InHere, execute_study, pending

SMALL = ("--steps", "5", "--seeds", "2", "--methods", "supervised,mean-teacher")
RUNS = toy(seeds=2, steps=5, methods=["supervised", "mean-teacher"])


def results(folder):
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/result.json")}


# ---- Help


def test_help_brings_nothing_heavy():
    heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "lightning_fabric", "PIL"}
    check = f"""
import sys
from cissl.cli import main
for sys.argv in (["cissl", "--help"], ["cissl", "run", "--help"], ["cissl", "--version"]):
    try:
        main()
    except SystemExit as ended:
        assert not ended.code
    assert not {heavy} & sys.modules.keys(), {heavy} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("run", "report", "list", "data", "--seeds", "--methods", "--steps", "--out", "--jobs"):
        assert word in done.stdout


def test_the_commands_name_is_cissl_however_it_is_started():
    for start in (["-m", "cissl"], ["-m", "cissl.cli"]):
        command = [sys.executable, *start, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Usage: cissl [OPTIONS]" in done.stdout


def test_the_version_is_the_packages(cissl):
    assert cissl("--version") == (0, f"cissl {__version__}\n", "")


def test_list_names_all_there_is_and_says_what_it_is(cissl):
    code, out, err = cissl("list")
    assert (code, err) == (0, "")
    for name in (*recipes.STUDIES, *methods.PAPER, *networks.NAMES, *datasets.DATASETS, "ce", "cb", "same", "uniform"):
        assert re.search(rf"(^|[\s,(]){re.escape(name)}($|[\s,)])", out, re.MULTILINE), f"{name} is not listed"
    for name in (*methods.BASES, *(f"+{name}" for name in methods.MODIFIERS)):
        (line,) = (line for line in out.splitlines() if line.startswith(f"  {name} "))
        said = line[len(name) + 2 :].strip()
        assert len(said.split()) >= 4, f"{name}: {said!r} says too little"
        assert not re.search(r"\d{4}|et al|^\+|\.$", said), f"{name}: {said!r} was cut at the wrong place"


# ---- The toy study


def test_the_study_runs_is_reported_when_half_done_and_goes_on(cissl, tmp_path):
    code, out, err = cissl("run", "toy", *SMALL, "--jobs", 1)
    assert code == 0
    folder = tmp_path / "runs" / "toy"
    first = results(folder)
    assert first.keys() == {run.name for run in RUNS}
    assert out.startswith("8 runs done in ")
    assert "Table 1" in out
    assert "over 2 seeds" in " ".join(out.split())
    written = out.split("Written:\n")[1].split()
    assert {"runs/toy/results.csv", "runs/toy/figures/figure1.png", "runs/toy/figures/figure1.svg"} <= set(written)
    assert "runs/toy/figures/gradient-difference.png" in written
    assert all((tmp_path / path).stat().st_size > 0 for path in written)
    told = [line for line in err.splitlines() if line]
    assert told == [line for line in told if re.fullmatch(r"\d of 8 runs done, \d\d? %, \d+ s left", line)]
    assert told, "nothing tells how far it is"

    for run in RUNS[:3]:  # as if stopped: a description, and no result yet
        (folder / run.name / "result.json").unlink()
    before = results(folder)
    code, out, err = cissl("report", "toy")
    assert (code, err) == (0, "")
    assert "unfinished" in out
    assert results(folder) == before
    with (folder / "results.csv").open() as file:
        seeds = {(r["dataset"], r["algorithm"]): r["seeds_done"] for r in csv.DictReader(file) if r["classes"] == "all"}
    assert seeds == {
        ("two-moons", "supervised"): "0",
        ("two-moons", "mean-teacher"): "1",
        ("four-spins", "supervised"): "2",
        ("four-spins", "mean-teacher"): "2",
    }

    code, out, _ = cissl("run", "toy", *SMALL, "--jobs", 1)
    assert code == 0
    assert out.startswith("3 runs done in ")
    after = results(folder)
    assert before.items() < after.items()
    for name in first:
        untimed = [{**json.loads(there[name]), "seconds": None} for there in (first, after)]
        assert untimed[0] == untimed[1]


def test_a_study_that_is_done_is_only_reported(cissl, tmp_path):
    folder = tmp_path / "some" / "where"
    for run in toy(seeds=1, methods=["all"]):
        result = {"status": "diverged", "diverged_at": 7, "run": run.model_dump()}
        records.write_json(folder / run.name / "result.json", result)
    before = results(folder)
    code, out, err = cissl("run", "toy", "--seeds", 1, "--methods", "all", "--out", "some/where")
    assert (code, err) == (0, "")
    assert out.startswith("All 16 runs are done already.\n")
    assert "Table 1" in out
    assert "some/where/results.csv" in out
    assert results(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["some"]


# ---- Mistakes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "toi"), "error: unknown study 'toi': did you mean 'toy'? Choose from: toy"),
        (("report", "toi"), "did you mean 'toy'?"),
        (
            ("run", "toy", "--methods", "mean-techer"),
            "error: unknown method 'mean-techer': did you mean 'mean-teacher'?",
        ),
        (("run", "toy", "--methods", "pi,,ict"), "error: unknown method ''. Choose from: supervised, pi,"),
        (("run", "toy", "--methods", "pi+slc"), "did you mean 'scl'?"),
        (("run", "toy", "--methods", "supervised+scl"), "choose another method, such as 'mean-teacher+scl'"),
        (("run", "toy", "--out", "file"), "error: file is a file, and a study needs a folder: give another with --out"),
        (("run", "toy", "--out", "file/under"), "error: cannot write to file/under: Not a directory. "),
        (("report", "toy", "--out", "file"), "error: file is a file"),
        (("report", "toy"), "error: there is no runs/toy: run it with `cissl run toy`, or say where it is with --out"),
        (("run", "toy", "--seeds", "2", "--out", "broken"), "result.json is no valid JSON"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, said, cissl, tmp_path):
    (tmp_path / "file").write_text("mine")
    broken = tmp_path / "broken" / toy()[0].name
    broken.mkdir(parents=True)
    (broken / "result.json").write_text('{"status": ')
    code, out, err = cissl(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "broken"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("runn", "toy"), "No such command 'runn'. Did you mean 'run'?"),
        (("run",), "Missing argument 'STUDY'"),
        (("run", "toy", "--step", "5"), "No such option: --step"),
        (("run", "toy", "--steps", "few"), "Invalid value for '--steps'"),
        (("run", "toy", "--steps", "0"), "Invalid value for '--steps'"),
        (("run", "toy", "--seeds", "0"), "Invalid value for '--seeds'"),
        (("run", "toy", "--jobs", "0"), "Invalid value for '--jobs'"),
    ],
)
def test_a_wrong_option_is_named(arguments, said, cissl, tmp_path):
    code, _, err = cissl(*arguments)
    assert code == 2
    assert said in err
    assert not list(tmp_path.iterdir())


def test_runs_that_fail_are_told_the_others_are_done_and_the_next_time_does_the_rest(cissl, tmp_path):
    full = RUNS[4:6]  # supervised on four-spins
    in_the_way = tmp_path / "runs" / "toy" / full[0].name / "weights.npz"
    in_the_way.mkdir(parents=True)
    code, out, err = cissl("run", "toy", *SMALL, "--jobs", 1)
    assert code == 1
    assert out.startswith("6 runs done in ")
    assert "Table 1" in out
    (failed,) = (line for line in err.splitlines() if line.startswith("failed"))
    assert failed.startswith(f"failed: four-spins, supervised, seeds 0, 1: cannot write to runs/toy/{full[0].name}: ")
    assert failed.count("Is a directory. Nothing written before is lost: make room, or give another ") == 1
    assert pending(RUNS, tmp_path / "runs" / "toy") == full
    assert "2 failed" in cissl("status", "toy")[1]
    in_the_way.rmdir()
    code, out, _ = cissl("run", "toy", *SMALL, "--jobs", 1)
    assert code == 0
    assert out.startswith("2 runs done in ")


# ---- Interruptions

LONGER = ("--steps", "250", "--seeds", "1", "--methods", "supervised,pi")


@pytest.mark.parametrize("moment", ["while processes start", "while they train"])
def test_ctrl_c_stops_everything_and_the_study_can_go_on(moment, tmp_path):
    with started("-m", "cissl", "run", "toy", *LONGER, "--jobs", 2, cwd=tmp_path) as program:
        if moment == "while they train":
            assert "runs done" in program.stderr.readline()
        while not (workers := members(program.pid, "spawn_main")):
            assert program.poll() is None
        assert all(blocks(worker, signal.SIGINT) for worker in workers)  # from the start: none has imported much yet
        os.killpg(program.pid, signal.SIGINT)
        out, err = program.communicate()
        assert program.returncode == 130
        assert out == ""
        assert "Traceback" not in err
        said = [line for line in err.splitlines() if line and "left" not in line]
        assert len(said) == 1
        assert re.fullmatch(r"Stopped\. \d of 4 runs are done; the same command goes on from there\.", said[0])
        assert gone(program.pid)
    folder, runs = tmp_path / "runs" / "toy", toy(seeds=1, methods=["supervised", "pi"], steps=250)
    done = results(folder)
    assert len(done) == int(said[0].split()[1])
    assert all(json.loads(content)["status"] == "done" for content in done.values())
    assert execute_study(runs, folder, InHere(folder), lambda *told: None) == []
    assert pending(runs, folder) == []
    assert done.items() <= results(folder).items()


def test_ctrl_c_while_the_report_is_made_says_that_all_is_done(cissl, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "write_report", interrupt)
    code, out, err = cissl("run", "toy", "--steps", 1, "--seeds", 1, "--methods", "pi", "--jobs", 1)
    assert code == 130
    assert "Stopped. 2 of 2 runs are done" in err
    assert out.startswith("2 runs done in ")
