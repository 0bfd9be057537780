"""What a detector's run trains with: network, batches, the losses of a step, and what is measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor, nn

from cissl import datasets, losses
from cissl.detection import coco, evaluation, shapes, ssd, voc, weights
from cissl.detection.batches import PictureBatches
from cissl.detection.consistency import consistency, csd_weight, mirrored_back
from cissl.detection.data import DetectionData, Reader
from cissl.detection.description import FETCHED, DetectionRun
from cissl.detection.multibox import match, multibox_loss
from cissl.randomness import stream

Device = torch.device | str


class Terms(NamedTuple):
    """Which of the consistency's terms a method has, and whether the first is suppressed."""

    classification: bool
    localisation: bool
    suppressed: bool


METHODS: dict[str, Terms] = {
    "supervised": Terms(False, False, False),
    "csd-cls": Terms(True, False, False),
    "csd": Terms(True, True, False),
    "csd-cls+scl": Terms(True, False, True),
    "csd+scl": Terms(True, True, True),
}


class DetectionStep(nn.Module):
    """`forward(batch)` gives the losses by name; "loss" is the one to descend. Every picture and its mirror image are
    seen in one pass."""

    def __init__(self, method: str, student: ssd.SSD) -> None:
        super().__init__()
        self.terms, self.student = METHODS[method], student

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        images = batch["images"].float()
        n, mirrored = len(images), self.terms.classification or self.terms.localisation
        class_logits, offsets = self.student(torch.cat([images, images.flip(3)]) if mirrored else images)
        class_logits, offsets = class_logits.float(), offsets.float()
        wanted_offsets, wanted_classes = match(batch["boxes"], batch["classes"], self.student.priors)
        parts = multibox_loss(class_logits[:n], offsets[:n], wanted_classes, wanted_offsets, batch["labeled"])
        if mirrored:
            back = mirrored_back(class_logits[n:], offsets[n:], self.student.mirror)
            agreed = consistency(class_logits[:n], offsets[:n], *back, batch.get("suppression"))
            for name in ("classification", "localisation"):
                if getattr(self.terms, name):
                    parts[f"consistency_{name}"] = batch["weight"] * agreed[name]
        return {"loss": torch.stack([*parts.values()]).sum(), **parts}


@dataclass
class DetectionTask:
    """All that a detector's run needs, made from its description: a `cissl.execution.Trainable`."""

    run: DetectionRun
    data: DetectionData
    student: nn.Module
    batches: PictureBatches
    read: Reader

    watched = ("map",)
    teacher_decay = None
    validates = False  # the paper takes the network of the last step

    def teacher(self) -> nn.Module | None:
        return None

    def step(self, teacher: nn.Module | None) -> nn.Module:
        assert isinstance(self.student, ssd.SSD)
        return DetectionStep(self.run.method, self.student)

    def measure(self, network: nn.Module, part: str) -> dict[str, Any] | None:
        """Average precision on the test pictures: VOC2007's, and for COCO's pictures that of all points."""
        assert isinstance(network, ssd.SSD)
        try:
            found = list(evaluation.find(network, self.data.test, self.read))
        except FloatingPointError:
            return None
        wanted = evaluation.truth(self.data.test, self.read)
        metric: evaluation.Metric = "voc" if self.run.dataset == "coco" else "voc07"
        return evaluation.evaluate(found, wanted, self.data.labeled_counts, metric)

    def facts(self) -> dict[str, Any]:
        return {
            "labeled_counts": self.data.labeled_counts,
            "unlabeled_counts": self.data.unlabeled_counts,
            "class_names": list(self.data.class_names),
            "pictures": {
                "labeled": len(self.data.labeled),
                "unlabeled": len(self.data.unlabeled),
                "test": len(self.data.test),
            },
        }

    def pictures(self) -> dict[str, dict[str, npt.NDArray[Any]]]:
        return {}


def prepare(
    run: DetectionRun,
    device: Device = "cpu",
    data_dir: Path | None = None,
    shard: tuple[int, int] = (0, 1),
    voc_dir: Path | None = None,
) -> DetectionTask:
    """The task of a run on the data that it names; VOC is looked for in `voc_dir`, else in `data_dir`."""
    return assemble(run, load(run, voc_dir or data_dir), device, data_dir, shard)


def load(run: DetectionRun, data_dir: Path | None = None, unlabeled: bool | None = None) -> DetectionData:
    """The pictures of a run; the unlabeled ones only if its method learns from them, unless asked otherwise."""
    unlabeled = run.needs_unlabeled if unlabeled is None else unlabeled
    if run.dataset == "shapes":
        data = shapes.load(run.seed)
    elif run.dataset == "coco":
        data = coco.load({name: place for name, place in run.files.items() if name != "unlabeled" or unlabeled})
    else:
        return voc.load(datasets.data_folder(data_dir), unlabeled)
    return data if unlabeled else DetectionData(data.name, data.class_names, data.labeled, [], data.test)


def assemble(
    run: DetectionRun,
    data: DetectionData,
    device: Device = "cpu",
    data_dir: Path | None = None,
    shard: tuple[int, int] = (0, 1),
) -> DetectionTask:
    """The task of a run on any pictures."""
    constants = {}
    if METHODS[run.method].suppressed:
        counts = torch.tensor(data.labeled_counts, dtype=torch.float32)
        constants["suppression"] = losses.suppression_weights(counts, form="linear").to(device)
    student = network(run, len(data.class_names))
    if run.weights is not None:
        ssd.load_backbone(student, weights_file(run.weights, data_dir))
    student = student.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    read = Reader()
    batches = PictureBatches(
        labeled=data.labeled,
        unlabeled=data.unlabeled,
        batch=run.batch,
        size=run.size,
        seed=run.seed,
        augmentation=run.augmentation,
        weight=lambda step: csd_weight(step, run.steps),
        constants=constants,
        device=device,
        shard=shard,
        read=read,
        background=torch.device(device).type != "cpu",
    )
    return DetectionTask(run, data, student, batches, read)


def network(run: DetectionRun, classes: int) -> ssd.SSD:
    """The detector that a run starts from, before any weights are read."""
    generator = torch.Generator().manual_seed(stream(run.seed, "init"))
    return ssd.ssd300(classes, generator) if run.backbone == "vgg16" else ssd.small(classes, generator, run.size)


def weights_file(name: str, data_dir: Path | None) -> Path:
    """Where the weights are: those that are fetched under that name, or a file."""
    path = weights.place(name, data_dir) if name in weights.WEIGHTS else Path(name)
    if not path.is_file():
        raise ValueError(
            f"there are no weights {path}: run `cissl data fetch {FETCHED}`, give a file with VGG16's weights, or none "
            "to start from drawn ones"
        )
    return path
