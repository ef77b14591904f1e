"""SIGReg: keeps latents from collapsing by testing that they are standard normal.

A law in D dimensions is standard normal if and only if all its one-dimensional projections are. Each
of M random directions is tested by the Epps-Pulley statistic, a weighted distance between the empirical
characteristic function of the B projected samples x_b and that of N(0, 1)::

    B * integral w(t) |1/B sum_b exp(i t x_b) - phi(t)|^2 dt,    w(t) = phi(t) = exp(-t^2 / 2)

For standard normal samples its expectation is ``sqrt(2 pi) (1 - 1/sqrt 3)``, about 1.06, whatever B.
For any other law it grows with B, so a weight is tied to the batch size it was chosen for.

Source: Balestriero and LeCun, "LeJEPA", arXiv 2511.08544; as used by LeWorldModel, arXiv 2603.19312.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from worldplan.models.ranks import over_ranks
from worldplan.seeding import Noise

FLOOR = math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3))  # expectation under the target law


@dataclass(frozen=True)
class SIGReg:
    """The regulariser; a function of its input and of its draws.

    Attributes:
        directions: M, fresh unit vectors in every call.
        knots: points of the trapezoid rule on ``[0, limit]``; the integrand is even.
        limit: where the integral is cut off.
    """

    directions: int = 1024
    knots: int = 17
    limit: float = 3.0

    def __call__(self, latents: Tensor, noise: Noise, mask: Tensor | None = None) -> Tensor:
        """The mean statistic over time steps and directions, a scalar in float32.

        The test runs over the batch, for each time step on its own. Where `torch.distributed` is
        initialised it runs over the rows of all ranks, which see the same directions as long as
        their `noise` has the same seed and names.

        Args:
            latents: ``[B, T, D]``.
            noise: directions are drawn from its seed and names; its rows do not matter.
            mask: ``[B, T]`` bool, False for rows that are left out; None keeps all.
        """
        assert latents.ndim == 3, latents.shape
        with torch.autocast(latents.device.type, enabled=False):
            # differences between nearly equal means: half precision would drown them
            latents = latents.float()
            mask = latents.new_ones(latents.shape[:2], dtype=torch.bool) if mask is None else mask
            assert mask.shape == latents.shape[:2], (mask.shape, latents.shape)
            latents = torch.where(mask[..., None], latents, 0.0)
            projected = latents @ directions(latents, noise.at("sigreg"), self.directions)  # [B, T, M]
            statistic: Tensor = self._statistic(projected, mask)
        return statistic

    def _statistic(self, projected: Tensor, mask: Tensor) -> Tensor:
        knots = torch.linspace(0, self.limit, self.knots, device=projected.device)
        normal = torch.exp(-knots.square() / 2)
        weights = torch.full_like(knots, 2 * self.limit / (self.knots - 1))  # twice: the other half line
        weights[[0, -1]] /= 2
        angles = projected[..., None] * knots  # [B, T, M, knots]
        kept = mask[:, :, None, None]
        sums = torch.stack((angles.cos() * kept, angles.sin() * kept)).sum(1)  # [2, T, M, knots]
        count = over_ranks(mask.sum(0).to(sums.dtype))  # [T]
        real, imaginary = over_ranks(sums) / count.clamp(min=1)[:, None, None]
        error = (real - normal).square() + imaginary.square()
        statistic = count * (error @ (weights * normal)).mean(1)  # [T]
        mean: Tensor = statistic.sum() / (count > 0).sum().clamp(min=1)
        return mean


def directions(latents: Tensor, noise: Noise, count: int) -> Tensor:
    """Random unit columns ``[D, count]`` for latents ``[..., D]``; the rows of `noise` do not matter."""
    shared = replace(noise, rows=noise.rows.new_zeros(1), candidates=None)
    drawn = shared.normal(latents.shape[-1], count, device=latents.device)[0]
    unit: Tensor = drawn / drawn.norm(dim=0)
    return unit
