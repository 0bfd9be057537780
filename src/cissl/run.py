"""Descriptions of runs: frozen, validated, complete. `cissl.execution` trains them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cissl import datasets, protocol, records, schedules
from cissl.methods import Method, method
from cissl.names import is_own, unknown
from cissl.objective import Reweight, check_reweight

TOY: dict[str, Any] = {
    "imbalance": 5, "validation_per_class": 0, "network": "toy-mlp", "noise": 0.15, "steps": 5_000,
    "labeled_batch": 20, "unlabeled_batch": 80, "schedule": "step", "weight_decay": 0.0,
    "preprocessing": "none", "validations": 0,
}  # fmt: skip
# What the paper does differently for a data set than the defaults of Run.
PAPER: dict[str, dict[str, Any]] = {
    "two-moons": {**TOY, "labeled": 12, "unlabeled_total": 3000},
    "four-spins": {**TOY, "labeled": 11, "unlabeled_total": 2658},
    "cifar10": {"flip": True, "crop": 2, "noise": 0.15, "validation_per_class": 500},
    "svhn": {"labeled": 1000, "crop": 2, "validation_per_class": 732, "on_shortage": "cap"},
    # Not the paper's: what suits these sets.
    "cifar100": {"flip": True, "crop": 2, "noise": 0.15, "validation_per_class": 50},
    "fashion-mnist": {
        "flip": True,
        "crop": 2,
        "noise": 0.15,
        "validation_per_class": 500,
        "preprocessing": "standardize",
        "network": "convnet",
        "labeled": 250,
        "steps": 4_000,
        "validations": 8,
    },
    "digits": {
        "crop": 1,
        "noise": 0.15,
        "validation_per_class": 15,
        "validations": 10,
        "preprocessing": "standardize",
        "network": "convnet",
        "labeled": 100,
        "imbalance": 10,
        "unlabeled_total": 360,  # the classes are not quite of one size: what each of them can give at any rank
        "steps": 500,
    },
}
SEEDS_TOGETHER = ("toy-mlp", "mlp")  # the networks whose seeds are trained at once: small, without BatchNorm
# Likewise for hyper-parameters of methods, where the method has them.
PAPER_OPTIONS: dict[str, dict[str, Any]] = {
    "two-moons": {"form": "linear"},
    "four-spins": {"form": "linear"},
    "cifar10": {"epsilon": 6.0},
}


class Description(BaseModel):
    """What every description of a run has: it is frozen, complete, refuses unknown names, and its hash is its name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(gt=0)
    learning_rate: float = Field(0.1, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)
    validations: int = Field(0, ge=0)
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    sync_batchnorm: bool = False  # of several devices: statistics over the whole batch
    seed: int = Field(0, ge=0)

    nesterov: ClassVar[bool] = True  # of the momentum

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ValueError("; ".join(_sentence(problem) for problem in error.errors())) from None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        """Names are checked, and what was not given is filled in."""
        for name in given:
            if name not in cls.model_fields:
                raise unknown("field of a run", name, cls.model_fields)
        return cls.completed(dict(given))

    @classmethod
    def completed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields with those defaults that depend on others."""
        return fields

    @property
    def name(self) -> str:
        """The hash of the description; the run's folder has it as its name."""
        return records.name_of(self.model_dump())

    def __hash__(self) -> int:
        return hash(self.name)

    def changed(self, **fields: Any) -> "Description":
        """The same description but for these fields."""
        fixed = {"dataset", "method", "seed"} & fields.keys()
        if fixed:
            raise ValueError(f"{min(fixed)} says which run it is, with defaults of its own: make another run instead")
        return type(self)(**{**self.model_dump(), **fields})

    @property
    def seeds_together(self) -> bool:
        """Whether seeds of this run are trained at once, as one batched model."""
        return False

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        raise NotImplementedError

    def enough(self, validations: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the validations so far say that further steps are not worth their while."""
        return False

    def task(self, device: Any, data_dir: Path | None, shard: tuple[int, int]) -> Any:
        """What is trained, a `cissl.execution.Trainable`. `shard` = (rank, processes)."""
        raise ValueError(f"a {type(self).__name__} does not name its data: give `prepare` to execute")


class Training(Description):
    """How a classifier is trained, on whatever data: method, network, views, batches and schedules.

    The defaults are those of the paper's images (Table "Hyperparameters" of its supplement). `options` are the method's
    hyper-parameters.
    """

    method: str = "mean-teacher+scl"
    options: dict[str, float | str] = {}
    reweight: Reweight = "ce"
    network: str = "wide-resnet-28-2"
    flip: bool = False
    crop: int = Field(0, ge=0)
    noise: float = Field(0.0, ge=0)

    steps: int = Field(500_000, gt=0)
    labeled_batch: int = Field(50, gt=0)
    unlabeled_batch: int = Field(50, ge=0)
    schedule: schedules.LearningRateSchedule = "cosine"
    validations: int = Field(20, ge=0)  # 500k steps, every 25k; needs validation samples
    ramp: float = Field(0.4, ge=0)  # the consistency's ramp over steps: 200k of 500k, and 2,000 of 5,000

    @classmethod
    def completed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        name, options = fields.get("method", cls.model_fields["method"].default), fields.get("options", {})
        if not isinstance(name, str) or not isinstance(options, Mapping) or any(type(o) is not str for o in options):
            return fields  # pydantic says what is wrong
        known = method(name).options
        paper = {key: value for key, value in cls.paper_options(fields).items() if key in known}
        complete = method(name, **{**paper, **options})
        fields |= {"method": complete.name, "options": complete.options}
        if not complete.needs_unlabeled:  # supervised learning fills the whole batch with labeled samples
            sizes = [fields.get(size, cls.model_fields[size].default) for size in ("labeled_batch", "unlabeled_batch")]
            if all(isinstance(size, int) for size in sizes):
                fields |= {"labeled_batch": sum(sizes), "unlabeled_batch": 0}
        return fields

    @classmethod
    def paper_options(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Hyper-parameters that differ from a method's defaults, where the method has them."""
        return {}

    @model_validator(mode="after")
    def _check(self) -> "Training":
        made = method(self.method, **self.options)
        check_reweight(made, self.reweight)
        if made.needs_unlabeled and self.unlabeled_batch == 0:
            raise ValueError(f"{self.method!r} learns from unlabeled samples: give unlabeled_batch at least 1, not 0")
        return self

    @property
    def made(self) -> Method:
        return method(self.method, **self.options)

    @property
    def seeds_together(self) -> bool:
        return self.network in SEEDS_TOGETHER

    def rate(self, step: int) -> float:
        return self.learning_rate * schedules.learning_rate(self.schedule, step, self.steps)

    def ramped(self, step: int) -> float:
        return schedules.ramp(step, self.ramp * self.steps)


class Run(Training):
    """One training run on a data set known by name, completely described: the same Run gives the same result.

    `Run(dataset="two-moons", method="pi", seed=3)` is the paper's run of that name; every field can be given, and
    `PAPER` holds what the paper does differently for a data set. Data set, method and network of your own are named
    `module:callable`.
    """

    dataset: str
    labeled: int = Field(4000, gt=0)
    imbalance: float = Field(100.0, ge=1)
    unlabeled: Literal["same", "half", "uniform"] = "same"
    unlabeled_total: int | None = Field(None, ge=0)
    validation_per_class: int = Field(0, ge=0)
    on_shortage: Literal["error", "cap"] = "error"
    preprocessing: Literal["none", "standardize", "gcn+zca"] = "gcn+zca"

    @classmethod
    def completed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        dataset = fields.get("dataset")
        if isinstance(dataset, str):
            fields = {**PAPER.get(dataset, {}), **fields}
            if not is_own(dataset):
                datasets.entry(dataset)  # says which there are
        complete = super().completed(fields)
        if complete.get("unlabeled_batch") == 0 and complete.get("unlabeled") in protocol.UNLABELED_TYPES:
            complete["unlabeled"] = "same"  # they are not looked at: one run, whatever their kind
        return complete

    @classmethod
    def paper_options(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return PAPER_OPTIONS.get(str(fields.get("dataset")), {})

    def task(self, device: Any, data_dir: Path | None, shard: tuple[int, int]) -> Any:
        from cissl.task import prepare

        return prepare(self, device=device, data_dir=data_dir, shard=shard)


class OwnData(Training):
    """How a classifier is trained on samples that have no name: `data` is their fingerprint, and so is everything here
    that says how they are split. `cissl.CISSLClassifier` makes it from its parameters."""

    data: str = ""
    data_seed: int = Field(0, ge=0)  # of the validation samples: the same for models that are averaged
    network: str = "mlp"
    preprocessing: Literal["none", "standardize", "gcn+zca", "features"] = "features"
    class_counts: list[int] | None = None  # instead of the labeled ones
    validation_fraction: float = Field(0.0, ge=0, lt=1)
    patience: int = Field(0, ge=0)  # validations without a better one after which it stops; 0: never

    def enough(self, validations: Sequence[Mapping[str, Any]]) -> bool:
        errors = [seen["student_balanced_error"] for seen in validations]
        return 0 < self.patience < len(errors) and min(errors[-self.patience :]) >= min(errors[: -self.patience])


def _sentence(problem: Any) -> str:
    """pydantic's error as one of ours."""
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    where = ".".join(str(place) for place in problem["loc"])
    if problem["type"] == "missing":
        return f"a run needs a {where}: give one"
    return f"{where}: {problem['msg'][0].lower()}{problem['msg'][1:]}, got {problem['input']!r}"
