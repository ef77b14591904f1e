"""The settings of `LeWM`, published and small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from worldplan.models.settings import check
from worldplan.models.windowed import WindowedConfig


@dataclass(frozen=True)
class LeWMConfig(WindowedConfig):
    """What a `LeWM` is made of, and how its loss is weighed. The defaults are a small model for a CPU.

    Attributes:
        predictor: ``"mlp"``, or ``"adaln"`` for the transformer of the paper.
        predictor_width, predictor_depth: of either predictor.
        sigreg_weight: weight of SIGReg; it is tied to the batch size.
        sigreg_directions: random directions per step.

    The rest is that of `WindowedConfig`.

    Raises:
        ConfigError: a value is out of range.
    """

    KEY: ClassVar[str] = "lewm"  # of the class it configures, in checkpoints

    predictor: str = "mlp"
    sigreg_weight: float = 0.09
    sigreg_directions: int = 256

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        super().__post_init__()
        check(self, predictor=(self.predictor in ("mlp", "adaln"), "mlp or adaln"))
        self._at_least_one("sigreg_directions")
        self._not_negative("sigreg")

    @classmethod
    def paper(cls) -> LeWMConfig:
        """The published model, 18.0 M parameters, without heads."""
        return cls(
            image_size=224,
            latent_dim=192,
            encoder="vit",
            projector_hidden=2048,
            predictor="adaln",
            predictor_width=192,
            predictor_depth=6,
            predictor_heads=16,
            predictor_head_dim=64,
            predictor_hidden=2048,
            rollout_steps=1,
            sigreg_directions=1024,
            pixel_head=False,
        )
