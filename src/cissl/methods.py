"""How each method makes its targets: what the student said, what it should have said, and which samples count.

A method never steps, logs, moves devices or reads configuration. Its fields are its hyper-parameters, with the paper's
values (Table "Hyperparameters" of the supplement). A new method is one frozen dataclass and one line in `BASES`; one of
your own is one frozen dataclass in a module of yours, and its name is `module:Class`.
"""

import math
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple, Protocol, TypedDict, get_args, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from cissl import losses
from cissl.losses import probabilities
from cissl.names import imported, is_own, unknown


class Output(NamedTuple):
    """What a network says of a batch."""

    logits: Tensor
    features: Tensor | None = None  # flattened, before the classifier; there when a modifier asks for them


@runtime_checkable
class Network(Protocol):
    """The student or the teacher as a method sees it."""

    def __call__(self, x: Tensor) -> Output:
        """The pass that learns: for the student it moves the running statistics. The teacher's has no gradient."""

    def quietly(self, x: Tensor) -> Tensor:
        """A further pass with the batch's own statistics, which moves none: logits."""


class Batch(TypedDict, total=False):
    """One step's tensors, with every random draw that the step needs: the step itself draws nothing.

    Rows are [labeled ‖ unlabeled]; there are as many labeled ones as labels.
    """

    x: Tensor
    x_again: Tensor  # a second view of the same samples
    labels: Tensor
    ramp: Tensor  # w(t) / w_max
    class_weights: Tensor  # of the labeled loss
    suppression: Tensor  # g(N_c)
    direction: Tensor  # VAT: a standard normal for each unlabeled sample
    share: Tensor  # ICT: λ of the labeled samples and of the unlabeled ones
    partner: Tensor  # ICT: the row that each row is mixed with, labeled with labeled and unlabeled with unlabeled
    pairs: Tensor  # SNTG: a permutation of all rows


class Comparison(NamedTuple):
    """What the student said of the unlabeled samples, what it should have said, and which of them count."""

    said: Float[Tensor, "u k"]  # logits, with gradient
    wanted: Float[Tensor, "u k"]  # probabilities, without
    kept: Float[Tensor, " u"] | None = None  # a factor for each sample; None keeps all


def unlabeled_rows(x: Tensor, batch: Batch) -> Tensor:
    return x[len(batch["labels"]) :]


@dataclass(frozen=True, kw_only=True)
class Supervised:
    """Cross-entropy of the labeled samples alone; every method has this part. `draws` names the draws a step needs."""

    needs_second_view: ClassVar[bool] = False
    mixes_labels: ClassVar[bool] = False
    draws: ClassVar[tuple[str, ...]] = ()

    def inputs(self, batch: Batch) -> Tensor:
        """The rows of the pass that learns."""
        return batch["x"]


@dataclass(frozen=True, kw_only=True)
class Consistency(Supervised):
    """What the methods share that learn from unlabeled samples. `consistency_weight` is w_max."""

    consistency_weight: float

    def divergence(self, said: Tensor, wanted: Tensor) -> Tensor:
        """How far logits are from the target probabilities, one number per sample."""
        return losses.squared_error(said, wanted)

    def compare(self, said: Tensor, student: Network, teacher: Network | None, batch: Batch) -> Comparison:
        """Targets for `said`, the unlabeled rows of the pass that learned."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PiModel(Consistency):
    """Π model (Laine & Aila 2017): the target is the student's own prediction for a second view, detached."""

    needs_second_view = True
    consistency_weight: float = 20.0

    def compare(self, said: Tensor, student: Network, teacher: Network | None, batch: Batch) -> Comparison:
        with torch.no_grad():
            second = student.quietly(batch["x_again"])
        return Comparison(said, probabilities(unlabeled_rows(second, batch)))


@dataclass(frozen=True, kw_only=True)
class MeanTeacher(Consistency):
    """Mean Teacher (Tarvainen & Valpola 2017): the target is the prediction of a moving average of the student."""

    needs_second_view = True
    consistency_weight: float = 8.0
    teacher_decay: float = 0.95

    def compare(self, said: Tensor, student: Network, teacher: Network | None, batch: Batch) -> Comparison:
        assert teacher is not None
        target = teacher(batch["x_again"]).logits
        return Comparison(said, probabilities(unlabeled_rows(target, batch)))


@dataclass(frozen=True, kw_only=True)
class VAT(Consistency):
    """Virtual adversarial training (Miyato et al. 2018): the same view, moved ε in the direction that changes the
    prediction most, should be predicted as the clean one.

    ξ: the paper's 1e-6 is below what float32 resolves; at 1e-3 the direction agrees with the exact one.
    """

    draws = ("direction",)
    consistency_weight: float = 0.3
    epsilon: float = 1.0  # the paper: 6 on CIFAR-10, 1 on SVHN and the toy sets
    xi: float = 1e-3

    def divergence(self, said: Tensor, wanted: Tensor) -> Tensor:
        return losses.kl_divergence(said, wanted)

    def compare(self, said: Tensor, student: Network, teacher: Network | None, batch: Batch) -> Comparison:
        clean = probabilities(said.detach())
        worst = self.worst_direction(student, clean, batch)
        return Comparison(self.moved(student, batch, self.epsilon * worst), clean)

    def moved(self, student: Network, batch: Batch, by: Tensor) -> Tensor:
        """Logits of the moved unlabeled samples, normalised together with the labeled ones as the clean ones were."""
        moved = unlabeled_rows(batch["x"], batch) + by
        return unlabeled_rows(student.quietly(torch.cat([batch["x"][: len(batch["labels"])], moved])), batch)

    def worst_direction(self, student: Network, clean: Tensor, batch: Batch) -> Tensor:
        """One power iteration from a random direction, outside autocast: a finite difference needs the precision."""
        device = batch["x"].device.type
        imprecise = torch.is_autocast_enabled(device)
        with torch.no_grad(), torch.autocast(device, enabled=False):
            if imprecise:
                clean = probabilities(unlabeled_rows(student.quietly(batch["x"]), batch))

            def disagreement(direction: Tensor) -> Tensor:
                return losses.kl_divergence(self.moved(student, batch, self.xi * direction), clean).sum()

            slope: Tensor = torch.func.grad(disagreement)(unit(batch["direction"]))
        return unit(slope)


@dataclass(frozen=True, kw_only=True)
class PseudoLabel(Consistency):
    """Pseudo-label (Lee 2013): cross-entropy to the predicted class where its probability is above a threshold."""

    consistency_weight: float = 1.0
    threshold: float = 0.95

    def divergence(self, said: Tensor, wanted: Tensor) -> Tensor:
        return losses.soft_cross_entropy(said, wanted)

    def compare(self, said: Tensor, student: Network, teacher: Network | None, batch: Batch) -> Comparison:
        probability, predicted = probabilities(said.detach()).max(1)
        classes = torch.arange(said.shape[1], device=said.device)
        wanted = (predicted[:, None] == classes).to(said.dtype)
        return Comparison(said, wanted, (probability > self.threshold).to(said.dtype))


@dataclass(frozen=True, kw_only=True)
class ICT(Consistency):
    """Interpolation consistency (Verma et al. 2019): a mix of two samples should be predicted as the mix of what the
    teacher predicts for each. Labeled samples are mixed with labeled ones, their losses alike."""

    needs_second_view = True
    mixes_labels = True
    draws = ("share", "partner")
    consistency_weight: float = 100.0
    teacher_decay: float = 0.999
    alpha: float = 1.0

    def inputs(self, batch: Batch) -> Tensor:
        x = batch["x"]
        rows = (len(batch["labels"]), len(x) - len(batch["labels"]))
        share = torch.cat([s.expand(n) for s, n in zip(batch["share"], rows, strict=True)])
        return mixed(x, batch["partner"], share.view(-1, *[1] * (x.ndim - 1)))

    def compare(self, said: Tensor, student: Network, teacher: Network | None, batch: Batch) -> Comparison:
        assert teacher is not None
        target = teacher(batch["x_again"]).logits
        target = mixed(probabilities(target), batch["partner"], batch["share"][1])
        return Comparison(said, unlabeled_rows(target, batch))


def mixed(x: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """share · x + (1 − share) · its partner."""
    return share * x + (1 - share) * x[partner]


def unit(x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
    """Each sample scaled to L2 norm 1; a zero stays zero."""

    def by(size: Float[Tensor, " n"]) -> Float[Tensor, "n ..."]:
        return x / size.clamp(min=torch.finfo(x.dtype).tiny).view(-1, *[1] * (x.ndim - 1))

    x = by(x.flatten(1).abs().amax(1))  # else the squares of small numbers would be 0
    return by(x.flatten(1).square().sum(1).sqrt())


@dataclass(frozen=True, kw_only=True)
class EntropyMinimization:
    """+em (Grandvalet & Bengio 2005): unlabeled samples should be predicted with certainty. Not ramped up."""

    entropy_weight: float = 0.06


@dataclass(frozen=True, kw_only=True)
class SmoothNeighbors:
    """+sntg (Luo et al. 2018): features of one (predicted) class together, of two classes apart."""

    draws: ClassVar[tuple[str, ...]] = ("pairs",)
    sntg_weight: float = 0.4
    margin: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SuppressedConsistency:
    """+scl, the paper's: each sample's consistency × g(count of the class that the student predicts for it)."""

    beta: float = 0.5
    form: losses.SuppressionForm = "exponential"  # the paper: linear on the toy sets and in detection


BASES: dict[str, type[Supervised]] = {
    "supervised": Supervised,
    "pi": PiModel,
    "mean-teacher": MeanTeacher,
    "vat": VAT,
    "ict": ICT,
    "pseudo-label": PseudoLabel,
}
MODIFIERS: dict[str, type[EntropyMinimization] | type[SmoothNeighbors] | type[SuppressedConsistency]] = {
    "em": EntropyMinimization,
    "sntg": SmoothNeighbors,
    "scl": SuppressedConsistency,
}
PAPER = ("supervised", "pi", "mean-teacher", "vat+em", "vat+em+sntg", "pseudo-label", "ict", "mean-teacher+scl")


@dataclass(frozen=True)
class Method:
    """A base and its modifiers; made by `method("vat+em+sntg")`."""

    base: Supervised
    em: EntropyMinimization | None = None
    sntg: SmoothNeighbors | None = None
    scl: SuppressedConsistency | None = None

    @property
    def name(self) -> str:
        mine = type(self.base)
        base = next((name for name, kind in BASES.items() if mine is kind), f"{mine.__module__}:{mine.__qualname__}")
        return "+".join([base, *(m for m in MODIFIERS if getattr(self, m) is not None)])

    @property
    def needs_unlabeled(self) -> bool:
        return isinstance(self.base, Consistency) or self.em is not None

    @property
    def teacher_decay(self) -> float | None:
        """γ of the moving average, None where there is no teacher."""
        return getattr(self.base, "teacher_decay", None)

    @property
    def draws(self) -> tuple[str, ...]:
        return self.base.draws + (self.sntg.draws if self.sntg is not None else ())

    @property
    def options(self) -> dict[str, Any]:
        """Every hyper-parameter by its name."""
        parts = [self.base, *(part for m in MODIFIERS if (part := getattr(self, m)) is not None)]
        return {name: value for part in parts for name, value in asdict(part).items()}


def named(names: Sequence[str]) -> list[str]:
    """The methods' own names, each once; "all" are the paper's eight."""
    chosen = [name for given in names for name in (PAPER if given == "all" else [method(given).name])]
    return list(dict.fromkeys(chosen))


LIMITS = {"teacher_decay": 1.0, "threshold": 1.0, "beta": 1.0}  # the others only have to be >= 0
ABOVE_ZERO = ("beta", "xi", "alpha")


def check_option(name: str, value: Any) -> None:
    if name == "form":
        if value not in get_args(losses.SuppressionForm):
            raise unknown("form of the suppression", value, get_args(losses.SuppressionForm))
        return
    upper = LIMITS.get(name, math.inf)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= upper or value == math.inf or (value == 0 and name in ABOVE_ZERO):
        bounds = "above 0" if name in ABOVE_ZERO else "at least 0"
        if upper < math.inf:
            bounds += f" and at most {upper:g}"
        raise ValueError(f"{name} should be a number {bounds}, got {value!r}")


def base(name: str) -> type[Supervised]:
    """The class of a method without its modifiers: of that name in `BASES`, or your own as `module:Class`."""
    if is_own(name):
        return own_base(name, imported("method", name))
    if name not in BASES:
        raise unknown("method", name, (*BASES, "module:Class"))
    return BASES[name]


def own_base(name: str, made: Any) -> type[Supervised]:
    """A class of a user's own, if it has what the rest of the library relies on."""
    if not isinstance(made, type) or not issubclass(made, Supervised):
        raise ValueError(f"method {name!r}: expected a class that extends cissl.methods.Consistency, or another method")
    if "__dataclass_fields__" not in vars(made):
        raise ValueError(f"method {name!r}: write @dataclass(frozen=True, kw_only=True) above its class")
    for field in fields(made):
        if field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"method {name!r}: its {field.name} has no default: give it one")
    if issubclass(made, Consistency) and made.compare is Consistency.compare:
        raise ValueError(f"method {name!r} makes no targets: give it compare(self, said, student, teacher, batch)")
    return made


def method(name: str, **options: Any) -> Method:
    """`method("mean-teacher+scl", beta=0.3)`: the parts by name, their hyper-parameters as options."""
    first, *modifiers = name.split("+")
    kind = base(first)
    for modifier in modifiers:
        if modifier not in MODIFIERS:
            raise unknown(f"modifier in the method {name!r}:", modifier, MODIFIERS)
        if modifiers.count(modifier) > 1:
            raise ValueError(f"the method {name!r} names +{modifier} twice")
        if modifier != "em" and not issubclass(kind, Consistency):
            raise ValueError(
                f"+{modifier} acts on the consistency of unlabeled samples and {first!r} has none: "
                f"choose another method, such as 'mean-teacher+{modifier}'"
            )
    kinds = {"base": kind, **{m: MODIFIERS[m] for m in modifiers}}
    known = {field.name: part for part, kind in kinds.items() for field in fields(kind)}
    for option, value in options.items():
        if option not in known:
            raise unknown(f"option of the method {name!r}:", option, known)
        check_option(option, value)
    parts: dict[str, Any] = {
        part: kind(**{option: value for option, value in options.items() if known[option] == part})
        for part, kind in kinds.items()
    }
    return Method(**parts)
