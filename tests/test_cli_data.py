"""`cissl data`: what it prints, what it fetches, and that mistakes end with a message and status 2."""

import subprocess
import sys

import pytest
from official_files import cifar10, register, serving, write
from typer.testing import CliRunner

from cissl import datasets
from cissl.cli_data import app

run = CliRunner().invoke


def test_list_says_what_is_here(tmp_path, monkeypatch):
    small = register(cifar10(), monkeypatch)
    write(tmp_path / "cifar10", small.packed)
    write(tmp_path, {"train_32x32.mat": b""})
    result = run(app, ["list", "--data-dir", str(tmp_path)])
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert set(datasets.DATASETS) < set(lines)
    assert "3 x 32 x 32  50,000  10,000  10       here" in lines["cifar10"]
    assert "1 of 2 files here" in lines["svhn"]
    assert "0 of 4 files here" in lines["fashion-mnist"]
    assert "built in" in lines["two-moons"]
    assert lines["folder:"] == f"folder: {tmp_path}"


def test_fetch_then_show(tmp_path, monkeypatch):
    with serving(tmp_path / "official") as base:
        small = register(cifar10(), monkeypatch, base)
        write(tmp_path / "official", small.packed)
        result = run(app, ["fetch", "cifar10", "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 0, result.output
    assert "cifar10: fetched cifar-10-binary.tar.gz" in result.stdout
    assert str(tmp_path / "data" / "cifar10" / "cifar-10-binary.tar.gz") in result.stdout
    size = len(small.packed["cifar-10-binary.tar.gz"]) / 1000
    assert f"{size:.1f}/{size:.1f} kB" in result.stderr  # the progress, on its way to the end
    again = run(app, ["fetch", "cifar10", "--data-dir", str(tmp_path / "data")])
    assert "everything was there already" in again.stdout
    shown = run(app, ["show", "cifar10", "--data-dir", str(tmp_path / "data")])
    assert shown.exit_code == 0
    assert "20 training samples of 3 x 32 x 32, uint8, 0 to 255, mean 127" in shown.stdout
    _, y, test_x, test_y = small.expected
    assert f"frog        {(y == 6).sum():8,}  {(test_y == 6).sum():6,}" in shown.stdout
    assert f"mean {test_x.mean():.4g}, deviation {test_x.std():.4g}" in shown.stdout


def test_what_is_built_in_needs_no_fetching(tmp_path):
    result = run(app, ["fetch", "digits", "--data-dir", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, "digits is built in: nothing to fetch\n")
    assert "454 test samples of 1 x 8 x 8" in run(app, ["show", "digits"]).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "cifra10"], "unknown data set 'cifra10': did you mean 'cifar10'"),
        (["fetch", "cifra10"], "unknown data set 'cifra10': did you mean 'cifar10'"),
        (["show", "svhn"], "svhn: no train_32x32.mat in"),
    ],
)
def test_mistakes_end_with_a_message_and_status_2(arguments, message, tmp_path):
    result = run(app, [*arguments, "--data-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {message}")
    assert "Traceback" not in result.output


def test_no_network_ends_with_a_message_and_status_2(tmp_path, monkeypatch):
    register(cifar10(), monkeypatch, "http://127.0.0.1:1")
    result = run(app, ["fetch", "cifar10", "--data-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "error: cifar10: cifar-10-binary.tar.gz could not be fetched (no connection to 127.0.0.1:1)" in result.stderr
    assert "Traceback" not in result.output


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = "import sys, cissl.cli_data; print([m for m in ('torch', 'numpy', 'pooch', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
