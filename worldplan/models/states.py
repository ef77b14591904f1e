"""Simulator states as networks read and write them: z-scores, and angles as points on a circle."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from worldplan.errors import ConfigError
from worldplan.normalize import Normalizer, Statistics


class StateFeatures(nn.Module):
    """Maps states ``[..., s]`` to features ``[..., s + number of angles]`` and back.

    Entries that are angles (radians) become ``(cos, sin)``, the others z-scores; cosines and sines come
    last. An angle is read back off any point but the origin.

    Args:
        dim: s.
        angles: indices of the angles.

    Raises:
        ConfigError: an angle lies outside the state, or twice in it.
    """

    def __init__(self, dim: int, angles: tuple[int, ...] = ()) -> None:
        super().__init__()
        if len(set(angles)) < len(angles) or any(not 0 <= index < dim for index in angles):
            raise ConfigError(
                "these entries of the state cannot be its angles",
                expected=f"different indices in 0..{dim - 1}",
                found=str(tuple(angles)),
            )
        self.dim, self.angles = dim, list(angles)
        self.plain = [index for index in range(dim) if index not in self.angles]
        self.size = dim + len(self.angles)
        stored = [*self.plain, *self.angles]
        self._order = [stored.index(index) for index in range(dim)]
        self.normalizer = Normalizer(len(self.plain)) if self.plain else None

    def fit(self, statistics: Statistics) -> None:
        """Takes over the statistics of all s entries; those of angles are not used."""
        assert len(statistics.mean) == self.dim, (len(statistics.mean), self.dim)
        if self.normalizer is None:
            return
        mean, std = ([values[i] for i in self.plain] for values in (statistics.mean, statistics.std))
        self.normalizer.fit(Statistics(tuple(mean), tuple(std), statistics.count))

    def encode(self, states: Tensor) -> Tensor:
        """States to features."""
        assert states.shape[-1] == self.dim, (states.shape, self.dim)
        plain, angles = states[..., self.plain], states[..., self.angles]
        plain = plain if self.normalizer is None else self.normalizer.normalize(plain)
        return torch.cat((plain, angles.cos(), angles.sin()), -1)

    def decode(self, features: Tensor) -> Tensor:
        """Features to states, angles in ``[0, 2 pi)``."""
        assert features.shape[-1] == self.size, (features.shape, self.size)
        plain = features[..., : len(self.plain)]
        cosine, sine = features[..., len(self.plain) :].chunk(2, -1)
        angles = torch.atan2(sine, cosine).remainder(2 * math.pi)
        # a tiny negative angle is rounded up to a whole turn
        angles = torch.where(angles < 2 * math.pi, angles, 0.0)
        plain = plain if self.normalizer is None else self.normalizer.unnormalize(plain)
        return torch.cat((plain, angles), -1)[..., self._order]
