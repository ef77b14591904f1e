"""The vision transformer against PyTorch's own encoder layers with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from worldplan.errors import ConfigError
from worldplan.models.vit import Layer, ViT
from worldplan.seeding import Noise


def normal(*shape: int, name: str = "x") -> Tensor:
    return Noise.of(7, shape[0]).at(name).normal(*shape[1:])


def stirred(module: nn.Module) -> nn.Module:
    """Fresh weights are small and biases zero, which would hide a term that is left out or misplaced."""
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            draws = Noise.of(11, 1).at(index).normal(parameter.numel()).view_as(parameter)
            parameter.add_(0.3 * draws)
    return module


def reference(layer: Layer, width: int, heads: int) -> nn.TransformerEncoderLayer:
    """PyTorch's pre-norm encoder layer with the weights of `layer`."""
    other = nn.TransformerEncoderLayer(
        width, heads, 4 * width, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True, norm_first=True
    )
    first, last = layer.mlp[0], layer.mlp[2]
    weights = {
        "self_attn.in_proj_weight": layer.qkv.weight, "self_attn.in_proj_bias": layer.qkv.bias,
        "self_attn.out_proj.weight": layer.out.weight, "self_attn.out_proj.bias": layer.out.bias,
        "linear1.weight": first.weight, "linear1.bias": first.bias,
        "linear2.weight": last.weight, "linear2.bias": last.bias,
        "norm1.weight": layer.norm_1.weight, "norm1.bias": layer.norm_1.bias,
        "norm2.weight": layer.norm_2.weight, "norm2.bias": layer.norm_2.bias,
    }  # fmt: skip
    other.load_state_dict(weights)  # strict: no weight of the reference keeps its own value
    return other


def test_a_layer_equals_that_of_pytorch() -> None:
    layer = Layer(12, 3)
    stirred(layer)
    x = normal(2, 5, 12)
    torch.testing.assert_close(layer(x), reference(layer, 12, 3)(x))


def test_the_whole_equals_unfolded_patches_through_pytorchs_layers() -> None:
    vit = ViT(8, 4, 12, 2, 3)
    stirred(vit)
    images = normal(2, 3, 8, 8)
    patches = functional.unfold(images, 4, stride=4).transpose(1, 2)  # [B, 4, 3 * 16], row by row
    tokens = functional.linear(patches, vit.patches.weight.flatten(1), vit.patches.bias)
    x = torch.cat((vit.token.expand(2, 1, 12), tokens), 1) + vit.positions
    for layer in vit.layers:
        assert isinstance(layer, Layer)
        x = reference(layer, 12, 3)(x)
    expected = functional.layer_norm(x[:, 0], (12,), vit.norm.weight, vit.norm.bias, 1e-12)
    torch.testing.assert_close(vit(images), expected)


def test_where_a_patch_stands_is_known_from_its_position_only() -> None:
    vit = ViT(8, 4, 12, 2, 3)
    stirred(vit)
    images = normal(2, 3, 8, 8)
    swapped = torch.cat((images[..., 4:], images[..., :4]), -1)
    assert (vit(images) - vit(swapped)).abs().max() > 1e-3
    with torch.no_grad():
        vit.positions.zero_()
    torch.testing.assert_close(vit(images), vit(swapped))


def test_rows_do_not_mix() -> None:
    vit = ViT(8, 4, 12, 1, 3)
    stirred(vit)
    images = normal(4, 3, 8, 8)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(vit(images[order]), vit(images)[order])
    torch.testing.assert_close(vit(images[1:2]), vit(images)[1:2])


def test_tiny_has_the_published_size() -> None:
    with torch.device("meta"):
        vit = ViT(224, 14, 192, 12, 3)
    # 16 x 16 patches and the class token; 192 wide, its MLP 768 wide
    patches, tokens, norm = 3 * 14 * 14 * 192 + 192, 192 + 257 * 192, 2 * 192
    layer = 2 * norm + 4 * (192 * 192 + 192) + (192 * 768 + 768) + (768 * 192 + 192)
    assert vit.positions.shape == (1, 257, 192)
    assert sum(p.numel() for p in vit.parameters()) == patches + tokens + 12 * layer + norm == 5_501_376


def test_weights_begin_small_and_biases_at_zero() -> None:
    vit = ViT(32, 4, 96, 1, 3)
    matrices = [m for m in vit.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    assert len(matrices) == 5
    for module in matrices:
        assert module.bias is not None and not module.bias.any()
        # a thousand or more draws each: 5 % is more than twice the error of a measured deviation
        assert module.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert vit.positions.std().item() == pytest.approx(0.02, rel=0.05)
    assert vit.token.std().item() == pytest.approx(0.02, rel=0.3)


@pytest.mark.parametrize(("size", "patch", "width", "heads"), [(30, 14, 12, 3), (28, 14, 13, 3)])
def test_what_cannot_be_cut_is_refused(size: int, patch: int, width: int, heads: int) -> None:
    with pytest.raises(ConfigError, match=rf"image size {size}, patch {patch}, width {width}, heads {heads}"):
        ViT(size, patch, width, 1, heads)
