"""The documentation says what is true: every code block runs and prints what is shown, and the site builds whole."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, Block, Reader, assert_same, blocks, check_mention

import cissl
from cissl import coefficients, datasets, losses, methods, metrics, preprocessing, protocol, schedules, views

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))
}
WITH_CODE = [name for name, text in PAGES.items() if list(blocks(text))]


@pytest.fixture
def page_folder(tmp_path, monkeypatch):
    """A reader's own folder, from which modules are imported too."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CISSL_DATA", str(tmp_path / "data"))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("name", WITH_CODE)
def test_what_a_page_shows_is_what_happens(name, page_folder):
    Reader().follows(PAGES[name])


@pytest.mark.parametrize("name", PAGES)
def test_commands_that_a_page_mentions_exist(name):
    for text in re.findall(r"`(cissl [^`]+)`", PAGES[name]):
        check_mention(text.partition("…")[0])


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_pages_and_pictures(name):
    for link in re.findall(r"\]\(([^)]+)\)", PAGES[name]):
        if not link.startswith("http"):
            target = (ROOT / name).parent / link.partition("#")[0]
            assert target.exists() or link.startswith("#"), link
            assert (ROOT / "docs") in target.resolve().parents, f"{link} lies outside of what is built"


# ---- The site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    environment = {"PATH": "", "NO_MKDOCS_2_WARNING": "1", "HOME": str(folder)}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.html")}


def test_the_site_asks_nothing_of_other_places(site):
    assert len(site) > 10
    for name, html in site.items():
        asked = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//[^>]*>", html)
        assert not asked, (name, asked)


def test_every_page_is_in_the_navigation(site):
    start = site["index.html"]
    for name in PAGES:
        page = str(Path(name).relative_to("docs").with_suffix(".html"))
        assert f'href="{page}"' in start or page == "index.html", f"mkdocs.yml places no {page}"


def public(module):
    """The functions and classes that a module defines and does not hide."""
    return [
        f"{module.__name__}.{name}"
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(thing) or inspect.isclass(thing))
        and thing.__module__ == module.__name__
    ]


# What only the rest of the library calls.
INNER = {
    *(f"cissl.methods.{name}" for name in ("own_base", "check_option", "mixed", "unit", "unlabeled_rows")),
    *(f"cissl.datasets.{name}" for name in ("cifar10", "cifar100", "svhn", "fashion_mnist", "digits")),
    *(f"cissl.datasets.{name}" for name in ("two_moons", "four_spins", "Content", "Download")),
}
DESCRIBED = [
    name for module in (losses, protocol, views, metrics, methods, schedules, coefficients) for name in public(module)
]
DESCRIBED += [
    *public(datasets),
    *public(preprocessing),
    "cissl.training.Average",
    "cissl.training.train",
    "cissl.networks.build",
]


def test_the_reference_has_every_public_name(site):
    anchors = {anchor for html in site.values() for anchor in re.findall(r"id=\"(cissl[\w.]+)\"", html)}
    homes = {f"cissl.{name}" for name in cissl.__all__}
    assert homes <= anchors
    there = anchors | {f"{getattr(cissl, name).__module__}.{name}" for name in cissl.__all__}
    assert set(DESCRIBED) - INNER <= there


# ---- The reader of pages, who has to notice what is wrong


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", AssertionError),
        ("```python\nprint('two')\n```\n\n```text\nthree\n```\n", AssertionError),
        ("```python\nundefined\n```\n", NameError),
        ("```sh\ncissl trian\n```\n", KeyError),
        ("```sh\ncissl run toy --stpes 3\n```\n", Exception),
        ("```sh\nmake coffee\n```\n", AssertionError),
        ("```sh\npython benchmarks/absent.py\n```\n", AssertionError),
        ("```sh\ncissl run toi\n```\n\n```text\nerror: unknown study 'tai'…\n```\n", AssertionError),
        ("```brainfuck\n+\n```\n", AssertionError),
        ('```toml title="x.toml"\nlabeld = 3\n```\n', ValueError),
    ],
)
def test_what_is_wrong_on_a_page_is_noticed(page, problem, page_folder):
    with pytest.raises(problem):
        Reader().follows(page)


def test_blocks_are_found_with_what_they_print():
    code = "```python\na\n```\n\n```text\nb\n```\n\n```sh\nc\n```\n\n"
    page = code + 'says\n\n```text\nd\n```\n\n```toml title="e.toml"\nf\n```\n'
    assert list(blocks(page)) == [
        Block("python", "", "a\n", "b\n"),
        Block("sh", "", "c\n", None),
        Block("toml", "e.toml", "f\n", None),
    ]
    assert_same("many words, 1.00004 and 12", "many … 1.0 and\n12")


def test_a_command_that_a_sentence_names_has_its_options():
    check_mention("cissl run toy --methods")
    with pytest.raises(AssertionError):
        check_mention("cissl run toy --mothods")
    with pytest.raises(AssertionError):
        check_mention("cissl dance")
