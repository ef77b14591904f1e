"""A reader of simulator states from frames, trained on its own, to judge what others predict.

A world model's own heads share the features it plans with: judged by them, a prediction that fools the
planner fools the judge too. The reader sees frames only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from worldplan.errors import ConfigError, DataError, UsageError
from worldplan.models.centred import CropFeatures
from worldplan.models.decoders import StateHead, mean_frame
from worldplan.models.encoders import ConvEncoder, frames_of
from worldplan.models.settings import check, parse
from worldplan.normalize import Statistics
from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise
from worldplan.types import GOAL, Array, Batch, Obs


@dataclass(frozen=True)
class ReaderConfig:
    """What a `Reader` is made of.

    Attributes:
        image_size: height and width of the frames.
        state_dim: s, entries of the state.
        state_angles: which of them are angles in radians.
        widths, narrow, keypoints, features, coordinates, batch_norm: see `ConvEncoder`.
        centred: also reads the crop around the densest foreground and where it is (see `centred`),
            from which orientation is learned within minutes.
        hidden: width of the layers after the encoder.
        pixels: key of the frames.
    """

    KEY: ClassVar[str] = "reader"  # of the class it configures, in checkpoints

    image_size: int = 64
    state_dim: int = 7
    state_angles: tuple[int, ...] = ()
    widths: tuple[int, ...] = (64, 96, 96)
    narrow: int = 32
    keypoints: int = 0
    features: int = 256
    coordinates: bool = True
    batch_norm: bool = True
    centred: bool = False
    hidden: int = 256
    pixels: str = "pixels"

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        check(self, state_dim=(self.state_dim >= 1, "at least 1"), hidden=(self.hidden >= 1, "at least 1"))


class Reader(nn.Module):
    """Frames to states: a `ConvEncoder` and a `StateHead`; a `Trainable`.

    Entries that a single frame does not show, such as velocities, come out as their mean.

    Attributes:
        config: what it is made of.
        spec: what the world it reads looks like, or None.
    """

    def __init__(self, config: ReaderConfig, spec: ModelSpec | None = None) -> None:
        super().__init__()
        self.config, self.spec = config, spec
        self._shape = (3, config.image_size, config.image_size)
        self.encoder = ConvEncoder(
            config.image_size,
            config.widths,
            config.narrow,
            config.keypoints,
            config.features,
            config.coordinates,
            config.batch_norm,
        )
        self.crop = CropFeatures(config.image_size, config.features) if config.centred else None
        features = config.features * (2 if config.centred else 1)
        self.head = StateHead(features, config.state_dim, config.state_angles, config.hidden)

    @classmethod
    def from_config(cls, config: ReaderConfig | Mapping[str, Any], spec: ModelSpec | None = None) -> Reader:
        """Builds an untrained reader from plain values; raises `ConfigError` where they do not fit."""
        return cls(parse(ReaderConfig, config), spec)

    def fit_statistics(self, columns: Mapping[str, Array]) -> None:
        """Measures ``state [n, s]``, and ``pixels uint8 [n, h, w, 3]`` for a centred reader.

        Raises:
            DataError: a column is missing, or of another size.
        """
        sizes: dict[str, tuple[int, ...]] = {"state": (self.config.state_dim,)}
        if self.crop is not None:
            sizes["pixels"] = (*self._shape[1:], 3)
        for key, size in sizes.items():
            found = columns[key].shape[1:] if key in columns else "nothing"
            if found != size:
                raise DataError(
                    f"the reader's {key!r} cannot be measured",
                    expected=f"rows of shape {list(size)}",
                    found=found if isinstance(found, str) else f"rows of shape {list(found)}",
                )
        self.head.fit(Statistics.of(columns["state"], "state"))
        if self.crop is not None:
            self.crop.mean_frame.copy_(mean_frame(columns["pixels"]))

    def judge(
        self, success: Callable[[Array, Array], Array], progress: Callable[[Array, Array], Array]
    ) -> Judge:
        """The reader as a judge of a task's success; see `Judge`."""
        return Judge(self, success, progress)

    def read(self, obs: Obs) -> Tensor:
        """States ``[B, s]`` of the frames ``uint8 [B, 3, h, w]`` of an observation.

        Raises:
            UsageError: the frames are missing, or of another type, layout or size.
        """
        frames = frames_of(obs, self.config.pixels, self._shape)
        return self.head.decode(self._features(frames))

    def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean squared error of the state's features over all frames that exist. Draws nothing.

        Raises:
            UsageError: the frames are not what the reader looks at.
            DataError: the batch has no states.
        """
        frames = frames_of(batch.obs, self.config.pixels, self._shape, time=True)
        if "state" not in batch.obs:
            raise DataError(
                "the reader has nothing to learn from",
                expected=f"state [B, T, {self.config.state_dim}] in every batch",
                found=", ".join(sorted(batch.obs)),
                fix='read windows with keys ("pixels", "state")',
            )
        seen = torch.cat((batch.mask.new_ones(len(frames), 1), batch.mask), 1)
        features = self._features(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        loss = self.head.loss(features, batch.obs["state"], seen)
        return loss, {"state": loss.detach()}

    def after_step(self) -> None:
        """Nothing to do."""

    def _features(self, frames: Tensor) -> Tensor:
        read: Tensor = self.encoder(frames)
        return read if self.crop is None else torch.cat((read, self.crop(frames)), 1)


@dataclass(frozen=True)
class Judge:
    """Success and progress as a reader sees them; a `Success`.

    The goal is the state ``goal/state`` where the observation carries it, otherwise it is read off the
    goal's frame.

    Attributes:
        reader: in evaluation mode.
        success: maps states and goals ``[B, s]`` (arrays) to bool ``[B]``; of a task.
        progress: maps the same to floats in [0, 1].
    """

    reader: Reader
    success: Callable[[Array, Array], Array]
    progress: Callable[[Array, Array], Array]

    @torch.no_grad()
    def __call__(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Success, bool ``[B]``, and progress, float32 ``[B]``.

        Raises:
            UsageError: the frames or the goal are not what the reader looks at, or it is in training mode.
            ConfigError: the observation carries no goal.
        """
        require_evaluation(self.reader, "judges")
        states = self.reader.read(obs)
        goals = {key.removeprefix(GOAL): value for key, value in obs.items() if key.startswith(GOAL)}
        if not goals:
            raise ConfigError(
                "nothing can be judged without a goal",
                expected=f"an observation with {GOAL}state or {GOAL}{self.reader.config.pixels}",
                found=", ".join(sorted(obs)),
            )
        goal = goals["state"] if "state" in goals else self.reader.read(goals)
        arrays = states.cpu().numpy(), goal.cpu().numpy()
        success = torch.as_tensor(self.success(*arrays), dtype=torch.bool, device=states.device)
        progress = torch.as_tensor(self.progress(*arrays), dtype=torch.float32, device=states.device)
        return success, progress


def require_evaluation(module: nn.Module, what: str) -> None:
    """Raises `UsageError` in training mode, where outputs depend on batch mates."""
    if module.training:
        name = type(module).__name__
        raise UsageError(
            f"{name} {what} in training mode",
            expected="evaluation mode",
            found="training is True",
            fix=f"{name.lower()}.eval()",
        )
