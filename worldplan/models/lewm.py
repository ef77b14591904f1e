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

from worldplan.models.lewm_config import LeWMConfig
from worldplan.models.predictors import AdaLNPredictor, MLPPredictor
from worldplan.models.sigreg import SIGReg
from worldplan.models.windowed import WindowedEmbedding
from worldplan.protocol import ModelSpec

__all__ = ["LeWM", "LeWMConfig"]


class LeWM(WindowedEmbedding):
    """The world model; see `JointEmbedding` for what it shares with its kin.

    Contexts of 1..C frames are all trained; the paper's windows are of C+1 frames.

    Args:
        config: what it is made of.
        spec: what it is fed.

    Raises:
        ConfigError: the specification asks for what it cannot do.
        ProtocolMismatch: the specification and the configuration disagree.
    """

    CONFIG = LeWMConfig
    config: LeWMConfig
    predictor: AdaLNPredictor | MLPPredictor

    def __init__(self, config: LeWMConfig, spec: ModelSpec) -> None:
        super().__init__(
            config,
            spec,
            predictor=lambda: _predictor(config, spec.action_dim),
            regularizers={"sigreg": (config.sigreg_weight, SIGReg(config.sigreg_directions))},
        )


def _predictor(config: LeWMConfig, action_dim: int) -> AdaLNPredictor | MLPPredictor:
    if config.predictor == "mlp":
        return MLPPredictor(
            config.context,
            config.latent_dim,
            action_dim,
            width=config.predictor_width,
            depth=config.predictor_depth,
        )
    return config.adaln(action_dim)
