"""LeWorldModel: a joint-embedding world model trained end to end from pixels by two terms.

A frame becomes one vector ``z = projector(encoder(frame))``; a predictor maps up to C latents and the
actions taken after them to the next one. Both are trained by::

    L = mean (z_hat_{t+1} - z_{t+1})^2 + sigreg_weight * SIGReg(z)

without stop-gradient, moving average or pretraining; `SIGReg` keeps z from collapsing.

`LeWMConfig.paper` is the published model. The other options make small models that train on a CPU:
a convolutional encoder, an MLP predictor, predictions fed back during training, and terms that make the
latent hold what the two of the paper may leave out.

Source: Maes et al., "LeWorldModel", arXiv 2603.19312.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from worldplan.errors import ConfigError
from worldplan.models.joint_embedding import JointEmbedding
from worldplan.models.lewm_config import LeWMConfig
from worldplan.models.predictors import AdaLNPredictor, MLPPredictor, windowed_error, windowed_forecast
from worldplan.models.settings import parse
from worldplan.models.sigreg import SIGReg
from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise

__all__ = ["LeWM", "LeWMConfig"]


class LeWM(JointEmbedding):
    """The world model; see `JointEmbedding` for what it shares with its kin.

    Contexts of 1..C frames are all trained; the paper's windows are of C+1 frames.

    Args:
        config: what it is made of.
        spec: what it is fed.

    Raises:
        ConfigError: the specification asks for what it cannot do.
        ProtocolMismatch: the specification and the configuration disagree.
    """

    config: LeWMConfig
    predictor: AdaLNPredictor | MLPPredictor

    def __init__(self, config: LeWMConfig, spec: ModelSpec) -> None:
        super().__init__(
            config,
            spec,
            predictor=lambda: _predictor(config, spec.action_dim),
            regularizers={"sigreg": (config.sigreg_weight, SIGReg(config.sigreg_directions))},
        )

    @classmethod
    def from_config(cls, config: LeWMConfig | Mapping[str, Any], spec: ModelSpec | None) -> LeWM:
        """Builds an untrained model from plain values; raises `ConfigError` where they do not fit."""
        if spec is None:
            raise ConfigError("LeWM cannot be built without a specification", expected="a ModelSpec")
        return cls(parse(LeWMConfig, config), spec)

    def forecast(self, latents: Tensor, past: Tensor, actions: Tensor, steps: Sequence[int]) -> list[Tensor]:
        """Feeds predictions back; see `JointEmbedding`."""
        return windowed_forecast(self.predictor, latents, past, actions, steps)

    def prediction_error(
        self, latents: Tensor, actions: Tensor, seen: Tensor, noise: Noise, step: int
    ) -> Tensor:
        """Mean squared error over all histories, steps and dimensions. Draws nothing."""
        config = self.config
        return windowed_error(self.predictor, latents, actions, seen, config.context, config.rollout_steps)


def _predictor(config: LeWMConfig, action_dim: int) -> AdaLNPredictor | MLPPredictor:
    if config.predictor == "mlp":
        return MLPPredictor(
            config.context,
            config.latent_dim,
            action_dim,
            width=config.predictor_width,
            depth=config.predictor_depth,
        )
    return AdaLNPredictor(
        config.context,
        config.latent_dim,
        action_dim,
        width=config.predictor_width,
        depth=config.predictor_depth,
        heads=config.predictor_heads,
        head_dim=config.predictor_head_dim,
        hidden=config.predictor_hidden,
        projector_hidden=config.projector_hidden,
        dropout=config.dropout,
    )
