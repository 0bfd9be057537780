"""Studies that users write: what they may say, and what a mistake is answered."""

import sys

import pytest

from cissl import Run
from cissl.study_files import is_file, load, name_of

GRID = """
title = "How much suppression"
dataset = "four-spins"
method = ["mean-teacher", "mean-teacher+scl"]
steps = 200
seeds = 2

[options]
beta = [0.3, 0.7]
form = "exponential"
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name="mine.toml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture(autouse=True)
def imports_put_back():
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("given", "name"),
    [("a/my-study.toml", "my-study"), ("b/grid.py", "grid"), ("b/grid.py:other", "grid-other"), ("toy", None)],
)
def test_a_file_is_told_from_a_name(given, name):
    assert is_file(given) is (name is not None)
    if name:
        assert name_of(given) == name


def test_a_grid_of_lists(written):
    study, title = load(written(GRID))
    assert title == "How much suppression"
    found = [(run.method, run.options.get("beta"), run.seed) for run in study()]
    scl = [("mean-teacher+scl", beta, seed) for beta in (0.3, 0.7) for seed in (0, 1)]
    assert found == [("mean-teacher", None, 0), ("mean-teacher", None, 1), *scl]
    assert {(run.steps, run.dataset) for run in study()} == {(200, "four-spins")}
    assert [run.method for run in study(methods=["pi+scl"], seeds=1)] == ["pi+scl"] * 2
    assert {run.steps for run in study(steps=3)} == {3}


def test_several_grids_share_what_stands_above_them(written):
    text = (
        'dataset = "two-moons"\nseed = [4]\n[[grids]]\nmethod = "pi"\n[[grids]]\nmethod = "vat"\nnoise = [0.1, 0.2]\n'
    )
    runs = load(written(text))[0]()
    assert [(run.method, run.noise, run.seed) for run in runs] == [("pi", 0.15, 4), ("vat", 0.1, 4), ("vat", 0.2, 4)]


def test_without_a_title_the_file_has_one_and_five_seeds(written):
    study, title = load(written('dataset = "two-moons"', "plain.toml"))
    assert (title, [run.seed for run in study()]) == ("plain", [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("steps", "stepps", r"mine.toml, line 5: unknown key 'stepps': did you mean 'steps'\?"),
        ('"mean-teacher",', '"mean-techer",', r"mine.toml, line 4: unknown method 'mean-techer': did you mean 'mean-t"),
        ("four-spins", "four-spin", r"mine.toml, line 3: unknown data set 'four-spin': did you mean 'four-spins'\?"),
        ("beta", "betta", r"mine.toml, line 9: unknown option of .*'betta': did you mean 'beta'\?"),
        ("0.7", "7", r"mine.toml, line 9: beta should be a number above 0 and at most 1, got 7"),
        ("steps = 200", "steps = -2", r"mine.toml, line 5: steps: input should be greater than 0, got -2"),
        ("seeds = 2", 'seeds = "two"', r"mine.toml, line 6: seeds is how many, from 0"),
        ("seeds = 2", "seeds = 0", r"mine.toml, line 6: seeds is how many, from 0"),
        ("steps = 200", "steps = ", r"mine.toml is no valid TOML: .*line 5"),
        ('title = "How much suppression"', "grids = 3", r"mine.toml, line 2: write each grid as a table of its own"),
    ],
)
def test_a_mistake_is_answered_with_its_line_and_the_nearest(written, old, new, complaint):
    assert old in GRID
    with pytest.raises(ValueError, match=complaint):
        load(written(GRID.replace(old, new)))[0]()


def test_a_file_that_is_not_there(tmp_path):
    for name in ("none.toml", "none.py", "none.py:study"):
        with pytest.raises(ValueError, match="there is no file"):
            load(str(tmp_path / name))


PYTHON = '''
from cissl import Run

def study(seeds=3, steps=50):
    """Noise on two moons."""
    return [Run(dataset="two-moons", noise=noise, steps=steps, seed=s) for noise in (0.1, 0.3) for s in range(seeds)]

def other():
    return [Run(dataset="four-spins")]
'''


def test_a_function_of_a_python_file(written):
    path = written(PYTHON, "noisy.py")
    study, title = load(path)
    assert title == "Noise on two moons."
    assert len(study()) == 6
    assert [run.steps for run in study(seeds=1, steps=7, methods=None)] == [7, 7]
    assert load(f"{path}:other")[0]() == [Run(dataset="four-spins")]


def test_a_file_with_one_function_needs_no_name(written):
    path = written('from cissl import Run\ndef mine():\n    return [Run(dataset="digits")]', "single.py")
    assert load(path)[0]() == [Run(dataset="digits")]


@pytest.mark.parametrize(
    ("text", "name", "complaint"),
    [
        (PYTHON, "m1.py:studdy", r"unknown function 'studdy': did you mean 'study'\?"),
        ("def one():\n    pass\ndef two():\n    pass", "m2.py", r"unknown function 'study'.*Choose from: one, two"),
        ("x = 1", "m3.py", "unknown function 'study'. Choose from: none"),
        ("\n\nraise RuntimeError('no')", "m4.py", r"m4.py, line 3: RuntimeError: no"),
        ("def study(:", "m5.py", r"m5.py.*SyntaxError"),
        ("def study():\n    return []", "m6.py", "should return a list of cissl.Run, at least one"),
        ("def study():\n    return [1]", "m7.py", "should return a list of cissl.Run, at least one"),
    ],
)
def test_mistakes_in_a_python_file(written, text, name, complaint):
    file, _, function = name.partition(":")
    path = written(text, file)
    with pytest.raises(ValueError, match=complaint):
        load(f"{path}:{function}" if function else path)[0]()


def test_what_a_function_does_not_take_is_told(written):
    study, _ = load(written(PYTHON, "noisy.py"))
    with pytest.raises(ValueError, match=r"study\(seeds, steps\) takes no methods: add it there, or leave it out"):
        study(methods=["pi"])
