"""Mean Teacher in a plain training loop of one's own, with and without suppressed consistency.

Two moons: 10 labels of one, 2 of the other, and 2500 + 500 points without a label. Takes a few seconds.
"""

import copy

import torch
from sklearn.datasets import make_moons
from torch import nn

import cissl

STEPS, SEEDS, NOISE, TEACHER_DECAY, WEIGHT = 600, 5, 0.15, 0.95, 8.0


def accuracies(beta: float, seed: int) -> torch.Tensor:
    """Train a student once; its accuracy on each class. β = 1 suppresses nothing: plain Mean Teacher."""
    points, classes = make_moons(6000, noise=NOISE, random_state=seed)
    parts = cissl.split(classes, labeled=12, imbalance=5, unlabeled_total=3000, seed=seed)
    x, y = torch.tensor(points, dtype=torch.float32), torch.tensor(classes)
    generator = torch.Generator().manual_seed(seed)

    torch.manual_seed(seed)
    student = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    consistency = cissl.SuppressedConsistencyLoss(parts.labeled_counts, beta=beta)

    def noisy(chosen) -> torch.Tensor:
        return x[chosen] + NOISE * torch.randn(len(chosen), 2, generator=generator)

    for step in range(1, STEPS + 1):
        labeled = parts.labeled[torch.randint(len(parts.labeled), (20,), generator=generator)]
        unlabeled = parts.unlabeled[torch.randint(len(parts.unlabeled), (80,), generator=generator)]
        supervised = nn.functional.cross_entropy(student(noisy(labeled)), y[labeled])
        agreement = consistency(student(noisy(unlabeled)), teacher(noisy(unlabeled)))
        loss = supervised + WEIGHT * min(step / 300, 1) * agreement
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.lerp_(new, 1 - TEACHER_DECAY)

    right = student(x).argmax(1) == y
    frequent_first = parts.labeled_counts.argsort()[::-1]
    return torch.stack([right[y == c].float().mean() for c in frequent_first.tolist()])


if __name__ == "__main__":
    torch.set_num_threads(1)  # many tiny operations
    for name, beta in (("Mean Teacher", 1.0), ("with SCL", 0.5)):
        frequent, rare = torch.stack([accuracies(beta, seed) for seed in range(SEEDS)]).mean(0).tolist()
        print(f"{name:14}frequent class {100 * frequent:5.1f} % right, rare class {100 * rare:5.1f} %")
