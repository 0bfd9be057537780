"""GridSearchCV over a pipeline on features with few labels: method and re-weighting, chosen by balanced accuracy.

Digits: 120 labeled, ten times as many of the most frequent class as of the rarest, and 450 without a label. The folds
are over the labeled samples; all unlabeled ones are learned from in each. Takes a few seconds.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cissl

X, y = load_digits(return_X_y=True)
parts = cissl.split(y, labeled=120, imbalance=10, unlabeled_total=450, validation_per_class=30, seed=0)
train = np.concatenate([parts.labeled, parts.unlabeled])
labels = np.concatenate([y[parts.labeled], np.full(len(parts.unlabeled), -1)])
known = np.arange(len(parts.labeled))


def folds():
    """Held out are labeled samples only: there is nothing to score an unlabeled one by."""
    for fit, held_out in StratifiedKFold(3, shuffle=True, random_state=0).split(X[parts.labeled], y[parts.labeled]):
        yield np.concatenate([known[fit], np.arange(len(known), len(train))]), known[held_out]


search = GridSearchCV(
    make_pipeline(StandardScaler(), cissl.CISSLClassifier(steps=150, random_state=0)),
    {"cisslclassifier__method": ["supervised", "mean-teacher+scl"], "cisslclassifier__reweight": ["ce", "in"]},
    scoring="balanced_accuracy",
    cv=list(folds()),
)

if __name__ == "__main__":
    search.fit(X[train], labels)
    for settings, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        print(f"{' '.join(settings.values()):20}{100 * score:.1f} % balanced accuracy over the folds")
    score = search.score(X[parts.validation], y[parts.validation])
    print(f"{'the best, held out':20}{100 * score:.1f} %")
