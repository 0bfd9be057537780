"""A method of one's own in one file: Mean Teacher with sharpened targets, alone and with suppressed consistency.

Its name is `module:Class`: in the folder of this file, `PYTHONPATH=. cissl run toy --methods new_method:Sharpened+scl`
runs it too, and so does a study of one's own. Takes a few seconds.
"""

from dataclasses import dataclass

from torch import Tensor

import cissl
from cissl.methods import Batch, Comparison, MeanTeacher, Network

SEEDS, STEPS = 3, 600


@dataclass(frozen=True, kw_only=True)
class Sharpened(MeanTeacher):
    """Mean Teacher; the teacher's probabilities are taken to the power 1/T, so that its guesses become more certain."""

    temperature: float = 0.5  # every field is a hyper-parameter: options={"temperature": 0.7}

    def compare(self, said: Tensor, student: Network, teacher: Network | None, batch: Batch) -> Comparison:
        said, wanted, kept = super().compare(said, student, teacher, batch)
        sharp = wanted ** (1 / self.temperature)
        return Comparison(said, sharp / sharp.sum(1, keepdim=True), kept)


def errors(method: str) -> tuple[float, float]:
    """On four spins, in %, over all classes and of the rarest one: the mean over seeds that are trained at once."""
    runs = [cissl.Run(dataset="four-spins", method=method, steps=STEPS, seed=seed) for seed in range(SEEDS)]
    students = [result["student"] for result in cissl.execute_seeds(runs)]
    return tuple(100 * sum(student[key] for student in students) / SEEDS for key in ("error", "minor_error"))


if __name__ == "__main__":
    for name in ("mean-teacher", "new_method:Sharpened", "new_method:Sharpened+scl"):
        error, rarest = errors(name)
        print(f"{name:26}error {error:4.1f} %, rarest class {rarest:4.1f} %")
