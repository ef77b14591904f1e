"""The field decoder draws what moves, in the colours it was shown."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from worldplan.errors import DataError
from worldplan.models.field import FieldDecoder
from worldplan.seeding import Noise


def discs(centres: Tensor, size: int = 16) -> Tensor:
    """White frames ``uint8 [M, 3, size, size]`` with a dark disc at centres ``[M, 2]`` in [-1, 1]."""
    axis = (torch.arange(size) + 0.5) * 2 / size - 1
    across, down = (axis - centres[:, :1]).square(), (axis - centres[:, 1:]).square()
    distance = (across[:, None, :] + down[:, :, None]).sqrt()
    dark = (distance < 0.35)[:, None].expand(-1, 3, -1, -1)
    return torch.where(dark, 60, 255).to(torch.uint8)


def test_it_learns_to_draw_a_moving_disc() -> None:
    noise = Noise.of(0, 32)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        decoder = FieldDecoder(2, 16, frames=2, hidden=32, width=32, pixels=32)
    decoder.fit(discs(noise.uniform(2) * 1.4 - 0.7).permute(0, 2, 3, 1).numpy())
    optimizer = torch.optim.Adam(decoder.parameters(), 5e-3)
    shares = []
    for step in range(250):
        centres = noise.at("centres", step).uniform(2) * 1.4 - 0.7
        loss = decoder.loss(centres, discs(centres), noise.at("step", step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shares.append(loss.item())
    assert np.mean(shares[-20:]) < 0.4 * np.mean(shares[:5])
    left, right = decoder.decode(torch.tensor([[-0.5, 0.0], [0.5, 0.0]])).float()
    assert left[:, 8, 4].mean() < left[:, 8, 12].mean() and right[:, 8, 12].mean() < right[:, 8, 4].mean()


def test_draws_depend_on_the_noise_alone_and_frames_on_their_latent_alone() -> None:
    decoder = FieldDecoder(4, 16, pixels=8)
    frames = discs(torch.zeros(6, 2))
    decoder.fit(frames.permute(0, 2, 3, 1).numpy() // 2)
    latents = Noise.of(1, 6).normal(4)
    noise = Noise.of(0, 3)
    assert decoder.loss(latents, frames, noise) == decoder.loss(latents, frames, noise)
    assert decoder.loss(latents, frames, noise) != decoder.loss(latents, frames, noise.at("other"))
    together, alone = decoder.decode(latents), decoder.decode(latents[2:3])
    assert together.shape == (6, 3, 16, 16) and together.dtype == torch.uint8
    assert (together[2:3].int() - alone.int()).abs().max() <= 1


def test_nothing_is_drawn_before_the_mean_is_known() -> None:
    with pytest.raises(DataError, match="mean"):
        FieldDecoder(4, 16).decode(torch.zeros(1, 4))
