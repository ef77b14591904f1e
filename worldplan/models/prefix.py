"""Fast-LeWM: a joint-embedding world model that jumps over many actions instead of stepping through them.

Encoder, latent and regulariser are LeWM's. The predictor reads every prefix of an action sequence at once,
conditioned on the latent it starts from, and predicts where each of them ends::

    L = mean over prefixes k of (p(z_t, a_t..t+k-1) - z_{t+k})^2  +  sigreg_weight * SIGReg(z)

so planning needs one call of the predictor where LeWM feeds its predictions back, and only the latents that
are asked for are computed. It sees no frame before the one it starts from. Beyond the longest prefix it was
trained on, jumps are put one after another.

With `curriculum_steps` each window is supervised at one length, drawn from 1 to a bound that grows, which
is the curriculum of variable-length world models.

Source: Gao and Xu, "Fast LeWorldModel", arXiv 2606.26217; the curriculum: Du et al., "Beyond the Next
Step", arXiv 2606.21775.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from worldplan.models.action_prefix import PointwisePredictor, PrefixEncoder, PrefixPredictor
from worldplan.models.embedding_config import EmbeddingConfig
from worldplan.models.joint_embedding import JointEmbedding
from worldplan.models.settings import check
from worldplan.models.sigreg import SIGReg
from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise


@dataclass(frozen=True)
class FastLeWMConfig(EmbeddingConfig):
    """What a `FastLeWM` is made of, and how its loss is weighed. The defaults are a small model for a CPU.

    Attributes:
        prefix_steps: F, the longest prefix that is predicted in one jump.
        prefix_depth, prefix_heads, prefix_head_dim, prefix_hidden: of the transformer over prefixes.
        state_token: whether prefixes are read from the latent they start from; see `PrefixEncoder`.
        predictor_width: of the tokens.
        predictor_depth, predictor_values, predictor_hidden, dropout: of the blocks that jump.
        residual: whether the predictor ends in a change of the starting latent, or, as published, in a
            projector with BatchNorm.
        every_anchor: whether training jumps from every frame of a window, or, as published, from the first.
        curriculum_steps: training steps over which the lengths that are supervised grow from 1 to F; 0
            supervises all of them at once, as published for Fast-LeWM.
        sigreg_weight: weight of SIGReg; it is tied to the batch size.
        sigreg_directions: random directions per step.

    The rest is that of `EmbeddingConfig`; the context is 1.

    Raises:
        ConfigError: a value is out of range.
    """

    KEY: ClassVar[str] = "prefix"  # of the class it configures, in checkpoints

    context: int = 1
    prefix_steps: int = 5
    prefix_depth: int = 2
    prefix_heads: int = 4
    prefix_head_dim: int = 32
    prefix_hidden: int = 256
    state_token: bool = True
    predictor_width: int = 192
    predictor_depth: int = 2
    predictor_values: int = 192
    predictor_hidden: int = 384
    dropout: float = 0.1
    residual: bool = True
    every_anchor: bool = True
    curriculum_steps: int = 0
    sigreg_weight: float = 0.09
    sigreg_directions: int = 256

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        super().__post_init__()
        check(
            self,
            context=(self.context == 1, "1: it predicts from a single latent"),
            dropout=(0 <= self.dropout < 1, "in [0, 1)"),
            curriculum_steps=(self.curriculum_steps >= 0, "0 or more"),
        )
        counts = "prefix_steps prefix_depth prefix_heads prefix_head_dim prefix_hidden predictor_width "
        self._at_least_one(counts + "predictor_depth predictor_values predictor_hidden sigreg_directions")
        self._not_negative("sigreg")

    @classmethod
    def paper(cls) -> FastLeWMConfig:
        """The published model, without heads."""
        return cls(
            image_size=224,
            latent_dim=192,
            encoder="vit",
            projector_hidden=2048,
            prefix_depth=3,
            prefix_heads=6,
            prefix_head_dim=32,
            prefix_hidden=768,
            predictor_width=192,
            predictor_depth=6,
            predictor_values=1024,
            predictor_hidden=2048,
            residual=False,
            every_anchor=False,
            sigreg_directions=1024,
            pixel_head=False,
        )


class FastLeWM(JointEmbedding):
    """The world model; see `JointEmbedding` for what it shares with LeWM.

    Args:
        config: what it is made of.
        spec: what it is fed.

    Raises:
        ConfigError: the specification asks for what it cannot do.
        ProtocolMismatch: the specification and the configuration disagree.
    """

    CONFIG = FastLeWMConfig
    config: FastLeWMConfig
    predictor: PrefixPredictor

    def __init__(self, config: FastLeWMConfig, spec: ModelSpec) -> None:
        super().__init__(
            config,
            spec,
            predictor=lambda: _predictor(config, spec.action_dim),
            regularizers={"sigreg": (config.sigreg_weight, SIGReg(config.sigreg_directions))},
        )

    def forecast(self, latents: Tensor, past: Tensor, actions: Tensor, steps: Sequence[int]) -> list[Tensor]:
        """Jumps from the newest latent; see `JointEmbedding`. Nothing after the last of `steps` is read."""
        return self.predictor.chain(latents[:, -1], actions, steps)

    def jump(self, latent: Tensor, actions: Tensor) -> Tensor:
        """The latent ``[M, D]`` after all of ``actions [M, h, A]``, from ``latent [M, D]``."""
        return self.predictor.chain(latent, actions, [actions.shape[1]])[0]

    def prediction_error(
        self, latents: Tensor, actions: Tensor, seen: Tensor, noise: Noise, step: int
    ) -> Tensor:
        """Mean squared error over anchors, prefixes and dimensions.

        Random: with a curriculum, the length at which each window is supervised.
        """
        config, future = self.config, actions.shape[1]
        longest = min(config.prefix_steps, future)
        drawn = None
        if config.curriculum_steps:
            share = min((step + 1) / config.curriculum_steps, 1.0)
            bound = max(math.ceil(longest * share), 1)
            drawn = 1 + noise.at("length").integers(bound, device=latents.device)  # [B]
        total, count = latents.new_zeros(()), latents.new_zeros(())
        for anchor in range(future if config.every_anchor else 1):
            lengths = range(1, min(longest, future - anchor) + 1)
            ends = slice(anchor + 1, anchor + 1 + len(lengths))
            predicted = self.predictor(latents[:, anchor], actions[:, anchor : ends.stop - 1], lengths)
            error = (predicted.float() - latents[:, ends]).square().mean(-1)  # [B, P]
            counts = seen[:, ends]
            if drawn is not None:
                counts = counts & (torch.tensor(lengths, device=drawn.device) == drawn[:, None])
            total = total + torch.where(counts, error, 0.0).sum()
            count = count + counts.sum()
        return total / count.clamp(min=1)


def _predictor(config: FastLeWMConfig, action_dim: int) -> PrefixPredictor:
    encoder = PrefixEncoder(
        config.prefix_steps,
        config.latent_dim,
        action_dim,
        width=config.predictor_width,
        depth=config.prefix_depth,
        heads=config.prefix_heads,
        head_dim=config.prefix_head_dim,
        hidden=config.prefix_hidden,
        state_token=config.state_token,
    )
    predictor = PointwisePredictor(
        config.latent_dim,
        width=config.predictor_width,
        depth=config.predictor_depth,
        value_dim=config.predictor_values,
        hidden=config.predictor_hidden,
        fusion=config.prefix_hidden,
        projector_hidden=0 if config.residual else config.projector_hidden,
        dropout=config.dropout,
    )
    return PrefixPredictor(config.prefix_steps, encoder, predictor)
