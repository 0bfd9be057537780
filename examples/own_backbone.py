"""Fine-tuning a backbone that you bring, with the preprocessing it was trained with.

A network of three convolutions stands for your backbone: trained here on half of the digits, 0 to 4, with all labels.
Then it learns the other half from 30 labels, 12 of the most frequent and 2 of the rarest class. Takes a few seconds.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import cissl

MEAN, DEVIATION = 4.9 / 16, 6.0 / 16  # of the pixels 0 … 1 that the backbone was trained on


def backbone() -> nn.Module:
    widths = [(1, 16), (16, 32), (32, 64)]
    layers = [layer for wide in widths for layer in (nn.Conv2d(*wide, 3, padding=1), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())


class FineTuned(nn.Module):
    """What the backbone needs of its images (here a mean and a deviation; resizing goes here too), then a new head."""

    def __init__(self, body: nn.Module, n_classes: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(256, n_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body((images - MEAN) / DEVIATION))


def pretrained(images: np.ndarray, labels: np.ndarray) -> nn.Module:
    torch.manual_seed(0)
    network = FineTuned(backbone(), 5)
    classifier = cissl.CISSLClassifier("supervised", network=network, preprocessing="none", steps=120, random_state=0)
    return classifier.fit(images, labels).networks_[0]["student"].module.body


if __name__ == "__main__":
    images, digits = load_digits().images.astype(np.float32) / 16, load_digits().target
    body = pretrained(images[digits < 5], digits[digits < 5])
    images, classes = images[digits >= 5], digits[digits >= 5] - 5
    parts = cissl.split(classes, labeled=30, imbalance=6, unlabeled_total=250, validation_per_class=50, seed=0)
    for name, network in (("from scratch", backbone()), ("fine-tuned", body)):
        classifier = cissl.CISSLClassifier(
            network=FineTuned(network, 5), preprocessing="none", learning_rate=0.03, steps=120, random_state=0
        )
        classifier.fit(images[parts.labeled], classes[parts.labeled], images[parts.unlabeled])
        accuracy = classifier.score(images[parts.validation], classes[parts.validation])
        print(f"{name:14}{100 * accuracy:.1f} % right")
