"""Made-up studies on disk, as `cissl run` leaves them: for the tests of the report."""

import json

import numpy as np

LABELS = (10, 5, 2)


def record(run, error, best_step=None, **more):
    """A result.json of three classes, of which the rarest takes the most errors."""
    recall = [1 - error / 2, 1 - error, 1 - 1.5 * error]
    confusion = [[round(100 * r) if i == j else round(50 * (1 - r)) for j in range(3)] for i, r in enumerate(recall)]
    metrics = {"error": error, "balanced_error": error, "major_error": error / 2, "minor_error": 1.5 * error}
    metrics |= {"tail_error": 1.5 * error, "recall": recall, "confusion": confusion}
    return {
        "run": run,
        "status": "done",
        "diverged_at": None,
        "student": metrics,
        "teacher": metrics if "mean-teacher" in run["method"] else None,
        "best_step": best_step,
        "validation": [
            {"step": step, "student_error": error + 0.1 * (200 - step) / 200}
            | ({"teacher_error": error} if "mean-teacher" in run["method"] else {})
            for step in (100, 200)
        ],
        "labeled_counts": list(np.roll(LABELS, run["seed"])),
        "unlabeled_counts": list(np.roll([100, 50, 20], run["seed"])),
        "seconds": 1.5,
        "versions": {"cissl": "0.1.0", "torch": "2.13.0"},
        "hardware": "a processor",
    }


def add(study, error=0.2, method="pi", dataset="two-moons", seed=0, curve=3, **fields):
    """A finished run; `error` may be "diverged", "failed" or "unfinished"."""
    run = {"dataset": dataset, "method": method, "reweight": "ce", "unlabeled": "same", "imbalance": 5.0, "labeled": 12}
    run |= {"steps": 5000, "unlabeled_batch": 0 if method == "supervised" else 80, "options": {}, "seed": seed} | fields
    folder = study / f"run{sum(1 for _ in study.glob('run*')):04d}"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run))
    if error == "failed":
        (folder / "failure.json").write_text(json.dumps({"reason": "no room <here>\nand more", "tries": 2}))
    elif error == "diverged":
        told = {"run": run, "status": "diverged", "diverged_at": 312, "student": None, "teacher": None, "seconds": 0.5}
        (folder / "result.json").write_text(json.dumps(told))
    elif error != "unfinished":
        written = json.dumps(record(run, error), default=int)
        (folder / "result.json").write_text(written)
    rows = [f"{100 * (i + 1)},0.1,{1 / (i + 1)},{0.5 / (i + 1)},{0.5 / (i + 1)}" for i in range(curve)]
    (folder / "steps.csv").write_text("\n".join(["step,learning_rate,loss,supervised,consistency", *rows]) + "\n")
    return folder


def add_film(folder, steps=(0, 100, 200)):
    """Snapshots of a plane whose left part is sure, more of it with every step."""
    planes = np.full((len(steps), 16, 16), 128, dtype=np.uint8)
    for i in range(len(steps)):
        planes[i, :, : 5 * (i + 1)] = 255
    points = np.random.default_rng(0).uniform(0, 1, (100, 2))
    np.savez_compressed(
        folder / "boundary-steps.npz",
        x=np.linspace(0, 1, 16),
        y=np.linspace(0, 1, 16),
        steps=np.array(steps),
        confidence=planes,
        labeled_points=points[:6],
        labeled_classes=np.arange(6) % 3,
        unlabeled_points=points,
        unlabeled_classes=np.zeros(100, dtype=int),
    )


def describe(study, name, runs=(), title="A study", command="cissl run it"):
    study.mkdir(parents=True, exist_ok=True)
    told = {"study": name, "title": title, "command": command, "runs": list(runs)}
    (study / "study.json").write_text(json.dumps(told))
