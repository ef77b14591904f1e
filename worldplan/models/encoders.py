"""Encoders: images ``uint8 [M, 3, h, w]`` to features ``[M, F]``; each prepares its own input.

`frames_of` is where images enter every model, so a wrong layout, size or type ends here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from worldplan.errors import ConfigError, UsageError
from worldplan.models.vit import ViT
from worldplan.types import Obs

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, in [0, 1]


class ViTEncoder(nn.Module):
    """A `ViT` on images normalised with ImageNet's statistics.

    Args:
        image_size: height and width.
        patch: height and width of a patch.
        width: of a token, and F.
        depth: layers.
        heads: attention heads.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, image_size: int = 224, patch: int = 14, width: int = 192, depth: int = 12, heads: int = 3
    ) -> None:
        super().__init__()
        self.features = width
        self.vit = ViT(image_size, patch, width, depth, heads)
        self.register_buffer("mean", 255 * torch.tensor(_MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(_STD).view(3, 1, 1), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        """Maps ``uint8 [M, 3, h, w]`` to ``[M, F]``."""
        read: Tensor = self.vit((frames.to(self.mean.dtype) - self.mean) / self.std)
        return read


class ConvEncoder(nn.Module):
    """A small convolutional encoder for a CPU: space to depth by 4, convolutions, one linear layer.

    A 64 x 64 frame becomes 16 x 16 cells of 48 numbers; the first convolution mixes each cell, the
    second halves the resolution, further ones keep it, and a 1 x 1 one narrows it before all cells are
    read at once. White is 0: where a scene is drawn on white, most of the input is.

    Keypoints add where things are, as a linear layer likes it: each is the mean position over all cells,
    weighted by the softmax of one more channel (Finn et al., arXiv 1509.06113).

    Args:
        image_size: height and width, a multiple of 8.
        widths: channels of the convolutions; the first is 1 x 1, the others 3 x 3.
        narrow: channels per cell that the linear layer reads.
        keypoints: number of keypoints that it reads besides.
        features: F.
        coordinates: adds the position of each cell, in [-1, 1], as two channels.
        batch_norm: puts a BatchNorm after every convolution.

    Raises:
        ConfigError: the image size is no multiple of 8, or there are fewer than 2 widths.
    """

    grid: Tensor
    cells: Tensor

    def __init__(
        self,
        image_size: int = 64,
        widths: tuple[int, ...] = (64, 96, 96),
        narrow: int = 32,
        keypoints: int = 0,
        features: int = 256,
        coordinates: bool = True,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        if image_size % 8 or len(widths) < 2:
            raise ConfigError(
                "the convolutional encoder cannot be built",
                expected="an image size that is a multiple of 8, and at least 2 widths",
                found=f"image size {image_size}, widths {tuple(widths)}",
            )
        self.features = features
        grid = _positions(image_size // 4)[: 2 * coordinates]
        self.register_buffer("grid", grid, persistent=False)
        self.register_buffer("cells", _positions(image_size // 8).flatten(1).T, persistent=False)
        channels = [48 + len(grid), *widths]
        layers: list[nn.Module] = []
        for index, (inward, out) in enumerate(zip(channels, widths, strict=False)):
            kernel, stride = (1 if index == 0 else 3), (2 if index == 1 else 1)
            layers += _convolution(inward, out, kernel, stride, batch_norm)
        self.body = nn.Sequential(*layers)
        self.narrow = nn.Sequential(*_convolution(widths[-1], narrow, 1, 1, batch_norm))
        self.keypoints = nn.Conv2d(widths[-1], keypoints, 1) if keypoints else None
        self.sharpness = nn.Parameter(torch.full((keypoints, 1), 3.0)) if keypoints else None
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.read = nn.Linear(narrow * (image_size // 8) ** 2 + 2 * keypoints, features)

    def forward(self, frames: Tensor) -> Tensor:
        """Maps ``uint8 [M, 3, h, w]`` to ``[M, F]``; fastest if they lie channels-last in memory."""
        count, channels, height, width = frames.shape
        cells = frames.permute(0, 2, 3, 1).reshape(count, height // 4, 4, width // 4, 4 * channels)
        cells = cells.transpose(2, 3).flatten(3).permute(0, 3, 1, 2)  # [M, 48, h/4, w/4], channels last
        x = (255 - cells.to(self.grid.dtype)) / 128
        if len(self.grid):
            x = torch.cat((x, self.grid.expand(count, -1, -1, -1)), 1)
        x = self.body(x.contiguous(memory_format=torch.channels_last))
        read = self.narrow(x).permute(0, 2, 3, 1).flatten(1)  # cells first, as they lie in memory
        if self.keypoints is not None:
            heat = (self.keypoints(x).flatten(2) * self.sharpness).softmax(-1)  # [M, keypoints, cells]
            read = torch.cat((read, 2 * (heat.to(self.cells.dtype) @ self.cells).flatten(1)), 1)
        features: Tensor = self.read(read)
        return features


def _positions(size: int) -> Tensor:
    """Coordinates (x, y) of a square grid over [-1, 1], ``[2, size, size]``."""
    axis = torch.linspace(-1, 1, size)
    return torch.stack((axis.expand(size, size), axis[:, None].expand(size, size)))


def _convolution(inward: int, out: int, kernel: int, stride: int, batch_norm: bool) -> list[nn.Module]:
    convolution = nn.Conv2d(inward, out, kernel, stride, kernel // 2)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    nn.init.zeros_(torch.as_tensor(convolution.bias))
    return [convolution, *([nn.BatchNorm2d(out)] if batch_norm else []), nn.ReLU(inplace=True)]


def frames_of(obs: Obs, key: str, shape: tuple[int, ...], time: bool = False) -> Tensor:
    """The images of an observation, after a look at them.

    Args:
        obs: with ``uint8 [B, *shape]`` under `key`.
        key: of the images.
        shape: ``(3, h, w)``.
        time: True if there is a time axis, ``[B, T, *shape]``.

    Raises:
        UsageError: there are none, or they have another type, layout or size.
    """
    if key not in obs:
        raise UsageError(
            f"the model looks at {key!r}, which the observation lacks",
            expected=f"uint8 {_wanted(shape, time)}",
            found=", ".join(sorted(obs)) or "an empty observation",
            fix="build the environment, or read the data, with that key",
        )
    frames = obs[key]
    if frames.dtype == torch.uint8 and frames.ndim == 4 + time and frames.shape[-3:] == shape:
        return frames
    found = tuple(frames.shape[-3:])
    fix = "resize the frames to the model's image size where they are made or read"
    if frames.ndim != 4 + time:
        fix = "one frame per row and step, " + _wanted(shape, time)
    elif found == (*shape[1:], shape[0]):
        fix = "put the channels first: frames.movedim(-1, -3)"
    elif found == shape:
        fix = "keep frames as bytes 0..255; the model normalises them"
    raise UsageError(
        f"the model cannot look at {key!r}",
        expected=f"uint8 {_wanted(shape, time)}",
        found=f"{str(frames.dtype).removeprefix('torch.')} {list(frames.shape)}",
        fix=fix,
    )


def _wanted(shape: tuple[int, ...], time: bool) -> str:
    return f"[B, {'T, ' if time else ''}{', '.join(map(str, shape))}]"
