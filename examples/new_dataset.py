"""A data set of one's own in one file, split as the paper splits its own, and a study of methods on it.

Its name is `module:callable`: in the folder of this file, `PYTHONPATH=. cissl data show new_dataset:tumours` shows it,
and `cissl train --dataset new_dataset:tumours …` or a study of one's own trains on it. Takes a few seconds.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

import cissl
from cissl.recipes.grids import grid

SETTING = {
    "dataset": "new_dataset:tumours",
    "labeled": 24,
    "imbalance": 5,
    "unlabeled_total": 150,
    "network": "mlp",
    "preprocessing": "standardize",
    "noise": 0.15,
    "steps": 200,
    "learning_rate": 0.03,
    "validations": 0,
}
SEEDS = 3


def tumours(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Samples and labels to train on, and to test on; this set is the same for all seeds."""
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:400], order[400:]
    return x[train], y[train], x[test], y[test]


if __name__ == "__main__":
    for method in ("supervised", "mean-teacher", "mean-teacher+scl"):
        results = cissl.execute_seeds(grid(SEEDS, [method], **SETTING))
        errors = [100 * result["student"]["balanced_error"] for result in results]
        print(f"{method:18}balanced error {np.mean(errors):4.1f} ± {np.std(errors, ddof=1):3.1f} %")
