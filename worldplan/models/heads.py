"""The heads of a world model, and how to train them after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from worldplan.errors import ConfigError, DataError, UsageError
from worldplan.models.decoders import PixelDecoder, StateHead
from worldplan.models.embedding_config import EmbeddingConfig
from worldplan.models.field import FieldDecoder
from worldplan.normalize import Statistics
from worldplan.seeding import Noise
from worldplan.types import Array, Batch, Obs


class Heads(nn.Module):
    """What a model shows of its latents: a `PixelDecoder`, a `StateHead`, both or neither.

    Args:
        config: of the model.
    """

    def __init__(self, config: EmbeddingConfig) -> None:
        super().__init__()
        self.decoded_frames, self.image_size = config.decoded_frames, config.image_size
        self.pixels: PixelDecoder | FieldDecoder | None = None
        self.state: StateHead | None = None
        if config.pixel_head and config.decoder == "field":
            self.pixels = FieldDecoder(
                config.latent_dim, config.decoder_size, config.decoder_fields, config.head_hidden
            )
        elif config.pixel_head:
            self.pixels = PixelDecoder(
                config.latent_dim,
                config.decoder_size,
                config.decoder_widths,
                config.head_hidden,
                config.foreground_weight,
            )
        if config.state_dim:
            self.state = StateHead(
                config.latent_dim, config.state_dim, config.state_angles, config.head_hidden
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Which there are: the observations they show, and the columns `fit` needs."""
        return tuple(name for name in ("pixels", "state") if getattr(self, name) is not None)

    def fit(self, columns: Mapping[str, Array]) -> None:
        """Takes over statistics of ``pixels uint8 [n, h, w, 3]`` and ``state [n, s]``."""
        if self.pixels is not None:
            self.pixels.fit(columns["pixels"])
        if self.state is not None:
            self.state.fit(Statistics.of(columns["state"], "state"))

    def decode(self, latent: Tensor) -> Obs:
        """Shows latents ``[B, D]`` as ``pixels uint8 [B, 3, h, w]`` and ``state [B, s]``.

        Raises:
            UsageError: there are no heads.
        """
        decoded: dict[str, Tensor] = {}
        if self.pixels is not None:
            drawn = self.pixels.decode(latent)
            if drawn.shape[-1] != self.image_size:
                size = (self.image_size, self.image_size)
                drawn = nn.functional.interpolate(drawn.float(), size, mode="bilinear").round()
            decoded["pixels"] = drawn.to(torch.uint8)
        if self.state is not None:
            decoded["state"] = self.state.decode(latent)
        if not decoded:
            raise UsageError(
                "this model cannot show what it predicts",
                expected="a head for pixels or for the state",
                found="neither",
                fix="train with pixel_head=true, or state_dim and state_angles",
            )
        return decoded

    def loss(
        self, name: str, latents: Tensor, frames: Tensor, batch: Batch, seen: Tensor, noise: Noise
    ) -> Tensor:
        """The loss of one head, a scalar; which frames are drawn is random.

        Args:
            name: of the head.
            latents: ``[B, F, D]``.
            frames: ``uint8 [B, F, 3, h, w]``.
            batch: has ``state [B, F, s]`` for the state head.
            seen: ``[B, F]`` bool, which frames exist.
            noise: rows B.

        Raises:
            DataError: the batch has no states.
        """
        if name == "pixels":
            assert self.pixels is not None, self.names
            rows = torch.arange(len(latents), device=latents.device)[:, None]
            length, device = latents.shape[1], latents.device
            drawn = noise.at("frames").integers(length, self.decoded_frames, device=device)
            drawn = torch.where(seen[rows, drawn], drawn, 0)
            chosen = latents[rows, drawn].flatten(0, 1), frames[rows, drawn].flatten(0, 1)
            if isinstance(self.pixels, FieldDecoder):
                return self.pixels.loss(*chosen, noise.at("places"))
            return self.pixels.loss(*chosen)
        assert self.state is not None, self.names
        if "state" not in batch.obs:
            raise DataError(
                "the state head has nothing to learn from",
                expected=f"state [B, T, {self.state.features.dim}] in every batch",
                found=", ".join(sorted(batch.obs)),
                fix='read windows with keys ("pixels", "state"), or set state_dim=0',
            )
        return self.state.loss(latents, batch.obs["state"], seen)


class HasHeads(Protocol):
    """What `HeadTraining` asks of a model."""

    heads: Heads
    training: bool

    def latents(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Latents ``[B, F, D]``, frames ``[B, F, 3, h, w]``, and which of them exist, ``[B, F]``."""
        ...


class HeadTraining(nn.Module):
    """Trains the heads of a model that stays as it is; a `Trainable`.

    Only the heads are submodules: the model keeps its weights and its mode.

    Args:
        model: in evaluation mode.

    Raises:
        ConfigError: it has no heads.
    """

    def __init__(self, model: HasHeads) -> None:
        super().__init__()
        if not model.heads.names:
            raise ConfigError(
                "there are no heads to train",
                expected="a model with a head for pixels or for the state",
                found="neither",
                fix="pixel_head=true, or state_dim and state_angles",
            )
        self.heads = model.heads
        self._model = [model]  # in a list, where PyTorch does not look for submodules

    def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of the losses of all heads.

        Raises:
            UsageError: the model is in training mode, or the frames are not what it looks at.
            DataError: the batch has no states.
        """
        model = self._model[0]
        if model.training:
            raise UsageError(
                "heads learn from a model in training mode",
                expected="latents that do not depend on the batch",
                found="model.training is True",
                fix="model.eval()",
            )
        with torch.no_grad():
            latents, frames, seen = model.latents(batch)
        heads = self.heads
        terms = {name: heads.loss(name, latents, frames, batch, seen, noise) for name in heads.names}
        return torch.stack(list(terms.values())).sum(), {key: one.detach() for key, one in terms.items()}

    def after_step(self) -> None:
        """Nothing to do."""
