"""Predictors of the next latent: from at most C latents and the actions taken after each of them.

Histories are dense: n <= C frames stand at positions ``0..n-1``, and what is missing is not padded but
absent, in training and at test alike.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from worldplan.models.transformer import ActionEncoder, Cache, CausalTransformer


class Predictor(Protocol):
    """What a model that looks at a window of latents asks of its predictor."""

    def __call__(self, latents: Tensor, actions: Tensor) -> Tensor:
        """The latent after each of n <= C frames, read from the frames up to it.

        Args:
            latents: ``[B, n, D]``.
            actions: ``[B, n, A]`` model units; action i follows frame i.

        Returns:
            ``[B, n, D]``; entry i predicts frame i+1.
        """
        ...

    def following(self, latents: Tensor, actions: Tensor) -> Tensor:
        """The last entry of what a call returns, ``[B, D]``."""
        ...

    def rollout(self, latents: Tensor, past: Tensor, actions: Tensor) -> list[Tensor]:
        """Feeds predictions back for H steps.

        Args:
            latents: ``[B, n, D]``, n <= C frames, the newest last.
            past: ``[B, n-1, A]``, the actions between them.
            actions: ``[B, H, A]``, the actions to come.

        Returns:
            H latents ``[B, D]``.
        """
        ...


class Projector(nn.Sequential):
    """``Linear -> BatchNorm -> GELU -> Linear`` on rows ``[M, features]``.

    The BatchNorm stands where a LayerNorm would put the output on a sphere, which no regulariser could
    make normal (LeWorldModel).
    """

    def __init__(self, features: int, hidden: int, out: int) -> None:
        super().__init__(
            nn.Linear(features, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, out)
        )


class AdaLNPredictor(nn.Module):
    """LeWorldModel's predictor: a causal transformer modulated by actions, then a projector.

    Args:
        context: C.
        latent_dim: D.
        action_dim: A.
        width: of the tokens; latents and embeddings are projected where it differs from D.
        depth: blocks.
        heads: attention heads.
        head_dim: width of a head.
        hidden: width inside the MLPs.
        projector_hidden: width inside the projector.
        dropout: see `CausalTransformer`.
    """

    def __init__(
        self,
        context: int,
        latent_dim: int,
        action_dim: int,
        *,
        width: int,
        depth: int,
        heads: int,
        head_dim: int,
        hidden: int,
        projector_hidden: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.context = context
        self.actions = ActionEncoder(action_dim, width)
        self.inward = nn.Identity() if width == latent_dim else nn.Linear(latent_dim, width)
        self.transformer = CausalTransformer(context, width, depth, heads, head_dim, hidden, dropout)
        self.outward: nn.Module = Projector(width, projector_hidden, latent_dim)

    def forward(self, latents: Tensor, actions: Tensor) -> Tensor:
        """See `Predictor`: one pass serves all n histories, as attention is causal."""
        tokens, _ = self.transformer(self.inward(latents), self.actions(actions))
        predicted: Tensor = self.outward(tokens.flatten(0, 1)).view(*tokens.shape[:2], -1)
        return predicted

    def following(self, latents: Tensor, actions: Tensor) -> Tensor:
        """See `Predictor`."""
        tokens, _ = self.transformer(self.inward(latents), self.actions(actions), last=True)
        predicted: Tensor = self.outward(tokens[:, -1])
        return predicted

    def rollout(self, latents: Tensor, past: Tensor, actions: Tensor) -> list[Tensor]:
        """See `Predictor`.

        Actions are embedded once for all steps. While the history grows toward C frames, each frame
        keeps its position, so its keys and values are kept too; from then on the window slides.
        """
        known, horizon = latents.shape[1], actions.shape[1]
        embedded = self.actions(torch.cat((past, actions), 1))  # [B, n-1+H, width]
        tokens = list(self.inward(latents).unbind(1))
        predicted: list[Tensor] = []
        cache: Cache | None = None
        for end in range(known, known + horizon):
            begin = max(end - self.context, 0)
            if cache is not None and begin == 0:
                begin = end - 1
            else:
                cache = None
            window = torch.stack(tokens[begin:end], 1)
            out, cache = self.transformer(window, embedded[:, begin:end], cache, last=True)
            predicted.append(self.outward(out[:, -1]))
            tokens.append(self.inward(predicted[-1]))
        return predicted


class WindowPredictor(nn.Module):
    """A `Predictor` made of `following`, the one thing a subclass says.

    Args:
        context: C.
    """

    def __init__(self, context: int) -> None:
        super().__init__()
        self.context = context

    def forward(self, latents: Tensor, actions: Tensor) -> Tensor:
        """See `Predictor`."""
        lengths = range(1, latents.shape[1] + 1)
        return torch.stack([self.following(latents[:, :n], actions[:, :n]) for n in lengths], 1)

    def following(self, latents: Tensor, actions: Tensor) -> Tensor:
        """See `Predictor`."""
        raise NotImplementedError

    def rollout(self, latents: Tensor, past: Tensor, actions: Tensor) -> list[Tensor]:
        """See `Predictor`."""
        window, taken = list(latents.unbind(1)), torch.cat((past, actions), 1)
        known = len(window)
        for end in range(known, known + actions.shape[1]):
            begin = max(end - self.context, 0)
            window.append(self.following(torch.stack(window[begin:end], 1), taken[:, begin:end]))
        return window[known:]


class MLPPredictor(WindowPredictor):
    """A residual MLP over the window: ``z_{t+1} = z_t + f(z_{t-n+1..t}, a_{t-n+1..t}, n)``.

    The first layer has one block of columns per frame of the window, newest last, and one per history
    length; a shorter history leaves out the blocks of the frames it lacks.

    Args:
        context: C.
        latent_dim: D.
        action_dim: A.
        width: of the residual stream.
        depth: residual blocks.
    """

    def __init__(self, context: int, latent_dim: int, action_dim: int, *, width: int, depth: int) -> None:
        super().__init__(context)
        self._frame = latent_dim + action_dim
        self.inward = nn.Linear(context * (self._frame + 1), width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.outward = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, latent_dim))

    def following(self, latents: Tensor, actions: Tensor) -> Tensor:
        """See `Predictor`."""
        known = latents.shape[1]
        assert known <= self.context, (known, self.context)
        begin, end = (self.context - known) * self._frame, self.context * self._frame
        weight = self.inward.weight
        bias = self.inward.bias + weight[:, end + known - 1]
        frames = torch.cat((latents, actions), 2).flatten(1)
        x = functional.linear(frames, weight[:, begin:end], bias)
        for block in self.blocks:
            x = x + block(x)
        predicted: Tensor = latents[:, -1] + self.outward(x)
        return predicted


def histories(
    predictor: Predictor, latents: Tensor, actions: Tensor, context: int, steps: int
) -> list[tuple[int, Tensor]]:
    """Predictions from every history of 1..C true frames, each fed back for up to `steps` steps.

    Args:
        predictor: with a context of C.
        latents: ``[B, T+1, D]`` true latents.
        actions: ``[B, T, A]`` model units.
        context: C.
        steps: 1 supervises single steps, as LeWorldModel does; more also supervises predictions made
            from predictions, through which the gradient flows.

    Returns:
        Pairs of a frame's index i and predictions of it ``[R, B, D]``, one for each of the R histories
        that reach it.
    """
    future = actions.shape[1]
    if steps == 1:
        known = min(context, future)
        predicted = predictor(latents[:, :known], actions[:, :known])
        return [(index + 1, predicted[:, index][None]) for index in range(known)]
    tracks = {n: list(latents[:, :n].unbind(1)) for n in range(1, min(context, future) + 1)}
    found = []
    for index in range(1, min(future, context + steps - 1) + 1):
        # all of them know `index` frames, some true and some predicted, so one call serves all
        active = [n for n in tracks if index - steps < n <= index]
        begin = max(index - context, 0)
        window = torch.cat([torch.stack(tracks[n][begin:index], 1) for n in active])
        taken = actions[:, begin:index].repeat(len(active), 1, 1)
        predicted = predictor.following(window, taken).view(len(active), len(latents), -1)
        for n, latent in zip(active, predicted, strict=True):
            tracks[n].append(latent)
        found.append((index, predicted))
    return found
