"""`CISSLClassifier`: the library as a scikit-learn classifier, for one's own samples."""

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from cissl import metrics, networks, preprocessing
from cissl.execution import Machine, Status, Trained, Watch, execute, execute_seeds, one_thread
from cissl.labels import UNLABELED, as_array, read_labels, without_label
from cissl.methods import method as method_of
from cissl.preprocessing import Raw
from cissl.randomness import stream
from cissl.run import SEEDS_TOGETHER, OwnData
from cissl.samples import Joined, Samples, as_raw, check_finite, fingerprint, from_dataset, is_dataset, prepared
from cissl.task import REWEIGHTS, OwnTask, held_out, own_task, probabilities

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
MakeNetwork = Callable[[tuple[int, ...], int], nn.Module]
PREDICTED_AT_ONCE = 2000  # samples
# What None and "auto" mean; the class says when.
EPOCHS, FEWEST_STEPS, MOST_STEPS = 20, 1000, 20_000
BATCH = 100
LEARNING_RATES = {"mlp": 0.03}
LEARNING_RATE = 0.1  # of all other networks
LEAST_DECAY, MOST_DECAY = 1e-4, 0.05  # of tables; between them one over the labeled samples
NOISE = 0.15
CROP, CROPPED_FROM = 2, 16  # pixels, and how high and wide images have to be for it
SMALLEST_IMAGE = 4  # of a convnet
VALIDATIONS, PATIENCE = 20, 8
ENOUGH_TO_VALIDATE = 10  # validation samples of the rarest class


class CISSLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns from few labels, many unlabeled samples and rare classes.

    `fit(X, y)` with −1 in `y` (for names: None, NaN or "") where a sample has no label, or `fit(X, y, X_unlabeled)`.
    `X` is a table (n, features) as array, pandas or polars frame; images (n, height, width[, channels]) as array, or
    (n, channels, height, width) as torch tensor; or a torch `Dataset` of samples x or of pairs (x, y). Arrays that are
    memory-mapped are read batch by batch. Without any unlabeled sample the labeled ones serve as unlabeled ones too.

    What is left at None or "auto" is decided by the data.

    Parameters
    ----------
    method : the paper's methods by name, see `cissl list`.
    reweight : of the labeled loss: "ce" (none), "in" (by 1 / count: every class counts the same), "cb", "focal".
        "auto" is "in", and "ce" for methods that mix labels (ict).
    network : "mlp", "convnet", "wide-resnet-28-2", "cnn13", "module:callable", a torch module, of which a copy is
        trained on from its weights, or a function (input_shape, n_classes) -> module. "auto" is an mlp for tables, a
        convnet for images.
    beta : of the suppression: 1 is none, the smaller, the less a rare class is followed.
    options : other hyper-parameters of the method, such as {"consistency_weight": 4}.
    steps : 20 passes over all samples, at least 1,000 and at most 20,000 steps.
    batch_size : 100; half of it labeled.
    learning_rate : at the start; 0.03 for the mlp, else 0.1. It falls to 0 as a cosine.
    weight_decay : 1e-4 for images; for tables 1 / labeled samples, between 1e-4 and 0.05: as much as a logistic
        regression of scikit-learn regularises by default, and twice as much where half of the batch is unlabeled, as
        the labeled loss then counts half.
    preprocessing : "features" for tables (mean 0, deviation 1 of every column, outliers cut at 10 deviations),
        "standardize" for images (of every channel); or "none", "gcn+zca".
    noise, crop, flip : the random views: normal noise (0.15 after preprocessing), images of 16 pixels and more moved by
        up to 2, mirrored where flip=True: digits would change their meaning.
    device : "auto", "cpu", "cuda", "mps".
    precision : "32-true" or "bf16-mixed".
    random_state : as everywhere in scikit-learn; it decides the first weights, the batches and the validation samples.
    early_stopping, validation_fraction : hold out that fraction of the labeled samples, of each class alike, validate
        20 times, keep the networks with the lowest balanced error, and stop after eight validations without a better
        one. "auto" does so where even the rarest class gives 10 validation samples: fewer teach more than they tell.
    class_counts : how frequent the classes are among the unlabeled samples, where the labeled ones do not say: in place
        of the labeled counts in the suppression. (The weights of the labeled loss stay those of the labeled counts.)
    predict_with : "student", or "teacher" where the method has one.
    n_models : how many networks are trained from different first weights, their probabilities averaged. Those of tables
        are trained at once.
    prior : the class distribution to predict for: "uniform", or a share for each class. Probabilities are multiplied by
        prior / training prior, the latter being labeled counts times the weights of `reweight`, in shares: uniform for
        "in". None predicts for the training prior.
    callbacks : functions called with a `cissl.execution.Status` at every look at the losses.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
    transduction_ : a class for each row of X and then of X_unlabeled: its label, or else the predicted one.
    labeled_counts_ : labeled samples of each class that were trained on.
    history_ : of each model the losses by name, over the steps.
    results_ : of each model all that a run reports.
    validation_ : what `cissl.metrics.evaluate` says of the validation samples, None without any.
    networks_, preprocessing_, input_shape_ : of each model {"student": module, …}; what is done to samples before;
        their shape, channels first.
    """

    def __init__(
        self,
        method: str = "mean-teacher+scl",
        *,
        reweight: str = "auto",
        network: str | nn.Module | MakeNetwork = "auto",
        beta: float = 0.5,
        options: Mapping[str, Any] | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        preprocessing: str = "auto",
        noise: float | None = None,
        crop: int | None = None,
        flip: bool = False,
        device: str = "auto",
        precision: str = "32-true",
        random_state: Any = None,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        class_counts: Sequence[int] | Mapping[Any, int] | None = None,
        predict_with: str = "student",
        n_models: int = 1,
        prior: str | Sequence[float] | Mapping[Any, float] | None = None,
        callbacks: Iterable[Watch] | None = None,
    ) -> None:
        self.method = method
        self.reweight = reweight
        self.network = network
        self.beta = beta
        self.options = options
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.preprocessing = preprocessing
        self.noise = noise
        self.crop = crop
        self.flip = flip
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.class_counts = class_counts
        self.predict_with = predict_with
        self.n_models = n_models
        self.prior = prior
        self.callbacks = callbacks

    # ---- Learning

    def fit(self, X: Any, y: Any = None, X_unlabeled: Any = None) -> "CISSLClassifier":
        """Learn from the samples `X` with labels `y`, −1 for those without one, and from `X_unlabeled`."""
        return self._fit(X, y, X_unlabeled)

    def _fit(
        self,
        X: Any,
        y: Any = None,
        X_unlabeled: Any = None,
        *,
        folder: str | Path | None = None,
        watch: Watch | None = None,
        machine: Machine | None = None,
        announce: Callable[[Sequence[OwnData]], object] | None = None,
    ) -> "CISSLClassifier":
        """`fit`; in a folder, where one is given, it goes on where it was stopped, as `execute` does.

        `announce` is told what will be trained, once everything that was left open is decided.
        """
        self._check_parameters()
        raw, codes, self.classes_ = self._read(X, y, X_unlabeled)
        seeds = self._seeds()
        fraction = self._fraction_to_validate(np.bincount(codes[codes >= 0]))
        training, validation = held_out(codes, fraction, stream(seeds[0], "split"))
        self.labeled_counts_ = np.bincount(codes[training], minlength=len(self.classes_))
        self._shift()  # a mistake in the prior is reported now, not after training
        data = fingerprint(raw, codes) if folder is not None else ""
        runs = [self._describe(len(codes), fraction, data, seeds[0], seed) for seed in seeds]
        if announce is not None:
            announce(runs)
        self.preprocessing_ = preprocessing.fit(runs[0].preprocessing, raw)
        self._train(runs, raw, codes, folder, watch, machine or Machine(accelerator=self.device))
        self.validation_ = None
        if len(validation):
            said = self._probabilities(raw, validation)
            self.validation_ = metrics.evaluate(said, codes[validation], self.labeled_counts_)
        unlabeled = np.flatnonzero(codes < 0)
        codes[unlabeled] = self._probabilities(raw, unlabeled).argmax(1)
        self.transduction_ = self.classes_[codes]
        return self

    def _read(self, X: Any, y: Any, X_unlabeled: Any) -> tuple[Raw, IntArray, npt.NDArray[Any]]:
        """All samples, a class number for each or −1, and the classes."""
        if is_dataset(X):
            X, found = from_dataset(X)
            y = found if y is None else y
        if y is None:
            raise ValueError(
                "CISSLClassifier requires y to be passed, but the target y is None: give a label for each sample of X, "
                "−1 for those without one"
            )
        parts = [self._samples(X, first=True)]
        if X_unlabeled is not None:
            parts.append(self._samples(from_dataset(X_unlabeled)[0] if is_dataset(X_unlabeled) else X_unlabeled))
        codes, classes = read_labels(y, len(parts[0]))
        codes = np.concatenate([codes, *(np.full(len(part), UNLABELED) for part in parts[1:])])
        return parts[0] if len(parts) == 1 else Joined(parts), codes, classes

    def _samples(self, X: Any, first: bool = False) -> Raw:
        """The samples as the library takes them, checked; the first ones say what they all have to look like."""
        if is_dataset(X):
            X = from_dataset(X)[0]
        raw = as_raw(X)
        if raw is None:
            table: Raw = validate_data(self, X, reset=first, dtype="numeric")
            if first:
                self.input_shape_: tuple[int, ...] = table.shape[1:]
            raw = table
        elif first:
            self.input_shape_ = tuple(raw.shape[1:])
            self.n_features_in_ = int(np.prod(self.input_shape_))
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        if raw.shape[1:] != self.input_shape_:
            raise ValueError(
                f"the samples are of shape {raw.shape[1:]}, those that CISSLClassifier was fitted on of "
                f"{self.input_shape_} (channels first): give samples of that shape"
            )
        check_finite(raw)
        return raw

    def _seeds(self) -> list[int]:
        generator = check_random_state(self.random_state)
        return [int(seed) for seed in generator.randint(2**31 - 1, size=self.n_models)]

    def _fraction_to_validate(self, counts: IntArray) -> float:
        """0 where there is no validation: "auto" validates where even the rarest class has samples enough for it."""
        wanted = self.early_stopping
        if wanted == "auto":
            wanted = round(self.validation_fraction * counts.min()) >= ENOUGH_TO_VALIDATE
        if wanted and counts.min() < 2:
            lonely = self.classes_.tolist()[counts.argmin()]
            raise ValueError(
                f"early_stopping needs 2 labeled samples of each class, one to validate on, and class {lonely!r} has "
                "1: give more, or early_stopping=False"
            )
        return float(self.validation_fraction) if wanted else 0.0

    def _describe(self, n: int, fraction: float, data: str, data_seed: int, seed: int) -> OwnData:
        """Everything that is left open is decided here, from what there is to learn from."""
        images = len(self.input_shape_) == 3
        network = self._network_name()
        batch = BATCH if self.batch_size is None else self.batch_size
        steps = min(max(EPOCHS * n // batch, FEWEST_STEPS), MOST_STEPS) if self.steps is None else self.steps
        crop = CROP if images and min(self.input_shape_[1:]) >= CROPPED_FROM else 0
        fitted = ("standardize" if images else "features") if self.preprocessing == "auto" else self.preprocessing
        rate = LEARNING_RATES.get(network, LEARNING_RATE) if self.learning_rate is None else self.learning_rate
        decay = 1e-4 if images else min(max(1 / self.labeled_counts_.sum(), LEAST_DECAY), MOST_DECAY)
        decay = decay if self.weight_decay is None else self.weight_decay
        options = dict(self.options or {})
        if "beta" in method_of(self.method).options:
            options.setdefault("beta", self.beta)
        decided: dict[str, Any] = dict(
            method=self.method,
            options=options,
            reweight=self._reweight(),
            network=network,
            preprocessing=fitted,
            noise=NOISE if self.noise is None else self.noise,
            crop=crop if self.crop is None else self.crop,
            flip=self.flip,
            steps=steps,
            labeled_batch=max(1, batch // 2),
            unlabeled_batch=max(1, batch - batch // 2),
            learning_rate=rate,
            weight_decay=decay,
            precision=self.precision,
            class_counts=self._class_counts(),
            validation_fraction=fraction,
            validations=VALIDATIONS if fraction else 0,
            patience=PATIENCE if fraction else 0,
            data=data,
            data_seed=data_seed,
            seed=seed,
        )
        return OwnData(**decided)

    def _reweight(self) -> str:
        if self.reweight != "auto":
            return self.reweight
        return "ce" if method_of(self.method).base.mixes_labels else "in"

    def _network_name(self) -> str:
        if isinstance(self.network, str):
            image = len(self.input_shape_) == 3 and min(self.input_shape_[1:]) >= SMALLEST_IMAGE
            return ("convnet" if image else "mlp") if self.network == "auto" else self.network
        return getattr(self.network, "__name__", type(self.network).__name__)

    def _build(self, seed: int) -> nn.Module:
        """A network with the first weights that this seed draws; a copy of a module that was given has its own."""
        if isinstance(self.network, nn.Module):
            module = copy.deepcopy(self.network)
            return networks.checked(module, self._network_name(), self.input_shape_, len(self.classes_))
        generator = torch.Generator().manual_seed(stream(seed, "init"))
        if callable(self.network):
            return networks.made_by(
                self.network, self._network_name(), self.input_shape_, len(self.classes_), generator
            )
        return networks.build(self._network_name(), self.input_shape_, len(self.classes_), generator)

    def _train(
        self,
        runs: Sequence[OwnData],
        raw: Raw,
        codes: IntArray,
        folder: str | Path | None,
        watch: Watch | None,
        machine: Machine,
    ) -> None:
        held: dict[torch.device, Tensor | Samples] = {}  # the samples, once for all models
        trained: dict[int, Trained] = {}
        codes = codes.copy()

        def prepare(run: OwnData, device: torch.device, shard: tuple[int, int] = (0, 1)) -> OwnTask:
            if device not in held:
                held[device] = prepared(raw, self.preprocessing_, device)
            return own_task(run, held[device], codes, len(self.classes_), self._build(run.seed), shard)

        def tell(status: Status) -> None:
            for told in (*([watch] if watch else []), *(self.callbacks or ())):
                told(status)

        small = runs[0].network in SEEDS_TOGETHER
        if small and len(runs) > 1 and folder is None:
            cpu = torch.device("cpu")
            self.results_ = execute_seeds(
                runs, watch=tell, prepare=lambda run: prepare(run, cpu), keep=trained.__setitem__
            )
        else:
            self.results_ = []
            for number, run in enumerate(runs):
                place = None if folder is None else Path(folder) / (f"model-{number}" if len(runs) > 1 else "")
                keep = partial(trained.__setitem__, number)
                with one_thread() if small else contextlib.nullcontext():
                    self.results_.append(execute(run, place, tell, machine, partial(prepare, run), keep))
        if not trained:
            raise ValueError(
                f"training diverged at step {self.results_[0]['diverged_at']}: give a smaller learning_rate than "
                f"{runs[0].learning_rate:g}"
            )
        if diverged := len(runs) - len(trained):
            warnings.warn(f"{diverged} of {len(runs)} models diverged and are left out", UserWarning, stacklevel=4)
        self.history_ = [trained[number].curve for number in sorted(trained)]
        self.networks_ = [self._loaded(runs[number].seed, trained[number].weights) for number in sorted(trained)]

    def _loaded(self, seed: int, weights: Mapping[str, Mapping[str, Tensor]]) -> dict[str, nn.Module]:
        """The networks of one model, on the processor, as they predict."""
        loaded = {}
        for who, state in weights.items():
            loaded[who] = self._build(seed).requires_grad_(False).eval()
            loaded[who].load_state_dict(state)
        return loaded

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier as a model folder, for `cissl.load` and `cissl predict`: weights as safetensors,
        the rest as JSON, with checksums."""
        from cissl import model_folder  # which imports this module

        model_folder.save(self, folder)

    # ---- Predicting

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class of each sample."""
        most_probable = self.predict_proba(X).argmax(1)
        classes: npt.NDArray[Any] = self.classes_[most_probable]
        return classes

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy over those samples that have a label in `y`."""
        truth = as_array(y)
        labeled = ~without_label(truth)
        if not labeled.any():
            raise ValueError("no sample in y has a label: there is nothing to score")
        right = (self.predict(X) == truth)[labeled]
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)[labeled]))

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of each class, in the order of `classes_`, for each sample."""
        check_is_fitted(self)
        raw = self._samples(X)
        return self._probabilities(raw, np.arange(len(raw)))

    def _probabilities(self, raw: Raw, places: IntArray) -> FloatArray:
        """The mean over the models, for the prior that is asked for."""
        # Of small networks in double precision: a sample's probabilities then do not depend on its neighbours.
        small = self._network_name() in SEEDS_TOGETHER
        device = torch.device("cpu") if small else torch.device(Machine(accelerator=self.device).kind)
        dtype = torch.float64 if small else torch.float32
        who = self.predict_with
        used = [copy.deepcopy(networks_[who]).to(device, dtype) for networks_ in self.networks_]
        out = np.empty((len(places), len(self.classes_)))
        shift = self._shift()
        for start in range(0, len(places), PREDICTED_AT_ONCE):
            block = slice(start, start + PREDICTED_AT_ONCE)
            x = torch.from_numpy(self.preprocessing_(raw[places[block]])).to(device, dtype)
            said = np.mean([probabilities(network, x) for network in used], 0, dtype=np.float64)
            shifted = said * shift
            out[block] = shifted / shifted.sum(1, keepdims=True)
        return out

    def _shift(self) -> FloatArray:
        """By what the probabilities of the classes are multiplied: the prior asked for over that of training."""
        if self.prior is None:
            return np.ones(len(self.classes_))
        return self._prior() / self._training_prior()

    def _training_prior(self) -> FloatArray:
        """How frequent the classes were to the labeled loss: counts times weights."""
        weights = np.ones(len(self.classes_))
        if (reweight := self._reweight()) in REWEIGHTS:
            weights = REWEIGHTS[reweight](self.labeled_counts_).double().numpy()
        total = self.labeled_counts_ * weights
        shares: FloatArray = total / total.sum()
        return shares

    def _prior(self) -> FloatArray:
        if isinstance(self.prior, str):
            return np.full(len(self.classes_), 1 / len(self.classes_))
        prior = np.array(self._of_each_class(self.prior, "prior"), dtype=float)
        if not (np.isfinite(prior).all() and (prior >= 0).all() and prior.sum() > 0):
            raise ValueError(
                f"prior should be numbers >= 0 with a positive sum, one for each class, got {self.prior!r}"
            )
        shares: FloatArray = prior / prior.sum()
        return shares

    def _class_counts(self) -> list[int] | None:
        if self.class_counts is None:
            return None
        counts = self._of_each_class(self.class_counts, "class_counts")
        if not all(isinstance(count, int | np.integer) and count > 0 for count in counts):
            raise ValueError(f"class_counts should be whole numbers above 0, got {self.class_counts!r}")
        return [int(count) for count in counts]

    def _of_each_class(self, given: Any, name: str) -> list[Any]:
        """In the order of `classes_`, from such a sequence or from a dictionary by class."""
        classes = self.classes_.tolist()
        if isinstance(given, Mapping):
            if set(given) != set(classes):
                raise ValueError(f"{name} should have a number for each of the classes {classes}, got {dict(given)!r}")
            return [given[label] for label in classes]
        values = list(given)
        if len(values) != len(classes):
            raise ValueError(
                f"{name} should have a number for each of the {len(classes)} classes {classes}, got {len(values)}"
            )
        return values

    # ---- What can be said before looking at the data

    def _check_parameters(self) -> None:
        method_of(self.method)
        if not isinstance(self.n_models, int | np.integer) or self.n_models < 1:
            raise ValueError(f"n_models should be a whole number of at least 1, got {self.n_models!r}")
        if self.early_stopping not in (True, False, "auto"):
            raise ValueError(f"early_stopping should be True, False or 'auto', got {self.early_stopping!r}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction should lie between 0 and 1, got {self.validation_fraction!r}")
        if self.predict_with not in ("student", "teacher"):
            raise ValueError(f"predict_with should be 'student' or 'teacher', got {self.predict_with!r}")
        if self.predict_with == "teacher" and method_of(self.method).teacher_decay is None:
            raise ValueError(f"{self.method!r} has no teacher: use predict_with='student', or a method that has one")
        if isinstance(self.prior, str) and self.prior != "uniform":
            raise ValueError(f"prior should be 'uniform', a number for each class or None, got {self.prior!r}")
        if self.batch_size is not None and (not isinstance(self.batch_size, int | np.integer) or self.batch_size < 2):
            raise ValueError(f"batch_size should be a whole number of at least 2, got {self.batch_size!r}")
