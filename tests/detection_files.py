"""For the tests of detection: small pictures with coloured rectangles, as arrays, VOC devkit and COCO files."""

import json

import numpy as np
from PIL import Image

from cissl.detection.data import DetectionData, Picture

COLOURS = {"cat": (230, 60, 60), "dog": (60, 60, 230), "person": (60, 200, 60)}


def painted(objects, width=60, height=48):
    """A grey picture with a rectangle for each (name, (x0, y0, x1, y1))."""
    image = np.full((height, width, 3), 120, np.uint8)
    for name, (x0, y0, x1, y1) in objects:
        image[y0:y1, x0:x1] = COLOURS[name]
    return image


def picture(name, *objects, difficult=()):
    """A `Picture` of that."""
    boxes = np.array([box for _, box in objects], dtype=np.float64).reshape(-1, 4)
    classes = np.array([list(COLOURS).index(known) for known, _ in objects], dtype=np.int64)
    hard = np.array([place in difficult for place in range(len(objects))], dtype=bool)
    return Picture(name, painted(objects), boxes, classes, hard)


def tiny_data(labeled=5, unlabeled=9, test=2):
    """Pictures of two rectangles at places that are all different."""

    def made(part, count, first):
        return [
            picture(
                f"{part}{n}",
                ("cat", (first + n, 4, first + n + 20, 24)),
                ("dog" if n % 3 else "person", (30, n % 9 + 10, 52, n % 9 + 34)),
            )
            for n in range(count)
        ]

    return DetectionData("tiny", tuple(COLOURS), made("l", labeled, 1), made("u", unlabeled, 3), made("t", test, 5))


OBJECT = """<object><name>{name}</name>{part}<difficult>{difficult}</difficult>
<bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax></bndbox></object>"""


def annotation(objects, difficult=(), part=""):
    """An XML file as VOC's: pixels are counted from 1, and the last one belongs to the object."""
    rows = [
        OBJECT.format(name=name, part=part, difficult=int(n in difficult), x0=x0 + 1, y0=y0 + 1, x1=x1 + 1, y1=y1 + 1)
        for n, (name, (x0, y0, x1, y1)) in enumerate(objects)
    ]
    return f"<annotation><filename>other.jpg</filename>{''.join(rows)}</annotation>"


def write_voc(folder, labeled=4, unlabeled=5, test=2):
    """A devkit in `folder`/VOCdevkit, of pictures with a cat and a dog each; its path."""
    devkit = folder / "VOCdevkit"
    parts = [("VOC2007", "trainval", labeled), ("VOC2012", "trainval", unlabeled), ("VOC2007", "test", test)]
    for year, part, count in parts:
        for name in ("ImageSets/Main", "Annotations", "JPEGImages"):
            (devkit / year / name).mkdir(parents=True, exist_ok=True)
        names = [f"{part}_{n:03d}" for n in range(count)]
        (devkit / year / "ImageSets" / "Main" / f"{part}.txt").write_text("".join(f"{name}\n" for name in names))
        for n, name in enumerate(names):
            objects = [("cat", (2 + n, 4, 22 + n, 24)), ("dog", (30, 10, 52, 34))]
            Image.fromarray(painted(objects)).save(devkit / year / "JPEGImages" / f"{name}.jpg", quality=95)
            (devkit / year / "Annotations" / f"{name}.xml").write_text(annotation(objects))
    return devkit


def write_coco(folder, count=3, name="labeled"):
    """`folder`/name.json and the pictures of it in `folder`/pictures; the JSON's path."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    content = {
        "images": [{"id": 10 + n, "file_name": f"{name}{n}.png", "width": 60, "height": 48} for n in range(count)],
        "categories": [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}],
        "annotations": [
            {"id": n, "image_id": 10 + n, "category_id": 17, "bbox": [2 + n, 4, 20, 20], "iscrowd": 0, "area": 400}
            for n in range(count)
        ],
    }
    for n in range(count):
        Image.fromarray(painted([("cat", (2 + n, 4, 22 + n, 24))])).save(pictures / f"{name}{n}.png")
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content))
    return path
