"""Annotations as COCO writes them."""

import json

import numpy as np
import pytest
from detection_files import write_coco

from cissl.detection import coco, shapes
from cissl.detection.data import read


def files(tmp_path, **more):
    given = {"labeled": write_coco(tmp_path), "images": tmp_path / "pictures", **more}
    return {name: str(place) for name, place in given.items()}


def changed(tmp_path, change):
    path = write_coco(tmp_path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return {"labeled": str(path), "images": str(tmp_path / "pictures")}


def test_boxes_categories_and_crowds(tmp_path):
    def crowd(content):
        content["annotations"][1]["iscrowd"] = 1

    data = coco.load(changed(tmp_path, crowd))
    assert data.class_names == ("cat", "dog")  # by their numbers, not by their places in the file
    assert [picture.boxes.tolist() for picture in data.labeled] == [[[2.0 + n, 4, 22 + n, 24]] for n in range(3)]
    assert [picture.difficult.tolist() for picture in data.labeled] == [[False], [True], [False]]
    assert data.labeled_counts == [2, 0]
    assert read(data.labeled[0])[10, 10].tolist() == [230, 60, 60]
    assert (data.unlabeled, data.test) == ([], [])


def test_unlabeled_pictures_are_a_folder_or_a_list(tmp_path):
    more = tmp_path / "more"
    write_coco(more, count=4, name="more")
    from_folder = coco.load(files(tmp_path, unlabeled=more / "pictures"))
    assert [picture.name for picture in from_folder.unlabeled] == [f"more{n}.png" for n in range(4)]
    assert from_folder.unlabeled_counts == [0, 0]
    (tmp_path / "list").mkdir()
    listed = write_coco(tmp_path, count=2, name="listed")
    assert len(coco.load(files(tmp_path, unlabeled=listed)).unlabeled) == 2


def test_test_pictures_have_the_same_categories(tmp_path):
    test = write_coco(tmp_path, count=2, name="test")
    assert len(coco.load(files(tmp_path, test=test)).test) == 2
    content = json.loads(test.read_text())
    content["categories"][0]["name"] = "horse"
    test.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"has the categories cat, horse; .* has cat, dog: give both the same ones"):
        coco.load(files(tmp_path, test=test))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.pop("images"), "expected a list of objects under 'images'"),
        (lambda c: c.update(categories="cat"), "expected a list of objects under 'categories'"),
        (lambda c: c["annotations"][0].pop("bbox"), "lacks 'bbox'"),
        (lambda c: c["annotations"][0].update(bbox=[1, 2, 3]), r"expected a bbox as \[x, y, width, height\]"),
        (lambda c: c["annotations"][0].update(bbox=[1, 2, -3, 4]), "width and height not below 0"),
        (lambda c: c["annotations"][0].update(image_id=99), "an annotation is of image 99, which the file does not"),
        (lambda c: c["annotations"][0].update(category_id=5), "an annotation is of category 5, which"),
        (lambda c: c["images"][0].update(file_name="gone.png"), "there is no picture .*gone.png, which .* lists"),
        (lambda c: c.update(annotations=[]), "no labeled picture has an object in it"),
    ],
)
def test_a_mistake_is_named(change, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        coco.load(changed(tmp_path, change))


@pytest.mark.parametrize(("content", "said"), [("{", "is no JSON that can be read"), ("[]", "expected an object with")])
def test_another_file_is_refused(content, said, tmp_path):
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=said):
        coco.annotated(path, tmp_path)
    with pytest.raises(ValueError, match=r"there is no .*none.json"):
        coco.annotated(tmp_path / "none.json", tmp_path)


# ---- The set that is made


def test_shapes_are_a_function_of_the_seed():
    first, again = (shapes.pictures(3, "labeled", 4, 20.0) for _ in range(2))
    assert all(np.array_equal(a.source, b.source) for a, b in zip(first, again, strict=True))
    assert all(np.array_equal(a.boxes, b.boxes) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].source, shapes.pictures(4, "labeled", 4, 20.0)[0].source)
    assert not np.array_equal(first[0].source, shapes.pictures(3, "test", 4, 20.0)[0].source)


def test_shapes_are_as_imbalanced_as_said():
    data = shapes.load(0, labeled=80, unlabeled=160, test=24)
    labeled, unlabeled = data.labeled_counts, data.unlabeled_counts
    assert sum(labeled) == 200
    assert labeled == sorted(labeled, reverse=True)
    assert labeled[0] / labeled[-1] == pytest.approx(20, rel=0.15)
    assert unlabeled[0] / unlabeled[-1] == pytest.approx(20, rel=0.1)
    test = np.bincount(np.concatenate([picture.classes for picture in data.test]))
    assert test.tolist() == [10] * 6
    assert max(len(picture.classes) for picture in data.labeled) <= shapes.MOST


def test_a_shape_is_where_its_box_says():
    """Around each box the picture is as it would be without the shape; within it something was painted."""
    for picture in shapes.pictures(5, "labeled", 12, 1.0):
        assert (picture.boxes >= 0).all()
        assert (picture.boxes <= shapes.SIZE).all()
        for x0, y0, x1, y1 in picture.boxes.astype(int):
            assert min(x1 - x0, y1 - y0) >= 0.5 * shapes.SMALLEST
            inner = picture.source[y0 : y1 + 1, x0 : x1 + 1].astype(float)
            ring = np.concatenate([inner[0], inner[-1], inner[:, 0], inner[:, -1]])
            assert np.abs(inner.reshape(-1, 3).mean(0) - ring.mean(0)).max() > 5
