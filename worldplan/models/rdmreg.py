"""RDMReg: makes codes distributed as a rectified generalised Gaussian, so that many entries are exactly zero.

The target is ``y = ReLU(mu + sigma * g)``, entries independent, where g has a density proportional to
``exp(-|g|^p / p)`` and sigma makes ``sigma * g`` of unit variance: p = 1 is the Laplace distribution, p = 2
the normal one. Codes and fresh target samples are projected on random directions and compared by the
squared 2-Wasserstein distance, which in one dimension is that of the sorted samples::

    mean over time, directions and samples of (sort(Z u) - sort(Y u))^2

Unlike SIGReg's, the value does not grow with the batch, so weights are larger.

Source: Kuang et al., "Rectified LpJEPA", arXiv 2602.01456; as used by LpWM, arXiv 2608.22764.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from worldplan.models.ranks import ranks, rows_of_ranks
from worldplan.models.sigreg import directions
from worldplan.seeding import Noise


def scale(p: float) -> float:
    """Sigma: what makes the unrectified variable of unit variance."""
    return float(math.sqrt(math.gamma(1 / p) / math.gamma(3 / p)) / p ** (1 / p))


def second_moment(p: float, mu: float) -> float:
    """``E[y^2]`` of the target, in closed form."""
    from scipy.special import gammainc, gammaincc

    sigma = scale(p)
    t = abs(mu) ** p / (p * sigma**p)
    side = math.copysign(1.0, mu) if mu else 0.0
    zeroth = 1 + side * gammainc(1 / p, t)
    first = gammaincc(2 / p, t) * math.gamma(2 / p) / math.gamma(1 / p)
    second = (1 + side * gammainc(3 / p, t)) * math.gamma(3 / p) / math.gamma(1 / p)
    root = p ** (1 / p) * sigma
    return float(0.5 * (mu**2 * zeroth + 2 * mu * root * first + root**2 * second))


@dataclass(frozen=True)
class RDMReg:
    """The regulariser; a function of its input and of its draws.

    Attributes:
        p: shape of the generalised Gaussian; 1 is sparse, 2 normal.
        mu: its location before it is rectified; below 0 more entries are zero than half.
        rectified: whether the target is rectified; False is the dense control.
        directions: M, fresh unit vectors in every call.
        unit_power: whether the target is divided by the root of its second moment, so that mu sets how
            sparse codes are and not how large.
    """

    p: float = 1.0
    mu: float = 0.0
    rectified: bool = True
    directions: int = 1024
    unit_power: bool = False

    def __call__(self, latents: Tensor, noise: Noise, mask: Tensor | None = None) -> Tensor:
        """The mean squared distance over time steps, directions and samples, a scalar in float32.

        Samples are the rows of a time step, those of all processes where there are several, which must see
        batches of one size. The gradient reaches the latents.

        Args:
            latents: ``[B, T, D]``.
            noise: targets are drawn per row and time step, directions from its seed and names. Processes
                need rows of their own.
            mask: ``[B, T]`` bool, False for rows that are left out; None keeps all.
        """
        assert latents.ndim == 3, latents.shape
        with torch.autocast(latents.device.type, enabled=False):
            latents = latents.float()
            mask = latents.new_ones(latents.shape[:2], dtype=torch.bool) if mask is None else mask
            assert mask.shape == latents.shape[:2], (mask.shape, latents.shape)
            target = self.target(noise.at("rdmreg", "target"), *latents.shape[1:]).to(latents.device)
            unit = directions(latents, noise.at("rdmreg"), self.directions)
            found, wanted = rows_of_ranks(latents @ unit), rows_of_ranks(target @ unit)  # [B, T, M]
            kept = rows_of_ranks(mask.to(latents.dtype)) > 0 if ranks() > 1 else mask
            losses = []
            for time in range(latents.shape[1]):
                rows = kept[:, time]
                if rows.any():
                    one, two = found[rows, time].sort(0).values, wanted[rows, time].sort(0).values
                    losses.append((one - two).square().mean())
        return torch.stack(losses).mean() if losses else latents.sum() * 0.0

    def target(self, noise: Noise, *shape: int) -> Tensor:
        """Samples of the target, ``[B, *shape]``."""
        if self.p == 2:
            drawn = noise.normal(*shape)
        else:
            words = noise.at("size").uniform(*shape, dtype=torch.float64)
            size = -words.log() if self.p == 1 else self._gamma(words)
            sign = torch.where(noise.at("sign").uniform(*shape) < 0.5, -1.0, 1.0)
            drawn = (sign * (self.p * size) ** (1 / self.p)).float()
        drawn = self.mu + scale(self.p) * drawn
        if self.rectified:
            drawn = drawn.relu()
        if self.unit_power:
            power = second_moment(self.p, self.mu) if self.rectified else 1 + self.mu**2
            drawn = drawn / math.sqrt(power)
        return drawn

    def _gamma(self, uniform: Tensor) -> Tensor:
        """Gamma(1/p, 1) by inversion."""
        from scipy.special import gammaincinv

        return torch.from_numpy(np.asarray(gammaincinv(1 / self.p, uniform.cpu().numpy())))


def temporal_jaccard(latents: Tensor, noise: Noise, mask: Tensor) -> Tensor:
    """How much the active entries of non-negative codes change from one frame to the next.

    ``mean (1 - sum_d min(z_t, z_{t+1}) / (sum_d max(z_t, z_{t+1}) + 1e-8))`` over pairs that exist.

    Args:
        latents: ``[B, T, D]``.
        noise: not read.
        mask: ``[B, T]`` bool, which of them exist.
    """
    before, after = latents[:, :-1].float(), latents[:, 1:].float()
    pairs = mask[:, :-1] & mask[:, 1:]
    common = torch.minimum(before, after).sum(-1) / (torch.maximum(before, after).sum(-1) + 1e-8)
    return torch.where(pairs, 1 - common, 0.0).sum() / pairs.sum().clamp(min=1)
