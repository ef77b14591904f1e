"""VICReg's terms: every entry of a latent varies, and no two vary together.

::

    mean_d relu(1 - std_d)  +  covariance_weight * sum_{d != e} cov_de^2 / D

over the rows of a time step, averaged over time steps. Unlike SIGReg it shapes two moments only.

Source: Bardes, Ponce and LeCun, "VICReg", arXiv 2105.04906.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from worldplan.models.ranks import over_ranks
from worldplan.seeding import Noise


@dataclass(frozen=True)
class VICReg:
    """The regulariser; a function of its input.

    Attributes:
        covariance_weight: of the second term relative to the first.
        target: standard deviation below which the first term acts.
    """

    covariance_weight: float = 0.04
    target: float = 1.0

    def __call__(self, latents: Tensor, noise: Noise, mask: Tensor | None = None) -> Tensor:
        """The two terms, a scalar in float32. Draws nothing.

        Rows are those of all processes where there are several.

        Args:
            latents: ``[B, T, D]``.
            noise: not read.
            mask: ``[B, T]`` bool, False for rows that are left out; None keeps all. Time steps with less
                than two rows are left out.
        """
        assert latents.ndim == 3, latents.shape
        with torch.autocast(latents.device.type, enabled=False):
            latents = latents.float()
            mask = latents.new_ones(latents.shape[:2], dtype=torch.bool) if mask is None else mask
            weight = mask.to(latents.dtype)
            count = over_ranks(weight.sum(0))  # [T]
            mean = over_ranks((latents * weight[..., None]).sum(0)) / count.clamp(min=1)[:, None]
            centred = (latents - mean) * weight[..., None]
            moments = over_ranks(torch.einsum("btd,bte->tde", centred, centred))
            covariance = moments / (count - 1).clamp(min=1)[:, None, None]
            variance = covariance.diagonal(dim1=1, dim2=2)
            varies = (self.target - (variance + 1e-4).sqrt()).relu().mean(1)
            together = (covariance.square().sum((1, 2)) - variance.square().sum(1)) / latents.shape[-1]
            enough = count > 1
            value = torch.where(enough, varies + self.covariance_weight * together, 0.0)
            total: Tensor = value.sum() / enough.sum().clamp(min=1)
        return total
