"""Statistics that travel with the model: z-scores of actions and vectors.

``z = (x - mean) / std`` per dimension. Statistics are kept per *environment* dimension and folded
to model steps (k actions side by side) in one place, `Normalizer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from worldplan.errors import DataError
from worldplan.types import ActionSpec, Array


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation per dimension, with the number of rows behind them."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    count: int

    @classmethod
    def of(cls, rows: Array, name: str) -> Statistics:
        """Measures ``rows [n, d]``; rows with a NaN are left out, constant dimensions get std 1.

        Raises:
            DataError: no finite row is left.
        """
        rows = np.asarray(rows, np.float64)
        assert rows.ndim == 2, (name, rows.shape)
        finite = rows[np.isfinite(rows).all(1)]
        if not len(finite):
            raise DataError(f"no finite row to measure {name} on", expected="at least one", found="none")
        std = finite.std(0)
        std = np.where(std < 1e-6, 1.0, std)
        return cls(tuple(finite.mean(0).tolist()), tuple(std.tolist()), len(finite))


class Normalizer(nn.Module):
    """Maps environment units to z-scores and back; the last axis may hold several repeats.

    Args:
        dim: dimensions of one environment action or vector.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.full((dim,), torch.nan))

    def fit(self, statistics: Statistics) -> None:
        """Takes over measured statistics."""
        assert len(statistics.mean) == len(self.mean), (len(statistics.mean), len(self.mean))
        self.mean.copy_(torch.tensor(statistics.mean))
        self.std.copy_(torch.tensor(statistics.std))

    def normalize(self, value: Tensor) -> Tensor:
        """``[..., n*dim]`` environment units to z-scores."""
        mean, std = self._folded(value)
        return (value - mean) / std

    def unnormalize(self, value: Tensor) -> Tensor:
        """``[..., n*dim]`` z-scores to environment units."""
        mean, std = self._folded(value)
        return value * std + mean

    def bounds(self, action: ActionSpec, repeats: int) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds ``[repeats*dim]`` in z-scores."""
        low = self.mean.new_tensor(action.low).repeat(repeats)
        high = self.mean.new_tensor(action.high).repeat(repeats)
        return self.normalize(low), self.normalize(high)

    def _folded(self, value: Tensor) -> tuple[Tensor, Tensor]:
        if torch.isnan(self.std).any():
            raise DataError(
                "values cannot be normalised before statistics are known",
                expected="statistics measured on the training data, or a trained checkpoint",
                found="an untrained normaliser",
                fix="model.fit_statistics(dataset) before training, or from_pretrained",
            )
        repeats, rest = divmod(value.shape[-1], len(self.mean))
        assert rest == 0, (value.shape, len(self.mean))
        return self.mean.repeat(repeats), self.std.repeat(repeats)


def measure(columns: Mapping[str, Array], keys: tuple[str, ...]) -> dict[str, Statistics]:
    """Statistics of several columns ``[n, d]``."""
    return {key: Statistics.of(columns[key], key) for key in keys}
