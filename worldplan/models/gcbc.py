"""Goal-conditioned behaviour cloning: what to do here to get there, as the data did it.

A network maps the present and the goal, two frames or two simulator states, to the mean of the next K
environment actions; it is trained by their squared error on pairs cut from the same episode. It plans
nothing, which makes it the baseline of everything that does.

Source: Ghosh et al., "Learning to reach goals via iterated supervised learning", arXiv 1912.06088.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from worldplan.errors import ConfigError, DataError, UsageError
from worldplan.models.encoders import ConvEncoder, frames_of
from worldplan.models.reader import require_evaluation
from worldplan.models.settings import check, parse
from worldplan.models.states import StateFeatures
from worldplan.normalize import Normalizer, Statistics
from worldplan.protocol import ModelSpec, require_match
from worldplan.seeding import Noise
from worldplan.types import GOAL, ActionSpec, Array, Batch, Carry, Obs


@dataclass(frozen=True)
class GCBCConfig:
    """What a `GCBC` is made of.

    Attributes:
        inputs: ``"pixels"`` or ``"state"``.
        chunk: K, environment actions answered at once.
        frame_skip: k, environment steps between the frames of the windows it learns from.
        image_size: height and width of the frames.
        state_dim: s, entries of the state, for ``inputs="state"``.
        state_angles: which of them are angles in radians.
        widths, narrow, keypoints, features, coordinates, batch_norm: see `ConvEncoder`.
        hidden: width of the MLP.
        layers: hidden layers of the MLP.
    """

    KEY: ClassVar[str] = "gcbc"  # of the class it configures, in checkpoints

    inputs: str = "pixels"
    chunk: int = 5
    frame_skip: int = 5
    image_size: int = 64
    state_dim: int = 0
    state_angles: tuple[int, ...] = ()
    widths: tuple[int, ...] = (64, 96, 96)
    narrow: int = 32
    keypoints: int = 0
    features: int = 256
    coordinates: bool = True
    batch_norm: bool = True
    hidden: int = 512
    layers: int = 2

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        check(
            self,
            inputs=(self.inputs in ("pixels", "state"), "pixels or state"),
            state_dim=(self.state_dim >= 1 or self.inputs == "pixels", "at least 1 with inputs=state"),
            chunk=(self.chunk >= 1, "at least 1"),
            frame_skip=(self.frame_skip >= 1, "at least 1"),
            layers=(self.layers >= 1, "at least 1"),
        )

    def spec(self, env: str, action: ActionSpec) -> ModelSpec:
        """The specification of a policy of this kind, for an environment and one of its actions."""
        sees = self.inputs == "pixels"
        shape = (3, self.image_size, self.image_size) if sees else (self.state_dim,)
        pixels = "pixels" if sees else None
        return ModelSpec(env, {self.inputs: shape}, 1, self.frame_skip, action, (), pixels)


class GCBC(nn.Module):
    """The policy; a `Policy` and a `Trainable`.

    Attributes:
        config: what it is made of.
        spec: what it is fed.
        name: for records.
    """

    name = "gcbc"

    def __init__(self, config: GCBCConfig, spec: ModelSpec) -> None:
        super().__init__()
        if spec.action.choices is not None:
            raise ConfigError("GCBC answers continuous actions", found=f"{spec.action.choices} choices")
        require_match(
            config.spec(spec.env, spec.action).to_json(),
            spec.to_json(),
            "the configuration of GCBC and the specification",
            fix="config.spec(env, action) makes one that fits",
        )
        self.config, self.spec = config, spec
        self._shape = tuple(spec.obs[config.inputs])
        self.normalizer = Normalizer(spec.action.dim)
        self.encoder: ConvEncoder | StateFeatures
        if config.inputs == "pixels":
            self.encoder = ConvEncoder(
                config.image_size,
                config.widths,
                config.narrow,
                config.keypoints,
                config.features,
                config.coordinates,
                config.batch_norm,
            )
            features = config.features
        else:
            self.encoder = StateFeatures(config.state_dim, config.state_angles)
            features = self.encoder.size
        sizes = [2 * features, *[config.hidden] * config.layers]
        layers: list[nn.Module] = []
        for inward, out in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(inward, out), nn.LayerNorm(out), nn.SiLU()]
        self.net = nn.Sequential(*layers, nn.Linear(config.hidden, config.chunk * spec.action.dim))

    @classmethod
    def from_config(cls, config: GCBCConfig | Mapping[str, Any], spec: ModelSpec | None) -> GCBC:
        """Builds an untrained policy from plain values; raises `ConfigError` where they do not fit."""
        if spec is None:
            raise ConfigError("GCBC cannot be built without a specification", expected="a ModelSpec")
        return cls(parse(GCBCConfig, config), spec)

    @property
    def requires(self) -> tuple[str, ...]:
        """Keys an observation must have."""
        return (self.config.inputs, GOAL + self.config.inputs)

    def fit_statistics(self, columns: Mapping[str, Array]) -> None:
        """Measures ``action [n, a]``, and ``state [n, s]`` where states are the input.

        Raises:
            DataError: a column is missing, or of another size.
        """
        sizes = {"action": self.spec.action.dim}
        if isinstance(self.encoder, StateFeatures):
            sizes["state"] = self.config.state_dim
        for key, size in sizes.items():
            found = columns[key].shape[1:] if key in columns else "nothing"
            if found != (size,):
                raise DataError(
                    f"the statistics of {key!r} cannot be measured",
                    expected=f"rows of {size} entries",
                    found=str(found),
                )
        self.normalizer.fit(Statistics.of(columns["action"], "action"))
        if isinstance(self.encoder, StateFeatures):
            self.encoder.fit(Statistics.of(columns["state"], "state"))

    def initial(self, batch_size: int) -> Carry:
        """Nothing is remembered."""
        return {}

    @torch.no_grad()
    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        """Actions ``[B, K, a]`` in environment units, inside the bounds. Draws nothing.

        Raises:
            UsageError: an input is missing or not what the network reads, or it is in training mode.
        """
        require_evaluation(self, "acts")
        answer = self(self._input(obs, ""), self._input(obs, GOAL))
        actions = self.normalizer.unnormalize(answer.float())
        return self.spec.action.project(actions), carry

    def forward(self, present: Tensor, goal: Tensor) -> Tensor:
        """Normalised actions ``[B, K, a]`` from two frames ``[B, 3, h, w]`` or states ``[B, s]``."""
        both = torch.cat((present, goal))
        pixels = isinstance(self.encoder, ConvEncoder)
        features = self.encoder(both) if pixels else self.encoder.encode(both)  # type: ignore[operator]
        pair = torch.cat(features.chunk(2), 1)
        answer: Tensor = self.net(pair).view(len(present), self.config.chunk, -1)
        return answer

    def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean squared error of the first K actions of each window, in z-scores.

        The goal is ``goal/<key> [B, ...]`` where the batch has it, otherwise a frame of the same window,
        drawn uniformly from those after the first; actions after the goal do not count. Windows span at
        least K environment steps, or the later actions of the chunk are never trained.

        Raises:
            UsageError: an input is not what the network reads.
        """
        present = self._input({key: value[:, 0] for key, value in batch.obs.items()}, "")
        steps, dim = self.config.frame_skip, self.spec.action.dim
        actions = batch.actions.reshape(len(present), -1, dim)[:, : self.config.chunk]
        mask = batch.mask.repeat_interleave(steps, 1)[:, : self.config.chunk]
        if GOAL + self.config.inputs in batch.obs:
            goal = self._input(batch.obs, GOAL)
        else:
            last = batch.mask.sum(1)  # index of the last frame that exists
            share = noise.at("goal").uniform(1, device=last.device)[:, 0]
            index = 1 + (share * last).long().clamp(max=last - 1).clamp(min=0)
            rows = torch.arange(len(last), device=last.device)
            goal = self._input({self.config.inputs: batch.obs[self.config.inputs][rows, index]}, "")
            mask = mask & (torch.arange(mask.shape[1], device=mask.device) < steps * index[:, None])
        answer = self(present, goal)[:, : mask.shape[1]].float()
        error = (answer - self.normalizer.normalize(actions)).square().mean(-1)
        loss = torch.where(mask, error, 0.0).sum() / mask.sum().clamp(min=1)
        return loss, {"action": loss.detach()}

    def after_step(self) -> None:
        """Nothing to do."""

    def _input(self, obs: Obs, prefix: str) -> Tensor:
        key = prefix + self.config.inputs
        if isinstance(self.encoder, ConvEncoder):
            return frames_of(obs, key, self._shape)
        if key not in obs or obs[key].shape[1:] != self._shape or not obs[key].is_floating_point():
            found = obs.get(key)
            raise UsageError(
                f"the policy cannot read {key!r}",
                expected=f"floats [B, {self.config.state_dim}]",
                found="nothing" if found is None else f"{found.dtype} {list(found.shape)}",
            )
        return obs[key]
