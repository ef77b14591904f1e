"""Recorded actions, run again: what is reachable without deciding anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from worldplan.errors import DataError
from worldplan.seeding import Noise
from worldplan.types import Array, Carry, Obs, Start


@dataclass(frozen=True)
class ReplayPolicy:
    """Runs ``Start.actions`` of the start whose seed is the row's id, then zeros.

    Attributes:
        starts: with ``actions [T, a]`` each, in environment units, and seeds that tell them apart.
        chunk: K, actions per call.
        name: for records.
    """

    starts: Sequence[Start]
    chunk: int = 1
    name: str = "replay"

    def __post_init__(self) -> None:
        """Refuses starts without a recording, with NaN in it, or with a seed that is not unique."""
        seeds: dict[int, str] = {}
        sizes = {np.asarray(start.actions).shape[-1] for start in self.starts if start.actions is not None}
        for start in self.starts:
            if start.actions is None or np.ndim(start.actions) != 2 or len(sizes) != 1:
                found = "no actions" if start.actions is None else f"shape {np.shape(start.actions)}"
                raise _unusable(start, "actions [T, a], with the same a in all starts", found)
            if not np.isfinite(start.actions).all():
                raise _unusable(start, "finite actions", "NaN or infinity")
            if start.seed in seeds:
                raise _unusable(start, "a seed of its own", f"seed {start.seed}, as {seeds[start.seed]!r}")
            seeds[start.seed] = start.id

    def initial(self, batch_size: int) -> Carry:
        """The beginning of every recording."""
        return {"step": torch.zeros(batch_size, dtype=torch.int64)}

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """The next K recorded actions, ``[B, K, a]``; draws nothing.

        Raises:
            DataError: a row's id is the seed of no start.
        """
        actions, order, seeds = self._recordings
        rows = noise.rows.cpu()
        place = torch.searchsorted(seeds, rows).clamp(max=len(seeds) - 1)
        if not torch.equal(seeds[place], rows):
            unknown = rows[seeds[place] != rows].tolist()
            raise DataError(
                "there is no recording for some episodes",
                expected=f"row ids among the seeds of {len(seeds)} starts",
                found=f"{unknown[:5]}",
                fix="replay the starts that are evaluated",
            )
        step = carry["step"].cpu()
        index = (step[:, None] + torch.arange(self.chunk)).clamp(max=actions.shape[1] - 1)
        chosen = actions[order[place][:, None], index]
        return chosen.to(noise.rows.device), {"step": carry["step"] + self.chunk}

    @cached_property
    def _recordings(self) -> tuple[Tensor, Tensor, Tensor]:
        """Actions ``[M, Tmax + 1, a]`` padded with zeros, and rows by ascending seed."""
        recorded: list[Array] = [np.asarray(start.actions, np.float32) for start in self.starts]
        longest = max((len(one) for one in recorded), default=0)
        width = recorded[0].shape[1] if recorded else 0
        padded = np.zeros((len(recorded), longest + 1, width), np.float32)
        for row, one in enumerate(recorded):
            padded[row, : len(one)] = one
        seeds, order = torch.tensor([start.seed for start in self.starts], dtype=torch.int64).sort()
        return torch.from_numpy(padded), order, seeds


def _unusable(start: Start, expected: str, found: str) -> DataError:
    return DataError(f"start {start.id!r} cannot be replayed", expected=expected, found=found)
