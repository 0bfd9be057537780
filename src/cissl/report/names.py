"""What the paper calls data sets and methods, and the order in which it shows them."""

DATASETS = {
    "two-moons": "Two moons",
    "four-spins": "Four spins",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "fashion-mnist": "Fashion-MNIST",
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
}

# Of a combination that the paper does not have, each part alone. Mean Teacher is short there, as in "MT+SCL".
PARTS = {"pi": "Π", "mean-teacher": "MT", "vat": "VAT", "ict": "ICT", "em": "EM", "sntg": "SNTG", "scl": "SCL"}


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


def _order(name: str, known: dict[str, str]) -> tuple[int, str]:
    return (list(known).index(name), "") if name in known else (len(known), name)
