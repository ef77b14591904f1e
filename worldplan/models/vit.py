"""The vision transformer (Dosovitskiy et al., arXiv 2010.11929): patches and a class token, pre-norm.

LeWorldModel takes ViT-Tiny with patches of 14 at 224 x 224 (192 wide, 12 layers, 3 heads), from random
weights, and reads a frame off the class token after the last LayerNorm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from worldplan.errors import ConfigError

_EPS = 1e-12  # of the LayerNorms, as in the implementation LeWorldModel uses
_STD = 0.02


class Layer(nn.Module):
    """Self-attention and an MLP four times as wide, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width, eps=_EPS), nn.LayerNorm(width, eps=_EPS)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``[B, n, width]`` to itself."""
        qkv = self.qkv(self.norm_1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*qkv.unbind(0))  # [B, heads, n, head_dim]
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        changed: Tensor = x + self.mlp(self.norm_2(x))
        return changed


class ViT(nn.Module):
    """Images to the feature of their class token.

    Args:
        image_size: height and width of the images.
        patch: height and width of a patch.
        width: of a token.
        depth: layers.
        heads: attention heads.

    Raises:
        ConfigError: the patches do not tile the image, or the heads do not share the width.
    """

    def __init__(self, image_size: int, patch: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        if image_size % patch or width % heads:
            raise ConfigError(
                "the vision transformer cannot be cut like this",
                expected="an image size divisible by patch, a width divisible by heads",
                found=f"image size {image_size}, patch {patch}, width {width}, heads {heads}",
            )
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, (image_size // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=_EPS)
        self.apply(_initialise)
        nn.init.trunc_normal_(self.token, std=_STD)
        nn.init.trunc_normal_(self.positions, std=_STD)

    def forward(self, images: Tensor) -> Tensor:
        """Maps normalised images ``[B, 3, h, w]`` to ``[B, width]``."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(patches), -1, -1), patches), 1) + self.positions
        read: Tensor = self.norm(self.layers(x)[:, 0])
        return read


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.trunc_normal_(module.weight, std=_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
