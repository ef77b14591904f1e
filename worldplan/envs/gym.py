"""Any Gymnasium environment under our names: ``gym:Namespace/Name-v0``.

A Box observation becomes ``state`` (or ``pixels``, if it is an image); a Dict of Boxes keeps its names,
with ``observation`` called ``state``. Success is what the environment declares under ``success`` or
``is_success`` in its info, and unknown, never guessed from ``terminated``, where it declares nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from worldplan.envs.drawing import shrink
from worldplan.envs.registry import GYM, Task
from worldplan.errors import ConfigError, UsageError
from worldplan.types import ActionSpec, Array

_DECLARED = ("success", "is_success")


class GymEnv(gymnasium.Env[dict[str, Array], Any]):
    """A Gymnasium environment with named observations and declared success.

    Its states cannot be set: episodes begin where the seed says. Time limits truncate as registered.

    Args:
        env: id, or a `gymnasium.Env`, which this owns then.
        image_size: height and width of frames drawn with `render`.
        pixels: True adds ``pixels`` from `render` where the environment draws and shows no image.
        render_mode: ``"rgb_array"`` or None.
        success_key: the entry of ``info`` that declares success, False where it is missing. None looks
            for ``success`` and ``is_success``, and success is unknown where both are missing.

    Raises:
        ConfigError: there is no such id, or it cannot be made.
        UsageError: its observations or actions have no place in our observations.
    """

    observation_space: gymnasium.Space[Any]

    def __init__(
        self,
        env: str | gymnasium.Env[Any, Any],
        image_size: int = 64,
        pixels: bool = True,
        render_mode: str | None = None,
        success_key: str | None = None,
    ) -> None:
        self._env = _made(env, "rgb_array" if pixels else render_mode) if isinstance(env, str) else env
        self._success_key, self.image_size = success_key, image_size
        self.metadata, self.render_mode, self.spec = self._env.metadata, self._env.render_mode, self._env.spec
        self._names, spaces = _named(self._env.observation_space)
        self._drawn = pixels and "pixels" not in spaces and self.render_mode == "rgb_array"
        if self._drawn:
            spaces["pixels"] = gymnasium.spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        self.observation_space, self._spaces = gymnasium.spaces.Dict(spaces), spaces
        self._offset, self.action_space = _actions(self._env.action_space)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Starts an episode; options are those of the environment.

        Raises:
            UsageError: a state or a goal is asked for.
        """
        super().reset(seed=seed)
        for key in ("state", "goal"):
            if options and key in options:
                raise UsageError(
                    f"{self._env} cannot be set to a {key}",
                    expected="starts given by seeds alone",
                    fix="leave states and goals out of the starts",
                )
        obs, info = self._env.reset(seed=seed, options=dict(options) if options else None)
        return self._observe(obs), self._declare(info)

    def step(self, action: Any) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """One step; ``info["success"]`` is True, False or None."""
        chosen = int(np.asarray(action).item()) + self._offset if self._offset is not None else action
        obs, reward, terminated, truncated, info = self._env.step(chosen)
        return self._observe(obs), float(reward), bool(terminated), bool(truncated), self._declare(info)

    def render(self) -> Any:
        """What the environment draws."""
        return self._env.render()

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _observe(self, obs: Any) -> dict[str, Array]:
        entries = obs if isinstance(obs, Mapping) else {"": obs}
        named = {}
        for key, name in self._names.items():
            space = self._spaces[name]
            named[name] = np.array(entries[key], space.dtype).reshape(space.shape or ())
        if self._drawn:
            named["pixels"] = shrink(np.asarray(self._env.render()), self.image_size, self.image_size)
        return named

    def _declare(self, info: Mapping[str, Any]) -> dict[str, Any]:
        if self._success_key is not None:
            return {**info, "success": bool(info.get(self._success_key, False))}
        declared = next((info[key] for key in _DECLARED if key in info), None)
        return {**info, "success": None if declared is None else bool(declared)}


def gym_task(name: str) -> Task:
    """The task of a Gymnasium id; it has no settable states and no goals.

    Raises:
        ConfigError: there is no such id, or it cannot be made.
    """
    env = GymEnv(name, pixels=False)
    limit = env.spec.max_episode_steps if env.spec and env.spec.max_episode_steps else 1000
    space = env.action_space
    env.close()
    action = (
        ActionSpec(dim=1, choices=int(space.n))
        if isinstance(space, gymnasium.spaces.Discrete)
        else ActionSpec(space.low.size, _flat(space.low), _flat(space.high))  # type: ignore[attr-defined]
    )
    refuse = partial(_no_goals, name)
    return Task(
        name=f"{GYM}{name}",
        state_names=(),
        action=action,
        frame_skip=1,
        goal_offset=0,
        budget=limit,
        success=refuse,
        progress=refuse,
        displacement=refuse,
        demanding=refuse,
        success_text="what the environment declares in its info, unknown where it declares nothing",
        factory=partial(GymEnv, name),
    )


def _made(name: str, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    try:
        spec = gymnasium.spec(name)
        draws = "rgb_array" in getattr(_entry(spec), "metadata", {}).get("render_modes", ())
        return gymnasium.make(name, render_mode=render_mode if draws else None)
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(
            f"gym:{name} cannot be made: {error}",
            expected="a registered id, or module:Namespace/Name-v0 with the module that registers it",
            fix=f"python -c \"import gymnasium; gymnasium.make('{name}')\" shows the same in isolation",
        ) from error


def _entry(spec: gymnasium.envs.registration.EnvSpec) -> Any:
    point = spec.entry_point
    return gymnasium.envs.registration.load_env_creator(point) if isinstance(point, str) else point


def _named(space: gymnasium.Space[Any]) -> tuple[dict[str, str], dict[str, gymnasium.Space[Any]]]:
    """Old names to ours, and our spaces; the old name of a lone Box is empty."""
    entries = dict(space.spaces) if isinstance(space, gymnasium.spaces.Dict) else {"": space}
    names: dict[str, str] = {}
    spaces: dict[str, gymnasium.Space[Any]] = {}
    for key, entry in entries.items():
        if not isinstance(entry, gymnasium.spaces.Box):
            raise UsageError(
                f"the observation {key!r} cannot be used" if key else "the observation cannot be used",
                expected="a Box, or a Dict of Boxes",
                found=str(entry),
                fix="gymnasium.wrappers.FlattenObservation",
            )
        image = entry.dtype == np.uint8 and len(entry.shape) == 3
        name = ("pixels" if image else "state") if key in ("", "observation") else key
        names[key] = name
        flat = entry.shape if image else (int(np.prod(entry.shape)),)
        spaces[name] = entry if image else gymnasium.spaces.Box(-np.inf, np.inf, flat, np.float32)
    return names, spaces


def _actions(space: gymnasium.Space[Any]) -> tuple[int | None, gymnasium.Space[Any]]:
    """Where discrete actions begin (None for others), and the action space, discrete ones from 0."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.start), gymnasium.spaces.Discrete(int(space.n))
    if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1:
        return None, space
    raise UsageError("the actions cannot be used", expected="Discrete, or a Box [a]", found=str(space))


def _flat(bound: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in bound.ravel())


def _no_goals(name: str, *_: Array) -> Any:
    raise UsageError(
        f"gym:{name} has no goal states to judge by",
        expected="success declared by the environment itself",
        fix='read info["success"]',
    )
