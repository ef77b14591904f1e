"""What and where: a self-supervised target that makes a latent hold the orientation of things.

Small pixel JEPAs learn where things are long before they learn how they are turned: position changes
most of the loss, orientation a few pixels. Here the densest patch of foreground is found, and its
centre (*where*) and the crop around it (*what*) are targets of a small decoder. In the crop position
is gone, so orientation is what is left to explain.

Foreground is what differs from the mean frame of the data. The centre is the window with the most
foreground, refined by two steps of mean shift; nothing here is learned and nothing needs a label.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SCALE = 64.0  # grey levels per unit of deviation
_THRESHOLD = 0.3


def centred(deviation: Tensor, size: int = 16, share: float = 0.375) -> tuple[Tensor, Tensor]:
    """Crops the densest foreground.

    Args:
        deviation: ``[M, 3, h, h]`` frame minus mean frame, in units of `SCALE`.
        size: height and width of the crop in samples.
        share: width of the crop as a share of the frame.

    Returns:
        Crops ``[M, 3, size, size]`` and centres ``[M, 2]`` (x, y), in [-1, 1] over the frame.
    """
    height = deviation.shape[-1]
    span = share * height
    foreground = (deviation.abs().amax(1) > _THRESHOLD).to(deviation.dtype)  # [M, h, h]
    window = int(height * 0.23) | 1
    density = F.avg_pool2d(foreground[:, None], window, 2, window // 2)[:, 0]  # [M, g, g]
    peak = density.flatten(1).argmax(1)
    y, x = (
        (peak // density.shape[-1] * 2).to(deviation.dtype),
        (peak % density.shape[-1] * 2).to(deviation.dtype),
    )
    grid = torch.arange(height, device=deviation.device, dtype=deviation.dtype)
    for _ in range(2):
        near_y = (grid - y[:, None]).abs() < span / 2
        near_x = (grid - x[:, None]).abs() < span / 2
        weight = foreground * near_y[:, :, None] * near_x[:, None, :]
        mass = weight.sum((1, 2)).clamp_min(1e-3)
        y, x = (weight.sum(2) @ grid) / mass, (weight.sum(1) @ grid) / mass
    offset = ((torch.arange(size, device=deviation.device, dtype=deviation.dtype) + 0.5) / size - 0.5) * span
    sample_x, sample_y = _unit(x[:, None] + offset, height), _unit(y[:, None] + offset, height)
    places = torch.stack(
        (sample_x[:, None, :].expand(-1, size, -1), sample_y[:, :, None].expand(-1, -1, size)), -1
    )
    crops = F.grid_sample(deviation, places, align_corners=False)
    return crops, torch.stack((_unit(x, height), _unit(y, height)), 1)


class CentredDecoder(nn.Module):
    """Decodes a latent into the crop and its centre.

    Args:
        latent_dim: D.
        size: height and width of the crop.
        hidden: width of the hidden layer.
    """

    mean_frame: Tensor

    def __init__(self, latent_dim: int, image_size: int, size: int = 16, hidden: int = 256) -> None:
        super().__init__()
        self.size = size
        self.layers = nn.Sequential(
            nn.Linear(latent_dim, hidden), nn.SiLU(), nn.Linear(hidden, 3 * size * size + 2)
        )
        self.register_buffer("mean_frame", torch.full((3, image_size, image_size), 255.0))

    def loss(self, latent: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Squared errors of crop (*what*) and centre (*where*), each relative to its variance.

        Args:
            latent: ``[M, D]``, with gradients.
            frames: ``uint8 [M, 3, h, h]``.
        """
        with torch.no_grad():
            crops, centres = centred((frames.to(latent.dtype) - self.mean_frame) / SCALE, self.size)
            crops = crops.flatten(1)
            crop_variance = (crops - crops.mean(0)).square().mean().clamp_min(1e-6)
            centre_variance = centres.var(0).mean().clamp_min(1e-6)
        decoded = self.layers(latent)
        what = (decoded[:, :-2] - crops).square().mean() / crop_variance
        where = (decoded[:, -2:] - centres).square().mean() / centre_variance
        return what, where


class CropFeatures(nn.Module):
    """Reads features off the crop and its centre.

    Args:
        image_size: height and width of the frames.
        features: F.
        size: height and width of the crop.
    """

    mean_frame: Tensor

    def __init__(self, image_size: int, features: int, size: int = 16) -> None:
        super().__init__()
        self.size = size
        self.layers = nn.Sequential(nn.Linear(3 * size * size + 2, features), nn.SiLU())
        self.register_buffer("mean_frame", torch.full((3, image_size, image_size), 255.0))

    def forward(self, frames: Tensor) -> Tensor:
        """Maps ``uint8 [M, 3, h, h]`` to ``[M, F]``."""
        crops, centres = centred((frames.to(self.mean_frame.dtype) - self.mean_frame) / SCALE, self.size)
        features: Tensor = self.layers(torch.cat((crops.flatten(1), centres), 1))
        return features


def _unit(pixels: Tensor, height: int) -> Tensor:
    """Pixel coordinates (centres of pixels are integers) to [-1, 1] over the frame."""
    return (pixels + 0.5) * 2 / height - 1
