"""From folders, tables and arrays to a model and back, on the command line as its users meet it."""

import csv
import json
import re
import shutil

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from folders import flat, folder, picture
from hypothesis import HealthCheck, given, settings

import cissl as library
from cissl import cli_own_data, execution, onnx_export, own_data

SMALL = ("--steps", 4, "--size", 8, "--accelerator", "cpu")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CISSL_DATA", str(tmp_path / "data"))


@pytest.fixture
def images(tmp_path):
    """labeled/ with two classes, more/ without labels."""
    folder(tmp_path / "labeled", {"disc": 12, "square": 4})
    flat(tmp_path / "more", {"disc": 6, "square": 5})
    return tmp_path


def table(path, rows=30, seed=0, classes=("a", "b"), label="label"):
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["width", "height", *([label] if label else [])])
        for number in range(rows):
            which = number % len(classes)
            cell = [classes[which] if number < rows - 4 else ""] if label else []
            writer.writerow([*(rng.normal(3 * which, 1, 2).round(4)), *cell])
    return path


# ---- Folders of images


def test_a_folder_is_trained_predicted_evaluated_and_exported(cissl, images):
    code, out, err = cissl("train", "--images", "labeled", "--unlabeled", "more", "--out", "model", *SMALL)
    assert code == 0
    assert out.splitlines() == [
        "labeled: images as 8 x 8 RGB (letterbox)",
        "16 labeled images of 2 classes, 11 without a label",
        "  disc         12",
        "  square        4",
        "Training mean-teacher+scl with convnet, 4 steps of 50 labeled + 50 unlabeled samples, learning rate "
        + re.search(r"learning rate (.*)", out)[1],
        "No labeled sample is held out, all of them are learnt from: the last step counts",
        "Written: model",
        "Next: cissl predict model IMAGES/   or, with labels: cissl evaluate model IMAGES/",
    ]
    assert re.match(r"step 4 of 4, 0 s left, ", err.splitlines()[-1])

    code, out, err = cissl("predict", "model", "more", "--html", "said.html")
    assert (code, err) == (0, "")
    with (images / "predictions.csv").open() as file:
        head, *rows = csv.reader(file)
    assert head == ["path", "label", "probability_disc", "probability_square"]
    assert [row[0] for row in rows] == sorted(path.name for path in (images / "more").iterdir())
    classifier = library.load(images / "model")
    pixels = np.concatenate([block.x for block in own_data.Samples(images / "more", KIND, labeled=False)])
    said = classifier.predict_proba(pixels)
    assert np.array([[float(share) for share in row[2:]] for row in rows]) == pytest.approx(said, abs=1e-6)
    assert [row[1] for row in rows] == [["disc", "square"][i] for i in said.argmax(1)]
    page = (images / "said.html").read_text()
    assert page.count("data:image/png;base64,") == 11
    assert "http" not in page

    code, out, err = cissl("evaluate", "model", "labeled", "--html", "page.html", "--out", "numbers.json")
    assert (code, err) == (0, "")
    numbers = json.loads((images / "numbers.json").read_text())
    assert numbers["samples"] == np.sum(numbers["confusion"]) == 16
    assert f"error{100 * numbers['error']:21.1f} %" in out
    rows = [line.split() for line in out.splitlines()]
    assert next(row for row in rows if row[0] == "disc")[:3] == ["disc", "12", "12"]
    assert ["disc", *map(str, numbers["confusion"][0])] in rows
    assert sum(count for count, _, _ in numbers["reliability"]) == 16
    assert "Confusion" in (images / "page.html").read_text()

    code, out, _ = cissl("export", "model", "--onnx", "model.onnx")
    assert code == 0
    assert "samples: float32 (n, 8, 8, 3), pixels as numbers" in out
    assert run_onnx(images / "model.onnx", pixels) == pytest.approx(said, abs=1e-4)


KIND = {"kind": "images", "size": 8, "channels": 3, "resize": "letterbox"}


def run_onnx(path, samples):
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return session.run(None, {"samples": samples.astype(np.float32)})[0]


def test_done_is_done_and_other_settings_are_another_model(cissl, images, monkeypatch):
    command = ("train", "--images", "labeled", "--unlabeled", "more", "--out", "model", *SMALL)
    cissl(*command)
    before = (images / "model" / "weights.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(library.CISSLClassifier, "_fit", None)
    code, out, err = cissl(*command)
    assert (code, err) == (0, "")
    assert "This model is trained already.\nWritten: model\n" in out
    assert (images / "model" / "weights.safetensors").stat().st_mtime_ns == before
    for other in (("--seed", 1), ("--resize", "stretch")):
        assert "model holds a model of other data or settings" in cissl(*command, *other)[2]
    picture("disc", 99).save(images / "labeled" / "disc" / "new.png")
    code, _, err = cissl(*command)
    assert code == 2
    assert "error: model holds a model of other data or settings: choose another folder with --out, or delete it" in err


def test_stopped_while_training_it_goes_on_to_the_same_model(cissl, images, monkeypatch):
    command = ("train", "--images", "labeled", "--unlabeled", "more", *SMALL, "--checkpoint-every", 2, "--out")
    cissl(*command, "undisturbed")
    save = execution.checkpoints.save

    def stop(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(execution.checkpoints, "save", stop)
    code, _, err = cissl(*command, "model")
    assert code == 130
    assert err.endswith("\nStopped; the same command goes on from where it was.\n")
    assert "Its training is not finished" in cissl("predict", "model", "more")[2]
    monkeypatch.setattr(execution.checkpoints, "save", save)
    code, _, err = cissl(*command, "model")
    assert code == 0
    assert "Going on after step 2 of 4." in err
    weights = [(images / name / "weights.safetensors").read_bytes() for name in ("undisturbed", "model")]
    assert weights[0] == weights[1]


def test_what_usually_goes_wrong_is_said(cissl, images):
    (images / "labeled" / "disc" / "broken.png").write_text("no image")
    (images / "labeled" / "empty").mkdir()
    folder(images / "labeled", {"rare": 2})
    shutil.copy(images / "labeled" / "disc" / "003.png", images / "more" / "copy of another name.png")
    shutil.copy(images / "labeled" / "disc" / "004.png", images / "labeled" / "square" / "copy.png")
    code, _, err = cissl("train", "--images", "labeled", "--unlabeled", "more", "--out", "model", *SMALL)
    assert code == 0
    assert [line.removeprefix("warning: ") for line in err.splitlines() if line.startswith("warning")] == [
        "no image in empty: left out of the classes",
        "cannot be read, left out: disc/broken.png: not an image, or damaged at its beginning",
        "the same image has two labels: disc/004.png and square/copy.png",
        "1 of the images are copies of others: those held out to validate are not all new",
        "1 labeled samples are also among the unlabeled ones (disc/003.png is copy of another name.png): training is "
        "the same, but do not evaluate on them",
        "fewer than 3 labels of rare (2): label more of them, before anything else",
    ]
    assert (
        "more than 0 files cannot be read"
        in cissl("train", "--images", "labeled", "--out", "other", *SMALL, "--max-broken", 0)[2]
    )


def test_unlabeled_images_of_another_kind_are_noticed(cissl, images):
    shutil.rmtree(images / "more")
    (images / "more").mkdir()
    for number in range(4):
        picture("disc", number, (90, 60)).point(lambda value: value // 30).save(images / "more" / f"{number}.png")
    err = cissl("train", "--images", "labeled", "--unlabeled", "more", "--out", "model", *SMALL)[2]
    assert "labeled images are 20 x 16 pixels, unlabeled ones 90 x 60: are they of the same kind?" in err
    assert "unlabeled samples are on another scale (" in err


def test_a_csv_of_paths_with_unlabeled_rows(cissl, images):
    rows = [(f"labeled/disc/{i:03d}.png", "round") for i in range(6)]
    rows += [(f"labeled/square/{i:03d}.png", "") for i in range(2)] + [("labeled/square/003.png", "angular")] * 2
    rows += [("labeled/square/002.png", "angular"), ("labeled/nowhere.png", "angular")]
    with (images / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *rows])
    code, out, err = cissl("train", "--images", "list.csv", "--out", "model", *SMALL, "--color", "grey")
    assert code == 0
    assert "8 labeled images of 2 classes, 2 without a label\n  angular        2\n  round          6\n" in out
    assert "images as 8 x 8 grey" in out
    assert "warning: cannot be read, left out: labeled/nowhere.png: there is no such file\n" in err
    assert cissl("evaluate", "model", "list.csv")[0] == 0
    assert cissl("predict", "model", "list.csv", "--out", "said.csv")[0] == 0
    assert len((images / "said.csv").read_text().splitlines()) == 11


def test_a_held_out_part_is_chosen_by_and_shown(cissl, images):
    code, out, err = cissl(
        "train", "--images", "labeled", "--unlabeled", "more", "--out", "model", *SMALL, "--validation-fraction", 0.25
    )
    assert code == 0
    assert "4 of 16 labeled samples are held out, to choose the best step by" in out
    assert "warning: 4 samples are few to choose the best step by" in err
    assert re.search(r"On the samples held out: error [\d.]+ %, balanced [\d.]+ % \(a little too good", out)
    assert re.search(r"  disc +[\d.]+ % +[\d.]+ %\n  square +[\d.]+ % +[\d.]+ %\n", out)


# ---- Tables and arrays


def test_a_table_is_trained_and_predicted_by_the_names_of_its_columns(cissl, tmp_path):
    table(tmp_path / "train.csv", label="kind")
    table(tmp_path / "more.csv", seed=1, label=None)
    command = ("train", "--table", "train.csv", "--label", "kind", "--unlabeled", "more.csv", "--steps", 3)
    code, out, _ = cissl(*command, "--out", "model")
    assert code == 0
    assert "train.csv: samples of 2 numbers\n26 labeled samples of 2 classes, 34 without a label\n" in out
    assert "Training mean-teacher+scl with mlp, 3 steps" in out
    with (tmp_path / "more.csv").open() as file:
        rows = list(csv.reader(file))
    with (tmp_path / "turned.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[height, "note", width] for width, height in rows[:1]])
        csv.writer(file).writerows([[height, "text", width] for width, height in rows[1:]])
    assert cissl("predict", "model", "more.csv", "--html", "page.html")[0] == 0
    code, _, err = cissl("predict", "model", "turned.csv", "--out", "turned-said.csv")
    assert code == 0
    assert err == "note: columns of turned.csv that are no features of the model, left alone: note\n"
    first, second = ((tmp_path / name).read_text() for name in ("predictions.csv", "turned-said.csv"))
    assert first == second
    assert first.startswith("row,label,probability_a,probability_b\n1,")
    assert "Least certain" in (tmp_path / "page.html").read_text()
    assert cissl("evaluate", "model", "train.csv")[1].splitlines()[1].split()[:3] == ["a", "13", "13"]
    code, _, _ = cissl("export", "model", "--onnx", "model.onnx")
    numbers = np.array(rows[1:], float)
    said = np.array([line.split(",")[2:] for line in first.splitlines()[1:]], float)
    assert run_onnx(tmp_path / "model.onnx", numbers) == pytest.approx(said, abs=1e-4)


def test_a_prior_can_be_asked_for(cissl, tmp_path):
    table(tmp_path / "train.csv")
    cissl("train", "--table", "train.csv", "--out", "model", "--steps", 3)
    plain, _ = (cissl("predict", "model", "train.csv")[1], None)
    much = cissl("predict", "model", "train.csv", "--prior", "a=0.999,b=0.001")[1]
    assert "a 30, b 0" in much != plain
    assert cissl("predict", "model", "train.csv", "--prior", "uniform")[0] == 0
    for prior in ("evenly", "a=0.5,c=0.5", "a=much,b=0"):
        code, _, err = cissl("predict", "model", "train.csv", "--prior", prior)
        assert code == 2
        assert "prior" in err


def test_arrays_of_samples_and_of_images(cissl, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3 - 1
    np.savez(tmp_path / "t.npz", X=rng.normal(size=(30, 5)), y=y, X_unlabeled=rng.normal(size=(9, 5)))
    code, out, _ = cissl("train", "--arrays", "t.npz", "--out", "model", "--steps", 3, "--models", 2)
    assert code == 0
    assert "20 labeled samples of 2 classes, 19 without a label" in out
    assert "Training mean-teacher+scl with mlp, 2 models, 3 steps" in out
    assert "30 samples: 0 " in cissl("predict", "model", "t.npz")[1]
    assert cissl("evaluate", "model", "t.npz")[0] == 0
    assert "was trained on arrays: give a .npz file with X, not" in cissl("predict", "model", "predictions.csv")[2]
    np.savez(tmp_path / "i.npz", X=rng.integers(0, 255, (20, 8, 8)).astype(np.uint8), y=np.arange(20) % 2)
    assert cissl("train", "--arrays", "i.npz", "--out", "grey", "--steps", 2, "--accelerator", "cpu")[0] == 0
    assert cissl("predict", "grey", "i.npz", "--html", "i.html")[0] == 0
    np.savez(tmp_path / "other.npz", X=rng.normal(size=(4, 3)))
    code, _, err = cissl("predict", "model", "other.npz")
    assert (code, "3" in err) == (2, True)


def test_scales_constants_and_repeated_rows_of_a_table_are_noticed(cissl, tmp_path):
    table(tmp_path / "train.csv")
    text = (tmp_path / "train.csv").read_text().splitlines()
    text = [f"{line.rsplit(',', 1)[0]},7,{line.rsplit(',', 1)[1]}" for line in text]
    text[0] = "width,height,same,label"
    twice = text[1].rsplit(",", 1)[0]
    (tmp_path / "train.csv").write_text("\n".join([*text, f"{twice},b", f"{twice},"]))
    (tmp_path / "more.csv").write_text("height,width,same,label\n100,1,7,\n400,2,7,a\n-300,1,7,\n")
    command = ("train", "--table", "train.csv", "--unlabeled", "more.csv", "--steps", 2, "--out", "model")
    code, _, err = cissl(*command)
    assert code == 0
    said = [line.removeprefix("warning: ") for line in err.splitlines() if line.startswith("warning")]
    assert said[:4] == [
        "1 rows of more.csv have a label, which is not looked at",
        "the same number in every row, so it says nothing: same",
        "1 labeled samples are also among the unlabeled ones (row 1 is row 32): training is the same, but do not "
        "evaluate on them",
        "the same sample has two labels: rows 1 and 31",
    ]
    assert re.match(r"unlabeled samples are on another scale in height \(.* labeled, .* unlabeled\)", said[4])


# ---- Mistakes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to train on: give --images, --table or --arrays, or the name of a --dataset"),
        (("--images", "labeled", "--table", "t.csv"), "--images and --table are two kinds of data: give one of them"),
        (("--images", "labeled", "--dataset", "digits"), "give one of them"),
        (("--images", "labeled", "--labeled", 10), "--labeled is for a --dataset: leave it out"),
        (("--dataset", "digits", "--size", 10), "--size is for data of your own (--images, --table, --arrays)"),
        (("--table", "t.csv", "--size", 10), "--size is for --images: leave it out with --table"),
        (("--images", "labeled", "--label", "x"), "--label is for --table: leave it out with --images"),
        (("--arrays", "t.npz", "--unlabeled", "more"), "put X_unlabeled into the .npz file"),
        (("--images", "nowhere"), "there is no nowhere: expected a folder of images or a CSV file"),
        (("--images", "labeled", "--unlabeled", "nowhere"), "there is no nowhere"),
        (("--images", "labeled", "--method", "mean-techer"), "did you mean 'mean-teacher'?"),
        (("--images", "labeled", "--network", "toy-mlp", "--size", 8), "toy-mlp is for feature vectors"),
        (("--images", "one", "--size", 8), "labels of one class only, 'disc'"),
        (("--table", "t.csv"), "t.csv is not there: expected a .csv or .parquet file"),
        (("--images", "labeled", "--devices", 2), "own data is trained on one device: leave --devices out"),
        (("--images", "labeled", "--out", "file"), "file is a file, and a model needs a folder"),
        (("--images", "labeled", "--validation-fraction", 1.5), "validation_fraction should lie between 0 and 1"),
    ],
)
def test_a_mistake_is_a_sentence(cissl, images, words, said):
    folder(images / "one", {"disc": 3})
    (images / "file").write_text("")
    code, _, err = cissl("train", "--out", "model", "--accelerator", "cpu", "--steps", 2, *words)
    assert code == 2
    assert said in err.splitlines()[-1]
    assert not (images / "model" / "model.json").exists()


def test_mistakes_with_a_model(cissl, images):
    cissl("train", "--images", "labeled", "--out", "model", *SMALL)
    folder(images / "test", {"disk": 2, "square": 1})
    for words, said in [
        (("predict", "nowhere", "more"), "nowhere is no model folder"),
        (("predict", "model", "nowhere"), "there is no nowhere: give the samples"),
        (("predict", "model", "more", "--out", "labeled"), "labeled is a folder: give the name of a file to write"),
        (("predict", "model", "more", "--network", "json:loads"), "which comes with cissl: give none"),
        (("evaluate", "model", "test"), "the model has none named 'disk': did you mean 'disc'?"),
        (("evaluate", "model", "more"), "in no class"),
        (("export", "model", "--onnx", "labeled"), "labeled is a folder"),
    ]:
        code, _, err = cissl(*words)
        assert code == 2
        assert said in err.splitlines()[-1]
    for path in (images / "more").iterdir():
        path.write_text("broken")
    code, _, err = cissl("predict", "model", "more", "--max-broken", 99)
    assert code == 2
    assert "there is no sample in more that can be used" in err


def test_exporting_needs_its_extra(cissl, images, monkeypatch):
    cissl("train", "--images", "labeled", "--out", "model", *SMALL)
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert "pip install 'cissl[export]'" in cissl("export", "model", "--onnx", "m.onnx")[2]
    assert not (images / "m.onnx").exists()


def test_whitening_is_exported_and_what_onnx_gets_wrong_is_not_written(cissl, images, monkeypatch):
    cissl("train", "--images", "labeled", "--out", "model", *SMALL, "--preprocessing", "gcn+zca", "--method", "pi")
    code, _, err = cissl("export", "model", "--onnx", "m.onnx")
    assert (code, err) == (0, "")  # compared with the classifier before it is written
    monkeypatch.setattr(onnx_export, "_traced", lambda whole, example, path: shutil.copy(images / "m.onnx", path))
    monkeypatch.setattr(onnx_export.Whole, "__init__", lambda self, classifier: torch.nn.Module.__init__(self))
    assert cissl("export", "model", "--onnx", "same.onnx")[0] == 0
    cissl("train", "--images", "labeled", "--out", "other", *SMALL, "--seed", 1)
    code, _, err = cissl("export", "other", "--onnx", "other.onnx")
    assert code == 2
    assert "the exported model differs from this one by" in err
    assert not (images / "other.onnx").exists()


def test_names_that_look_like_html_and_files_whose_names_are_no_text(cissl, images):
    folder(images / "odd", {"<b>disc": 3, "square & co": 3})
    cissl("train", "--images", "odd", "--out", "model", *SMALL)
    odd = images / "more" / "\udcff<script>.png"
    try:
        shutil.copy(images / "more" / "disc-1000.png", odd)
    except OSError:
        pytest.skip("this file system has only names that are text")
    code, _, _ = cissl("predict", "model", "more", "--html", "page.html")
    assert code == 0
    assert b"\xff<script>.png" in (images / "predictions.csv").read_bytes()
    page = (images / "page.html").read_text()
    assert "<script" not in page
    assert "&lt;b&gt;disc" in page


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    kinds=st.lists(st.sampled_from(["image", "broken", "text", "loose", "empty folder", "nested"]), max_size=6),
    classes=st.lists(st.sampled_from(["a", "b b", "c/d", "é"]), min_size=1, max_size=3),
)
def test_any_tree_is_found_or_refused_with_a_sentence(tmp_path_factory, kinds, classes):
    root = tmp_path_factory.mktemp("tree")
    for number, kind in enumerate(kinds):
        place = root / "labeled" / classes[number % len(classes)]
        place.mkdir(parents=True, exist_ok=True)
        if kind in ("image", "nested", "loose"):
            where = {"image": place, "nested": place / "x" / "y", "loose": root / "labeled"}[kind]
            where.mkdir(parents=True, exist_ok=True)
            picture("disc", number, (6, 5)).save(where / f"{number}.png")
        elif kind in ("broken", "text"):
            (place / f"{number}{'.png' if kind == 'broken' else '.txt'}").write_text("nothing")
    try:
        found = own_data.from_images(root / "labeled", None, root / "cache", max_broken=2)
    except ValueError as error:
        named = "labeled" in str(error) or "cannot be read" in str(error)
        assert named
    else:
        assert len(found.x) == len(found.labels) == kinds.count("image") + kinds.count("nested")
        assert found.x.shape[1:] == (found.kind["size"], found.kind["size"], found.kind["channels"])


def test_progress_of_decoding_is_told_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(cli_own_data, "EVERY", 300)
    with cli_own_data._decoding() as tell:
        for done in range(256, 1281, 256):
            tell(done, 1281)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["512 of 1,281 images decoded", "768 of 1,281 images decoded", "1,024 of 1,281 images decoded",
                     "1,280 of 1,281 images decoded"]  # fmt: skip
