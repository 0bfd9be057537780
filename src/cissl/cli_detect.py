"""`cissl detect train | eval | predict`: object detectors, trained on labeled and unlabeled pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cissl.cli_train import speaks, started_together, watching

if TYPE_CHECKING:
    from cissl.detection.data import DetectionData
    from cissl.detection.trained import Trained

app = typer.Typer(no_args_is_help=True, help="Train, evaluate and use object detectors: SSD, CSD and CSD+SCL.")

Voc = Annotated[
    Path | None,
    typer.Option(help="A PASCAL VOC devkit: VOC2007 labeled and for testing, VOC2012 unlabeled.", show_default=False),
]
Coco = Annotated[
    Path | None, typer.Option(help="Annotations as COCO writes them, of the labeled pictures.", show_default=False)
]
Images = Annotated[Path | None, typer.Option(help="With --coco: the folder of the pictures.", show_default=False)]
Shapes = Annotated[bool, typer.Option("--shapes", help="The shapes that cissl draws itself: nothing to fetch.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that is done.", show_default=False)]
Accelerator = Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")]


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="The run's folder: checkpoints and result.")],
    voc: Voc = None,
    coco: Coco = None,
    images: Images = None,
    unlabeled: Annotated[
        Path | None,
        typer.Option(help="With --coco: more pictures, a folder or a list as COCO writes it.", show_default=False),
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="With --coco: annotations of the test pictures.", show_default=False)
    ] = None,
    shapes: Shapes = False,
    method: Annotated[str, typer.Option(help="supervised, csd-cls, csd, csd-cls+scl, csd+scl.")] = "csd+scl",
    backbone: Annotated[
        str | None, typer.Option(help="vgg16, or small: for processors.", show_default="vgg16; small for --shapes")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="VGG16's, a file of either layout; none: drawn.", show_default="those that are fetched"),
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Of the small backbone's input: a multiple of 32.", show_default="96")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Pictures.", min=1, show_default="32; small: 16")] = None,
    augmentation: Annotated[
        str | None,
        typer.Option(help="ssd: as SSD's paper; light; none.", show_default="ssd; small: light"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Every schedule scales with them.", min=1, show_default="120000; small: 4000")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="At the start.", show_default="0.001; small: 0.01")
    ] = None,
    precision: Annotated[str, typer.Option(help="32-true or bf16-mixed.")] = "32-true",
    sync_batchnorm: Annotated[
        bool, typer.Option("--sync-batchnorm", help="Statistics over all devices' pictures.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of everything random in the run.")] = 0,
    accelerator: Accelerator = "auto",
    devices: Annotated[
        int | None,
        typer.Option(
            help="How many; each takes its share of every batch.", min=1, show_default="1, or as torchrun or Slurm say"
        ),
    ] = None,
    cuda_graphs: Annotated[bool, typer.Option("--cuda-graphs", help="A step as one CUDA graph: for one GPU.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of what `cissl data fetch` fetched.", show_default="CISSL_DATA")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps.", min=1, show_default="20 times a run")] = None,
    checkpoint_minutes: Annotated[float, typer.Option(help="At least this often.", min=0)] = 10.0,
) -> None:
    """Train a detector and measure it on the test pictures.

    What is not given is the paper's, for the small backbone what suits it.

    The same command goes on where it was stopped.
    """
    from cissl.detection.description import DetectionRun
    from cissl.detection.training import prepare
    from cissl.execution import Machine, execute

    dataset = _dataset(voc, coco, shapes)
    given: dict[str, Any] = {
        "dataset": dataset, "method": method, "backbone": backbone, "weights": weights, "size": size, "batch": batch,
        "steps": steps, "learning_rate": learning_rate, "precision": precision, "augmentation": augmentation,
    }  # fmt: skip
    fields = {name: value for name, value in given.items() if value is not None}
    if weights is not None:
        fields["weights"] = _weights(weights)
    if coco is not None:
        fields["files"] = _files(coco, images, unlabeled if method != "supervised" else None, test)
    run = DetectionRun(sync_batchnorm=sync_batchnorm, seed=seed, **fields)
    machine = Machine(
        data_dir=data_dir, accelerator=accelerator, devices=devices or started_together(), cuda_graphs=cuda_graphs,
        checkpoint_every=checkpoint_every, checkpoint_minutes=checkpoint_minutes,
    )  # fmt: skip
    done = (out / "result.json").exists()
    with watching(run) as watch:
        result = execute(
            run, out, watch, machine, lambda device, shard: prepare(run, device, data_dir, shard, voc_dir=voc)
        )
    if speaks():
        if done:
            typer.echo("This run is done already.")
        _print_result(result, out)


@app.command("eval")
def evaluate(
    run: RunFolder,
    voc: Voc = None,
    coco: Coco = None,
    images: Images = None,
    shapes: Shapes = False,
    split: Annotated[
        Literal["test", "train"], typer.Option(help="Of VOC and the shapes: test pictures, or the labeled ones.")
    ] = "test",
    metric: Annotated[
        str, typer.Option(help="voc07: 11 points; voc: all points; coco: COCO's, needs cissl[detection].")
    ] = "voc07",
    to: Annotated[
        Path | None, typer.Option(help="Write the numbers to this JSON file too.", show_default=False)
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where VOC was fetched to.", show_default="CISSL_DATA")] = None,
    accelerator: Accelerator = "auto",
) -> None:
    """Average precision of a trained detector, of each class and their mean.

    Without --voc, --coco or --shapes: on the data that it was trained for.
    """
    from cissl import records
    from cissl.detection import evaluation
    from cissl.detection.data import Reader
    from cissl.detection.trained import read

    evaluation.check_metric(metric)
    trained = read(run, _device(accelerator))
    data = _data(trained, voc, coco, images, shapes, data_dir)
    if data.class_names != trained.class_names:
        raise ValueError(
            f"the detector in {run} knows {', '.join(trained.class_names)}; the data has "
            f"{', '.join(data.class_names)}: evaluate it on pictures with its own classes"
        )
    pictures, reader = data.test if split == "test" else data.labeled, Reader()
    if not pictures:
        raise ValueError("there are no test pictures: give their annotations with --coco, or --split train")
    found = list(evaluation.find(trained.network, pictures, reader))
    wanted = evaluation.truth(pictures, reader)
    counts = trained.labeled_counts
    if metric == "coco":
        measured: dict[str, Any] = dict(evaluation.evaluate_coco(found, wanted, pictures, len(counts), reader))
        for name, value in measured.items():
            typer.echo(f"{name:<12}{_percent(value):>8}")
    else:
        measured = evaluation.evaluate(found, wanted, counts, "voc07" if metric == "voc07" else "voc")
        _print_classes(measured, trained.class_names, counts)
    typer.echo(f"{len(pictures)} {split} pictures, AP in %, {_points(metric)}")
    if to is not None:
        with records.readable_errors(to.parent):
            records.write_json(to, {"pictures": len(pictures), "split": split, "metric": metric, **measured})
        typer.echo(f"Written: {to}")


@app.command()
def predict(
    run: RunFolder,
    images: Annotated[Path, typer.Argument(metavar="PICTURES", help="A folder of pictures.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for detections.json, and for drawn pictures.")],
    draw: Annotated[bool, typer.Option("--draw", help="Also write each picture with its boxes.")] = False,
    score: Annotated[float, typer.Option(help="Leave out what is less sure.", min=0.0, max=1.0)] = 0.3,
    accelerator: Accelerator = "auto",
) -> None:
    """Find objects in pictures: one JSON file for all of them, and the pictures with boxes drawn on them."""
    from cissl.detection.data import unannotated
    from cissl.detection.trained import predict as find
    from cissl.detection.trained import read
    from cissl.records import readable_errors

    trained = read(run, _device(accelerator))
    pictures = unannotated(images)
    with readable_errors(out):
        objects, written = find(trained, pictures, out, score, draw)
    typer.echo(f"{objects} objects in {len(pictures)} pictures with a score of at least {score:g}")
    typer.echo(f"Written: {written}" + (f", and {len(pictures)} pictures with boxes beside it" if draw else ""))


# ---- Which data, on what


def _dataset(voc: Path | None, coco: Path | None, shapes: bool) -> str:
    given = [name for name, asked in (("voc", voc), ("coco", coco), ("shapes", shapes or None)) if asked is not None]
    if len(given) != 1:
        which = ", ".join(f"--{name}" for name in given) or "none of them"
        raise ValueError(f"say on which data: one of --voc DIR, --coco ANNOTATIONS.json and --shapes, got {which}")
    return given[0]


def _weights(given: str) -> str | None:
    """A path may be relative to here; the run's description has it in full."""
    from cissl.detection.description import FETCHED

    if given == "none":
        return None
    if given != FETCHED and not Path(given).is_file():
        raise ValueError(
            f"there is no file {given}: give VGG16's weights, {FETCHED!r} for those that are fetched, or none"
        )
    return given if given == FETCHED else str(Path(given).resolve())


def _files(coco: Path, images: Path | None, unlabeled: Path | None, test: Path | None) -> dict[str, str]:
    if images is None:
        raise ValueError("--coco names annotations only: give the folder of their pictures with --images")
    given = {"labeled": coco, "images": images, "unlabeled": unlabeled, "test": test}
    return {name: str(place.resolve()) for name, place in given.items() if place is not None}


def _data(
    trained: "Trained", voc: Path | None, coco: Path | None, images: Path | None, shapes: bool, data_dir: Path | None
) -> "DetectionData":
    """What to evaluate on; annotations that are given are those of the test pictures."""
    from cissl.detection import coco as coco_
    from cissl.detection import shapes as shapes_
    from cissl.detection import voc as voc_
    from cissl.detection.training import load

    if voc is None and coco is None and not shapes:
        return load(trained.run, data_dir, unlabeled=False)
    dataset = _dataset(voc, coco, shapes)
    if dataset == "shapes":
        return shapes_.load(trained.run.seed, unlabeled=0)
    if voc is not None:
        return voc_.load(voc, unlabeled=False)
    assert coco is not None
    files = _files(coco, images, None, coco)
    return coco_.load(files)


def _device(accelerator: str) -> str:
    import torch

    from cissl.execution import Machine

    if accelerator == "auto":
        return Machine().kind
    if (accelerator == "cuda" and not torch.cuda.is_available()) or (
        accelerator == "mps" and not torch.mps.is_available()
    ):
        raise ValueError(f"this machine has no {accelerator} device: leave --accelerator out, or give cpu")
    return accelerator


# ---- What is printed


def _print_result(result: dict[str, Any], out: Path) -> None:
    if result["status"] == "diverged":
        typer.echo(f"The loss was not a finite number at step {result['diverged_at']}: the run diverged.")
        typer.echo(f"Written: {out / 'result.json'}. Try a smaller --learning-rate.")
        return
    measured, pictures = result["student"], result["pictures"]
    if pictures["test"]:
        _print_classes(measured, result["class_names"], result["labeled_counts"])
        typer.echo(f"{pictures['test']} test pictures, AP in %, {_points(measured['metric'])}, after the last step")
    else:
        typer.echo("Trained; there are no test pictures to measure it on.")
    typer.echo(f"Trained on {pictures['labeled']} labeled and {pictures['unlabeled']} unlabeled pictures")
    typer.echo(f"Written: {out / 'result.json'}")


def _print_classes(measured: dict[str, Any], names: Sequence[str], counts: Sequence[int]) -> None:
    width = max(map(len, ("class", *names)))
    typer.echo(f"{'class'.ljust(width)}{'labeled objects':>17}{'AP':>8}")
    for name, count, precision in zip(names, counts, measured["average_precision"], strict=True):
        typer.echo(f"{name.ljust(width)}{count:>17,}{_percent(precision):>8}")
    for title, key in (("mean", "map"), ("most frequent third", "head_ap"), ("rarest third", "tail_ap")):
        typer.echo(f"{title.ljust(width + 17)}{_percent(measured[key]):>8}")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _points(metric: str) -> str:
    return {"voc07": "11 points, as VOC2007", "voc": "all points, as VOC from 2010", "coco": "COCO's"}[metric]
