"""A trained classifier in a folder: weights as safetensors, everything else as JSON. Loading runs no code from it.

`model.json` is written last and holds the checksums of the other files and of itself: what is half written, torn or
changed is refused. The checksums find accidents; they do not say who made the model.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

import cissl
from cissl import execution, preprocessing, records
from cissl.names import unknown

if TYPE_CHECKING:
    from cissl.estimator import CISSLClassifier

FORMAT = 1
MODEL, WEIGHTS, PREPROCESSING = "model.json", "weights.safetensors", "preprocessing.safetensors"
NOT_KEPT = ("callbacks", "device")  # of the machine that trained, not of the model
LABEL_KINDS: dict[str, Any] = {"text": str, "whole numbers": int, "numbers": float, "truth values": bool}

Network = nn.Module | str | Callable[..., Any]


def save(
    classifier: "CISSLClassifier",
    folder: str | Path,
    reading: Mapping[str, Any] | None = None,
    made_from: str | None = None,
) -> None:
    """Write a fitted classifier; `reading` says how files become its samples, `made_from` what it was trained from."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(classifier)
    folder = Path(folder)
    tensors = {
        f"{number}/{who}/{name}": value.detach().cpu().contiguous().clone()
        for number, networks_ in enumerate(classifier.networks_)
        for who, network in networks_.items()
        for name, value in network.state_dict().items()
    }
    fitted = classifier.preprocessing_
    arrays = {"mean": torch.from_numpy(np.array(fitted.mean)), "factor": torch.from_numpy(np.array(fitted.factor))}
    with records.readable_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MODEL).unlink(missing_ok=True)  # of the model before: from here on until the end there is none
        for name, content in ((WEIGHTS, tensors), (PREPROCESSING, arrays)):
            payload = safetensors.torch.save(content)
            records.write_whole(folder / name, lambda file, payload=payload: file.write(payload))  # type: ignore[misc]
        described = _describe(classifier, reading, made_from)
        described["files"] = {name: _checksum(folder / name) for name in (WEIGHTS, PREPROCESSING)}
        records.write_json(folder / MODEL, described | {"checksum": _own_checksum(described)})


def _describe(
    classifier: "CISSLClassifier", reading: Mapping[str, Any] | None, made_from: str | None
) -> dict[str, Any]:
    kind, classes = _labels(classifier.classes_)
    names = getattr(classifier, "feature_names_in_", None)
    features = None if names is None else [str(name) for name in names]
    if reading is None:
        reading = {"kind": "arrays"} if features is None else {"kind": "table", "features": features, "label": "label"}
    return {
        "format": FORMAT,
        "parameters": _parameters(classifier),
        "classes": {"kind": kind, "names": classes},
        "labeled_counts": [int(count) for count in classifier.labeled_counts_],
        "input_shape": [int(size) for size in classifier.input_shape_],
        "features_in": int(classifier.n_features_in_),
        "feature_names": features,
        "reading": dict(reading),
        "preprocessing": classifier.preprocessing_.name,
        "networks": [sorted(networks_) for networks_ in classifier.networks_],
        "validation": classifier.validation_,
        "results": classifier.results_,
        "history": classifier.history_,
        "versions": execution.versions(),
        "made_from": made_from,
    }


def _labels(classes: npt.NDArray[Any]) -> tuple[str, list[Any]]:
    names = classes.tolist()
    for kind, type_ in LABEL_KINDS.items():
        if all(type(name) is type_ for name in names):
            return kind, names
    raise ValueError(f"only labels that are text or numbers can be saved, not {names!r}: encode them as text")


def _parameters(classifier: "CISSLClassifier") -> dict[str, Any]:
    """As JSON, what depends on the order of the classes in their order."""
    given = {name: value for name, value in classifier.get_params(deep=False).items() if name not in NOT_KEPT}
    if not isinstance(given["network"], str):
        given["network"] = {"own": getattr(given["network"], "__name__", type(given["network"]).__name__)}
    for name in ("class_counts", "prior"):
        if isinstance(given[name], Mapping):
            given[name] = [given[name][label] for label in classifier.classes_.tolist()]
    if not isinstance(given["random_state"], int | np.integer):
        given["random_state"] = None
    plain: dict[str, Any] = json.loads(json.dumps(given, default=_plain))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return list(value)


def _checksum(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _own_checksum(described: Mapping[str, Any]) -> str:
    return hashlib.sha256(records.canonical(described).encode()).hexdigest()


# ---- Loading


def load(folder: str | Path, network: Network | None = None) -> "CISSLClassifier":
    """The classifier that was saved there.

    A model with a network of its own is loaded with that network given again, as a module, a function of
    (input_shape, n_classes) or `module:callable`: its code is imported only because you name it.
    """
    from cissl.estimator import CISSLClassifier

    folder = Path(folder)
    described = read(folder)
    try:
        parameters = {**described["parameters"], "network": _network(folder, described, network)}
        classifier = CISSLClassifier(**parameters)
        kind = LABEL_KINDS[described["classes"]["kind"]]
        names = [kind(name) for name in described["classes"]["names"]]
        classifier.classes_ = np.array(names)
        classifier.labeled_counts_ = np.array(described["labeled_counts"], np.int64)
        classifier.input_shape_ = tuple(described["input_shape"])
        classifier.n_features_in_ = described["features_in"]
        if described["feature_names"] is not None:
            classifier.feature_names_in_ = np.array(described["feature_names"], dtype=object)
        classifier.validation_ = described["validation"]
        classifier.results_, classifier.history_ = described["results"], described["history"]
        arrays = _tensors(folder / PREPROCESSING)
        if described["preprocessing"] not in preprocessing.FITS:
            raise unknown("preprocessing", described["preprocessing"], preprocessing.FITS)
        classifier.preprocessing_ = preprocessing.Preprocessing(
            described["preprocessing"], arrays["mean"].numpy(), arrays["factor"].numpy()
        )
        classifier.networks_ = _networks(classifier, described, _tensors(folder / WEIGHTS))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / MODEL} does not describe a model as this cissl writes it: {error!r}") from error
    return classifier


def read(folder: Path) -> dict[str, Any]:
    """What model.json says, once it and the files it names are known to be as they were written."""
    path = folder / MODEL
    if not path.is_file():
        raise ValueError(
            f"{folder} is no model folder, there is no {MODEL} in it: give the folder that `cissl train --out` or "
            "`classifier.save` wrote" + _unfinished(folder)
        )
    try:
        described = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no valid JSON ({error}): torn or changed; {REMEDY}") from error
    if not isinstance(described, dict) or not isinstance(described.get("format"), int):
        raise ValueError(f"{path} does not describe a model: give the folder that `cissl train --out` wrote")
    if described["format"] > FORMAT:
        version = described.get("versions", {})
        by = f" by cissl {version['cissl']}" if isinstance(version, dict) and "cissl" in version else ""
        raise ValueError(
            f"{folder} was written{by} in format {described['format']}, and this is cissl {cissl.__version__}, which "
            f"reads up to format {FORMAT}: install a newer cissl"
        )
    if described.pop("checksum", None) != _own_checksum(described):
        raise ValueError(f"{path} is not as it was written, its checksum differs: {REMEDY}")
    for name in (WEIGHTS, PREPROCESSING):
        if name not in described.get("files", {}):
            raise ValueError(f"{path} does not name {name}: {REMEDY}")
        _check_file(folder / name, described["files"][name])
    return described


REMEDY = "take it from a copy, or train again"


def _unfinished(folder: Path) -> str:
    under_way = (folder / "training").is_dir()
    return ". Its training is not finished: start the same `cissl train` command again" if under_way else ""


def _check_file(path: Path, written: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise ValueError(f"{path} is missing: {REMEDY}")
    found = _checksum(path)
    if found["bytes"] != written["bytes"]:
        raise ValueError(f"{path} has {found['bytes']} bytes and had {written['bytes']}: torn or changed; {REMEDY}")
    if found["sha256"] != written["sha256"]:
        raise ValueError(f"{path} is not as it was written, its checksum differs: {REMEDY}")


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(path.read_bytes())
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error}): {REMEDY}") from error


def _network(folder: Path, described: Mapping[str, Any], given: Network | None) -> Network:
    """Only a network of the library is built because a file says so."""
    named = described["parameters"]["network"]
    own = isinstance(named, dict) or ":" in named
    if not own:
        if given is not None and given != named:
            raise ValueError(f"{folder} holds a model with the network {named!r}, which comes with cissl: give none")
        return str(named)
    shown = named["own"] if isinstance(named, dict) else named
    if given is None:
        raise ValueError(
            f"{folder} holds a model with a network of its own, {shown!r}, whose code is run to load it: if you trust "
            "that code, give the network again (load(folder, network=…), or --network module:callable)"
        )
    return given


def _networks(
    classifier: "CISSLClassifier", described: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> list[dict[str, nn.Module]]:
    if not described["networks"]:
        raise ValueError("the model has no network")
    states: list[dict[str, dict[str, Tensor]]] = [{who: {} for who in whos} for whos in described["networks"]]
    for full, value in tensors.items():
        number, who, name = full.split("/", 2)
        states[int(number)][who][name] = value
    try:
        return [classifier._loaded(0, state) for state in states]
    except RuntimeError as error:  # other names or shapes
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"the weights do not fit the network {described['parameters']['network']!r}: {reason}"
        ) from error
