"""What changes over a run: the consistency's ramp and the learning rate. Steps count from 1; all scale with the run."""

import math
from typing import Literal

LearningRateSchedule = Literal["cosine", "step", "constant"]


def ramp(step: int, over: float) -> float:
    """w(t) / w_max = exp(−5 (1 − min(t/T, 1))²); T = 0 means 1 from the start."""
    progress = min(step / over, 1.0) if over > 0 else 1.0
    return math.exp(-5 * (1 - progress) ** 2)


def learning_rate(schedule: LearningRateSchedule, step: int, steps: int) -> float:
    """The factor on the initial learning rate.

    "cosine" is ½ (1 + cos(π (t − 1) / 1.2 T)): the images' 600k for 500k steps. "step" is 0.2 once 0.8 T steps are
    done: the toy's 4,000 of 5,000.
    """
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (step - 1) / (1.2 * steps)))
    if schedule == "step":
        return 0.2 if step - 1 >= 0.8 * steps else 1.0
    return 1.0
