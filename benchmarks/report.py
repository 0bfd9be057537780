"""How large a report of many runs is, and how long it takes to make and to open: one JSON line.

The runs are made up: every setting of the paper's Tables 2 to 4 with five seeds, each with the curves of 500,000 steps.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from cissl import recipes, report

LOOKS = 5000  # rows of steps.csv


def make(study: Path, limit: int | None) -> int:
    """A folder for each run, with a result that one could have got."""
    random = np.random.default_rng(0)
    made = [f(dataset=d) for d in ("cifar10", "svhn") for f in (recipes.imbalance_factor, recipes.label_count)]
    made += [recipes.reweighting(dataset=dataset) for dataset in ("cifar10", "svhn")]
    runs = list(dict.fromkeys(run for many in made for run in many))[:limit]
    steps = np.arange(1, LOOKS + 1) * 100
    for run in runs:
        folder = study / run.name
        folder.mkdir(parents=True)
        error = float(random.uniform(0.2, 0.5))
        recall = np.clip(random.normal(1 - error, 0.1, 10), 0, 1).tolist()
        metrics = {"error": error, "balanced_error": error, "minor_error": error, "tail_error": error, "recall": recall}
        metrics["confusion"] = random.integers(0, 1000, (10, 10)).tolist()
        seen = [{"step": 25_000 * i, "student_error": error, "teacher_error": error} for i in range(1, 21)]
        counts = np.sort(random.integers(1, 2000, 10)).tolist()
        result = {"run": run.model_dump(), "status": "done", "student": metrics, "teacher": metrics, "seconds": 1.0}
        result |= {"validation": seen, "best_step": 500_000, "labeled_counts": counts, "unlabeled_counts": counts}
        (folder / "result.json").write_text(json.dumps(result))
        losses = random.uniform(0, 1, (LOOKS, 3))
        table = np.column_stack([steps, np.full(LOOKS, 0.1), losses])
        header = "step,learning_rate,loss,supervised,consistency"
        np.savetxt(folder / "steps.csv", table, "%.6g", ",", header=header, comments="")
    described = {"study": "images", "title": "Tables 2 to 4", "command": "", "runs": [run.name for run in runs]}
    (study / "study.json").write_text(json.dumps(described))
    return len(runs)


def opening_seconds(path: Path) -> float | None:
    """Until the page is drawn in chromium; None where there is none."""
    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver_path:
        return None
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        began = time.perf_counter()
        driver.get(path.as_uri())
        while not driver.execute_script("return document.documentElement.dataset.ready === 'yes'"):
            time.sleep(0.01)
        driver.execute_script("return document.body.offsetHeight")
        return time.perf_counter() - began
    finally:
        driver.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, help="how many of the 1,890")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "images"
        found: dict[str, Any] = {"runs": make(study, arguments.runs)}
        began = time.perf_counter()
        html, _ = report.text(study, "html")
        found["making_s"] = round(time.perf_counter() - began, 1)
        path = report.write_text(html, study / "report.html")
        found["megabytes"] = round(path.stat().st_size / 1e6, 2)
        seconds = opening_seconds(path)
        found["opening_s"] = None if seconds is None else round(seconds, 2)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
