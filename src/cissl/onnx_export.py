"""A classifier with its preprocessing as one ONNX file: samples as they come in, labels and probabilities out."""

import contextlib
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import cissl
from cissl import records
from cissl.preprocessing import FURTHEST, NORM, TINY

if TYPE_CHECKING:
    from cissl.estimator import CISSLClassifier

TOLERANCE = 1e-4  # between the probabilities of the file and ours, in float32
TRIED = 5  # samples that both are asked about after writing


class Whole(nn.Module):
    """Preprocessing, all networks, their mean, the prior that was asked for."""

    def __init__(self, classifier: "CISSLClassifier") -> None:
        super().__init__()
        fitted = classifier.preprocessing_
        who = classifier.predict_with
        self.networks = nn.ModuleList(networks_[who].float().eval() for networks_ in classifier.networks_)
        self.kind, self.images = fitted.name, len(classifier.input_shape_) == 3
        self.mean: Tensor
        self.factor: Tensor
        self.shift: Tensor
        precise = torch.float64 if self.kind == "features" else torch.float32
        self.register_buffer("mean", torch.from_numpy(np.array(fitted.mean)).to(precise))
        self.register_buffer("factor", torch.from_numpy(np.array(fitted.factor)).to(precise))
        self.register_buffer("shift", torch.from_numpy(classifier._shift()).float())

    def forward(self, samples: Tensor) -> Tensor:
        x = samples.permute(0, 3, 1, 2) if self.images else samples
        x = self.prepared(x)
        said = torch.stack([torch.softmax(network(x), 1) for network in self.networks]).mean(0) * self.shift
        return said / said.sum(1, keepdim=True)

    def prepared(self, x: Tensor) -> Tensor:
        """As cissl.preprocessing, in operations that ONNX knows."""
        if self.kind == "gcn+zca":
            flat = x.flatten(1)
            flat = flat - flat.mean(1, keepdim=True)
            length = flat.square().sum(1, keepdim=True).sqrt()
            flat = flat * torch.where(length < TINY, torch.ones_like(length), NORM / length.clamp(min=TINY))
            return ((flat - self.mean) @ self.factor).view(x.shape)
        if self.kind == "features":
            return ((x.double() - self.mean) * self.factor).clamp(-FURTHEST, FURTHEST).float()
        return (x - self.mean) * self.factor


def export(classifier: "CISSLClassifier", path: str | Path) -> list[str]:
    """Write the file, once it was found to say what the classifier says; returns what goes in and comes out."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401, torch needs it
    except ImportError as error:
        raise ValueError(f"exporting needs {error.name}: pip install 'cissl[export]'") from error
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file to write, such as {path / 'model.onnx'}")
    shape = classifier.input_shape_
    if len(shape) == 3:
        shape = (*shape[1:], shape[0])  # as images lie in files: height, width, channels
    names = [str(name) for name in classifier.classes_.tolist()]
    example = torch.rand(TRIED, *shape, generator=torch.Generator().manual_seed(0)) * 255
    with tempfile.TemporaryDirectory() as folder:
        beside = os.path.join(folder, "model.onnx")
        _traced(Whole(classifier).eval(), example, beside)
        made = onnx.load(beside)
    onnx.helper.set_model_props(
        made,
        {"classes": json.dumps(names), "input": json.dumps(["n", *shape]), "written by": f"cissl {cissl.__version__}"},
    )
    content = made.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (said,) = session.run(None, {"samples": example.numpy()})
    with quiet():  # the example has no column names
        wanted = classifier.predict_proba(_as_given(example.numpy()))
    off = float(np.abs(said - wanted).max())
    if not off <= TOLERANCE:
        raise ValueError(
            f"the exported model differs from this one by {off:.2g} in probability, more than {TOLERANCE:g}: its "
            "network does something that ONNX does otherwise; nothing was written"
        )
    with records.readable_errors(path.parent):
        records.write_whole(path, lambda file: file.write(content))
    what = "numbers" if len(shape) == 1 else "pixels as numbers, 0 to 255 where training had bytes"
    return [
        f"samples: float32 (n, {', '.join(map(str, shape))}), {what}",
        f"probabilities: float32 (n, {len(names)}), the classes in this order: {', '.join(names)}",
    ]


def _as_given(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Images of one channel are given without it, so that none is taken for the other."""
    return x[..., 0] if x.ndim == 4 and x.shape[-1] == 1 else x


def _traced(whole: nn.Module, example: Tensor, path: str) -> None:
    samples = torch.export.Dim("n", min=1)
    with quiet():
        torch.onnx.export(
            whole, (example,), path, input_names=["samples"], output_names=["probabilities"],
            dynamic_shapes=({0: samples},), dynamo=True, external_data=False, verbose=False,
        )  # fmt: skip


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what libraries say of their own doings."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
