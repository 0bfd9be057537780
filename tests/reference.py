"""The paper's formulas once more, slowly: loops over samples and classes in numpy, written from the formulas alone.

All of it also works on complex numbers, because a derivative is then exact and needs no differentiation library: for a
function f made of analytic pieces, f(x + i h v) = f(x) + i h ∇f(x)·v + O(h²), so that with h = 1e-30 the imaginary part
over h is the slope along v to the last digit ("complex step"). Comparisons look at the real part.
"""

import math

import numpy as np

STEP = 1e-30

# --- one sample: z are logits, q is a target distribution, y a label ---


def log_softmax(z):
    top = max(value.real for value in z)
    normaliser = np.log(sum(np.exp(value - top) for value in z))
    return [value - top - normaliser for value in z]


def softmax(z):
    return [np.exp(value) for value in log_softmax(z)]


def argmax(z):
    """The lowest index on a tie."""
    best = 0
    for c in range(len(z)):
        if z[c].real > z[best].real:
            best = c
    return best


def squared_error(z, q):
    p = softmax(z)
    return sum((p[c] - q[c]) ** 2 for c in range(len(z))) / len(z)


def soft_cross_entropy(z, q):
    log_p = log_softmax(z)
    return -sum(q[c] * log_p[c] for c in range(len(z)) if q[c] != 0)


def kl_divergence(z, q):
    return soft_cross_entropy(z, q) + sum(q[c] * math.log(q[c]) for c in range(len(z)) if q[c] != 0)


def cross_entropy(z, y):
    return -log_softmax(z)[y]


def focal(z, y, gamma):
    # 1 − p as the sum of the others: nothing cancels where p is nearly 1.
    p = softmax(z)
    return sum(p[c] for c in range(len(z)) if c != y) ** gamma * cross_entropy(z, y)


def entropy(z):
    return -sum(np.exp(log_p) * log_p for log_p in log_softmax(z))


# --- classes, from counts of labeled samples ---


def suppression(counts, beta, form):
    largest = max(counts)
    return [n / largest if form == "linear" else beta ** (1 - n / largest) for n in counts]


def class_weights(counts, kind, beta=0.9999):
    raw = [1 / n if kind == "in" else (1 - beta) / (1 - beta**n) for n in counts]
    return [weight * len(raw) / sum(raw) for weight in raw]


# --- pairs of samples ---


def neighbor(first, second, same, margin):
    squared = sum((first[d] - second[d]) ** 2 for d in range(len(first))) / len(first)
    if same:
        return squared
    gap = margin - np.sqrt(squared)
    return gap**2 if gap.real > 0 else 0.0


# --- networks: parameters by name, a batch in, (logits, features) out ---


def leaky(x):
    return np.where(x.real > 0, x, 0.1 * x)


def affine(parameters, layer, x):
    return x @ parameters[f"{layer}.weight"].T + parameters[f"{layer}.bias"]


def toy_mlp(parameters, x):
    x = leaky(affine(parameters, "first", x))
    for _ in range(3):
        x = leaky(affine(parameters, "hidden", x))
    return affine(parameters, "classifier", x), x


def small(parameters, x):
    """What `builders.Small` computes in training mode: flatten, linear, (BatchNorm,) leaky ReLU, linear."""
    x = affine(parameters, "first", x.reshape(len(x), -1))
    if "norm.weight" in parameters:
        mean = x.mean(0)
        variance = ((x - mean) ** 2).mean(0)
        x = (x - mean) / np.sqrt(variance + 1e-5) * parameters["norm.weight"] + parameters["norm.bias"]
    x = leaky(x)
    return affine(parameters, "classifier", x), x


# --- one step ---

W_MAX = {"pi": 20.0, "mean-teacher": 8.0, "vat": 0.3, "pseudo-label": 1.0, "ict": 100.0}


def ramp(t, over):
    return math.exp(-5 * (1 - min(t / over, 1.0)) ** 2) if over else 1.0


def unit(vector):
    return vector / math.sqrt(sum(value**2 for value in vector.flat))


def vat_direction(network, parameters, x, n_labeled, start, xi=1e-3):
    """One power iteration: where Σ KL(clean ‖ moved by ξ·unit(start)) rises fastest, each sample of length 1.

    The same finite ξ as the library's, so that both agree to the last digits. That this ξ gives the exact direction of
    the Hessian is another test.
    """
    clean = [softmax(z) for z in network(parameters, x)[0]]
    start = np.stack([unit(one) for one in start])
    slope = np.zeros_like(start)
    for place in np.ndindex(start.shape):
        moved = x.astype(complex)
        moved[n_labeled:] += xi * start
        moved[n_labeled + place[0]][place[1:]] += 1j * STEP
        said = network(parameters, moved)[0]
        total = sum(kl_divergence(said[i], clean[i]) for i in range(n_labeled, len(x)))
        slope[place] = total.imag / STEP
    return np.stack([unit(one) for one in slope])


def objective(
    name, network, parameters, teacher, batch, counts, *, t, ramp_over, reweight="ce",
    w_max=None, epsilon=1.0, threshold=0.95, beta=0.5, form="exponential", margin=1.0,
    entropy_weight=0.06, sntg_weight=0.4,
):  # fmt: skip
    """J = L_sup + w(t) · L_con + modifiers, by name; each is a sum over its own samples over the whole batch's size.

    Of complex `parameters` the real part makes all targets, which is what "carries no gradient" means.
    """
    base, *modifiers = name.split("+")
    fixed = {key: value.real.copy() for key, value in parameters.items()}
    x, labels = batch["x"], batch["labels"]
    n, size = len(labels), len(x)
    unlabeled = range(n, size)

    learned = x
    if base == "ict":
        shares = [batch["share"][0 if i < n else 1] for i in range(size)]
        partner = batch["partner"]
        learned = np.stack([shares[i] * x[i] + (1 - shares[i]) * x[partner[i]] for i in range(size)])
    logits, features = network(parameters, learned)
    said = network(fixed, learned)[0]

    # Labeled samples.
    weights = [1.0] * len(counts) if reweight in ("ce", "focal") else class_weights(counts, reweight)
    supervised = 0.0
    for i in range(n):
        if base == "ict":
            supervised += shares[i] * cross_entropy(logits[i], labels[i])
            supervised += (1 - shares[i]) * cross_entropy(logits[i], labels[partner[i]])
        elif reweight == "focal":
            supervised += focal(logits[i], labels[i], 1.0)
        else:
            supervised += weights[labels[i]] * cross_entropy(logits[i], labels[i])
    parts = {"supervised": supervised / size}

    # What each unlabeled sample's prediction is compared with.
    w_max = W_MAX.get(base) if w_max is None else w_max
    differences = {}
    if base == "pi":
        wanted = network(fixed, batch["x_again"])[0]
        differences = {i: squared_error(logits[i], softmax(wanted[i])) for i in unlabeled}
    if base == "mean-teacher":
        wanted = network(teacher, batch["x_again"])[0]
        differences = {i: squared_error(logits[i], softmax(wanted[i])) for i in unlabeled}
    if base == "vat":
        moved = x.copy()
        moved[n:] += epsilon * vat_direction(network, fixed, x, n, batch["direction"])
        after = network(parameters, moved)[0]
        differences = {i: kl_divergence(after[i], softmax(said[i])) for i in unlabeled}
    if base == "pseudo-label":
        for i in unlabeled:
            certain = max(softmax(said[i])) > threshold
            differences[i] = cross_entropy(logits[i], argmax(said[i])) if certain else 0.0
    if base == "ict":
        wanted = [softmax(z) for z in network(teacher, batch["x_again"])[0]]
        for i in unlabeled:
            mix = [shares[i] * a + (1 - shares[i]) * b for a, b in zip(wanted[i], wanted[partner[i]], strict=True)]
            differences[i] = squared_error(logits[i], mix)
    if base in W_MAX:
        factor = suppression(counts, beta, form) if "scl" in modifiers else [1.0] * len(counts)
        total = sum(factor[argmax(said[i])] * differences[i] for i in unlabeled)
        parts["consistency"] = w_max * ramp(t, ramp_over) * total / size

    if "em" in modifiers:
        parts["entropy"] = entropy_weight * sum(entropy(logits[i]) for i in unlabeled) / size
    if "sntg" in modifiers:
        classes = list(labels) + [argmax(said[i]) for i in unlabeled]
        if base == "ict":  # a mixed sample belongs to the class that has the larger share of it
            classes[:n] = [labels[i] if shares[i] >= 0.5 else labels[partner[i]] for i in range(n)]
        order, half = batch["pairs"], size // 2
        pairs = [(order[i], order[i + half]) for i in range(half)]
        total = sum(neighbor(features[a], features[b], classes[a] == classes[b], margin) for a, b in pairs)
        parts["sntg"] = sntg_weight * w_max * ramp(t, ramp_over) * total / half
    return {"loss": sum(parts.values()), **parts}


def slope(function, parameters, direction):
    """The derivative of function(parameters) along `direction`, by complex step."""
    moved = {name: value + 1j * STEP * direction[name] for name, value in parameters.items()}
    return function(moved).imag / STEP
