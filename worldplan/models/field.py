"""A decoder that draws in the frames of things: an implicit image over learned coordinates.

Drawing something that moves and turns is hard for transposed convolutions and easy in coordinates that
move and turn with it. From the latent z come K affine maps of the plane and a vector f; every pixel,
seen in all K coordinate frames, goes through one small network::

    q_k = A_k(z) p + b_k(z),    y(p) = net(q_1, ..., q_K, p, f(z))

Training looks at a sample of pixels per frame, foreground first, so a step costs little.

Related: spatial broadcast decoders (Watters et al., arXiv 1901.07017), which give every pixel its
coordinates but no frames that follow the latent.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from worldplan.errors import DataError
from worldplan.models.decoders import mean_frame
from worldplan.seeding import Noise
from worldplan.types import Array

_SCALE = 64.0  # grey levels per unit of the network's output
_EPSILON = 1e-3  # share of the strongest deviation, to the fourth power, that counts as foreground
_BACKGROUND, _BORDER = 0.01, 0.1  # how often pixels far from, and close to, foreground are looked at
_ROWS = 32  # frames drawn at once


class FieldDecoder(nn.Module):
    """Draws frames as a field over learned coordinate frames; same surface as `PixelDecoder`.

    The loss is the share of the squared deviation from the mean frame left unexplained, over pixels
    drawn mostly from the foreground.

    Args:
        latent_dim: D.
        size: height and width drawn.
        frames: K, coordinate frames.
        hidden: width of the layers after the latent.
        width: of the network that every pixel goes through.
        pixels: looked at per frame and step.
    """

    mean: Tensor
    grid: Tensor

    def __init__(
        self,
        latent_dim: int,
        size: int = 64,
        frames: int = 6,
        hidden: int = 256,
        width: int = 64,
        pixels: int = 256,
    ) -> None:
        super().__init__()
        self.size, self.frames, self.pixels = size, frames, pixels
        self.conditions = nn.Sequential(
            nn.Linear(latent_dim, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, 6 * frames + width),
        )
        self.inward = nn.Linear(2 * frames + 2, width)
        self.net = nn.Sequential(
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 3),
        )
        axis = (torch.arange(size) + 0.5) * 2 / size - 1
        rows, columns = torch.meshgrid(axis, axis, indexing="ij")
        self.register_buffer("grid", torch.stack((columns, rows), -1).flatten(0, 1), persistent=False)
        self.register_buffer("mean", torch.full((3, size, size), torch.nan))

    def fit(self, frames: Array) -> None:
        """Measures the mean of frames ``uint8 [n, h, w, 3]``."""
        self.mean.copy_(self._resized(mean_frame(frames)[None])[0])

    def forward(self, latents: Tensor, places: Tensor) -> Tensor:
        """Deviations ``[M, Q, 3]``, in units of 64 grey levels, at places ``[M, Q, 2]`` in [-1, 1]."""
        turn, shift, feature = self.conditions(latents).split(
            [4 * self.frames, 2 * self.frames, self.inward.out_features], 1
        )
        turn = 2 * turn.unflatten(1, (2 * self.frames, 2))
        seen = torch.baddbmm(2 * shift[:, None], places, turn.transpose(1, 2))  # [M, Q, 2K]
        drawn: Tensor = self.net(self.inward(torch.cat((seen, places), 2)) + feature[:, None])
        return drawn

    def loss(self, latents: Tensor, frames: Tensor, noise: Noise) -> Tensor:
        """The unexplained share, a scalar; which pixels are looked at is random.

        Args:
            latents: ``[M, D]``, M a multiple of the rows of `noise`.
            frames: ``uint8 [M, 3, h, w]``.
            noise: rows B.
        """
        target = (self._resized(frames.float()) - self._known_mean()) / _SCALE
        # the fourth power lets small vivid things compete with large pale ones
        strength = target.abs().amax(1).pow(4)
        strength = strength / strength.amax((1, 2), keepdim=True).clamp(min=_EPSILON)
        border = functional.max_pool2d((strength > _EPSILON).to(target.dtype)[:, None], 5, 1, 2)[:, 0]
        odds = (strength + _BORDER * border + _BACKGROUND).flatten(1).cumsum(1)
        repeats = len(latents) // noise.batch_size
        draws = noise.uniform(repeats, self.pixels, device=odds.device).flatten(0, 1)
        index = torch.searchsorted(odds, draws * odds[:, -1:]).clamp(max=odds.shape[1] - 1)
        wanted = target.flatten(2).transpose(1, 2).gather(1, index[..., None].expand(-1, -1, 3))
        error = (self(latents, self.grid[index]).float() - wanted).square().mean()
        share: Tensor = error / wanted.square().mean().clamp(min=1e-6)
        return share

    def decode(self, latents: Tensor) -> Tensor:
        """Draws latents ``[M, D]`` as ``uint8 [M, 3, size, size]``."""
        parts = [self(part, self.grid.expand(len(part), -1, -1)) for part in latents.split(_ROWS)]
        drawn = torch.cat(parts).float().transpose(1, 2).unflatten(2, (self.size, self.size))
        frames: Tensor = (drawn * _SCALE + self._known_mean()).round().clamp(0, 255).to(torch.uint8)
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
