"""report.html as text, and the data that it draws."""

import csv
import json
import re

import numpy as np
import pytest
from PIL import Image
from studies import add, add_film, describe

from cissl.report import charts, group_seeds, layout, read_results, text
from cissl.report.page import bin_of


def data_of(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def html_of(study):
    return text(study, "html")[0]


def test_a_half_done_study_with_failures_is_told_as_it_is(tmp_path):
    study = tmp_path / "toy"
    describe(study, "toy", runs=["x"] * 7, command="cissl run toy --seeds 7")
    for seed, error in enumerate((0.2, 0.3, "diverged", "failed", "unfinished")):
        add(study, error, "mean-teacher", seed=seed)
    html = html_of(study)
    for said in ("2 of 7 runs done", "1 diverged", "1 failed", "3 not done yet", "2 of 5 seeds", "at step 312"):
        assert said in html
    assert "no room &lt;here&gt;" in html
    assert "cissl run toy --seeds 7" in html
    assert "a processor" in html
    assert "torch 2.13.0" in html


def test_nothing_of_a_study_is_taken_for_html(tmp_path):
    describe(tmp_path, "mine", title="</title><script>alert(1)</script>")
    add(tmp_path, 0.2, "pi", "<b>&</b></script>")
    html = html_of(tmp_path)
    assert "alert(1)</script>" not in html
    assert "<b>&</b>" not in html
    assert html.count("</script>") == 2
    assert data_of(html)["settings"][0]["name"] == "<b>&</b></script>"


def test_a_study_without_a_result_has_a_page(tmp_path):
    add(tmp_path, "unfinished")
    assert "0 of 1 runs done" in html_of(tmp_path)
    describe(tmp_path / "empty", "toy")
    assert "No finished run yet" in html_of(tmp_path / "empty")


def test_ours_stands_beside_the_papers_with_its_distance(tmp_path):
    describe(tmp_path, "toy")
    add(tmp_path, 0.80, "pi")  # the paper: 41.57 ± 8.82
    add(tmp_path, 0.30, "mean-teacher")  # 34.99 ± 9.98
    html = html_of(tmp_path)
    assert re.search(r'80\.00<span class="paper">41\.57 ± 8\.82 <span class="chip wide" title="4\.4 standard', html)
    assert re.search(
        r'<span class="best">30\.00</span><span class="paper">.*?<span class="chip near"[^>]*>−4\.99', html
    )
    assert "ddof 1" in html


@pytest.mark.parametrize(("off", "name"), [(0.99, "near"), (-1.5, "off"), (2.5, "far"), (-3.1, "wide"), (None, "")])
def test_colours_go_by_the_papers_deviations(off, name):
    assert bin_of(off) == name


def test_classes_are_ranked_by_each_seeds_own_counts(tmp_path):
    add(tmp_path, 0.2, "pi", seed=0)
    add(tmp_path, 0.2, "pi", seed=1)  # the same counts, of other classes
    (group,) = group_seeds(read_results(tmp_path)[0])
    (drawn,) = charts.data(layout.compare([group], "toy"))["groups"]
    assert drawn["labeled"] == [10, 5, 2]
    # Recall is 0.9, 0.8, 0.7 of classes 0, 1, 2; seed 1 has 2, 10, 5 labels of them.
    assert drawn["studentRecall"] == [[0.9, 0.8, 0.7], [0.8, 0.7, 0.9]]
    assert drawn["unlabeled"] == [100, 50, 20]
    confusion = np.array(json.loads((tmp_path / "run0000" / "result.json").read_text())["student"]["confusion"])
    ranks = [1, 2, 0]
    assert drawn["studentConfusion"] == (confusion + confusion[np.ix_(ranks, ranks)]).tolist()


def test_unlabeled_samples_that_are_not_looked_at_are_not_drawn_as_none_at_all(tmp_path):
    path = add(tmp_path, 0.2, "supervised") / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "unlabeled_counts": [0, 0, 0]}))
    (drawn,) = charts.data(layout.compare(group_seeds(read_results(tmp_path)[0]), "toy"))["groups"]
    assert drawn["labeled"] == [10, 5, 2]
    assert "unlabeled" not in drawn


def test_long_curves_are_thinned_to_means_of_stretches():
    steps = np.arange(1, 1001) * 100
    losses = {"loss": np.arange(1000.0)}
    at, thin = charts.thinned(steps, losses, 10)
    assert at == [10000 * i for i in range(1, 11)]
    assert thin["loss"] == pytest.approx([49.5 + 100 * i for i in range(10)], rel=1e-3)
    at, whole = charts.thinned(steps[:7], {"loss": losses["loss"][:7]}, 10)
    assert at == [100, 200, 300, 400, 500, 600, 700]
    assert whole["loss"] == [0, 1, 2, 3, 4, 5, 6]


def test_numbers_are_short_and_json_has_no_nan():
    assert charts.rounded([1.23456789, 0.000123456, 2.0, float("nan"), float("inf")]) == [
        1.235,
        0.0001235,
        2,
        None,
        None,
    ]


@pytest.mark.parametrize("content", ["", "step\n", "step,loss\n1,2\n3", "nonsense\n1,2\n", "step,loss\nx,y\n"])
def test_a_torn_curve_is_left_out(tmp_path, content):
    folder = add(tmp_path, 0.2)
    (folder / "steps.csv").write_text(content)
    (result,) = read_results(tmp_path)[0]
    assert "losses" not in charts.curves(result)


def test_a_boundary_by_step_is_a_strip_with_up_up(tmp_path):
    import base64
    import io

    folder = add(tmp_path, 0.2)
    add_film(folder)
    with np.load(folder / "boundary-steps.npz") as arrays:
        film = {name: arrays[name] for name in arrays}
    film["confidence"][0, -1] = 255  # at the largest y
    strip = charts.strip(film)
    with Image.open(io.BytesIO(base64.b64decode(strip["png"]))) as image:
        pixels = np.asarray(image.convert("RGB"), dtype=int).sum(-1)
    assert pixels.shape == (48, 16)
    assert pixels[0, -1] > 600 > 400 > pixels[1, -1]  # sure is light
    assert strip["steps"] == [0, 100, 200]
    x, y = film["labeled_points"][0]
    assert strip["labeled"][0] == pytest.approx([x, 1 - y], abs=1e-3)


@pytest.mark.parametrize("content", [b"", b"torn", b"PK\x03\x04torn"])
def test_a_torn_film_is_left_out(tmp_path, content):
    (add(tmp_path, 0.2) / "boundary-steps.npz").write_bytes(content)
    assert data_of(html_of(tmp_path))["boundaries"] == []


def test_curves_and_validations_are_in_the_page(tmp_path):
    add(tmp_path, 0.2, "mean-teacher")
    (group,) = data_of(html_of(tmp_path))["groups"]
    (run,) = group["runs"]
    with (tmp_path / "run0000" / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert run["steps"] == [int(row["step"]) for row in rows]
    assert run["losses"]["loss"] == pytest.approx([float(row["loss"]) for row in rows], rel=1e-3)
    assert (run["metric"], run["validated"]) == ("error", [100, 200])
    assert run["student"] == [25, 20]
    assert run["teacher"] == [20, 20]
