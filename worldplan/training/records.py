"""What a training says about itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class StepRecord:
    """What happened since the record before.

    Attributes:
        step: steps taken so far.
        progress: share of the training that is over, in [0, 1], by steps or by time.
        loss: mean loss of the steps in between.
        metrics: means of the model's metrics; ``grad_norm`` before clipping; ``validation`` where it
            was measured.
        lr: learning rate of the last step.
        seconds: mean seconds per step, data included.
        data_seconds: the part of them spent waiting for a batch.
        samples_per_second: windows per second.
        elapsed: seconds of training in total, with those before a resume.
    """

    step: int
    progress: float
    loss: float
    metrics: Mapping[str, float]
    lr: float
    seconds: float
    data_seconds: float
    samples_per_second: float
    elapsed: float


@dataclass(frozen=True)
class StepFacts:
    """One step; the metrics stay on their device until a record needs them."""

    loss: float
    metrics: Mapping[str, Tensor]
    grad_norm: float
    lr: float
    samples: int
    seconds: float
    data_seconds: float


def summarize(
    recent: Sequence[StepFacts], step: int, progress: float, elapsed: float, validation: float | None
) -> StepRecord:
    """Folds the steps since the last record into one."""
    count, spent = len(recent), sum(facts.seconds for facts in recent)
    metrics = {}
    for key in dict.fromkeys(key for facts in recent for key in facts.metrics):
        values = [float(facts.metrics[key]) for facts in recent if key in facts.metrics]
        metrics[key] = sum(values) / len(values)
    metrics["grad_norm"] = sum(facts.grad_norm for facts in recent) / count
    if validation is not None:
        metrics["validation"] = validation
    return StepRecord(
        step=step,
        progress=progress,
        loss=sum(facts.loss for facts in recent) / count,
        metrics=metrics,
        lr=recent[-1].lr,
        seconds=spent / count,
        data_seconds=sum(facts.data_seconds for facts in recent) / count,
        samples_per_second=sum(facts.samples for facts in recent) / spent if spent else math.inf,
        elapsed=elapsed,
    )
