"""What `train` reports about latents while and after a model learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from worldplan.cli import resolve
from worldplan.types import Array


class Probe:
    """What the latents of held-out frames know: how well states can be read, and whether near is near.

    ``r2/<name>`` is that of a linear probe. ``order`` is Spearman's correlation of latent distance with
    the task's distance of states, over frames as far apart in time as starts and goals are: planning
    minimises the first and is judged by the second.
    """

    def __init__(self, dataset: Any, train: Any, test: Any, task: Any, frames: int = 3000) -> None:
        parts = [
            rows[:: max(1, len(rows) * 2 // frames)] for rows in (dataset.rows(train), dataset.rows(test))
        ]
        rows = np.concatenate(parts)
        self.pixels = _frames(dataset, rows)
        self.states = torch.from_numpy(np.asarray(dataset.array("state", rows), np.float32))
        self.train = torch.arange(len(rows)) < len(parts[0])
        self.names = list(task.state_names)
        self.angles = [task.state_names[i] for i in resolve.angles(task)]
        apart = task.goal_offset
        firsts = np.concatenate([dataset.rows([i])[: max(0, int(dataset.lengths[i]) - apart)] for i in test])
        firsts = firsts[:: max(1, len(firsts) * 4 // frames)]
        self.pairs = [_frames(dataset, firsts), _frames(dataset, firsts + apart)]
        self.apart = _distance(task, dataset.array("state", firsts), dataset.array("state", firsts + apart))

    def __call__(self, module: Any) -> dict[str, float | None]:
        """R2 per state entry, and the order of distances; None where it cannot be said."""
        from worldplan.evaluation.agreement import spearman
        from worldplan.training.probe import probe

        was = module.training
        module.eval()
        latents = _embedded(module, self.pixels)
        first, second = (_embedded(module, each) for each in self.pairs)
        module.train(was)
        found = probe(latents, self.states, self.names, self.angles, train=self.train, test=~self.train)
        apart = (first - second).flatten(1).norm(dim=1).numpy()
        order = spearman(real=self.apart, simulated=apart) if len(apart) > 2 else None
        return {**{f"r2/{name}": value for name, value in found.items()}, "order": order}


def _frames(dataset: Any, rows: Array) -> Tensor:
    pixels = np.asarray(dataset.array("pixels", rows))
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2)


def _embedded(module: Any, pixels: Tensor) -> Tensor:
    if not len(pixels):
        return torch.zeros(0, 1)
    with torch.no_grad():
        return torch.cat([module.embed({"pixels": part}) for part in pixels.split(250)])


def _distance(task: Any, first: Array, second: Array) -> Array:
    """The task's distance between states ``[n, s]``, in its own units."""
    weights, turns = resolve.state_cost(task)
    apart = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    for index in turns:
        apart[:, index] = (apart[:, index] + np.pi) % (2 * np.pi) - np.pi
    distance: Array = np.sqrt((np.square(apart) * np.asarray(weights)).sum(1))
    return distance
