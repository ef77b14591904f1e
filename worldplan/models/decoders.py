"""Heads that read a latent: to a frame, and to the simulator's state.

They are trained beside a world model, usually on latents cut from its graph, so that they show what is in
a latent without putting anything there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from worldplan.errors import ConfigError, DataError
from worldplan.models.states import StateFeatures
from worldplan.normalize import Statistics
from worldplan.types import Array

_SCALE = 64.0  # grey levels per unit of the network's output
_EPSILON = 10.0  # grey levels a pixel must differ from the mean frame to count as foreground


class PixelDecoder(nn.Module):
    """Draws a frame: a linear map to 4 x 4 cells, then transposed convolutions that double the size.

    It predicts the deviation from the mean frame. Its loss is the share of the frames' squared
    deviation that it leaves unexplained, 1 for the mean frame itself::

        sum w (y - x)^2 / sum w (x - mean)^2,    w = 1 + foreground_weight * [|x - mean| > 10]

    where a pixel counts as foreground if any of its channels does; small moving things would otherwise
    weigh nothing.

    Args:
        latent_dim: D.
        size: height and width drawn, 4 times a power of two.
        widths: channels before each doubling.
        hidden: width of the layer after the latent.
        foreground_weight: see above.

    Raises:
        ConfigError: the widths do not lead from 4 to `size`.
    """

    mean: Tensor

    def __init__(
        self,
        latent_dim: int,
        size: int = 64,
        widths: tuple[int, ...] = (64, 64, 48, 24),
        hidden: int = 256,
        foreground_weight: float = 0.0,
    ) -> None:
        super().__init__()
        if 4 * 2 ** len(widths) != size or not widths:
            raise ConfigError(
                "the pixel decoder does not arrive at its size",
                expected=f"log2(size / 4) widths, {math.log2(max(size, 1) / 4):g} of them for size {size}",
                found=str(tuple(widths)),
            )
        self.size, self.foreground_weight = size, foreground_weight
        self.cells = nn.Sequential(
            nn.Linear(latent_dim, hidden), nn.SiLU(), nn.Linear(hidden, widths[0] * 16)
        )
        layers: list[nn.Module] = []
        for inward, out in zip(widths, (*widths[1:], 3), strict=True):
            layers += [nn.ReLU(inplace=True), nn.ConvTranspose2d(inward, out, 4, 2, 1)]
        self.net = nn.Sequential(*layers)
        self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.register_buffer("mean", torch.full((3, size, size), torch.nan))

    def fit(self, frames: Array) -> None:
        """Measures the mean of frames ``uint8 [n, h, w, 3]``, as data files hold them."""
        self.mean.copy_(self._resized(mean_frame(frames)[None])[0])

    def forward(self, latents: Tensor) -> Tensor:
        """Maps latents ``[M, D]`` to deviations ``[M, 3, size, size]`` in units of 64 grey levels."""
        cells = self.cells(latents).unflatten(1, (-1, 4, 4))
        drawn: Tensor = self.net(cells.contiguous(memory_format=torch.channels_last))
        return drawn

    def loss(self, latents: Tensor, frames: Tensor) -> Tensor:
        """The unexplained share, a scalar.

        Args:
            latents: ``[M, D]``.
            frames: ``uint8 [M, 3, h, w]``, averaged down where they are larger than `size`.
        """
        target = (self._resized(frames.float()) - self._known_mean()) / _SCALE
        weight = torch.ones_like(target)
        if self.foreground_weight:
            foreground = target.abs().amax(1, keepdim=True) > _EPSILON / _SCALE
            weight = 1 + self.foreground_weight * foreground.to(target.dtype)
        error = (weight * (self(latents).float() - target).square()).sum()
        share: Tensor = error / (weight * target.square()).sum().clamp(min=1e-6)
        return share

    def decode(self, latents: Tensor) -> Tensor:
        """Draws latents ``[M, D]`` as ``uint8 [M, 3, size, size]``."""
        drawn = self(latents).float() * _SCALE + self._known_mean()
        frames: Tensor = drawn.round().clamp(0, 255).to(torch.uint8)
        return frames

    def _resized(self, frames: Tensor) -> Tensor:
        if frames.shape[-1] == self.size:
            return frames
        return functional.interpolate(frames, (self.size, self.size), mode="area")

    def _known_mean(self) -> Tensor:
        if self.mean.isnan().any():
            raise DataError(
                "frames cannot be drawn before their mean is known",
                expected="a mean measured on the training data, or a trained checkpoint",
                found="an untrained decoder",
                fix='fit_statistics with a sample of frames under "pixels"',
            )
        return self.mean


class StateHead(nn.Module):
    """Reads the simulator's state off a feature vector: an MLP to `StateFeatures`.

    Args:
        latent_dim: D.
        dim: s, entries of the state.
        angles: which of them are angles in radians.
        hidden: width of the two hidden layers.
    """

    def __init__(self, latent_dim: int, dim: int, angles: tuple[int, ...] = (), hidden: int = 256) -> None:
        super().__init__()
        self.features = StateFeatures(dim, angles)
        self.net = nn.Sequential(
            nn.Linear(latent_dim, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, self.features.size),
        )

    def fit(self, statistics: Statistics) -> None:
        """Takes over the statistics of the state."""
        self.features.fit(statistics)

    def forward(self, latents: Tensor) -> Tensor:
        """Maps ``[..., D]`` to features ``[..., s + number of angles]``."""
        features: Tensor = self.net(latents)
        return features

    def loss(self, latents: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """Mean squared error of the features, a scalar.

        Args:
            latents: ``[B, F, D]``.
            states: ``[B, F, s]``.
            mask: ``[B, F]`` bool, False for frames that do not count.
        """
        error = (self(latents).float() - self.features.encode(states)).square().mean(-1)
        return torch.where(mask, error, 0.0).sum() / mask.sum().clamp(min=1)

    def decode(self, latents: Tensor) -> Tensor:
        """Reads ``[..., D]`` as states ``[..., s]``, angles in ``[0, 2 pi)``; keeps the graph."""
        return self.features.decode(self(latents).float())


def mean_frame(frames: Array) -> Tensor:
    """The mean ``[3, h, w]`` of frames ``uint8 [n, h, w, 3]``, in grey levels."""
    assert frames.ndim == 4 and frames.shape[-1] == 3 and len(frames), frames.shape
    return torch.from_numpy(frames.mean(0, dtype="float64")).float().movedim(-1, 0)
