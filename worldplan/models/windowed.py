"""Joint-embedding models whose predictor looks at a window of latents and is fed its own predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from worldplan.models.embedding_config import EmbeddingConfig
from worldplan.models.joint_embedding import JointEmbedding
from worldplan.models.predictors import AdaLNPredictor, histories
from worldplan.models.settings import check
from worldplan.seeding import Noise


@dataclass(frozen=True)
class WindowedConfig(EmbeddingConfig):
    """What such models have in common.

    Attributes:
        predictor_width, predictor_depth, predictor_heads, predictor_head_dim, predictor_hidden, dropout: of
            the transformer of LeWM's paper, ``predictor="adaln"``.
        rollout_steps: most steps that training predicts from predictions; 1 as published.

    The rest is that of `EmbeddingConfig`.

    Raises:
        ConfigError: a value is out of range.
    """

    predictor_width: int = 384
    predictor_depth: int = 2
    predictor_heads: int = 4
    predictor_head_dim: int = 32
    predictor_hidden: int = 512
    dropout: float = 0.1
    rollout_steps: int = 5

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        super().__post_init__()
        check(self, dropout=(0 <= self.dropout < 1, "in [0, 1)"))
        self._at_least_one("predictor_width predictor_depth rollout_steps")

    def adaln(self, action_dim: int) -> AdaLNPredictor:
        """An untrained predictor of that kind."""
        return AdaLNPredictor(
            self.context,
            self.latent_dim,
            action_dim,
            width=self.predictor_width,
            depth=self.predictor_depth,
            heads=self.predictor_heads,
            head_dim=self.predictor_head_dim,
            hidden=self.predictor_hidden,
            projector_hidden=self.projector_hidden,
            dropout=self.dropout,
        )


class WindowedEmbedding(JointEmbedding):
    """See `JointEmbedding`; its predictor is a `Predictor`, and all contexts of 1..C frames are trained."""

    config: WindowedConfig
    predictor: Any

    def forecast(self, latents: Tensor, past: Tensor, actions: Tensor, steps: Sequence[int]) -> list[Tensor]:
        """Feeds predictions back; see `JointEmbedding`. All H steps are predicted."""
        path = self.predictor.rollout(latents, past, actions)
        return [path[step - 1] for step in steps]

    def prediction_error(
        self, latents: Tensor, actions: Tensor, seen: Tensor, noise: Noise, step: int
    ) -> Tensor:
        """Mean squared error over all histories, steps and dimensions. Draws nothing."""
        context, ahead = self.config.context, self.config.rollout_steps
        total, count = latents.new_zeros(()), latents.new_zeros(())
        for index, predicted in histories(self.predictor, latents, actions, context, ahead):
            error = (predicted.float() - latents[:, index]).square().mean(-1)  # [R, B]
            total = total + torch.where(seen[:, index], error, 0.0).sum()
            count = count + len(error) * seen[:, index].sum()
        return total / count.clamp(min=1)
