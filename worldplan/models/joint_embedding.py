"""What the joint-embedding world models share: a frame becomes one vector, and one predicts the next.

``z = link(projector(encoder(frame)))``. How later latents are predicted, and by which error the predictor
learns, is the model's own: `forecast` and `prediction_error`. Here are the loss around that error::

    L = prediction + sum of the regularisers' weighted terms [+ optional terms, see `EmbeddingConfig`]

the history a state holds, and the heads that show what a latent says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from worldplan.errors import ConfigError, DataError, UsageError
from worldplan.models.centred import CentredDecoder
from worldplan.models.decoders import mean_frame
from worldplan.models.embedding_config import EmbeddingConfig
from worldplan.models.encoders import ConvEncoder, ViTEncoder, frames_of
from worldplan.models.heads import Heads
from worldplan.models.predictors import Projector
from worldplan.models.refine import LATENT
from worldplan.models.settings import parse
from worldplan.normalize import Normalizer, Statistics
from worldplan.protocol import ModelSpec, require_match
from worldplan.seeding import Noise
from worldplan.types import Array, Batch, Obs, Rollout, State

Regularizer = Callable[[Tensor, Noise, Tensor], Tensor]


class JointEmbedding(nn.Module):
    """A `WorldModel`, `Trainable` and `Decoder`, once a subclass says how it predicts.

    Its state holds the last C latents ``[B, C, D]`` and the C-1 actions between them, both ending with
    the newest, and how many of the latents exist, ``count [B]``.

    Args:
        config: what it is made of.
        spec: what it is fed.
        predictor: makes the predictor; called once, after the encoder is made.
        regularizers: weight and function of latents ``[B, F, D]``, noise and which exist ``[B, F]``, by
            the name of the term.
        link: applied to latents ``[M, D]`` as the last step of encoding; None leaves them.

    Attributes:
        config: what it is made of.
        spec: what it is fed.
        normalizer: actions to model units and back.

    Raises:
        ConfigError: the specification asks for what it cannot do.
        ProtocolMismatch: the specification and the configuration disagree.
    """

    CONFIG: ClassVar[type[EmbeddingConfig]]  # of a subclass, which is built from one and a specification

    def __init__(
        self,
        config: EmbeddingConfig,
        spec: ModelSpec,
        *,
        predictor: Callable[[], nn.Module],
        regularizers: Mapping[str, tuple[float, Regularizer]],
        link: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        if spec.action.choices is not None or spec.pixels is None:
            raise ConfigError(
                f"{type(self).__name__} sees frames and takes continuous actions",
                expected="a specification with pixels, and actions without choices",
                found=f"pixels {spec.pixels!r}, {spec.action.choices} choices",
            )
        require_match(
            config.spec(spec.env, spec.action, spec.pixels).to_json(),
            spec.to_json(),
            f"the configuration of {type(self).__name__} and the specification",
            fix="config.spec(env, action) makes one that fits",
        )
        self.config, self.spec = config, spec
        self._pixels, self._shape = spec.pixels, tuple(spec.obs[spec.pixels])
        self.normalizer = Normalizer(spec.action.dim)
        self.encoder = _encoder(config)
        self.projector = Projector(self.encoder.features, config.projector_hidden, config.latent_dim)
        self.predictor = predictor()
        self.regularizers, self.link = dict(regularizers), link
        self.heads = Heads(config)
        dim = config.latent_dim
        self.centred = CentredDecoder(dim, config.image_size) if config.centred_weight else None
        self.inverse = _inverse(dim, spec.action_dim) if config.inverse_weight else None

    @classmethod
    def from_config(cls, config: EmbeddingConfig | Mapping[str, Any], spec: ModelSpec | None) -> Self:
        """Builds an untrained model from plain values; raises `ConfigError` where they do not fit."""
        if spec is None:
            raise ConfigError(
                f"{cls.__name__} cannot be built without a specification", expected="a ModelSpec"
            )
        return cls(parse(cls.CONFIG, config), spec)  # type: ignore[call-arg]

    def forecast(self, latents: Tensor, past: Tensor, actions: Tensor, steps: Sequence[int]) -> list[Tensor]:
        """What follows a history of n <= C frames.

        Args:
            latents: ``[B, n, D]``, the newest last.
            past: ``[B, n-1, A]``, the actions between them.
            actions: ``[B, H, A]``, the actions to come.
            steps: the futures wanted, ascending in 1 ... H.

        Returns:
            One latent ``[B, D]`` for each of `steps`.
        """
        raise NotImplementedError

    def prediction_error(
        self, latents: Tensor, actions: Tensor, seen: Tensor, noise: Noise, step: int
    ) -> Tensor:
        """The error of what is predicted within a batch, a scalar.

        Args:
            latents: ``[B, F, D]``.
            actions: ``[B, F-1, A]`` model units.
            seen: ``[B, F]`` bool, which frames exist.
            noise: rows B.
            step: of the training.
        """
        raise NotImplementedError

    @property
    def measures(self) -> tuple[str, ...]:
        """The columns `fit_statistics` needs."""
        sees = {"pixels"} if self.centred is not None else set()
        return ("action", *sorted({*self.heads.names} | sees))

    def fit_statistics(self, columns: Mapping[str, Array]) -> None:
        """Measures what travels with the model, once, before training.

        Args:
            columns: training rows under the names in `measures`: ``action [n, a]``, ``state [n, s]``,
                ``pixels uint8 [n, h, w, 3]``; of the last, some thousand do.

        Raises:
            DataError: a column is missing, or of another shape.
        """
        sizes = {
            "action": (self.spec.action.dim,),
            "state": (self.config.state_dim,),
            "pixels": (*self._shape[1:], 3),
        }
        for key in self.measures:
            found = columns[key].shape[1:] if key in columns else "nothing"
            if found != sizes[key]:
                raise DataError(
                    f"the statistics of {key!r} cannot be measured",
                    expected=f"rows of shape {list(sizes[key])}",
                    found=found if isinstance(found, str) else f"rows of shape {list(found)}",
                    fix=f"fit_statistics with the columns {', '.join(self.measures)}",
                )
        self.normalizer.fit(Statistics.of(columns["action"], "action"))
        self.heads.fit(columns)
        if self.centred is not None:
            self.centred.mean_frame.copy_(mean_frame(columns["pixels"]))

    def encode(self, obs: Obs, actions: Tensor, valid: Tensor) -> State:
        """Summarises a history of up to C frames; see `WorldModel`. Frames that do not exist are not read.

        Raises:
            UsageError: the history is not of C frames, or its frames are not what the model looks at.
        """
        frames = frames_of(obs, self._pixels, self._shape, time=True)
        batch_size, context = len(frames), self.spec.context
        count = valid.sum(1)
        place = torch.arange(context, device=valid.device)
        shapes = (tuple(frames.shape[:2]), tuple(valid.shape), tuple(actions.shape[:2]))
        if shapes != ((batch_size, context), (batch_size, context), (batch_size, context - 1)):
            raise UsageError(
                "the history does not have the model's context",
                expected=f"{context} frames, {context - 1} actions and a valid flag per frame",
                found=f"frames {shapes[0]}, actions {shapes[2]}, valid {shapes[1]}",
                fix="pad older frames in front and mark them as not valid",
            )
        if (count < 1).any() or (valid != (place >= context - count[:, None])).any():
            raise UsageError(
                "the frames of a history must be its newest ones",
                expected="valid flags that are False, then True up to the last",
                found=str(valid[(count < 1) | ~valid[:, -1]][:1].tolist() or "a gap"),
            )
        encoded = self._latents(frames[valid])
        latents = encoded.new_zeros(batch_size, context, self.config.latent_dim)
        latents[valid] = encoded
        known = torch.where(valid[:, :-1, None], actions, 0.0)
        return {"latents": latents, "actions": known, "count": count}

    def embed(self, obs: Obs) -> Tensor:
        """The latents ``[B, D]`` of an observation without a time axis."""
        return self._latents(frames_of(obs, self._pixels, self._shape))

    def predict(self, state: State, actions: Tensor, noise: Noise, steps: Tensor | None = None) -> Rollout:
        """Feeds predictions back for H steps; see `WorldModel`. Draws nothing."""
        batch_size, horizon, _ = actions.shape
        assert actions.shape == (len(state["count"]), horizon, self.spec.action_dim), actions.shape
        steps = torch.arange(horizon + 1, device=actions.device) if steps is None else steps
        lengths = sorted(set(state["count"].tolist()))
        # those asked for, and those the state goes on from
        newest = range(max(horizon - self.spec.context, 0) + 1, horizon + 1)
        wanted = sorted({*steps.tolist(), *newest} - {0})
        if len(lengths) == 1:
            path = self._path(state, actions, lengths[0], wanted)
        else:  # histories of one length at a time, so that none is padded
            rows = [(state["count"] == known).nonzero()[:, 0] for known in lengths]
            parts = [
                self._path({key: value[index] for key, value in state.items()}, actions[index], known, wanted)
                for index, known in zip(rows, lengths, strict=True)
            ]
            back = torch.cat(rows).argsort()
            path = {step: torch.cat([part[step] for part in parts])[back] for step in parts[0]}
        latent = torch.stack([path[step] for step in steps.tolist()], 1)
        return Rollout(latent, steps, actions, final=self._after(state, path, actions))

    def decode(self, latent: Tensor) -> Obs:
        """Shows latents ``[B, D]``; see `Heads.decode`."""
        shown = self.heads.decode(latent)
        return {self._pixels if key == "pixels" else key: value for key, value in shown.items()}

    def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The training loss of a batch of windows, and its terms.

        Windows have F = T+1 frames.
        Where the state or reconstruction weight is 0, the respective head learns from latents cut from
        the graph, with weight `head_weight`: it changes nothing but itself.

        Random: what regularisers and the prediction error draw, and which frames are drawn.

        Raises:
            UsageError: the frames are not what the model looks at.
            DataError: the batch lacks the states its state head learns, or statistics are missing.
        """
        config = self.config
        latents, frames, seen = self.latents(batch)
        actions = self.normalizer.normalize(batch.actions)
        terms = {
            "prediction": self.prediction_error(latents, actions, seen, noise, step),
            **{name: term(latents, noise, seen) for name, (_, term) in self.regularizers.items()},
        }
        weights = {"prediction": 1.0, **{name: weight for name, (weight, _) in self.regularizers.items()}}
        if self.inverse is not None:
            pairs = torch.cat((latents[:, :-1], latents[:, 1:]), -1)
            error = (self.inverse(pairs).float() - actions).square().mean(-1)
            terms["inverse"] = torch.where(batch.mask, error, 0.0).sum() / batch.mask.sum().clamp(min=1)
            weights["inverse"] = config.inverse_weight
        if self.centred is not None:
            terms["what"], terms["where"] = self.centred.loss(latents[seen], frames[seen])
            weights["what"] = weights["where"] = config.centred_weight
        for name in self.heads.names:
            weight = config.reconstruction_weight if name == "pixels" else config.state_weight
            if weight or config.head_weight:
                source = latents if weight else latents.detach()
                terms[name] = self.heads.loss(name, source, frames, batch, seen, noise)
                weights[name] = weight or config.head_weight
        total = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
        metrics = {name: term.detach() for name, term in terms.items()}
        metrics["latent_std"] = latents.detach()[seen].std(0).mean()
        return total, metrics

    def after_step(self) -> None:
        """Nothing to do: there is no target network."""

    def latents(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Latents ``[B, F, D]`` of a batch, its frames ``[B, F, 3, h, w]``, and which exist, ``[B, F]``.

        A batch that holds latents, under ``"latent"``, is not encoded again; see `refine.embedded`.

        Raises:
            UsageError: the frames are not what the model looks at.
        """
        frames = frames_of(batch.obs, self._pixels, self._shape, time=True)
        seen = torch.cat((torch.ones_like(batch.mask[:, :1]), batch.mask), 1)
        assert frames.shape[:2] == seen.shape, (frames.shape, batch.mask.shape)
        if LATENT in batch.obs:
            return batch.obs[LATENT], frames, seen
        return self._latents(frames.flatten(0, 1)).view(*seen.shape, -1), frames, seen

    def _latents(self, frames: Tensor) -> Tensor:
        """``uint8 [M, 3, h, w]`` to ``[M, D]`` in float32."""
        latents: Tensor = self.projector(self.encoder(frames)).float()
        return latents if self.link is None else self.link(latents)

    def _path(self, state: State, actions: Tensor, known: int, wanted: list[int]) -> dict[int, Tensor]:
        """The newest latent, under 0, and those that are `wanted`, ``[B, D]`` each, from `known` frames."""
        missing = self.spec.context - known
        latents, past = state["latents"][:, missing:], state["actions"][:, missing:]
        predicted = self.forecast(latents, past, actions, wanted) if wanted else []
        return {0: latents[:, -1], **dict(zip(wanted, predicted, strict=True))}

    def _after(self, state: State, path: Mapping[int, Tensor], actions: Tensor) -> State:
        """The state once all of `actions` are taken."""
        context, horizon = self.spec.context, actions.shape[1]
        newest = [path[step][:, None] for step in range(max(horizon - context, 0) + 1, horizon + 1)]
        taken = torch.cat((state["actions"], actions), 1)
        return {
            "latents": torch.cat((state["latents"], *newest), 1)[:, -context:],
            "actions": taken[:, taken.shape[1] - (context - 1) :],
            "count": (state["count"] + horizon).clamp(max=context),
        }


def _encoder(config: EmbeddingConfig) -> ViTEncoder | ConvEncoder:
    if config.encoder == "vit":
        return ViTEncoder(
            config.image_size, config.vit_patch, config.vit_width, config.vit_depth, config.vit_heads
        )
    return ConvEncoder(
        config.image_size,
        config.conv_widths,
        config.conv_narrow,
        config.conv_keypoints,
        config.conv_features,
        config.conv_coordinates,
        config.conv_batch_norm,
    )


def _inverse(latent_dim: int, action_dim: int) -> nn.Sequential:
    """Reads the action off the latents before and after it."""
    return nn.Sequential(nn.Linear(2 * latent_dim, 512), nn.GELU(), nn.Linear(512, action_dim))
