"""Mistakes that published code has made, each put into a copy of this project: the tests named beside it have to fail.

.venv/bin/python tests/mistakes.py            all of them, a few minutes, as rows of CONTRIBUTING's table
.venv/bin/python tests/mistakes.py 3 17       those of these numbers
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mistake(NamedTuple):
    number: int
    what: str
    file: str
    right: str  # as it is written here, once in the file
    wrong: str
    tests: str


COMPARED = "return Comparison(said, probabilities(unlabeled_rows(target, batch)))"
SUPPRESSED = "        if method.scl is not None:\n            consistency"
MISTAKES = [
    Mistake(
        1, "Mean Teacher compares the teacher with itself", "methods.py",
        COMPARED, COMPARED.replace("(said,", "(unlabeled_rows(target, batch),"), "every_method",
    ),
    Mistake(
        1, "the student is detached", "methods.py",
        COMPARED, COMPARED.replace("(said,", "(said.detach(),"), "every_method",
    ),
    Mistake(2, "training never changes a weight", "training.py", "        optimizer.step()\n", "", "training"),
    Mistake(
        2, "many seeds are trained and never written back", "execution.py",
        "        write_back(seeds, each)\n", "", "run",
    ),
    Mistake(
        3, "a second pass of the student moves its statistics", "objective.py",
        "with still_statistics(self.module):", "if True:", "every_method",
    ),
    Mistake(
        3, "the teacher is the student itself", "objective.py",
        "TeacherNetwork(teacher) if", "TeacherNetwork(student) if", "every_method",
    ),
    Mistake(
        3, "the gradient graph of the teacher's pass is kept", "objective.py",
        "    @torch.no_grad()\n    def __call__", "    def __call__", "every_method",
    ),
    Mistake(4, "one flip for the whole batch", "views.py", "(len(x), 1, 1, 1)", "(1, 1, 1, 1)", "views"),
    Mistake(
        4, "one crop for the whole batch", "views.py",
        "(2, n, 1), generator=generator, device=x.device)",
        "(2, 1, 1), generator=generator, device=x.device).expand(2, n, 1)", "views",
    ),
    Mistake(
        5, "focal loss as an n × n matrix", "losses.py",
        "return doubt**gamma * loss", "return (doubt[:, None] ** gamma * loss).mean(1)", "losses",
    ),
    Mistake(
        6, "class-balanced weights with β = 0", "losses.py",
        "(1 - beta**counts) / (1 - beta)", "(1 - 0.0**counts) / (1 - 0.0)", "losses",
    ),
    Mistake(
        6, "class weights that are not normalised", "losses.py",
        "return weights / weights.mean()", "return weights", "losses",
    ),
    Mistake(
        7, "SNTG's square root at 0", "losses.py",
        "squared.clamp(min=SMALLEST_SQUARED_DISTANCE).sqrt()", "squared.sqrt()", "losses",
    ),
    Mistake(
        8, "features (n, c, 1, 1) broadcast pairs to n × n", "losses.py",
        "    features = features.flatten(1)  # (n, c, 1, 1) would broadcast further down\n", "", "losses",
    ),
    Mistake(
        9, "squeeze() eats a batch of one, in a loss", "losses.py",
        "labels[:, None])[:, 0]", "labels[:, None]).squeeze()", "losses",
    ),
    Mistake(
        9, "squeeze() eats a batch of one, in a network", "networks.py",
        "return maps.mean((2, 3))", "return maps.mean((2, 3), keepdim=True).squeeze()", "networks",
    ),
    Mistake(
        10, "a widening block skips BatchNorm and activation", "networks.py",
        "start = act(self.norm1(x))", "start = x if self.shortcut is not None else act(self.norm1(x))", "networks",
    ),
    Mistake(
        11, "BatchNorm has constants that nobody meant", "networks.py",
        "momentum=0.1, eps=1e-5", "momentum=0.001, eps=1e-3", "networks",
    ),
    Mistake(
        11, "a constant never reaches the layers", "networks.py",
        "nn.LeakyReLU(SLOPE)]", "nn.LeakyReLU()]", "networks",
    ),
    Mistake(
        12, "`half` reverses the classes at ρ < 2", "protocol.py",
        "max(imbalance / 2, 1.0)", "imbalance / 2", "protocol",
    ),
    Mistake(
        13, "a class with too few samples is cut silently", "protocol.py",
        "    _check_shortage(available, validation_per_class, labeled_counts, unlabeled_counts, on_shortage)\n", "",
        "protocol",
    ),
    Mistake(
        14, "the samples depend on the global random state", "protocol.py",
        'np.random.default_rng(stream(seed, "split")).permutation', "np.random.permutation", "protocol",
    ),
    Mistake(
        14, "the classes' ranks depend on it", "protocol.py",
        "random.Random(seed).shuffle(ranks)", "random.shuffle(ranks)", "protocol",
    ),
    Mistake(
        15, "labeled samples are among the unlabeled ones of a split", "protocol.py",
        "return Split(with_label, without_label,",
        "return Split(with_label, np.sort(np.concatenate([with_label, without_label])),", "protocol",
    ),
    Mistake(
        15, "labeled samples are drawn as unlabeled ones", "task.py",
        "labels, labeled, unlabeled, constants", "labels, labeled, np.arange(len(taking_part)), constants", "run",
    ),
    Mistake(
        16, "SVHN is described without GCN and ZCA", "run.py",
        '"svhn": {"labeled": 1000,', '"svhn": {"preprocessing": "none", "labeled": 1000,', "run",
    ),
    Mistake(
        16, "the preprocessing of the description is not done", "task.py",
        "preprocessing.fit(run.preprocessing,", 'preprocessing.fit("none",', "run",
    ),
    Mistake(
        17, "a run that goes on does no further step", "execution.py",
        "not self.diverged_at and self.step < self.run.steps", "not self.diverged_at and self.step == 0", "execution",
    ),
    Mistake(
        17, "a run that goes on begins with the first batches again", "execution.py",
        "range(self.step + 1, run.steps + 1)", "range(1, run.steps + 1 - self.step)", "execution",
    ),
    Mistake(
        17, "a run that goes on has lost its momentum", "execution.py",
        '        self.optimizer.load_state_dict(state["optimizer"])\n', "", "execution",
    ),
    Mistake(
        18, "SCL is ignored where the divergence is KL", "objective.py",
        SUPPRESSED, SUPPRESSED.replace("None:", "None and type(base).__name__ != 'VAT':"), "every_method",
    ),
    Mistake(
        18, "SCL is absent from ICT", "objective.py",
        SUPPRESSED, SUPPRESSED.replace("None:", "None and not base.mixes_labels:"), "every_method",
    ),
    Mistake(
        18, "SCL is absent from pseudo-labels", "objective.py",
        SUPPRESSED, SUPPRESSED.replace("None:", "None and kept is None:"), "every_method",
    ),
    Mistake(
        18, "the loss for one's own loop ignores SCL with KL", "losses.py",
        "return (suppression * consistency).sum()",
        'return (consistency if self.divergence == "kl" else suppression * consistency).sum()', "losses",
    ),
    Mistake(
        20, "whatever goes wrong restarts training", "execution.py",
        "            self.take_steps()\n",
        "            try:\n                self.take_steps()\n            except BaseException:\n"
        "                return self.result()\n",
        "execution",
    ),
]  # fmt: skip


def first_failure(mistake: Mistake, copy: Path) -> str | None:
    """The first test that fails with the mistake in the copy, None if none does."""
    file = copy / "src" / "cissl" / mistake.file
    right = file.read_text(encoding="utf-8")
    if right.count(mistake.right) != 1:
        raise SystemExit(f"{mistake.file} is written differently now: bring {mistake.right!r} in {__file__} up to date")
    file.write_text(right.replace(mistake.right, mistake.wrong), encoding="utf-8")
    tests = [f"tests/test_{name.removeprefix('test_')}.py" for name in mistake.tests.split()]
    command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", "--no-header", "--tb=no", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    finally:
        file.write_text(right, encoding="utf-8")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[| |$)", done.stdout, re.MULTILINE)
    if done.returncode == 0:
        return None
    if failed is None:
        raise SystemExit(f"{mistake.what}: the tests did not run\n{done.stdout}{done.stderr}")
    return failed[1].removeprefix("tests/")


def main() -> None:
    numbers = {int(number) for number in sys.argv[1:]}
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("src", "tests", "examples"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for mistake in MISTAKES:
            if not numbers or mistake.number in numbers:
                failed = first_failure(mistake, copy)
                missed += failed is None
                print(f"| {mistake.what} | {f'`{failed}`' if failed else '**none**'} |", flush=True)
    sys.exit(f"{missed} mistakes fail no test" if missed else None)


if __name__ == "__main__":
    main()
