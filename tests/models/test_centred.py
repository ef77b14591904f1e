"""What and where: the crop follows the thing, and only its turn is left in it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from worldplan.models.centred import SCALE, CentredDecoder, centred


def frame_with_block(x: int, y: int, height: int = 12, width: int = 6, size: int = 64) -> Tensor:
    """White ``[1, 3, size, size]`` with a dark block whose first pixel is (x, y)."""
    frame = torch.full((1, 3, size, size), 255.0)
    frame[..., y : y + height, x : x + width] = 100
    return frame


def deviation(frame: Tensor) -> Tensor:
    return (frame - 255) / SCALE


@pytest.mark.parametrize(("x", "y"), [(10, 20), (30, 30), (45, 40), (5, 5)])
def test_the_centre_is_the_centre_of_mass(x: int, y: int) -> None:
    _, centre = centred(deviation(frame_with_block(x, y)))
    middle = torch.tensor([x + 2.5, y + 5.5])  # of pixels whose centres are integers
    torch.testing.assert_close(centre[0], (middle + 0.5) * 2 / 64 - 1)


def test_the_crop_does_not_change_where_the_thing_moves() -> None:
    first, _ = centred(deviation(frame_with_block(14, 22)))
    second, _ = centred(deviation(frame_with_block(37, 31)))
    torch.testing.assert_close(first, second)


def test_the_crop_changes_when_the_thing_turns() -> None:
    upright, _ = centred(deviation(frame_with_block(20, 20, 12, 6)))
    lying, _ = centred(deviation(frame_with_block(20, 20, 6, 12)))
    assert (upright - lying).abs().max() > 1
    torch.testing.assert_close(upright.transpose(2, 3), lying)


def test_the_larger_of_two_things_is_found_and_rows_do_not_mix() -> None:
    two = frame_with_block(40, 40)
    two[..., 8:11, 8:11] = 0
    alone, together = centred(deviation(frame_with_block(40, 40))), centred(deviation(two))
    torch.testing.assert_close(alone[1], together[1])
    batch = centred(deviation(torch.cat((two, frame_with_block(10, 20)))))
    torch.testing.assert_close(batch[1][:1], together[1])
    torch.testing.assert_close(batch[0][:1], together[0])


def test_an_empty_frame_is_no_failure() -> None:
    crop, centre = centred(torch.zeros(2, 3, 64, 64))
    assert torch.isfinite(crop).all() and torch.isfinite(centre).all()


def test_the_losses_are_shares_of_the_variance_and_reach_the_latent() -> None:
    decoder = CentredDecoder(8, 64)
    frames = torch.cat([frame_with_block(x, 64 - 12 - x) for x in range(5, 45, 5)]).to(torch.uint8)
    latents = torch.randn(len(frames), 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with torch.no_grad():
        decoder.layers[-1].weight.zero_()
        crops, centres = centred(deviation(frames.float()))
        decoder.layers[-1].bias.copy_(torch.cat((crops.flatten(1).mean(0), centres.mean(0))))
    what, where = decoder.loss(latents, frames)
    # the mean explains nothing of the variance; `where` uses the unbiased one
    torch.testing.assert_close(where, torch.tensor((len(frames) - 1) / len(frames)))
    assert what < 1e-3 or abs(float(what) - 1) < 1e-3
    decoder.layers[-1].reset_parameters()
    sum(decoder.loss(latents, frames)).backward()
    assert latents.grad is not None and latents.grad.abs().sum() > 0
