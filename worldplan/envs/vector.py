"""Simulators as one vector environment, in this process or in workers, each row ending alone.

Autoreset is disabled: an environment that is done stays as it is, with its last observation, reward 0
and its flags, until it is reset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from worldplan.envs.one_row import OneRowEnv
from worldplan.envs.registry import Task, task
from worldplan.envs.rows import UNKNOWN, Factory, Observation
from worldplan.envs.worker import Crew, Here, Worker
from worldplan.errors import UsageError, WorkerError, suggest
from worldplan.types import Array

Step = tuple[Observation, Array, Array, Array, dict[str, Array]]
_OPTIONS = ("state", "goal", "mask")


class SimVectorEnv(VectorEnv[Observation, Array, Array]):
    """B simulators; results depend on seeds and actions alone, whatever the number of workers.

    ``info["success"]`` is bool ``[B]``; rows whose environment has not declared any are False there and
    in the mask ``info["_success"]``, and where no row has, both keys are missing.

    Args:
        what: a task, its name, or a function that makes one `gymnasium.Env` with Dict observations; with
            workers, one that can be pickled.
        num_envs: B.
        workers: processes that share the rows; 0 keeps them in this one.
        image_size: height and width of frames; for tasks only.
        pixels: False leaves frames out; for tasks only.
        render_mode: what `render` draws; for tasks only.

    Raises:
        ConfigError: there is no task of that name.
        MissingExtra: the simulator is not installed.
    """

    source = "real"

    def __init__(
        self,
        what: str | Task | Factory,
        num_envs: int,
        workers: int = 0,
        image_size: int = 64,
        pixels: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1 or workers < 0:
            raise UsageError(
                "there is nothing to simulate with",
                expected="num_envs of at least 1, workers of at least 0",
                found=f"num_envs={num_envs}, workers={workers}",
            )
        self.task = task(what) if isinstance(what, str) else what if isinstance(what, Task) else None
        self.name = self.task.name if self.task else str(getattr(what, "__name__", type(what).__name__))
        factory: Any = (
            partial(self.task.make, image_size=image_size, pixels=pixels, render_mode=render_mode)
            if self.task
            else what
        )
        self.num_envs, self.render_mode = num_envs, render_mode
        self._began = False
        self._done = np.zeros(num_envs, bool)
        self._crews, self._slices = hire(factory, num_envs, workers)
        try:
            observation, action, metadata = self._ask("spaces")[0]
        except BaseException:
            self.close()
            raise
        self.metadata = {**metadata, "autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = batch_space(observation, num_envs)
        self.action_space = batch_space(action, num_envs)

    @classmethod
    def single(cls, what: str | Task | Factory, **settings: Any) -> OneRowEnv:
        """The same as a `gymnasium.Env` of one row."""
        return OneRowEnv(cls(what, 1, **settings))

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Array]]:
        """Starts episodes in all rows, or in those of ``options["mask"]``.

        Args:
            seed: one per row; a single one counts up along the rows; None goes on drawing.
            options: ``state`` and ``goal``, each ``[B, s]`` or None, or a sequence with None where the
                environment shall choose; ``mask``, bool ``[B]``.

        Raises:
            UsageError: an option is unknown, has the wrong number of rows, or cannot be set.
        """
        options = dict(options or {})
        for key in options:
            if key not in _OPTIONS:
                raise UsageError(f"unknown reset option {key!r}", fix=suggest(key, _OPTIONS))
        count = self.num_envs
        mask = np.asarray(self._per_row(options.get("mask"), "mask", True), bool)
        if not self._began and not mask.all():
            raise UsageError("the first reset must be of all rows", found=f"a mask of {int(mask.sum())}")
        seeds: Sequence[int | None]
        if isinstance(seed, int | np.integer):
            seeds = [int(seed) + row for row in range(count)]
        else:
            seeds = [None if s is None else int(s) for s in self._per_row(seed, "seed", None)]
        states = self._per_row(options.get("state"), "state", None)
        goals = self._per_row(options.get("goal"), "goal", None)
        parts = self._ask("reset", *((mask[s], seeds[s], states[s], goals[s]) for s in self._slices))
        self._began, self._done = True, self._done & ~mask
        return _joined([obs for obs, _ in parts]), _info(np.concatenate([success for _, success in parts]))

    def step(self, actions: Array) -> Step:
        """One environment step with actions ``[B, a]``, or ``[B]`` if they are discrete."""
        actions = np.asarray(actions)
        obs, reward, terminated, truncated, info = self.step_chunk(actions.reshape(len(actions), 1, -1))
        last = {key: value[:, 0] for key, value in obs.items()}
        facts = {key: value[:, 0] for key, value in info.items()}
        return last, reward[:, 0], terminated[:, 0], truncated[:, 0], facts

    def step_chunk(self, actions: Array, keep: int | None = None) -> Step:
        """Runs the first l actions of a chunk.

        Args:
            actions: ``[B, K, a]`` environment units, clipped to the bounds; discrete ones ``[B, K]`` or
                ``[B, K, 1]``.
            keep: l, how many of them to run; None means all.

        Returns:
            Gymnasium's five with a time axis: entries ``[B, l, ...]``.

        Raises:
            UsageError: actions have the wrong shape or are not finite in a row that still runs.
            WorkerError: a worker died; all of them are closed then.
        """
        if not self._began:
            raise UsageError("the environment was stepped before it was reset", fix="call reset() first")
        chunk = self._checked(np.asarray(actions), keep)
        parts = self._ask("run", *((chunk[s],) for s in self._slices))
        reward, terminated, truncated, success = (
            np.concatenate([part[index] for part in parts]) for index in (1, 2, 3, 4)
        )
        self._done = terminated[:, -1] | truncated[:, -1]
        return _joined([part[0] for part in parts]), reward, terminated, truncated, _info(success)

    def render_states(self, states: Array, size: int | None = None) -> Array:
        """Frames ``uint8 [M, size, size, 3]`` of ``states [M, s]``, shared out among the workers."""
        shares = np.array_split(np.asarray(states, np.float64), len(self._crews))
        return np.concatenate(self._ask("render_states", *((share, size) for share in shares)))

    def render(self) -> tuple[Any, ...] | None:
        """What the environment of each row draws, or None without a `render_mode`."""
        if self.render_mode is None:
            return None
        return tuple(frame for part in self._ask("render") for frame in part)

    def close_extras(self, **_: Any) -> None:
        """Closes the environments and ends the workers."""
        for crew in self._crews:
            crew.close()

    def _ask(self, method: str, *args: tuple[Any, ...]) -> list[Any]:
        if self.closed:
            raise UsageError("the environment is closed", fix="make another one")
        try:
            return ask(self._crews, method, *args)
        except (WorkerError, KeyboardInterrupt):
            self.close()
            raise

    def _per_row(self, values: Any, name: str, missing: Any) -> Sequence[Any]:
        if values is None:
            return [missing] * self.num_envs
        count = len(values) if hasattr(values, "__len__") else None
        if count != self.num_envs:
            raise UsageError(
                f"there must be one {name} per row",
                expected=f"{self.num_envs} rows",
                found="a single value" if count is None else str(count),
            )
        return list(values)

    def _checked(self, actions: Array, keep: int | None) -> Array:
        space, rows = self.single_action_space, self.num_envs
        discrete = isinstance(space, gymnasium.spaces.Discrete)
        dim = 1 if discrete else int(np.prod(space.shape or (1,)))
        if discrete and actions.ndim == 2:
            actions = actions[..., None]
        if actions.ndim != 3 or actions.shape[0] != rows or actions.shape[2] != dim or not actions.shape[1]:
            raise UsageError(
                "actions have the wrong shape", expected=f"[{rows}, K, {dim}]", found=str(list(actions.shape))
            )
        actions = actions[:, :keep]
        if not actions.shape[1]:
            raise UsageError("no action would be run", expected="keep of at least 1", found=f"keep={keep}")
        bad = ~np.isfinite(actions).all((1, 2)) & ~self._done  # rows that are done may hold anything
        if bad.any():
            row = int(bad.argmax())
            raise UsageError(
                "an action is not finite",
                expected="finite numbers",
                found=f"{actions[row].tolist()} in row {row}",
            )
        if isinstance(space, gymnasium.spaces.Discrete):
            actions = np.nan_to_num(actions)
            first = int(space.start)
            return np.asarray(np.clip(actions, first, first + int(space.n) - 1), np.int64)
        assert isinstance(space, gymnasium.spaces.Box), space
        shaped = actions.reshape(*actions.shape[:2], *space.shape)
        return np.asarray(np.clip(shaped, space.low, space.high).astype(space.dtype))


def hire(factory: Factory, rows: int, workers: int) -> tuple[list[Crew], list[slice]]:
    """Shares rows out among workers, or keeps them here."""
    if not workers:
        return [Here(factory, rows)], [slice(0, rows)]
    shares = [share for share in np.array_split(np.arange(rows), workers) if len(share)]
    slices = [slice(int(share[0]), int(share[-1]) + 1) for share in shares]
    crews: list[Crew] = []
    try:
        for index, part in enumerate(slices):
            name = f"worker {index + 1} of {len(slices)} (rows {part.start}..{part.stop - 1})"
            crews.append(Worker(factory, part.stop - part.start, name))
    except BaseException:
        for crew in crews:
            crew.close()
        raise
    return crews, slices


def ask(crews: Sequence[Crew], method: str, *args: tuple[Any, ...]) -> list[Any]:
    """Runs a method in all crews at once, with arguments of their own or none, and waits for all."""
    for index, crew in enumerate(crews):
        crew.submit(method, *(args[index] if args else ()))
    answers, errors = [], []
    for crew in crews:
        try:
            answers.append(crew.result())
        except Exception as error:  # the others' answers are fetched first, to stay in step
            errors.append(error)
    if errors:
        raise next((error for error in errors if isinstance(error, WorkerError)), errors[0])
    return answers


def _joined(parts: Sequence[Observation]) -> Observation:
    if len(parts) == 1:
        return dict(parts[0])
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _info(success: Array) -> dict[str, Array]:
    known = success != UNKNOWN
    return {"success": success == 1, "_success": known} if known.any() else {}
