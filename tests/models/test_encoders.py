"""Encoders: what they see of a frame, where keypoints stand, and which images are refused."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from worldplan.errors import ConfigError, UsageError
from worldplan.models.encoders import ConvEncoder, ViTEncoder, frames_of
from worldplan.seeding import Noise


def drawn(rows: int, size: int = 16, name: str = "frames") -> Tensor:
    return Noise.of(7, rows).at(name).integers(256, 3, size, size).to(torch.uint8)


def small(**changes: object) -> ConvEncoder:
    settings = {"image_size": 16, "widths": (6, 5), "narrow": 3, "features": 4, **changes}
    return ConvEncoder(**settings)  # type: ignore[arg-type]


def pinned(size: int = 32) -> tuple[ConvEncoder, Tensor]:
    """An encoder whose only keypoint looks at nothing but how dark a cell's first channel is."""
    encoder = ConvEncoder(size, (1, 1), 1, 1, 2, coordinates=False)
    first, second = encoder.body[0], encoder.body[2]
    assert isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d)
    assert encoder.keypoints is not None and encoder.sharpness is not None
    with torch.no_grad():
        first.weight.fill_(1 / 48)
        second.weight.zero_()
        second.weight[0, 0, 1, 1] = 1  # with stride 2: the even cells
        encoder.keypoints.weight.fill_(1)
        encoder.keypoints.bias.zero_()  # type: ignore[union-attr]
        encoder.sharpness.fill_(1000)
        encoder.read.weight.zero_()
        encoder.read.weight[:, -2:] = torch.eye(2)
        encoder.read.bias.zero_()
    return encoder, torch.linspace(-1, 1, size // 8)


def test_the_vision_transformer_sees_images_normalised_as_those_of_imagenet() -> None:
    encoder = ViTEncoder(8, 4, 6, 1, 2)
    frames = drawn(3, 8)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    torch.testing.assert_close(encoder(frames), encoder.vit((frames / 255 - mean) / std))
    assert encoder.features == encoder(frames).shape[1] == 6


@pytest.mark.parametrize(("row", "column"), list(itertools.product(range(4), repeat=2)))
def test_a_keypoint_of_one_dark_cell_stands_there(row: int, column: int) -> None:
    encoder, axis = pinned()
    frame = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    frame[..., 8 * row : 8 * row + 4, 8 * column : 8 * column + 4] = 0
    # x before y; positions go to the linear layer doubled
    torch.testing.assert_close(encoder(frame)[0], 2 * torch.stack((axis[column], axis[row])))


def test_a_keypoint_of_an_even_frame_stands_in_the_middle_and_of_two_cells_between_them() -> None:
    encoder, axis = pinned()
    frame = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    torch.testing.assert_close(encoder(frame)[0], torch.zeros(2))
    for row, column in ((0, 1), (3, 2)):
        frame[..., 8 * row : 8 * row + 4, 8 * column : 8 * column + 4] = 0
    between = torch.stack((axis[1] + axis[2], axis[0] + axis[3]))
    torch.testing.assert_close(encoder(frame)[0], between)


def test_keypoints_are_an_addition() -> None:
    without, encoder = small(), small(keypoints=2)
    weights = encoder.state_dict()
    own = {key: value for key, value in without.state_dict().items() if key != "read.weight"}
    weights.update(own)
    weights["read.weight"] = torch.cat((without.read.weight, torch.zeros(4, 4)), 1)
    encoder.load_state_dict(weights)
    torch.testing.assert_close(encoder(drawn(3)), without(drawn(3)))


def test_cells_hold_all_pixels_of_their_4_by_4() -> None:
    """The first convolution equals one of 4 x 4 with a stride of 4 over the frame."""
    encoder = small(coordinates=False)
    frames = drawn(2)
    first = encoder.body[0]
    assert isinstance(first, nn.Conv2d)
    seen: list[Tensor] = []
    handle = first.register_forward_hook(lambda module, inputs, output: seen.append(output.clone()))
    encoder(frames)
    handle.remove()
    # inside a cell: rows, then columns, then colours
    weight = first.weight[:, :, 0, 0].unflatten(1, (4, 4, 3)).permute(0, 3, 1, 2)
    white = (255 - frames.float()) / 128
    torch.testing.assert_close(seen[0], nn.functional.conv2d(white, weight, first.bias, 4))


def test_a_white_frame_is_zero_and_coordinates_tell_cells_apart() -> None:
    white = torch.full((1, 3, 16, 16), 255, dtype=torch.uint8)
    blind, encoder = small(coordinates=False), small()
    assert torch.equal(blind.body(torch.zeros(1, 48, 4, 4)), torch.zeros(1, 5, 2, 2))  # no biases yet
    torch.testing.assert_close(blind(white)[0], torch.as_tensor(blind.read.bias))
    inputs: list[Tensor] = []
    encoder.body[0].register_forward_hook(lambda module, given, output: inputs.append(given[0]))
    encoder(white)
    axis = torch.linspace(-1, 1, 4)
    x, y = inputs[0][0, 48:]
    assert torch.equal(x, axis.expand(4, 4)) and torch.equal(y, axis[:, None].expand(4, 4))


@pytest.mark.parametrize("batch_norm", [False, True])
def test_rows_do_not_mix_in_evaluation_mode(batch_norm: bool) -> None:
    encoder = small(batch_norm=batch_norm, keypoints=2).eval()
    frames, order = drawn(4), torch.tensor([2, 0, 3, 1])
    whole = encoder(frames)
    assert (whole[0] - whole[1]).abs().max() > 1e-3
    torch.testing.assert_close(encoder(frames[order]), whole[order])
    torch.testing.assert_close(encoder(frames[1:2]), whole[1:2])
    if batch_norm:
        encoder.train()
        assert (encoder(frames[:2]) - whole[:2]).abs().max() > 1e-3


def test_how_frames_lie_in_memory_changes_nothing() -> None:
    encoder, frames = small(), drawn(3)
    torch.testing.assert_close(encoder(frames.to(memory_format=torch.channels_last)), encoder(frames))


def test_buffers_that_settings_determine_are_not_saved() -> None:
    assert not {"grid", "cells"} & set(small(keypoints=2).state_dict())
    assert not {"mean", "std"} & set(ViTEncoder(8, 4, 6, 1, 2).state_dict())


@pytest.mark.parametrize(("size", "widths"), [(20, (6, 5)), (16, (6,))])
def test_what_cannot_be_built_is_refused(size: int, widths: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"image size {size}"):
        ConvEncoder(size, widths)


def test_fitting_frames_are_returned_as_they_are() -> None:
    frames = drawn(6)
    assert frames_of({"pixels": frames}, "pixels", (3, 16, 16)) is frames
    windows = frames.view(2, 3, 3, 16, 16)
    assert frames_of({"view": windows}, "view", (3, 16, 16), time=True) is windows


@pytest.mark.parametrize(
    ("frames", "fix"),
    [
        (torch.zeros(2, 16, 16, 3, dtype=torch.uint8), "channels first"),
        (torch.zeros(2, 3, 16, 16), "bytes 0..255"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), "resize"),
        (torch.zeros(3, 16, 16, dtype=torch.uint8), "one frame per row"),
        (torch.zeros(2, 1, 3, 16, 16, dtype=torch.uint8), "one frame per row"),
    ],
)
def test_other_frames_are_refused_with_what_to_do(frames: Tensor, fix: str) -> None:
    with pytest.raises(UsageError, match=fix) as caught:
        frames_of({"pixels": frames}, "pixels", (3, 16, 16))
    assert "uint8 [B, 3, 16, 16]" in str(caught.value) and str(list(frames.shape)) in str(caught.value)


def test_a_missing_time_axis_and_a_missing_key_are_refused() -> None:
    with pytest.raises(UsageError, match=r"uint8 \[B, T, 3, 16, 16\]"):
        frames_of({"pixels": drawn(2)}, "pixels", (3, 16, 16), time=True)
    with pytest.raises(UsageError, match="'top', which the observation lacks") as caught:
        frames_of({"pixels": drawn(2)}, "top", (3, 16, 16))
    assert "found:    pixels" in str(caught.value)
    with pytest.raises(UsageError, match="an empty observation"):
        frames_of({}, "top", (3, 16, 16))
