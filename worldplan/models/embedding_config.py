"""The settings every joint-embedding world model shares: encoder, latent, heads and optional terms."""

from __future__ import annotations

from dataclasses import dataclass

from worldplan.models.settings import check
from worldplan.protocol import ModelSpec
from worldplan.types import ActionSpec


@dataclass(frozen=True)
class EmbeddingConfig:
    """What encoder and heads are made of, and how the terms besides the prediction are weighed.

    Attributes:
        image_size: height and width of the frames.
        latent_dim: D.
        context: C, the most frames a prediction is made from.
        frame_skip: k, environment steps per model step.
        encoder: ``"conv"`` or ``"vit"``.
        vit_patch, vit_width, vit_depth, vit_heads: of the vision transformer.
        conv_widths, conv_narrow, conv_keypoints, conv_features, conv_coordinates, conv_batch_norm: see
            `ConvEncoder`.
        projector_hidden: width of the BatchNorm layer before the latent, and of a predictor's that has one.
        reconstruction_weight: lets the pixel head's loss, times this, into the encoder; 0 does not.
        state_weight: the same for the state head; the model is then no longer self-supervised.
        inverse_weight: of an inverse model that reads an action off the latents around it.
        centred_weight: of what `CentredDecoder` finds, which makes latents hold how things are turned.
        pixel_head: whether there is a head that draws.
        decoder: what draws: ``"conv"``, a `PixelDecoder`, or ``"field"``, a `FieldDecoder`.
        decoder_size, decoder_widths, foreground_weight: see `PixelDecoder`.
        decoder_fields: coordinate frames of a `FieldDecoder`.
        decoded_frames: frames drawn per window and training step.
        state_dim: s, entries of the simulator's state to read; 0 for no state head.
        state_angles: which entries are angles in radians.
        head_hidden: width of the heads' hidden layers.
        head_weight: weight of heads that learn from detached latents; 0 leaves them to
            `HeadTraining`.

    Raises:
        ConfigError: a value is out of range.
    """

    image_size: int = 64
    latent_dim: int = 64
    context: int = 3
    frame_skip: int = 5
    encoder: str = "conv"
    vit_patch: int = 14
    vit_width: int = 192
    vit_depth: int = 12
    vit_heads: int = 3
    conv_widths: tuple[int, ...] = (64, 96, 96)
    conv_narrow: int = 32
    conv_keypoints: int = 0
    conv_features: int = 256
    conv_coordinates: bool = True
    conv_batch_norm: bool = False
    projector_hidden: int = 512
    reconstruction_weight: float = 0.0
    state_weight: float = 0.0
    inverse_weight: float = 0.0
    centred_weight: float = 0.0
    pixel_head: bool = True
    decoder: str = "conv"
    decoder_fields: int = 6
    decoder_size: int = 64
    decoder_widths: tuple[int, ...] = (64, 64, 48, 24)
    foreground_weight: float = 10.0
    decoded_frames: int = 1
    state_dim: int = 0
    state_angles: tuple[int, ...] = ()
    head_hidden: int = 256
    head_weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        check(
            self,
            encoder=(self.encoder in ("conv", "vit"), "conv or vit"),
            decoder=(self.decoder in ("conv", "field"), "conv or field"),
            state_dim=(self.state_dim >= 0, "0 or more"),
            state_angles=(all(0 <= i < self.state_dim for i in self.state_angles), "indices below state_dim"),
            state_weight=(not self.state_weight or self.state_dim > 0, "0 without a state head (state_dim)"),
            reconstruction_weight=(
                not self.reconstruction_weight or self.pixel_head,
                "0 without a pixel head",
            ),
        )
        self._at_least_one(
            "image_size latent_dim context frame_skip decoded_frames projector_hidden head_hidden"
        )
        self._not_negative("reconstruction state inverse centred head foreground")

    def _at_least_one(self, names: str) -> None:
        check(self, **{name: (getattr(self, name) >= 1, "at least 1") for name in names.split()})

    def _not_negative(self, weights: str) -> None:
        names = [f"{weight}_weight" for weight in weights.split()]
        check(self, **{name: (getattr(self, name) >= 0, "0 or more") for name in names})

    def spec(self, env: str, action: ActionSpec, pixels: str = "pixels") -> ModelSpec:
        """The specification of a model of this kind.

        Args:
            env: name of the environment.
            action: one environment action.
            pixels: key of the frames.
        """
        return ModelSpec(
            env=env,
            obs={pixels: (3, self.image_size, self.image_size)},
            context=self.context,
            frame_skip=self.frame_skip,
            action=action,
            latent_shape=(self.latent_dim,),
            pixels=pixels,
        )
