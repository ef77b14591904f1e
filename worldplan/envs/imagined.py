"""The world model as an environment: the interface of the simulators, over imagined frames.

An episode begins with a real first observation, which is encoded once. From then on the model
predicts, a decoder draws what a policy sees, and a judge, trained apart from both, reads success off
the drawn frames. The goal is the real one throughout.

One model step spans k environment steps (the frame-skip), so actions are gathered until k of them are
there. In between the observation repeats the last drawn frame: policies that answer k actions at once
always see a fresh one, policies that answer one act on a frame up to k - 1 steps old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from worldplan import tree
from worldplan.envs.imagined_chunk import Chunk, Frames
from worldplan.envs.observations import to_obs
from worldplan.envs.one_row import OneRowEnv
from worldplan.errors import RunError, UsageError
from worldplan.protocol import require_match
from worldplan.seeding import Noise
from worldplan.types import GOAL, Array, Obs, State, Success, WorldModel

Observation = dict[str, Array]
Step = tuple[Observation, Array, Array, Array, dict[str, Array]]


class ImaginedVectorEnv(VectorEnv[Observation, Array, Array]):
    """Imagined episodes beside each other; each row ends alone and is frozen from then on.

    ``reset(seed=..., options={"state": [B, s], "goal": [B, s]})`` lets `first` draw the real first
    observations; ``reset(options={"obs": ...})`` takes them as recorded (HWC frames and goals).
    Success ends an episode, as in the simulators, and so does a predicted discount below a half;
    ``info["success"]`` changes at model steps only. The reward is the model's where it predicts one,
    otherwise 1 at success. Draws of stochastic models are keyed by the seeds of the rows.

    Args:
        model: a world model; `model.normalizer` maps actions to its units where it has one.
        decode: latents ``[M, ...]`` to observations: ``pixels uint8 [M, 3, h, w]``, ``state [M, s]``.
        judge: reads success and progress off decoded observations with their goals; None leaves
            success undeclared.
        first: the environment whose `reset` gives first observations, or, where they are always
            passed as options, the observation space of one row.
        keys: what is observed beside the goals; None means all that `first` shows. All of them must
            be drawn by `decode`.
        num_envs: B; None takes that of `first`.
        max_steps: environment steps after which a row is truncated, or None.
        model_id: goes into the records of every episode imagined here.
        seed: seed of stochastic models.
        device: where the model lives.

    Raises:
        ProtocolMismatch: the first observations are not what the model was trained on.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"
    source = "model"

    def __init__(
        self,
        model: WorldModel,
        decode: Callable[[Tensor], Obs],
        judge: Success | None,
        first: VectorEnv[Any, Any, Any] | gymnasium.spaces.Dict,
        *,
        keys: Sequence[str] | None = None,
        num_envs: int | None = None,
        max_steps: int | None = None,
        model_id: str = "unnamed",
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self._model, self._decode, self._judge = model, decode, judge
        self._first = first if isinstance(first, VectorEnv) else None
        self.num_envs: int = num_envs or (first.num_envs if isinstance(first, VectorEnv) else 1)
        if self._first is not None and self._first.num_envs != self.num_envs:
            raise UsageError(
                "imagination and the environment of first observations differ in size",
                expected=f"num_envs={self._first.num_envs}",
                found=f"num_envs={self.num_envs}",
            )
        self.name, self.model_id, self.max_steps = model.spec.env, model_id, max_steps
        self._seed, self._device = seed, torch.device(device)
        self._set_spaces(first.single_observation_space if isinstance(first, VectorEnv) else first, keys)
        rows = self.num_envs
        self._obs: Observation = {}
        self._state: State = {}
        self._seeds = np.zeros(rows, np.int64)
        self._age = np.zeros(rows, np.int64)  # environment steps since the reset
        self._pending = np.zeros((rows, model.spec.frame_skip, model.spec.action.dim), self._action_dtype)
        self._terminated, self._truncated = np.zeros(rows, bool), np.zeros(rows, bool)
        self._success, self._progress = np.zeros(rows, bool), np.zeros(rows, np.float32)

    @classmethod
    def single(cls, *args: Any, **kwargs: Any) -> OneRowEnv:
        """The same imagination as a `gymnasium.Env` of one row; takes the same arguments."""
        return OneRowEnv(cls(*args, **kwargs))

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Array]]:
        """Starts episodes from real observations, in all rows or those of ``options["mask"]``.

        Args:
            seed: one per row; a single one counts up along the rows; None draws them.
            options: ``state`` and ``goal`` for `first`, or ``obs`` itself; and ``mask``, bool ``[B]``.

        Raises:
            UsageError: there is no first observation, it lacks what the model reads, or the model or
                judge is in training mode, where rows would depend on each other.
        """
        for part in (self._model, self._judge):
            if getattr(part, "training", False):
                name = type(part).__name__
                raise UsageError(f"{name} imagines in training mode", fix=f"call eval() on the {name}")
        options = dict(options or {})
        super().reset(seed=int(seed) if isinstance(seed, int | np.integer) else None)
        mask = np.asarray(options.get("mask", np.ones(self.num_envs)), bool)
        rows = np.flatnonzero(mask)
        seeds = self._row_seeds(seed)
        observation = self._first_observation(seeds, options)
        self._begin(rows, seeds, observation)
        return self._copy(), self._info()

    def step(self, actions: Array) -> Step:
        """One environment step with actions ``[B, a]``, clipped to the bounds."""
        obs, reward, terminated, truncated, info = self.step_chunk(np.asarray(actions)[:, None])
        last = {key: value[:, 0] for key, value in obs.items()}
        facts = {key: value[:, 0] for key, value in info.items()}
        return last, reward[:, 0], terminated[:, 0], truncated[:, 0], facts

    def step_chunk(self, actions: Array, keep: int | None = None) -> Step:
        """Runs the first l actions of a chunk, all model steps they complete in one prediction.

        Args:
            actions: ``[B, K, a]`` environment units, clipped to the bounds. Discrete: ``[B, K]`` or
                ``[B, K, 1]``.
            keep: l, how many of them to run; None means all. The others do not move the model.

        Returns:
            Gymnasium's five with a time axis: entries ``[B, l, ...]``.

        Raises:
            UsageError: actions have another shape or are not finite; or `reset` was never called.
            RunError: the model predicted something that is not finite.
        """
        if not self._obs:
            raise UsageError("the environment was stepped before it was reset", fix="call reset() first")
        done = self._terminated | self._truncated
        actions = self._bounded(actions, ~done)[:, :keep]
        out = Chunk.still(
            self._obs, self._terminated, self._truncated, self._success, self._progress, actions.shape[1]
        )
        before = self._age.copy()
        for age in np.unique(before[~done]):
            rows = np.flatnonzero(~done & (before == age))
            self._advance(rows, int(age), actions[rows], out)
        self._obs = {key: value[:, -1].copy() for key, value in out.obs.items()}
        self._terminated, self._truncated = out.terminated[:, -1].copy(), out.truncated[:, -1].copy()
        self._success, self._progress = out.success[:, -1].copy(), out.progress[:, -1].copy()
        info = {} if self._judge is None else {"success": out.success, "progress": out.progress}
        return out.obs, out.reward, out.terminated, out.truncated, info

    def render(self) -> tuple[Array, ...]:
        """What each row looks like now, ``uint8 [h, w, 3]`` each."""
        return tuple(self._obs[self._model.spec.pixels or "pixels"].copy())

    def close_extras(self, **_: Any) -> None:
        """Leaves `first` open: it belongs to whoever made it."""

    def _set_spaces(self, single: gymnasium.Space[Any], keys: Sequence[str] | None) -> None:
        spec = self._model.spec
        known = {
            key: space
            for key, space in getattr(single, "spaces", {}).items()
            if keys is None or key in keys or key.startswith(GOAL)
        }
        moved = {
            key: (space.shape[-1], *space.shape[:-1]) if len(space.shape) == 3 else tuple(space.shape)
            for key, space in known.items()
        }
        require_match(
            spec.obs,
            {key: moved[key] for key in spec.obs if key in moved},
            "what the model was trained on and the first observations",
            fix="build the environment with the image size and modalities of the checkpoint",
        )
        box = gymnasium.spaces.Box
        if spec.action.choices is None:
            self._action_dtype: Any = np.float32
            self._low, self._high = (np.array(b, np.float32) for b in (spec.action.low, spec.action.high))
            self.single_action_space: gymnasium.Space[Any] = box(self._low, self._high, dtype=np.float32)
        else:
            self._action_dtype = np.int64
            self._low, self._high = np.array([0]), np.array([spec.action.choices - 1])
            self.single_action_space = gymnasium.spaces.Discrete(spec.action.choices)
        self.single_observation_space = gymnasium.spaces.Dict(known)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def _row_seeds(self, seed: int | Sequence[int] | None) -> Array:
        if seed is None:
            return self.np_random.integers(2**31, size=self.num_envs)
        if isinstance(seed, int | np.integer):
            return np.arange(seed, seed + self.num_envs)
        assert len(seed) == self.num_envs, (len(seed), self.num_envs)
        return np.asarray(seed, np.int64)

    def _first_observation(self, seeds: Array, options: dict[str, Any]) -> Observation:
        given = options.pop("obs", None)
        if given is None:
            if self._first is None:
                raise UsageError(
                    "imagination has nothing to begin with",
                    expected='a real first observation in options={"obs": ...}',
                    found="neither that nor an environment to take it from",
                )
            given = self._first.reset(seed=seeds.tolist(), options=options)[0]
        known = self.single_observation_space.spaces  # type: ignore[attr-defined]
        if missing := sorted(set(known) - set(given)):
            raise UsageError(
                f"the first observation lacks {', '.join(missing)}",
                expected=", ".join(sorted(known)),
                found=", ".join(sorted(given)),
            )
        observation = {key: np.array(given[key], space.dtype) for key, space in known.items()}
        for key, space in known.items():
            expected = (self.num_envs, *space.shape)
            if observation[key].shape != expected:
                raise UsageError(
                    f"the first observation {key!r} has the wrong shape",
                    expected=str(list(expected)),
                    found=str(list(observation[key].shape)),
                )
        return observation

    def _begin(self, rows: Array, seeds: Array, observation: Observation) -> None:
        if not self._obs:
            assert len(rows) == self.num_envs, "the first reset is of all rows"
            self._obs = {key: value.copy() for key, value in observation.items()}
        for key, value in observation.items():
            self._obs[key][rows] = value[rows]
        obs = to_obs({key: value[rows] for key, value in observation.items()}, self._device)
        self._write(rows, self._encode(obs))
        self._seeds[rows], self._age[rows] = seeds[rows], 0
        self._terminated[rows] = self._truncated[rows] = False
        if self._judge is not None:
            with torch.no_grad():
                success, progress = self._judge(obs)
            self._success[rows], self._progress[rows] = success.cpu().numpy(), progress.cpu().numpy()

    def _encode(self, obs: Obs) -> State:
        """The state after one real frame; the frames before it are marked as missing."""
        spec = self._model.spec
        seen = {key: obs[key] for key in spec.obs}
        count, context = tree.rows(seen), spec.context
        history = tree.map(lambda x: x[:, None].expand(-1, context, *x.shape[1:]), seen)
        dtype = torch.float32 if spec.action.choices is None else torch.int64
        actions = torch.zeros(count, context - 1, spec.action_dim, dtype=dtype, device=self._device)
        valid = torch.zeros(count, context, dtype=torch.bool, device=self._device)
        valid[:, -1] = True
        with torch.no_grad():
            return self._model.encode(history, actions, valid)

    def _bounded(self, actions: Array, live: Array) -> Array:
        """``[B, K, a]``, inside the bounds."""
        actions, dim = np.asarray(actions, self._action_dtype), self._model.spec.action.dim
        if actions.ndim == 2 and self._model.spec.action.choices is not None:
            actions = actions[..., None]
        fits = actions.ndim == 3 and (len(actions), actions.shape[2]) == (self.num_envs, dim)
        if not fits or not np.isfinite(actions[live]).all():
            raise UsageError(
                "imagination cannot take these actions",
                expected=f"finite numbers [{self.num_envs}, K, {dim}]",
                found=f"shape {list(actions.shape)}" if not fits else "NaN or infinity",
            )
        bounded: Array = np.clip(actions, self._low, self._high)
        return bounded

    def _write(self, rows: Array, state: State) -> None:
        if len(rows) == self.num_envs:
            self._state = state
        else:
            self._state = tree.write(self._state, torch.from_numpy(rows), state)

    def _advance(self, rows: Array, age: int, actions: Array, out: Chunk) -> None:
        """Moves rows of the same age by the l actions of a chunk and writes what is seen."""
        skip, length = self._model.spec.frame_skip, actions.shape[1]
        phase = age % skip
        gathered = np.concatenate([self._pending[rows, :phase], actions], 1)
        count = gathered.shape[1] // skip
        rest = gathered[:, count * skip :]
        self._pending[rows, : rest.shape[1]] = rest
        self._age[rows] += length
        left = length + 1 if self.max_steps is None else self.max_steps - age
        if count:
            whole = gathered[:, : count * skip].reshape(len(rows), count, -1)
            frames = self._dream(rows, age // skip, whole)
            for index in range(count):
                at = (index + 1) * skip - phase - 1
                alive = ~out.terminated[rows, at]
                if at < left:
                    out.write(rows[alive], at, frames.at(index, alive))
        if left <= length:
            alive = ~out.terminated[rows, left - 1]
            out.truncated[rows[alive], left - 1 :] = True

    def _dream(self, rows: Array, model_step: int, actions: Array) -> Frames:
        """Predicts m model steps ``[R, m, A]`` and draws and judges all of them."""
        index = torch.from_numpy(rows)
        noise = Noise.of(self._seed, torch.from_numpy(self._seeds[rows]).to(self._device))
        units = torch.from_numpy(np.ascontiguousarray(actions)).to(self._device)
        normalizer = getattr(self._model, "normalizer", None)
        if normalizer is not None and self._model.spec.action.choices is None:
            units = normalizer.normalize(units)
        steps = torch.arange(1, actions.shape[1] + 1, device=self._device)
        state = self._state if len(rows) == self.num_envs else tree.select(self._state, index)
        with torch.no_grad():
            rollout = self._model.predict(state, units, noise.at("model", model_step), steps)
            if not torch.isfinite(rollout.latent).all():
                raise RunError(
                    "the world model predicted a value that is not finite",
                    found=f"seeds {self._seeds[rows].tolist()}, after model step {model_step}",
                )
            assert rollout.final is not None, "a model that imagines returns its final state"
            decoded = self._checked(self._decode(rollout.latent.flatten(0, 1)))
            goals = {key: value[rows] for key, value in self._obs.items() if key.startswith(GOAL)}
            frames = {**decoded, **tree.repeat(to_obs(goals, self._device), actions.shape[1])}
            judged = None if self._judge is None else self._judge(frames)
        self._write(rows, rollout.final)
        return Frames.of(decoded, judged, rollout.reward, rollout.discount, actions.shape[:2])

    def _checked(self, decoded: Obs) -> Obs:
        wanted = [key for key in self._obs if not key.startswith(GOAL)]
        if missing := sorted(set(wanted) - set(decoded)):
            raise UsageError(
                f"the decoder draws no {', '.join(missing)}",
                expected=", ".join(wanted),
                found=", ".join(sorted(decoded)),
                fix=f"a decoder that draws them, or keys={sorted(set(wanted) & set(decoded))}",
            )
        return {key: decoded[key] for key in wanted}

    def _copy(self) -> Observation:
        return {key: value.copy() for key, value in self._obs.items()}

    def _info(self) -> dict[str, Array]:
        if self._judge is None:
            return {}
        return {"success": self._success.copy(), "progress": self._progress.copy()}
