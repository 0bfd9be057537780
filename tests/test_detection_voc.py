"""VOC devkits: what is read of them, what is refused, and how they are fetched."""

import hashlib
import io
import tarfile

import numpy as np
import pytest
from detection_files import annotation, write_voc
from official_files import serving

from cissl.detection import voc
from cissl.detection.data import Reader, read


def test_the_papers_parts_are_read(tmp_path):
    write_voc(tmp_path, labeled=4, unlabeled=5, test=2)
    data = voc.load(tmp_path)
    assert [len(part) for part in (data.labeled, data.unlabeled, data.test)] == [4, 5, 2]
    cat, dog = voc.CLASSES.index("cat"), voc.CLASSES.index("dog")
    assert np.flatnonzero(data.labeled_counts).tolist() == [cat, dog]
    assert data.labeled_counts[cat] == data.labeled_counts[dog] == 4
    assert sum(data.unlabeled_counts) == 10
    first = data.labeled[0]
    assert first.boxes.tolist() == [[2, 4, 22, 24], [30, 10, 52, 34]]  # VOC counts pixels from 1
    assert first.classes.tolist() == [cat, dog]
    image = read(first)
    assert image.shape == (48, 60, 3)
    assert np.abs(image[10, 10].astype(int) - (230, 60, 60)).max() < 40  # a cat's colour, as JPEG keeps it
    assert voc.load(tmp_path / "VOCdevkit").class_names == data.class_names


def test_unlabeled_pictures_are_asked_for_only_where_they_are_needed(tmp_path):
    devkit = write_voc(tmp_path)
    (devkit / "VOC2012" / "ImageSets" / "Main" / "trainval.txt").unlink()
    assert voc.load(tmp_path, unlabeled=False).unlabeled == []
    with pytest.raises(
        ValueError, match=r"there is no .*VOC2012.*trainval.txt: get it with `cissl data fetch voc2012`"
    ):
        voc.load(tmp_path)


def test_difficult_objects_parts_and_decimals(tmp_path):
    devkit = write_voc(tmp_path, labeled=1)
    part = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>"
    objects = [("cat", (1.5, 2, 20.25, 24)), ("dog", (3, 3, 9, 9))]
    (devkit / "VOC2007/Annotations/trainval_000.xml").write_text(annotation(objects, difficult=[1], part=part))
    (picture,) = voc.load(tmp_path, unlabeled=False).labeled
    assert picture.boxes.tolist() == [[1.5, 2, 20.25, 24], [3, 3, 9, 9]]
    assert picture.difficult.tolist() == [False, True]
    boxes, classes = picture.trained_on()
    assert boxes.tolist() == [[1.5, 2, 20.25, 24]]
    assert classes.tolist() == [voc.CLASSES.index("cat")]
    assert sum(voc.load(tmp_path, unlabeled=False).labeled_counts) == 1


BOMB = """<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;&b;">]><annotation>&c;</annotation>"""


CAT = annotation([("cat", (1, 2, 3, 4))])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BOMB, "it has a DOCTYPE"),
        (BOMB.encode("utf-16"), "it has a DOCTYPE"),
        ("<annotation>", "no element found"),
        ("", "no element found"),
        (CAT.replace("cat", "cta"), "unknown class of an object 'cta': did you mean 'cat'"),
        (CAT.replace("<xmin>2<", "<xmin>two<"), "expected a number as bndbox/xmin, got 'two'"),
        (CAT.replace("<ymax>5<", "<ymax>nan<"), "expected a number as bndbox/ymax, got 'nan'"),
        (annotation([("cat", (9, 2, 3, 4))]), "the box of a cat ends before it begins"),
        (CAT.replace("bndbox", "box"), "expected a number as bndbox/xmin, got None"),
    ],
)  # fmt: skip
def test_a_broken_annotation_is_named(content, said, tmp_path):
    path = write_voc(tmp_path) / "VOC2007" / "Annotations" / "trainval_002.xml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=r"trainval_002.xml cannot be used: ") as error:
        voc.load(tmp_path)
    assert said in str(error.value)


@pytest.mark.parametrize("file", ["JPEGImages/trainval_001.jpg", "Annotations/trainval_001.xml"])
def test_an_absent_file_is_named(file, tmp_path):
    path = write_voc(tmp_path) / "VOC2007" / file
    path.unlink()
    with pytest.raises(ValueError, match=f"there is no .*{path.name}, which VOC2007/ImageSets/Main lists"):
        voc.load(tmp_path)


def test_a_broken_picture_is_named(tmp_path):
    devkit = write_voc(tmp_path)
    (devkit / "VOC2007" / "JPEGImages" / "trainval_000.jpg").write_bytes(b"\xff\xd8 not a picture")
    with pytest.raises(ValueError, match=r"trainval_000.jpg is no picture that can be read"):
        read(voc.load(tmp_path).labeled[0])


def test_a_list_cannot_lead_out_of_the_devkit(tmp_path):
    devkit = write_voc(tmp_path)
    (devkit / "VOC2007" / "ImageSets" / "Main" / "test.txt").write_text("../../../secret\n")
    with pytest.raises(ValueError, match=r"test.txt: expected names of pictures, .* got '../../../secret'"):
        voc.load(tmp_path)


def test_no_devkit_says_how_to_get_one(tmp_path):
    with pytest.raises(ValueError, match=r"expected a folder VOCdevkit .* found none: .*cissl data fetch voc2007"):
        voc.load(tmp_path)


def test_pictures_are_kept_while_there_is_room(tmp_path):
    write_voc(tmp_path)
    labeled = voc.load(tmp_path).labeled
    reader = Reader(room=48 * 60 * 3 * 2)
    images = [reader(picture) for picture in labeled]
    assert [reader(picture) is image for picture, image in zip(labeled, images, strict=True)] == [
        True,
        True,
        False,
        False,
    ]
    assert all(np.array_equal(reader(picture), image) for picture, image in zip(labeled, images, strict=True))


# ---- Fetching


def packed(files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content or b""))
    return stream.getvalue()


FILES = {
    "VOCdevkit/VOC2012/Annotations/a.xml": b"<annotation/>",
    "VOCdevkit/VOC2012/ImageSets/Main/trainval.txt": b"a\n",
    "VOCdevkit/VOC2012/JPEGImages/a.jpg": b"jpeg",
    "VOCdevkit/VOC2012/SegmentationClass/a.png": b"not needed",
    "VOCdevkit/VOC2012/JPEGImages/../../../evil.jpg": b"outside",
    "/VOCdevkit/VOC2012/JPEGImages/evil.jpg": b"outside",
    "VOCdevkit/VOC2012/JPEGImages/link.jpg": None,
}


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """voc2012 as a small archive on a server of this machine."""
    content = packed(FILES)
    with serving(tmp_path / "official") as base:
        (tmp_path / "official" / "small.tar").write_bytes(content)
        made = voc.Archive(f"{base}/small.tar", hashlib.md5(content).hexdigest(), "VOC2012")
        monkeypatch.setitem(voc.ARCHIVES, "voc2012", (made,))
        yield made


def test_fetching_unpacks_what_is_needed_and_nothing_outside(archive, tmp_path):
    data = tmp_path / "data"
    assert voc.is_here("voc2012", data) == [False]
    assert voc.fetch("voc2012", data) == ["small.tar"]
    assert voc.is_here("voc2012", data) == [True]
    found = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    assert found == {*list(FILES)[:3], "VOCdevkit/VOC2012/.small.tar.unpacked"}
    assert voc.fetch("voc2012", data) == []


def test_another_archive_than_the_published_is_refused(archive, tmp_path):
    (tmp_path / "official" / "small.tar").write_bytes(packed({"VOCdevkit/VOC2012/JPEGImages/a.jpg": b"other"}))
    with pytest.raises(ValueError, match=r"voc2012: small.tar could not be fetched .*put it at .*voc/small.tar"):
        voc.fetch("voc2012", tmp_path / "data")
    assert not (tmp_path / "data" / "VOCdevkit").exists()


def test_the_published_checksums_are_md5():
    archives = [archive for archives in voc.ARCHIVES.values() for archive in archives]
    assert all(len(archive.md5) == 32 and int(archive.md5, 16) for archive in archives)
    assert len({archive.md5 for archive in archives}) == len(archives) == 3
