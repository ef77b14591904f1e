"""What `train` reports about latents while and after a model learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from worldplan.cli import resolve
from worldplan.planners.objectives import squared_distance
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
        self.pixels = dataset.array("pixels", rows)
        self.states = torch.from_numpy(np.asarray(dataset.array("state", rows), np.float32))
        self.train = torch.arange(len(rows)) < len(parts[0])
        self.names = list(task.state_names)
        self.angles = [task.state_names[i] for i in resolve.angles(task)]
        apart = task.goal_offset
        firsts = np.concatenate([dataset.rows([i])[: max(0, int(dataset.lengths[i]) - apart)] for i in test])
        firsts = firsts[:: max(1, len(firsts) * 4 // frames)]
        both = (firsts, firsts + apart)
        self.pairs = [dataset.array("pixels", each) for each in both]
        first, second = (
            torch.from_numpy(np.asarray(dataset.array("state", each), np.float64)) for each in both
        )
        # squared, as the order is the same
        self.apart = squared_distance(first, second, *resolve.state_cost(task)).numpy()

    def __call__(self, module: Any) -> dict[str, float | None]:
        """R2 per state entry, and the order of distances; None where it cannot be said."""
        from worldplan.training.probe import probe

        was = module.training
        module.eval()
        latents, order = torch.from_numpy(embedded(module, self.pixels)), self._order(module)
        module.train(was)
        found = probe(latents, self.states, self.names, self.angles, train=self.train, test=~self.train)
        return {**{f"r2/{name}": value for name, value in found.items()}, "order": order}

    def _order(self, module: Any) -> float | None:
        from worldplan.evaluation.agreement import spearman

        if len(self.apart) < 3:
            return None
        first, second = (embedded(module, each) for each in self.pairs)
        apart = np.square(first - second).reshape(len(first), -1).sum(1)
        return spearman(real=self.apart, simulated=apart)


def reading_errors(module: Any, dataset: Any, test: Any, task: Any, frames: int = 1000) -> dict[str, float]:
    """How far off a reader is on held-out frames, in the units of the state, angles the short way.

    Returns:
        ``error/<name>/p50`` and ``error/<name>/p90``, the median and the 90th percentile.
    """
    rows = dataset.rows(test)
    rows = rows[:: max(1, len(rows) // frames)]
    states = np.asarray(dataset.array("state", rows), np.float64)
    blocks = [dataset.array("pixels", rows[first : first + 256]) for first in range(0, len(rows), 256)]
    was = module.training
    module.eval()
    with torch.inference_mode():
        read = [module.read({"pixels": torch.from_numpy(block).movedim(-1, 1)}) for block in blocks]
    module.train(was)
    error = np.abs(torch.cat(read).double().numpy() - states)
    turns = list(resolve.angles(task))
    error[:, turns] = np.abs((error[:, turns] + np.pi) % (2 * np.pi) - np.pi)
    at = np.percentile(error, (50, 90), axis=0)
    return {
        f"error/{name}/p{percent}": float(at[place, index])
        for index, name in enumerate(task.state_names)
        for place, percent in enumerate((50, 90))
    }


def embedded(module: Any, frames: Array) -> Array:
    """Latents ``[n, D]`` of frames ``[n, h, w, 3]``."""
    from worldplan.models import refine

    return refine.embedded(module, lambda rows: {"pixels": frames[rows]}, len(frames))
