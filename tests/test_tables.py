"""Feature tables and arrays of one's own: read as they are, or refused with the column and row and what to do."""

import math
import pickle

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyarrow import parquet

from cissl import tables
from cissl.tables import as_labels, read_arrays, read_table

TEXT = "age,label,height\n1,a,2.5\n3,,4\n5,b,-6e1\n"


@pytest.fixture
def csv(tmp_path):
    def write(text, name="my table.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_a_csv_of_features(csv, monkeypatch):
    for rows_at_once in (10_000, 2):
        monkeypatch.setattr(tables, "ROWS", rows_at_once)
        table = read_table(csv(TEXT), "label")
        assert table.features == ("age", "height")
        assert table.x.tolist() == [[1, 2.5], [3, 4], [5, -60]]
        assert table.x.dtype == np.float32
        assert table.labels == ["a", None, "b"]


def test_parquet_reads_as_the_csv_does(tmp_path, csv):
    columns = {"age": [1, 3, 5], "label": ["a", None, "b"], "height": [2.5, 4.0, -60.0]}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    ours, theirs = read_table(tmp_path / "t.parquet", "label"), read_table(csv(TEXT), "label")
    assert (ours.x == theirs.x).all()
    assert (ours.features, ours.labels) == (theirs.features, theirs.labels)


def test_mixed_kinds_of_numbers_are_numbers(tmp_path):
    columns = {"b": [True, False], "i": [1, 2], "f": [0.5, 1.5], "label": [1.0, None]}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", "label")
    assert table.x.tolist() == [[1, 1, 0.5], [0, 2, 1.5]]
    assert table.labels == ["1", None]


def test_columns_are_found_by_name_in_the_model_s_order(csv):
    table = read_table(csv(TEXT), "label", features=("height",))
    assert table.x.tolist() == [[2.5], [4], [-60]]
    assert table.remarks == ["columns of my table.csv that are no features of the model, left alone: age"]
    assert read_table(csv("height,age\n1,2\n"), "label", ("age", "height"), label_required=False).x.tolist() == [[2, 1]]
    with pytest.raises(ValueError, match=r"lacks 1 of 2 columns that the model learnt from: width; it has age, lab"):
        read_table(csv(TEXT), "label", ("age", "width"))


def test_columns_can_be_ignored(csv):
    text = "name,x,label\nRome,1,a\nOslo,2,b\n"
    with pytest.raises(ValueError, match=r"column 'name' holds 'Rome' in row 1.*or leave it out with --ignore 'name'"):
        read_table(csv(text), "label")
    assert read_table(csv(text), "label", ignored=["name"]).features == ("x",)
    with pytest.raises(ValueError, match=r"did you mean 'name'"):
        read_table(csv(text), "label", ignored=["nmae"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a first line with the names of the columns, it is empty"),
        ("a,,label\n1,2,x\n", "column 2 has no name"),
        ("a,a,label\n1,2,x\n", "two columns named a: give each a name of its own"),
        ("a,lable\n1,x\n", "unknown label column, "),
        ("a,lable\n1,x\n", "did you mean 'lable'?"),
        ("label\nx\n", "no column of features beside 'label'"),
        ("a,label\n", "has columns and no row: give at least one sample"),
        ("a,label\n1,x\n1,2,3\n", "line 3: expected 2 cells as in line 1, got 3"),
        ("a,b,label\n1,2,x\n,nan,x\n2,NA,y\n", "missing or infinite in a (1 rows), b (2 rows); the first is in row 2"),
        ("a,label\n1e999,x\n", "missing or infinite in a (1 rows)"),
        ("a,label\n" + "x" * 50 + ",y\n", "'" + "x" * 36 + "…"),
        (b"a,label\n\xff,x\n", "is no text in UTF-8"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(csv, text, said):
    with pytest.raises(ValueError, match=r"my table.csv") as error:
        read_table(csv(text), "label")
    assert said in str(error.value)


def test_files_that_are_none(tmp_path, csv):
    with pytest.raises(ValueError, match=r"is not there: expected a .csv or .parquet"):
        read_table(tmp_path / "t.csv", None)
    with pytest.raises(ValueError, match=r"is a folder: expected a .csv or .parquet"):
        read_table(tmp_path, None)
    with pytest.raises(ValueError, match=r"cannot be read as Parquet"):
        read_table(csv("no parquet", "t.parquet"), None)


def test_without_pyarrow_parquet_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'cissl\[tables\]', or give a CSV file"):
        read_table(tmp_path / "t.parquet", None)


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["a", " b ", "", "nan", None], ["a", "b", None, None, None]),
        ([1.0, 2, math.nan], ["1", "2", None]),
        (["1", "-1", "0"], ["1", None, "0"]),
        ([1, -1, 0], ["1", None, "0"]),
        (["-1", "a"], ["-1", "a"]),
        ([True, False], ["True", "False"]),
        (["None", "NA"], ["None", "NA"]),  # a class of its own name: only empty and nan are none
        ([1.5], ["1.5"]),
    ],
)
def test_labels_are_text_or_none(cells, labels):
    assert as_labels(cells) == labels


# ---- Arrays


def test_arrays_with_and_without_labels(tmp_path):
    x, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, -1, 1])
    np.savez(tmp_path / "a.npz", X=x, y=y, X_unlabeled=x[:2])
    found = read_arrays(tmp_path / "a.npz")
    assert (found.x == x).all()
    assert found.labels == ["0", "1", None, "1"]
    assert (found.unlabeled == x[:2]).all()
    np.savez(tmp_path / "b.npz", X=np.zeros((2, 8, 8, 3), np.uint8))
    assert read_arrays(tmp_path / "b.npz").labels is None
    np.savez(tmp_path / "c.npz", x=x, labels=np.array(["a", "b", "", "nan"]))
    assert read_arrays(tmp_path / "c.npz").labels == ["a", "b", None, None]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"y": np.zeros(3)}, "has no array X: it has y; expected X, y, X_unlabeled"),
        ({"X": np.zeros(3)}, "expected X of shape (n, d) or (n, height, width[, channels]), got (3,)"),
        ({"X": np.zeros((0, 3))}, "got (0, 3)"),
        ({"X": np.array([["a"]])}, "X holds <U1, and samples have to be numbers"),
        ({"X": np.zeros((3, 2)), "y": np.zeros(2)}, "expected 3 labels y for 3 samples, got shape (2,)"),
        ({"X": np.zeros((3, 2)), "X_unlabeled": np.zeros((3, 4))}, "X has samples of shape (2,) and X_unlabeled of (4"),
        ({"X": np.zeros((3, 2)), "y": np.array([None, 1, "a"], object)}, "it holds Python objects, which are not read"),
    ],
)
def test_what_is_wrong_with_arrays_is_said(tmp_path, arrays, said):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=r"a.npz") as error:
        read_arrays(tmp_path / "a.npz")
    assert said in str(error.value)


class Harmful:
    def __reduce__(self):
        return (pytest.fail, ("a file's code was run",))


@pytest.mark.parametrize("content", [b"", b"PK no zip", pickle.dumps(Harmful()), b"\x93NUMPY"])
def test_other_files_are_refused_and_run_nothing(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a.npz"):
        read_arrays(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", np.zeros(3))
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(ValueError, match=r"it holds a single array; save X and y with"):
        read_arrays(tmp_path / "b.npz")
    with pytest.raises(ValueError, match=r"is not there: expected a .npz"):
        read_arrays(tmp_path / "c.npz")


# ---- Whatever a file holds

CELLS = st.one_of(
    st.sampled_from(["", "1", "-1", "2.5", "nan", "inf", "1e400", "a", "x y", " ", "٣", '"', "é", "0x1", "1_0"]),
    st.text(max_size=5),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(rows=st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=5), separator=st.sampled_from([",", ";", "\t"]))
def test_any_table_is_read_or_refused_with_its_name(tmp_path_factory, rows, separator):
    source = tmp_path_factory.mktemp("table") / "t.csv"
    with source.open("w", encoding="utf-8", errors="replace", newline="") as file:
        file.write("\n".join([separator.join(row) for row in [["a", "b", "label"], *rows]]))
    try:
        table = read_table(source, "label")
    except ValueError as error:
        named = str(source) in str(error)
        assert named
    else:
        assert table.x.shape == (len(table.labels), 2)
        assert np.isfinite(table.x).all()
        assert all(label is None or label.strip() for label in table.labels)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_any_bytes_are_refused_with_their_name(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("bytes")
    for name, read in [("t.npz", read_arrays), ("t.parquet", lambda source: read_table(source, "label"))]:
        (folder / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            read(folder / name)
