"""Who may import whom: read from the source, so that no import hidden in a function is missed."""

import ast
import importlib
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import cissl

ROOT = Path(cissl.__file__).parent
FILES = {
    ".".join(("cissl", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}

# Where the parts meet: everything else knows its own trade only.
JOINERS = {
    "run",
    "task",
    "execution",
    "study",
    "study_files",
    "processes",
    "clusters",
    "cli",
    "cli_run",
    "cli_report",
    "cli_train",
    "cli_detect",
    "cli_model",
    "cli_own_data",
    "model_folder",
    "onnx_export",
    "analysis",
    "estimator",
    "recipes",
    "detection",
    "__init__",
}
MAY_BE_IMPORTED_BY = {
    "methods": JOINERS | {"objective", "batches", "many_seeds"},
    "objective": JOINERS | {"many_seeds"},
    "training": JOINERS | {"many_seeds", "records"},  # records write its curves
    "many_seeds": JOINERS,
    "protocol": JOINERS | {"report", "datasets", "batches"},
    "run": JOINERS,
    "task": JOINERS,
    "execution": JOINERS,
    "cli": {"__main__"},
}
TORCH = {"torch", "lightning_fabric", "safetensors"}
WITHOUT_TORCH = {
    "image_files",
    "image_arrays",
    "tables",
    "own_data",
    "model_page",
    "protocol",
    "metrics",
    "randomness",
    "report",
    "names",
}
# Beside their own kind these import the standard library and what is named here.
ONLY = {
    "protocol": {"numpy"},
    "metrics": {"numpy", "jaxtyping"},
    "randomness": set(),
    "losses": {"numpy", "jaxtyping", "torch"},
    "detection.average_precision": {"numpy", "jaxtyping", "faster_coco_eval"},
    "detection.augment": {"numpy", "jaxtyping", "PIL"},
}
# What a detector is made of works in any loop: it knows the classifiers' losses and layers, and no run.
DETECTOR = ("boxes", "priors", "multibox", "consistency", "ssd", "nms", "augment", "average_precision")


def part(module):
    """cissl.report.tables belongs to the part `report`."""
    return module.split(".")[1] if "." in module else "__init__"


def imported(name, nodes):
    """What import statements name: modules of cissl in full, of others the package."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} line {node.lineno}: write imports in full, from cissl. …"
            # `from cissl import losses` means the module, `from cissl.losses import focal` the same one.
            names = [full if (full := f"{node.module}.{alias.name}") in FILES else node.module for alias in node.names]
        else:
            continue
        found |= {full if full.split(".")[0] == "cissl" else full.split(".")[0] for full in names}
    return found


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def while_running(tree):
    """Every node but those that only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if not is_type_checking(node):
            yield node
            yield from while_running(node)


def while_loading(tree):
    """Every node that runs when the module is imported: no function body."""
    for node in ast.iter_child_nodes(tree):
        if not (is_type_checking(node) or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            yield node
            yield from while_loading(node)


USES = {name: imported(name, while_running(tree)) for name, tree in TREES.items()}
LOADS = {name: imported(name, while_loading(tree)) for name, tree in TREES.items()}


def reach(name, graph):
    """Everything that a module imports, and what that imports, and so on."""
    seen, waiting = set(), [name]
    while waiting:
        for other in graph.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def test_the_reader_of_imports_reads_them():
    source = """
import os.path, torch.nn as nn
from cissl import losses
from cissl.losses import focal
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import pandas
class A:
    import scipy.io
    def f(self):
        from cissl.report import tables
        if True:
            import numpy as np
"""
    tree = ast.parse(source)
    at_once = {"os", "torch", "cissl.losses", "typing", "scipy"}
    assert imported("example", while_loading(tree)) == at_once
    assert imported("example", while_running(tree)) == at_once | {"cissl.report.tables", "numpy"}
    assert reach("a", {"a": {"b"}, "b": {"c", "a"}, "d": {"e"}}) == {"a", "b", "c"}


@pytest.mark.parametrize("name", FILES)
def test_imports_of_cissl_exist(name):
    assert {other for other in USES[name] if other.startswith("cissl")} <= FILES.keys()


@pytest.mark.parametrize("name", [name for name in FILES if part(name) in WITHOUT_TORCH])
def test_parts_that_only_compute_do_without_torch(name):
    assert not reach(name, USES) & TORCH


def test_torch_stays_out_of_the_process_too():
    light = [name for name in FILES if part(name) in WITHOUT_TORCH | {"cli", "__init__"}]
    assert {"cissl", "cissl.protocol", "cissl.metrics", "cissl.randomness", "cissl.report"} <= set(light)
    check = (
        "import importlib, sys\n"
        f"for name in {light}:\n"
        "    importlib.import_module(name)\n"
        f"    assert not {TORCH} & sys.modules.keys(), f'importing {{name}} brings torch'\n"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ONLY)
def test_pure_parts_import_next_to_nothing(name):
    others = {other for other in USES[f"cissl.{name}"] if other not in sys.stdlib_module_names}
    assert others - {"cissl.randomness"} <= ONLY[name]


@pytest.mark.parametrize("name", DETECTOR)
def test_a_detectors_parts_know_no_run(name):
    others = {part(other) for other in reach(f"cissl.detection.{name}", USES) if other.startswith("cissl.")}
    assert others <= {"detection", "losses", "networks", "names"}


def test_training_never_sees_a_method():
    assert "cissl.training" in FILES
    assert not {part(other) for other in reach("cissl.training", USES) if other.startswith("cissl")} & {
        "methods",
        "objective",
    }


@pytest.mark.parametrize("target", MAY_BE_IMPORTED_BY)
def test_parts_meet_where_they_should(target):
    users = {part(name) for name, uses in USES.items() if target in {part(o) for o in uses if o.startswith("cissl.")}}
    assert users - {target} <= MAY_BE_IMPORTED_BY[target]


def test_no_module_waits_for_itself():
    graph = {name: {other for other in loads if other.startswith("cissl")} for name, loads in LOADS.items()}
    order = list(TopologicalSorter(graph).static_order())  # a cycle is an error that shows it
    assert set(order) == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_module_imports(name):
    if name != "cissl.__main__":  # that one runs
        assert importlib.import_module(name).__doc__, f"{name} does not say what it is for"


# --- nothing reads or moves the global random state ---

SEEDED = {
    "random": {"Random"},
    "np.random": {"default_rng", "Generator"},
    "numpy.random": {"default_rng", "Generator"},
}


GLOBAL_SEEDS = {"torch.manual_seed", "torch.seed", "torch.random"}


def global_draws(node):
    """Uses of a global random generator and changes of its seed, but where the old state is put back."""
    if isinstance(node, ast.With) and "torch.random.fork_rng" in ast.unparse(node.items[0]):
        return
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        if node.attr not in SEEDED.get(owner, {node.attr}) or ast.unparse(node) in GLOBAL_SEEDS:
            yield f"line {node.lineno}: {ast.unparse(node)}"
    for child in ast.iter_child_nodes(node):
        yield from global_draws(child)


@pytest.mark.parametrize("name", FILES)
def test_no_module_touches_the_global_random_state(name):
    assert list(global_draws(TREES[name])) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("random.shuffle(x)", 1),
        ("random.Random(3).shuffle(x)", 0),
        ("np.random.seed(0); np.random.default_rng(0).random()", 1),
        ("torch.manual_seed(0)", 1),
        ("generator.manual_seed(0)", 0),
        ("with torch.random.fork_rng():\n    torch.manual_seed(0)", 0),
    ],
)
def test_global_draws_are_noticed(source, found):
    assert len(list(global_draws(ast.parse(source)))) == found
