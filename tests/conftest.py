"""What every test shares: shapes and types are checked at run time here, and only here."""

import os
import sys
import warnings

import hypothesis
import jaxtyping
import pytest
import torch

# Before anything imports cissl: the hook rewrites modules as they are loaded.
jaxtyping.install_import_hook("cissl", "typechecking.check")

# One thread each, here and in the processes that tests start: tests already run side by side.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"

# Derandomised: a test that passes here passes everywhere, and a failure comes back when asked to.
hypothesis.settings.register_profile("cissl", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.load_profile("cissl")


@pytest.fixture
def unchecked():
    """Without the run-time checks of shapes, as users have it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def cissl(capsys, monkeypatch, tmp_path):
    """Runs a command in an empty folder: its exit code, and what it wrote to standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERMINAL_WIDTH", "100")
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # put back afterwards

    def run(*arguments):
        from cissl import cli  # after the hook

        monkeypatch.setattr(sys, "argv", ["cissl", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return ended.value.code or 0, said.out, said.err

    return run
