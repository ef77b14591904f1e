"""The causal transformer of LeWorldModel: tokens are frames, actions modulate every layer.

A block computes, with ``shift, scale, gate`` (twice) read off the action at the same time index by a
linear layer that starts at zero (AdaLN-zero)::

    x = x + gate_1 * attention((1 + scale_1) * LN(x) + shift_1)
    x = x + gate_2 * mlp((1 + scale_2) * LN(x) + shift_2)

so an untrained block is the identity. Attention and MLP each begin with one more, affine, LayerNorm,
and the inner width of attention, heads * head_dim, does not depend on the model's width; both as in the
published code.

Source: Maes et al., "LeWorldModel", arXiv 2603.19312; Peebles and Xie, "DiT", arXiv 2212.09748.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

KeysValues = tuple[Tensor, Tensor]
Cache = list[KeysValues]


class Attention(nn.Module):
    """Causal multi-head self-attention behind a LayerNorm; queries, keys and values have no bias."""

    def __init__(self, width: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.head_dim, self.dropout = heads, head_dim, dropout
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * heads * head_dim, bias=False)
        self.out = nn.Sequential(nn.Linear(heads * head_dim, width), nn.Dropout(dropout))

    def forward(
        self, x: Tensor, past: KeysValues | None = None, last: bool = False
    ) -> tuple[Tensor, KeysValues]:
        """Attends from the tokens ``[B, n, width]``, or the last of them, to all and to the past ones.

        Returns:
            ``[B, n or 1, width]``, and the keys and values of past and present tokens.
        """
        x = self.norm(x)
        inner = self.heads * self.head_dim
        asking = x[:, -1:] if last else x
        query = self._split(functional.linear(asking, self.qkv.weight[:inner]))
        key, value = map(self._split, functional.linear(x, self.qkv.weight[inner:]).chunk(2, -1))
        if past is not None:
            assert query.shape[2] == 1, f"with a past, one token at a time, not {query.shape[2]}"
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        dropout = self.dropout if self.training else 0.0
        # the last token may look at every other, so one query needs no mask
        causal = query.shape[2] > 1
        mixed = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=causal
        )
        result: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result, (key, value)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, self.head_dim).transpose(1, 2)  # [B, heads, n, head_dim]


class Block(nn.Module):
    """One AdaLN-zero block."""

    def __init__(self, width: int, heads: int, head_dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention = Attention(width, heads, head_dim, dropout)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, width),
            nn.Dropout(dropout),
        )
        modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(modulation.weight)
        nn.init.zeros_(modulation.bias)
        self.modulation = nn.Sequential(nn.SiLU(), modulation)

    def forward(
        self, x: Tensor, condition: Tensor, past: KeysValues | None = None, last: bool = False
    ) -> tuple[Tensor, KeysValues]:
        """Maps tokens and their conditions ``[B, n, width]`` to ``[B, n or 1, width]``."""
        shift_1, scale_1, gate_1, *rest = self.modulation(condition).chunk(6, -1)
        mixed, seen = self.attention(torch.addcmul(shift_1, 1 + scale_1, self.norm(x)), past, last)
        if last:
            x, gate_1, rest = x[:, -1:], gate_1[:, -1:], [one[:, -1:] for one in rest]
        shift_2, scale_2, gate_2 = rest
        x = torch.addcmul(x, gate_1, mixed)
        changed = self.mlp(torch.addcmul(shift_2, 1 + scale_2, self.norm(x)))
        return torch.addcmul(x, gate_2, changed), seen


class CausalTransformer(nn.Module):
    """Blocks over at most `context` tokens with learned positions, drawn from N(0, 1) unscaled.

    Args:
        context: C, the most tokens.
        width: of a token and of its condition.
        depth: number of blocks.
        heads: attention heads.
        head_dim: width of one head.
        hidden: width inside the MLPs.
        dropout: on attention, its output, and twice in the MLP; draws from PyTorch's generator, in
            training mode only.
    """

    def __init__(
        self, context: int, width: int, depth: int, heads: int, head_dim: int, hidden: int, dropout: float
    ) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, context, width))
        self.blocks = nn.ModuleList(Block(width, heads, head_dim, hidden, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, x: Tensor, condition: Tensor, cache: Cache | None = None, last: bool = False
    ) -> tuple[Tensor, Cache]:
        """Runs the tokens that follow those in `cache`.

        Args:
            x: ``[B, n, width]``; ``n = 1`` if there is a cache.
            condition: ``[B, n, width]``.
            cache: what an earlier call returned for the tokens before these, or None.
            last: compute only the last token's output.

        Returns:
            ``[B, n, width]``, or ``[B, 1, width]`` if `last`, and the cache for one more token.
        """
        begin = cache[0][0].shape[2] if cache else 0
        end = begin + x.shape[1]
        assert end <= self.positions.shape[1], (end, self.positions.shape)
        assert x.shape == condition.shape, (x.shape, condition.shape)
        x = x + self.positions[:, begin:end]
        seen: Cache = []
        for index, block in enumerate(self.blocks):
            past = cache[index] if cache else None
            # only the last block can leave tokens out: the others feed its keys and values
            x, keys_values = block(x, condition, past, last and index == len(self.blocks) - 1)
            seen.append(keys_values)
        return self.norm(x), seen


class ActionEncoder(nn.Module):
    """Embeds the action of one model step: ``Conv1d(kernel 1) -> Linear -> SiLU -> Linear``.

    Args:
        action_dim: A = k * a.
        width: of the embedding.
        smoothed: channels of the convolution.
        expansion: hidden width as a multiple of `width`.
    """

    def __init__(self, action_dim: int, width: int, smoothed: int = 10, expansion: int = 4) -> None:
        super().__init__()
        self.mix = nn.Conv1d(action_dim, smoothed, 1)
        self.embed = nn.Sequential(
            nn.Linear(smoothed, expansion * width), nn.SiLU(), nn.Linear(expansion * width, width)
        )

    def forward(self, actions: Tensor) -> Tensor:
        """Maps ``[B, n, A]`` to ``[B, n, width]``, each step on its own."""
        embedded: Tensor = self.embed(self.mix(actions.transpose(1, 2)).transpose(1, 2))
        return embedded
