"""Fetching published weights: from a server on this machine, checked by what is known of their checksum."""

import dataclasses
import hashlib

import pytest
from official_files import serving
from typer.testing import CliRunner

from cissl.cli_data import app
from cissl.detection import weights

CONTENT = b"weights of a network"


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A server that has the file, and the folder to fetch to."""
    known = weights.WEIGHTS["vgg16-ssd"]
    with serving(tmp_path / "official") as base:
        (tmp_path / "official").mkdir(exist_ok=True)
        (tmp_path / "official" / known.file).write_bytes(CONTENT)
        here = dataclasses.replace(
            known, url=f"{base}/{known.file}", sha256=hashlib.sha256(CONTENT).hexdigest()[: len(known.sha256)]
        )
        monkeypatch.setitem(weights.WEIGHTS, "vgg16-ssd", here)
        yield tmp_path / "data"


def test_the_name_of_each_file_tells_its_checksum():
    for known in weights.WEIGHTS.values():
        assert len(known.sha256) >= 8
        assert known.file.endswith(f"-{known.sha256}.pth")
        assert known.url.startswith("https://")


def test_weights_are_fetched_once(served):
    seen = []

    class Bar:
        total = 0

        def __init__(self, file):
            seen.append(file)

        def update(self, size):
            seen.append(size)

        def reset(self):
            pass

        close = reset

    path = weights.place("vgg16-ssd", served)
    assert weights.fetch("vgg16-ssd", served, Bar) == [path.name]
    assert path.read_bytes() == CONTENT
    assert seen[0] == path.name
    assert sum(seen[1:]) >= len(CONTENT)
    assert list(path.parent.iterdir()) == [path]
    assert weights.fetch("vgg16-ssd", served) == []


def test_a_file_with_another_checksum_never_gets_the_name(served, monkeypatch):
    monkeypatch.setitem(weights.WEIGHTS, "vgg16-ssd", dataclasses.replace(weights.WEIGHTS["vgg16-ssd"], sha256="0" * 8))
    path = weights.place("vgg16-ssd", served)
    with pytest.raises(ValueError, match=r"SHA-256 begins \w{8}, not 00000000.*put it at"):
        weights.fetch("vgg16-ssd", served)
    assert list(path.parent.iterdir()) == []
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"is not the published file.*Delete it"):
        weights.fetch("vgg16-ssd", served)
    assert path.read_bytes() == b"something else"


def test_a_place_that_cannot_be_reached_and_an_unknown_name_are_said(tmp_path, monkeypatch):
    known = dataclasses.replace(weights.WEIGHTS["vgg16-ssd"], url="http://127.0.0.1:9/x-88682ab5.pth")
    monkeypatch.setitem(weights.WEIGHTS, "vgg16-ssd", known)
    with pytest.raises(ValueError, match=r"no connection to 127\.0\.0\.1:9.*some other way"):
        weights.fetch("vgg16-ssd", tmp_path)
    with pytest.raises(ValueError, match="unknown weights 'vgg16': did you mean 'vgg16-ssd'"):
        weights.place("vgg16")


def test_the_command_fetches_them_and_lists_what_is_here(served):
    run, folder = CliRunner().invoke, ["--data-dir", str(served)]
    assert "cissl detect: vgg16-ssd, VGG16 as SSD starts from it" in run(app, ["list", *folder]).stdout
    assert "from torchvision; not here" in run(app, ["list", *folder]).stdout
    path = weights.place("vgg16-ssd", served)
    first = run(app, ["fetch", "vgg16-ssd", *folder])
    assert first.exit_code == 0
    assert first.stdout == f"vgg16-ssd: fetched {path.name}\n  {path}, checked\n"
    assert run(app, ["fetch", "vgg16-ssd", *folder]).stdout.startswith("vgg16-ssd: everything was there already\n")
    assert "from torchvision; here" in run(app, ["list", *folder]).stdout
    path.write_bytes(b"something else")
    refused = run(app, ["fetch", "vgg16-ssd", *folder])
    assert refused.exit_code == 2
    assert "is not the published file" in refused.stderr
