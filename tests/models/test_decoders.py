"""Decoders: losses against NumPy, and what is drawn or read is what they were trained on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from worldplan.errors import ConfigError, DataError
from worldplan.models.decoders import PixelDecoder, StateHead, mean_frame
from worldplan.normalize import Statistics
from worldplan.seeding import Noise


def drawn(rows: int, size: int = 8, name: str = "frames") -> Tensor:
    return Noise.of(7, rows).at(name).integers(256, 3, size, size).to(torch.uint8)


def stored(frames: Tensor) -> np.ndarray:
    """Frames as data files hold them, channels last."""
    return frames.movedim(1, -1).numpy()


def latents_of(*shape: int) -> Tensor:
    return Noise.of(7, shape[0]).at("latents").normal(*shape[1:])


def made(foreground_weight: float = 0.0, size: int = 8) -> PixelDecoder:
    decoder = PixelDecoder(5, size, (4,) * round(math.log2(size / 4)), 6, foreground_weight)
    decoder.fit(stored(drawn(9, size, "measured")))
    return decoder


def silenced(decoder: PixelDecoder) -> PixelDecoder:
    """Draws the mean frame, whatever the latent."""
    for parameter in decoder.net.parameters():
        nn.init.zeros_(parameter)
    return decoder


def test_the_mean_of_frames_is_that_of_their_grey_levels() -> None:
    frames = drawn(9)
    expected = frames.double().mean(0).float()
    assert torch.equal(mean_frame(stored(frames)), expected)
    # bytes would wrap, single precision would stop counting
    many = np.full((300, 2, 2, 3), 255, np.uint8)
    assert torch.equal(mean_frame(many), torch.full((3, 2, 2), 255.0))


@pytest.mark.parametrize("weight", [0.0, 10.0])
def test_the_loss_of_the_mean_frame_is_one(weight: float) -> None:
    decoder = silenced(made(weight))
    assert decoder.loss(latents_of(4, 5), drawn(4)).item() == pytest.approx(1)


@pytest.mark.parametrize("weight", [0.0, 10.0])
def test_the_loss_equals_its_definition(weight: float) -> None:
    decoder = made(weight)
    latents, mean = latents_of(4, 5), decoder.mean.numpy()
    # near the mean in some pixels, far in others, in a single channel of some
    frames = decoder.mean.expand(4, -1, -1, -1) + 8 * (latents_of(4, 3, 8, 8).clamp(-2.5, 2.5))
    frames = frames.round().clamp(0, 255).to(torch.uint8)
    x = frames.numpy().astype(np.float64)
    y = mean + 64 * decoder(latents).detach().numpy()
    foreground = (np.abs(x - mean) > 10).any(1, keepdims=True)
    assert 0.2 < foreground.mean() < 0.9 and (foreground != (np.abs(x - mean) > 10)).any()
    w = 1 + weight * foreground
    expected = (w * (y - x) ** 2).sum() / (w * (x - mean) ** 2).sum()
    assert decoder.loss(latents, frames).item() == pytest.approx(expected, rel=1e-5)


def test_larger_frames_are_averaged_down() -> None:
    decoder, large, latents = made(), drawn(4, 16), latents_of(4, 5)
    small = large.double().view(4, 3, 8, 2, 8, 2).mean((3, 5)).float()
    with torch.no_grad():
        share = (64 * decoder(latents) - (small - decoder.mean)).square().sum()
        share = share / (small - decoder.mean).square().sum()
        torch.testing.assert_close(decoder.loss(latents, large), share)
    decoder.fit(stored(large))
    torch.testing.assert_close(decoder.mean, small.mean(0))


def test_a_silent_decoder_draws_the_mean_and_a_loud_one_stays_within_bytes() -> None:
    decoder = silenced(made())
    found = decoder.decode(latents_of(2, 5))
    assert found.dtype == torch.uint8
    assert torch.equal(found, decoder.mean.round().to(torch.uint8).expand(2, -1, -1, -1))
    last = list(decoder.net.children())[-1]
    assert isinstance(last, nn.ConvTranspose2d) and last.bias is not None
    with torch.no_grad():
        last.bias.copy_(torch.tensor([5.0, -5.0, 0.5]))
    found = decoder.decode(latents_of(2, 5))
    assert (found[:, 0] == 255).all() and (found[:, 1] == 0).all()
    assert torch.equal(found[0, 2], (decoder.mean[2] + 32).round().clamp(max=255).to(torch.uint8))


@pytest.mark.parametrize("size", [8, 16, 32])
def test_each_width_doubles_the_size_and_rows_do_not_mix(size: int) -> None:
    decoder, latents = made(size=size), latents_of(4, 5)
    whole = decoder(latents)
    assert whole.shape == (4, 3, size, size)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(decoder(latents[order]), whole[order])
    assert (whole[0] - whole[1]).abs().max() > 1e-4


@pytest.mark.parametrize("size", [8, 24])
def test_widths_that_do_not_lead_to_the_size_are_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f"of them for size {size}"):
        PixelDecoder(5, size, (4, 4))
    with pytest.raises(ConfigError, match="does not arrive"):
        PixelDecoder(5, 4, ())


def test_nothing_is_drawn_before_the_mean_is_known_and_it_travels_with_the_weights() -> None:
    decoder, source = PixelDecoder(5, 8, (4,), 6), made()
    with pytest.raises(DataError, match="before their mean is known"):
        decoder.decode(latents_of(2, 5))
    with pytest.raises(DataError, match="before their mean is known"):
        decoder.loss(latents_of(2, 5), drawn(2))
    decoder.load_state_dict(source.state_dict())
    assert torch.equal(decoder.decode(latents_of(2, 5)), source.decode(latents_of(2, 5)))


def head_for(angles: tuple[int, ...] = (1,)) -> StateHead:
    head = StateHead(5, 3, angles, 16)
    head.fit(Statistics((10.0, 0.0, -3.0), (2.0, 1.0, 0.5), 9))
    return head


def test_the_loss_of_a_state_head_is_the_mean_over_frames_that_count() -> None:
    head, latents = head_for(), latents_of(4, 3, 5)
    states = Noise.of(7, 4).at("states").normal(3, 3)
    mask = torch.tensor([[True, True, False], [True, False, False], [True, True, True], [False] * 3])
    loss = head.loss(latents, states, mask)
    with torch.no_grad():
        out = head(latents).numpy()
    s = states.numpy()
    target = np.stack(((s[..., 0] - 10) / 2, (s[..., 2] + 3) / 0.5, np.cos(s[..., 1]), np.sin(s[..., 1])), -1)
    expected = ((out - target) ** 2).mean(-1)[mask.numpy()].mean()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    spoiled = states.masked_fill(~mask[..., None], 1e6)
    moved = latents.masked_fill(~mask[..., None], 50.0)
    assert torch.equal(head.loss(moved, spoiled, mask), loss)


def test_no_frame_that_counts_is_no_failure() -> None:
    loss = head_for().loss(latents_of(2, 2, 5), torch.zeros(2, 2, 3), torch.zeros(2, 2, dtype=torch.bool))
    assert loss.item() == 0


def test_an_angle_is_read_as_the_one_it_was_trained_on_modulo_a_whole_turn() -> None:
    head, latents = head_for(), 2 * torch.eye(4, 5)[:, None]
    # on both sides of the seam, and turns away from [0, 2 pi)
    states = torch.tensor(
        [[[12.0, 0.1, -3.0]], [[8.0, -0.1, -2.0]], [[10.0, 9.0, -4.0]], [[9.0, -7.5, -3.5]]]
    )
    mask = torch.ones(4, 1, dtype=torch.bool)
    optimizer = torch.optim.Adam(head.parameters(), 1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        head.loss(latents, states, mask).backward()
        optimizer.step()
    found = head.decode(latents).detach()
    expected = states.clone()
    expected[..., 1] %= 2 * math.pi
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0)


def test_reading_a_state_keeps_the_graph() -> None:
    latents = latents_of(3, 5).requires_grad_()
    head_for().decode(latents).sum().backward()
    assert latents.grad is not None and (latents.grad != 0).any(1).all()
