"""LpWM: LeWM with latents that are sparse and non-negative, and predictors of graded capacity.

A rectifying link ends the encoder and the predictor alike, and `RDMReg` makes the code a rectified
generalised Gaussian, of which half the entries or more are exactly zero::

    L = mean (z_hat_{t+1} - z_{t+1})^2  +  regularizer_weight * R(z)  [+ jaccard_weight * temporal Jaccard]

The dense control of the paper has the identity as its link and the unrectified target with p = 2, so that
nothing differs but the target. `regularizer` takes SIGReg or VICReg in RDMReg's place.

Source: Kuang et al., "LpWM: A Case for Sparse Representations in World Models", arXiv 2608.22764.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from worldplan.models.joint_embedding import Regularizer
from worldplan.models.ladder import RUNGS, Rung
from worldplan.models.links import LINKS, link
from worldplan.models.predictors import AdaLNPredictor
from worldplan.models.rdmreg import RDMReg, temporal_jaccard
from worldplan.models.settings import check
from worldplan.models.sigreg import SIGReg
from worldplan.models.vicreg import VICReg
from worldplan.models.windowed import WindowedConfig, WindowedEmbedding
from worldplan.protocol import ModelSpec


@dataclass(frozen=True)
class LpWMConfig(WindowedConfig):
    """What an `LpWM` is made of, and how its loss is weighed. The defaults are a small model for a CPU.

    Attributes:
        link: ``"reprelu"``, or ``"identity"`` for the dense control.
        regularizer: ``"rdmreg"``, ``"sigreg"`` or ``"vicreg"``.
        regularizer_weight: its weight; SIGReg's is tied to the batch size, the others' are not.
        directions: random directions per step, of RDMReg and SIGReg.
        p, mu, unit_power: of RDMReg's target, which is rectified as the link is.
        jaccard_weight: of how much the active entries change between frames; for non-negative codes.
        predictor: ``"adaln"``, or a lower rung of the ladder: ``"lti"``, ``"mlp_lti"``, ``"mlp_ltv"``.
        predictor_depth: of ``"adaln"``; 1 is the paper's shallow one.

    The rest is that of `WindowedConfig`.

    Raises:
        ConfigError: a value is out of range.
    """

    KEY: ClassVar[str] = "sparse"  # of the class it configures, in checkpoints

    link: str = "reprelu"
    regularizer: str = "rdmreg"
    regularizer_weight: float = 1.0
    directions: int = 512
    p: float = 1.0
    mu: float = 0.0
    unit_power: bool = False
    jaccard_weight: float = 0.0
    predictor: str = "mlp_lti"
    predictor_width: int = 192
    rollout_steps: int = 1

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        super().__post_init__()
        rungs = ("adaln", *RUNGS)
        check(
            self,
            link=(self.link in LINKS, " or ".join(LINKS)),
            regularizer=(self.regularizer in ("rdmreg", "sigreg", "vicreg"), "rdmreg, sigreg or vicreg"),
            p=(self.p > 0, "above 0"),
            predictor=(self.predictor in rungs, ", ".join(rungs)),
            jaccard_weight=(
                not self.jaccard_weight or self.link == "reprelu",
                "0 unless the link makes codes non-negative",
            ),
        )
        self._at_least_one("directions predictor_heads predictor_head_dim predictor_hidden")
        self._not_negative("regularizer jaccard")

    @classmethod
    def paper(cls) -> LpWMConfig:
        """LeWM's architecture with the link, as in the paper's own variant of it, without heads."""
        return cls(
            image_size=224,
            latent_dim=192,
            encoder="vit",
            projector_hidden=2048,
            regularizer_weight=10.0,
            directions=1024,
            predictor="adaln",
            predictor_width=192,
            predictor_depth=6,
            predictor_heads=16,
            predictor_head_dim=64,
            predictor_hidden=2048,
            pixel_head=False,
        )


class LpWM(WindowedEmbedding):
    """The world model; see `JointEmbedding` for what it shares with LeWM.

    Args:
        config: what it is made of.
        spec: what it is fed.

    Raises:
        ConfigError: the specification asks for what it cannot do.
        ProtocolMismatch: the specification and the configuration disagree.
    """

    CONFIG = LpWMConfig
    config: LpWMConfig
    predictor: AdaLNPredictor | Rung

    def __init__(self, config: LpWMConfig, spec: ModelSpec) -> None:
        terms: dict[str, tuple[float, Regularizer]] = {
            config.regularizer: (config.regularizer_weight, _regularizer(config))
        }
        if config.jaccard_weight:
            terms["jaccard"] = (config.jaccard_weight, temporal_jaccard)
        super().__init__(
            config,
            spec,
            predictor=lambda: _predictor(config, spec.action_dim),
            regularizers=terms,
            link=link(config.link),
        )


def _regularizer(config: LpWMConfig) -> Regularizer:
    if config.regularizer == "sigreg":
        return SIGReg(config.directions)
    if config.regularizer == "vicreg":
        return VICReg()
    rectified = config.link == "reprelu"
    return RDMReg(config.p, config.mu, rectified, config.directions, config.unit_power)


def _predictor(config: LpWMConfig, action_dim: int) -> AdaLNPredictor | Rung:
    end = link(config.link)
    if config.predictor != "adaln":
        return Rung(config.predictor, config.context, config.latent_dim, action_dim, end)
    predictor = config.adaln(action_dim)
    predictor.outward = nn.Sequential(predictor.outward, end)
    return predictor
