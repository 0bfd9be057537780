"""Finding and reading images of one's own: whatever lies in a folder is read, reported with a reason, or refused."""

import csv

import hypothesis.strategies as st
import numpy as np
import pytest
from folders import folder, picture
from hypothesis import HealthCheck, given, settings
from PIL import Image

from cissl import image_files
from cissl.image_files import Broken, Listing, Reading, find, look, read, read_all

READING = Reading(8, 3)


def test_a_folder_of_classes_is_listed_in_order_with_its_labels(tmp_path):
    root = folder(tmp_path / "my images é", {"square": 2, "disc": 1})
    (root / "square" / "deeper one").mkdir()
    picture("square", 9).save(root / "square" / "deeper one" / "9.JPG", "JPEG")
    (root / "empty").mkdir()
    (root / "square" / "notes.txt").write_text("no image")
    (root / ".DS_Store").write_text("hidden")
    (root / "disc" / "Thumbs.db").write_text("hidden")
    found = find(root)
    assert found.names == ["disc/000.png", "square/000.png", "square/001.png", "square/deeper one/9.JPG"]
    assert found.labels == ["disc", "square", "square", "square"]
    assert found.remarks == [
        "no image in empty: left out of the classes",
        "no images by their names, left out: square/notes.txt",
    ]
    assert find(root, labeled=False).names == found.names
    assert set(find(root, labeled=False).labels) == {None}


def test_links_to_folders_are_followed_and_do_not_go_round(tmp_path):
    root = folder(tmp_path / "labeled", {"disc": 1, "square": 1})
    elsewhere = folder(tmp_path / "elsewhere", {"more": 2})
    (root / "linked").symlink_to(elsewhere / "more")
    (root / "disc" / "round").symlink_to(root)
    found = find(root)
    assert [name for name in found.names if name.startswith("linked")] == ["linked/000.png", "linked/001.png"]
    assert len(found) == 4


def test_a_file_named_as_a_class_is_a_remark(tmp_path):
    root = folder(tmp_path, {"disc": 1, "square": 1})
    (root / "triangle").write_text("not a folder")
    assert find(root).remarks == ["no images by their names, left out: triangle"]


def test_a_csv_of_paths_and_labels(tmp_path):
    root = folder(tmp_path / "set", {"disc": 2, "square": 1})
    rows = [("disc/000.png", "round"), ("square/000.png", " angular "), ("disc/001.png", ""), ("disc/000.png", "round")]
    for delimiter in ",;\t":
        with (root / "list.csv").open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([("label", "path", "note")])
            csv.writer(file, delimiter=delimiter).writerows((label, path, "") for path, label in rows)
        found = find(root / "list.csv")
        assert found.names == ["disc/000.png", "square/000.png", "disc/001.png"]
        assert found.labels == ["round", "angular", None]
        assert found.remarks == [f"1 rows of {root / 'list.csv'} name an image once more: counted once"]
        assert find(root / "list.csv", labeled=False).labels == [None] * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty: expected a first line path,label"),
        ("path,label\n", "has no line but the first: list an image on each"),
        ("file,label\na.png,x\n", "has no column path: its first line is 'file, label', expected path,label"),
        ("path,class\na.png,x\n", "has no column label"),
        ("path,label\na.png\n", "line 2: expected 2 cells as in line 1, got 1"),
        ("path,label\n,x\n", "line 2: no path"),
        ("path,label\na.png,x\na.png,y\n", "line 3: a.png is 'y' here and 'x' before: decide"),
        (b"path,label\n\xff\xfe,x\n", "is no text in UTF-8"),
        ('path,label\n"a.png,x\n', "mend that line"),
    ],
)
def test_what_is_wrong_with_a_csv_is_said(tmp_path, text, said):
    source = tmp_path / "list.csv"
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=r"list.csv") as error:
        find(source)
    assert said in str(error.value)


def test_what_is_wrong_with_a_folder_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"there is no .*expected a folder of images or a CSV file"):
        find(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"no image in .*: expected .*/CLASS/image.jpg, a folder for each class"):
        find(tmp_path)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match=r"no image in .*, only a.txt: expected images in it, in folders of any depth"):
        find(tmp_path, labeled=False)
    picture("disc", 1).save(tmp_path / "loose.png")
    with pytest.raises(ValueError, match=r"loose.png in .* is in no class.*or give images without a label with --unl"):
        find(tmp_path)
    with pytest.raises(ValueError, match=r"is an image: expected a folder"):
        find(tmp_path / "loose.png")


# ---- Reading


def test_letterbox_keeps_shapes_and_stretch_fills(tmp_path):
    wide = np.zeros((4, 16, 3), np.uint8)
    wide[:, 8:] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    boxed = read(str(tmp_path / "wide.png"), Reading(16, 3))
    assert (boxed[6:10] == wide).all()
    assert (boxed[[0, 5, 10, 15]] == 100).all()  # the image's own mean
    stretched = read(str(tmp_path / "wide.png"), Reading(16, 1, "stretch"))
    assert stretched.shape == (16, 16, 1)
    assert (stretched[:, :7] == 0).all()
    assert (stretched[:, 9:] == 200).all()


def write(path, pixels, mode=None, **how):
    image = Image.fromarray(pixels) if mode is None else Image.fromarray(pixels).convert(mode)
    image.save(path, **how)
    return str(path)


def test_every_kind_of_pixel_becomes_eight_bits(tmp_path):
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    colour = np.stack([grey, grey[::-1], 255 - grey], -1)
    for name, mode in [("a.png", "L"), ("b.bmp", "L"), ("c.tif", "L"), ("d.pgm", "L")]:
        assert (read(write(tmp_path / name, grey, mode), READING) == grey[..., None]).all()
        assert (read(str(tmp_path / name), Reading(8, 1))[..., 0] == grey).all()
    assert (read(write(tmp_path / "rgb.webp", colour, lossless=True), READING) == colour).all()
    assert read(write(tmp_path / "palette.gif", colour, "P"), READING).std() > 50
    assert (read(write(tmp_path / "1.png", (grey > 100), "1"), Reading(8, 1))[..., 0] == 255 * (grey > 100)).all()
    assert read(write(tmp_path / "cmyk.jpg", colour, "CMYK"), READING).shape == (8, 8, 3)
    sixteen = grey.astype(np.uint16) * 257
    for name in ("16.png", "16.tif"):
        assert (read(write(tmp_path / name, sixteen), Reading(8, 1))[..., 0] == grey).all()


def test_numbers_without_a_range_are_not_guessed(tmp_path):
    path = write(tmp_path / "f.tif", np.ones((8, 8), np.float32))
    assert "pixels of 32 bits (F) have no range that is known" in read(path, READING)


def test_transparent_is_white_and_exif_turns(tmp_path):
    clear = np.zeros((8, 8, 4), np.uint8)
    clear[:4, :, 3] = 255
    pixels = read(write(tmp_path / "clear.png", clear), READING)
    assert (pixels[:4] == 0).all()
    assert (pixels[4:] == 255).all()
    turned = Image.fromarray(np.repeat(np.array([[0] * 4 + [250] * 4], np.uint8), 8, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned to the right by a quarter
    turned.save(tmp_path / "turned.png", exif=exif)
    pixels = read(str(tmp_path / "turned.png"), Reading(8, 1))
    assert (pixels[:4] == 0).all()
    assert (pixels[4:] == 250).all()


def test_broken_files_have_a_reason(tmp_path):
    good = tmp_path / "good.jpg"
    picture("disc", 1, (64, 64)).save(good)
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("this is no image")
    (tmp_path / "torn.jpg").write_bytes(good.read_bytes()[:500])
    (tmp_path / "folder.png").mkdir()
    reasons = {
        name: read(str(tmp_path / name), READING) for name in ["empty.png", "text.png", "torn.jpg", "folder.png"]
    }
    assert all(isinstance(reason, Broken) and len(reason) > 5 and "\n" not in reason for reason in reasons.values())
    assert reasons["text.png"] == "not an image, or damaged at its beginning"
    assert read(str(tmp_path / "absent.png"), READING) == "there is no such file"
    assert not isinstance(read(str(good), READING), Broken)


def test_all_are_read_in_order_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(image_files, "BLOCK", 3)
    root = folder(tmp_path, {"disc": 4, "square": 4})
    (root / "disc" / "001.png").write_text("broken")
    listing = find(root)
    blocks = list(read_all(listing, READING, start=1))
    assert [len(block) for block in blocks] == [3, 3, 1]
    flat = [pixels for block in blocks for pixels in block]
    for place, pixels in enumerate(flat, 1):
        once = read(listing.path(place), READING)
        assert isinstance(pixels, Broken) if place == 1 else (pixels == once).all()


def test_a_look_says_size_and_colours(tmp_path):
    grey = find(folder(tmp_path / "grey", {"disc": 2, "square": 3}, size=(40, 30), mode="L"))
    assert look(grey) == (image_files.Look(30, 40, False))
    assert look(grey).size == 40
    colour = find(folder(tmp_path / "colour", {"disc": 2, "square": 3}, size=(300, 200)))
    assert look(colour).colours
    assert look(colour).size == 64
    picture("disc", 0, (4, 4), "L").convert("P").save(tmp_path / "p.png")
    assert look(Listing(str(tmp_path), ["p.png", "absent.png"], [None] * 2)) == image_files.Look(4, 4, False)
    assert look(Listing(str(tmp_path), ["absent.png"], [None])) is None


# ---- Whatever lies there


def said(error, text):
    assert text in str(error)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 60
)
CONTENTS = st.sampled_from(["image", "torn", "text", "empty", "folder"])
ENTRIES = st.tuples(st.lists(NAMES, max_size=2), NAMES, st.sampled_from([".png", ".JPG", ".txt", ""]), CONTENTS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(tree=st.lists(ENTRIES, max_size=6))
def test_any_tree_is_read_or_refused_with_a_sentence(tmp_path_factory, tree):
    root = tmp_path_factory.mktemp("tree")
    png = root.with_suffix(".source.png")
    picture("disc", 1).save(png)
    for parents, stem, suffix, content in tree:
        path = root.joinpath(*parents, stem + suffix)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if content == "folder":
                path.mkdir(exist_ok=True)
            else:
                whole = png.read_bytes()
                path.write_bytes({"image": whole, "torn": whole[:60], "text": b"text", "empty": b""}[content])
        except OSError:  # a file where a folder should be
            continue
    for labeled in (True, False):
        try:
            listing = find(root, labeled)
        except ValueError as error:
            said(error, "expected")
            continue
        assert len(listing) == len(listing.labels) == len(set(listing.names)) > 0
        for label, name in zip(listing.labels, listing.names, strict=True):
            assert label == (name.split("/")[0] if labeled else None)
        for pixels in (pixels for block in read_all(listing, READING) for pixels in block):
            assert isinstance(pixels, Broken) or (pixels.shape, pixels.dtype) == ((8, 8, 3), np.uint8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=200), st.text('path,label;\n\t"ab\0é', max_size=60).map(str.encode)))
def test_any_csv_is_listed_or_refused_with_a_sentence(tmp_path_factory, content):
    source = tmp_path_factory.mktemp("csv") / "list.csv"
    source.write_bytes(b"path,label\n" + content)
    try:
        listing = find(source)
    except ValueError as error:
        said(error, str(source))
    else:
        assert len(listing) == len(listing.labels) > 0
