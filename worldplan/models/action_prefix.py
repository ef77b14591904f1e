"""Networks of Fast-LeWM: a token for every prefix of an action sequence, and a jump to the latent it ends in.

`PrefixEncoder` reads ``[state, a_1, ..., a_F]`` with a causal transformer, so its token k holds what the
first k actions do from that state and nothing of later ones. `PointwisePredictor` maps the starting latent
z and a token p to the latent after those k actions; tokens do not see each other there::

    x = z + MLP(LN([z, p, z * p]))           starts as z
    x = x + gate_1 * values((1 + scale_1) * LN(x) + shift_1)      modulated by p, which starts as identity
    x = x + gate_2 * mlp((1 + scale_2) * LN(x) + shift_2)

Source: Gao and Xu, "Fast LeWorldModel", arXiv 2606.26217.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from worldplan.models.predictors import Projector
from worldplan.models.transformer import Attention


class PrefixEncoder(nn.Module):
    """One token per prefix of at most `steps` actions.

    Args:
        steps: F, the longest prefix.
        latent_dim: D.
        action_dim: A.
        width: of the tokens.
        depth: causal blocks.
        heads: attention heads.
        head_dim: width of a head.
        hidden: width inside the MLPs and the embeddings.
        state_token: whether the sequence begins with the latent the actions start from, or with one
            learned vector, the ablation of the paper.
    """

    positions: Tensor

    def __init__(
        self,
        steps: int,
        latent_dim: int,
        action_dim: int,
        *,
        width: int,
        depth: int,
        heads: int,
        head_dim: int,
        hidden: int,
        state_token: bool,
    ) -> None:
        super().__init__()
        self.actions = nn.Sequential(
            nn.Linear(action_dim, 32), nn.Linear(32, hidden), nn.SiLU(), nn.Linear(hidden, width)
        )
        self.state = (
            nn.Sequential(nn.Linear(latent_dim, hidden), nn.GELU(), nn.Linear(hidden, width))
            if state_token
            else None
        )
        self.start = None if state_token else nn.Parameter(torch.randn(1, 1, width))
        self.register_buffer("positions", sinusoids(steps + 1, width), persistent=False)
        self.blocks = nn.ModuleList(_CausalBlock(width, heads, head_dim, hidden) for _ in range(depth))
        self.norm = nn.Sequential(nn.LayerNorm(width), nn.LayerNorm(width))

    def forward(self, latent: Tensor, actions: Tensor, steps: Sequence[int]) -> Tensor:
        """The tokens of some prefixes.

        Args:
            latent: ``[B, D]``, from which the actions start.
            actions: ``[B, n, A]`` model units, n <= F.
            steps: lengths of the wanted prefixes, ascending in 1 ... n.

        Returns:
            ``[B, len(steps), width]``.
        """
        actions = actions[:, : steps[-1]]  # no token sees what comes after it
        assert actions.shape[1] < len(self.positions), (actions.shape, self.positions.shape)
        embedded = self.actions(actions)
        if self.state is not None:
            start = self.state(latent)[:, None]
        else:
            assert self.start is not None
            start = self.start.expand(len(latent), 1, -1)
        x = torch.cat((start, embedded), 1) + self.positions[: steps[-1] + 1]
        only_last = len(steps) == 1
        for index, block in enumerate(self.blocks):
            x = block(x, last=only_last and index == len(self.blocks) - 1)
        if not only_last:
            x = x[:, list(steps)]
        tokens: Tensor = self.norm(x[:, -1:] if only_last else x)
        return tokens


class PointwisePredictor(nn.Module):
    """The latents that prefixes end in, each on its own.

    Args:
        latent_dim: D.
        width: of the tokens; the latent is projected where it differs from D.
        depth: modulated blocks.
        value_dim: inner width of their value path, heads * head_dim of the attention it stands for.
        hidden: width inside their MLPs.
        fusion: width inside the fusion of latent and token.
        projector_hidden: width inside the projector that ends it; 0 ends it with a linear change of
            the starting latent instead, which starts at zero.
        dropout: in the blocks, in training mode.
    """

    def __init__(
        self,
        latent_dim: int,
        *,
        width: int,
        depth: int,
        value_dim: int,
        hidden: int,
        fusion: int,
        projector_hidden: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.inward = nn.Identity() if width == latent_dim else nn.Linear(latent_dim, width)
        last = nn.Linear(fusion, width)
        _zero(last)
        self.fusion = nn.Sequential(nn.LayerNorm(3 * width), nn.Linear(3 * width, fusion), nn.GELU(), last)
        self.blocks = nn.ModuleList(_PointwiseBlock(width, value_dim, hidden, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.residual = not projector_hidden
        self.outward: nn.Module = nn.Linear(width, latent_dim)
        if projector_hidden:
            self.outward = Projector(width, projector_hidden, latent_dim)
        if self.residual:
            _zero(self.outward)

    def forward(self, latent: Tensor, tokens: Tensor) -> Tensor:
        """Maps ``[B, D]`` and ``[B, P, width]`` to ``[B, P, D]``."""
        z = self.inward(latent)[:, None].expand_as(tokens)
        x = (z + self.fusion(torch.cat((z, tokens, z * tokens), -1))).flatten(0, 1)
        condition = tokens.flatten(0, 1)
        for block in self.blocks:
            x = block(x, condition)
        predicted: Tensor = self.outward(self.norm(x)).view(*tokens.shape[:2], -1)
        return latent[:, None] + predicted if self.residual else predicted


class PrefixPredictor(nn.Module):
    """Jumps: from a latent, over up to F actions at once, and farther by one jump after another."""

    def __init__(self, steps: int, encoder: PrefixEncoder, predictor: PointwisePredictor) -> None:
        super().__init__()
        self.steps, self.encoder, self.predictor = steps, encoder, predictor

    def forward(self, latent: Tensor, actions: Tensor, steps: Sequence[int]) -> Tensor:
        """The latents after the first k actions, for each wanted k, in one jump each.

        Args:
            latent: ``[B, D]``.
            actions: ``[B, n, A]`` model units, n <= F.
            steps: the wanted k, ascending in 1 ... n.

        Returns:
            ``[B, len(steps), D]``.
        """
        predicted: Tensor = self.predictor(latent, self.encoder(latent, actions, steps))
        return predicted

    def chain(self, latent: Tensor, actions: Tensor, steps: Sequence[int]) -> list[Tensor]:
        """The same for any number of actions: what lies beyond F is reached from the end of a jump of F.

        Returns:
            One latent ``[B, D]`` for each of `steps`.
        """
        found: dict[int, Tensor] = {}
        for begin in range(0, steps[-1], self.steps):
            end = min(begin + self.steps, steps[-1])
            wanted = sorted({*(step for step in steps if begin < step <= end), end})
            jumps = self(latent, actions[:, begin:end], [step - begin for step in wanted])
            found.update(zip(wanted, jumps.float().unbind(1), strict=True))
            latent = found[end]
        return [found[step] for step in steps]


class _CausalBlock(nn.Module):
    """Pre-norm attention and MLP; both begin with one more LayerNorm, as in the published code."""

    def __init__(self, width: int, heads: int, head_dim: int, hidden: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList((nn.LayerNorm(width), nn.LayerNorm(width)))
        self.attention = Attention(width, heads, head_dim, dropout=0.0)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)
        )

    def forward(self, x: Tensor, last: bool) -> Tensor:
        mixed, _ = self.attention(self.norms[0](x), last=last)
        x = (x[:, -1:] if last else x) + mixed
        changed: Tensor = x + self.mlp(self.norms[1](x))
        return changed


class _PointwiseBlock(nn.Module):
    """An AdaLN-zero block whose attention, over a single token, is its value path alone."""

    def __init__(self, width: int, value_dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.values = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, value_dim, bias=False),
            nn.Linear(value_dim, width),
            nn.Dropout(dropout),
        )
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, width),
            nn.Dropout(dropout),
        )
        modulation = nn.Linear(width, 6 * width)
        _zero(modulation)
        self.modulation = nn.Sequential(nn.SiLU(), modulation)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Rows ``[M, width]``."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.modulation(condition).chunk(6, -1)
        x = torch.addcmul(x, gate_1, self.values(torch.addcmul(shift_1, 1 + scale_1, self.norm(x))))
        return torch.addcmul(x, gate_2, self.mlp(torch.addcmul(shift_2, 1 + scale_2, self.norm(x))))


def sinusoids(length: int, width: int) -> Tensor:
    """Fixed positions ``[length, width]``: sines in the even entries, cosines in the odd, base 10,000."""
    place = torch.arange(length)[:, None]
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    waves = torch.stack((torch.sin(place * rate), torch.cos(place * rate)), -1)
    return waves.flatten(1)[:, :width]


def _zero(layer: nn.Module) -> None:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
