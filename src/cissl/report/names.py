"""What the paper calls data sets, methods and settings, and the order in which it shows them."""

from collections.abc import Mapping

DATASETS = {
    "two-moons": "Two moons",
    "four-spins": "Four spins",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "fashion-mnist": "Fashion-MNIST",
    "digits": "Digits",
    "voc": "PASCAL VOC",
    "voc07": "PASCAL VOC",
    "shapes": "Shapes",
}

METHODS = {
    "supervised": "Supervised",
    "pi": "Π model",
    "mean-teacher": "Mean Teacher",
    "vat+em": "VAT+EM",
    "vat+em+sntg": "VAT+EM+SNTG",
    "pseudo-label": "Pseudo-Label",
    "ict": "ICT",
    "mean-teacher+scl": "MT+SCL",
    "csd-cls": "CSD (cls)",
    "csd": "CSD",
    "csd-cls+scl": "CSD (cls)+SCL",
    "csd+scl": "CSD+SCL",
}

# Of a combination that the paper does not have, each part alone. Mean Teacher is short there, as in "MT+SCL".
PARTS = {"pi": "Π", "mean-teacher": "MT", "vat": "VAT", "ict": "ICT", "em": "EM", "sntg": "SNTG", "scl": "SCL"}

# Fields of a run that studies vary, in the order in which tables have them.
FIELDS = {"unlabeled": "Unlabeled", "imbalance": "ρ", "labeled": "Labels", "reweight": "Weights"}
VALUES = {
    "unlabeled": {"uniform": "Uniform", "half": "Half", "same": "Same"},
    "reweight": {"ce": "CE", "in": "IN", "focal": "Focal", "cb": "CB"},
}


def field_name(field: str) -> str:
    return FIELDS.get(field, field.replace("_", " ").capitalize())


def field_order(field: str) -> tuple[int, str]:
    return _order(field, FIELDS)


def value_name(field: str, value: object) -> str:
    """As the paper's headings have it; a number says what it is of."""
    if value is None:
        return "–"
    if field in VALUES:
        return VALUES[field].get(str(value), str(value))
    number = f"{value:g}" if isinstance(value, float) else str(value)
    if field == "imbalance":
        return f"ρ = {number}"
    return f"{number} labels" if field == "labeled" else number


def value_order(field: str, value: object) -> tuple[int, float, str]:
    """Sorts the values of a field as the paper does, numbers by size."""
    if field in VALUES:
        return (_order(str(value), VALUES[field])[0], 0.0, str(value))
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))


def dataset_name(dataset: str) -> str:
    return DATASETS.get(dataset, dataset)


def method_name(method: str) -> str:
    """The paper's name of a method; one that it does not have is named from its parts, "ict+scl" as "ICT+SCL"."""
    if method in METHODS:
        return METHODS[method]
    return "+".join(PARTS.get(part) or METHODS.get(part, part) for part in method.split("+"))


def dataset_order(dataset: str) -> tuple[int, str]:
    """Sorts data sets as the paper does, others after them by name."""
    return _order(dataset, DATASETS)


def method_order(method: str) -> tuple[int, str]:
    """Sorts methods as the paper's columns, others after them by name."""
    return _order(method, METHODS)


def _order(name: str, known: Mapping[str, object]) -> tuple[int, str]:
    return (list(known).index(name), "") if name in known else (len(known), name)
