"""Published weights that a detector may start from: where they are, and fetching them with a check."""

import hashlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cissl import datasets
from cissl.downloads import Bar, retrieve
from cissl.names import unknown


@dataclass(frozen=True)
class Weights:
    """A file of an official place. What is known of its checksum is what its name says: how the SHA-256 begins."""

    title: str
    url: str
    sha256: str  # its first digits

    @property
    def file(self) -> str:
        """The file's name."""
        return self.url.rsplit("/", 1)[1]


WEIGHTS = {
    # By PyTorch's convention a file is called NAME-DIGITS.pth after at least the first eight digits of its SHA-256.
    "vgg16-ssd": Weights(
        "VGG16 as SSD starts from it, without fc6 and fc7, from torchvision",
        "https://download.pytorch.org/models/vgg16_features-amdegroot-88682ab5.pth",
        "88682ab5",
    )
}


def place(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Where the weights of that name are, or would be."""
    if name not in WEIGHTS:
        raise unknown("weights", name, WEIGHTS)
    return datasets.data_folder(data_dir) / name / WEIGHTS[name].file


def fetch(name: str, data_dir: str | os.PathLike[str] | None = None, bar: Bar | None = None) -> list[str]:
    """Download the weights into DATA/NAME unless they are there and right; the names of what was downloaded.

    The file gets its name once its checksum is right. `bar` is as for `datasets.fetch`.
    """
    path = place(name, data_dir)
    wanted = WEIGHTS[name]
    if path.is_file():
        try:
            _check(path, wanted)
        except ValueError as error:
            raise ValueError(f"{name}: {error}. Delete it, and fetch it again") from None
        return []
    retrieve(name, wanted.url, path, None, bar, check=partial(_check, wanted=wanted))
    return [wanted.file]


def _check(path: Path, wanted: Weights) -> None:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not digest.startswith(wanted.sha256):
        raise ValueError(f"{path} is not the published file: its SHA-256 begins {digest[:8]}, not {wanted.sha256}")
