"""The description of a detector's training: the paper's as default, for VOC and on VGG16."""

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from cissl.run import Description

Method = Literal["supervised", "csd-cls", "csd", "csd-cls+scl", "csd+scl"]
MILESTONES = (80 / 120, 100 / 120)  # of the steps: the learning rate is divided by 10 at each
FETCHED = "vgg16-ssd"  # VGG16's weights, as `cissl data fetch` knows them
# What differs from the paper's defaults for a backbone, and for a data set. Ours.
BACKBONES: dict[str, dict[str, Any]] = {
    "vgg16": {"weights": FETCHED},
    "small": {"size": 96, "batch": 16, "steps": 4_000, "learning_rate": 0.01, "augmentation": "light"},
}
DATASETS: dict[str, dict[str, Any]] = {"shapes": {"backbone": "small"}}


class DetectionRun(Description):
    """One training of SSD, completely described. `DetectionRun(method="csd+scl", seed=1)` is the paper's."""

    dataset: Literal["voc", "coco", "shapes"] = "voc"
    files: dict[str, str] = Field({})  # of "coco": annotations and pictures, see cissl.detection.coco.load
    method: Method = "csd+scl"
    backbone: Literal["vgg16", "small"] = "vgg16"
    weights: str | None = None  # to start from: a file, or what `cissl data fetch` calls it
    size: int = Field(300, gt=0)  # pixels of the network's input, each way
    batch: int = Field(32, gt=0)
    augmentation: Literal["ssd", "light", "none"] = "ssd"

    steps: int = Field(120_000, gt=0)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(5e-4, ge=0)

    nesterov: ClassVar[bool] = False

    @classmethod
    def completed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        fields = {**DATASETS.get(str(fields.get("dataset")), {}), **fields}
        backbone = fields.get("backbone", cls.model_fields["backbone"].default)
        return {**BACKBONES.get(str(backbone), {}), **fields}

    @model_validator(mode="after")
    def _check(self) -> "DetectionRun":
        if self.backbone == "vgg16" and self.size != 300:
            raise ValueError(
                f"SSD300 on vgg16 takes 300 pixels: leave size out, or take the small backbone, not {self.size}"
            )
        if self.backbone == "small" and (self.size < 96 or self.size % 32):
            raise ValueError(f"size: the small backbone takes a multiple of 32 from 96, got {self.size}")
        if self.backbone == "small" and self.weights is not None:
            raise ValueError("weights are those of VGG16: take --backbone vgg16 with them, or leave them out")
        if self.validations:
            raise ValueError(
                f"a detector has no validation pictures, as in the paper: give validations 0, not {self.validations}"
            )
        if (self.dataset == "coco") != bool(self.files):
            raise ValueError("files are the annotations and pictures of the data set coco: give both or none")
        if self.dataset == "coco" and self.needs_unlabeled and not self.files.get("unlabeled"):
            raise ValueError(f"{self.method!r} learns from unlabeled pictures too: give some with --unlabeled")
        return self

    @property
    def needs_unlabeled(self) -> bool:
        return self.method != "supervised"

    def rate(self, step: int) -> float:
        return self.learning_rate * 0.1 ** sum(step - 1 >= milestone * self.steps for milestone in MILESTONES)

    def task(self, device: Any, data_dir: Path | None, shard: tuple[int, int]) -> Any:
        from cissl.detection.training import prepare

        return prepare(self, device=device, data_dir=data_dir, shard=shard)
