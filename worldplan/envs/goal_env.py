"""What our simulators share: a state that can be set, a goal of the same kind, declared success.

A concrete simulator says how its state is read, set, advanced, drawn at random and drawn as a
frame; resetting, observing, clipping and judging are written here once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from worldplan.errors import UsageError
from worldplan.types import GOAL, Array


class GoalEnv(gymnasium.Env[dict[str, Array], Array]):
    """A simulator with settable states and goals.

    Observations hold ``state [s]`` and ``goal/state [s]`` (float32), and with `pixels` the frames
    ``pixels`` and ``goal/pixels`` (uint8 ``[size, size, 3]``); the goal is never drawn into the
    observed frame. ``reset(options={"state": [s], "goal": [s]})`` sets both exactly; without
    options they are drawn from the seed. ``info["success"]`` is declared at every step; success
    gives reward 1 and terminates the episode. Nothing else ends it.

    Args:
        image_size: height and width of observed frames.
        pixels: False leaves frames out of the observation, which needs no drawing at all.
        render_mode: ``"rgb_array"`` or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space: gymnasium.Space[Any]
    title: ClassVar[str]
    state_names: ClassVar[tuple[str, ...]]
    action_dim: ClassVar[int] = 2

    def __init__(self, image_size: int = 64, pixels: bool = True, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UsageError(
                f"{self.title} cannot render this way", expected="rgb_array or None", found=repr(render_mode)
            )
        if image_size < 1:
            raise UsageError("frames need a size", expected="at least 1 pixel", found=str(image_size))
        self.render_mode = render_mode
        self.image_size, self.pixels = image_size, pixels
        box, shape = gymnasium.spaces.Box, (len(self.state_names),)
        spaces: dict[str, gymnasium.Space[Any]] = {
            "state": box(-np.inf, np.inf, shape, np.float32),
            f"{GOAL}state": box(-np.inf, np.inf, shape, np.float32),
        }
        if pixels:
            for key in ("pixels", f"{GOAL}pixels"):
                spaces[key] = box(0, 255, (image_size, image_size, 3), np.uint8)
        self.observation_space = gymnasium.spaces.Dict(spaces)
        self.action_space = box(-1, 1, (self.action_dim,), np.float32)
        self._goal: dict[str, Array] = {}

    @abstractmethod
    def state(self) -> Array:
        """The state, float64 ``[s]``, in the order of `state_names`."""

    @abstractmethod
    def set_state(self, state: Array) -> None:
        """Puts the simulator exactly into ``state [s]``, free of everything that went before."""

    @abstractmethod
    def advance(self, action: Array) -> None:
        """Runs the physics of one step and nothing else (no clipping, no frame)."""

    @abstractmethod
    def draw_state(self) -> Array:
        """A random state ``[s]`` from ``self.np_random``."""

    @abstractmethod
    def render_state(self, state: Array, size: int | None = None) -> Array:
        """The frame ``uint8 [size, size, 3]`` of any state; the simulation is left alone."""

    @abstractmethod
    def solves(self, state: Array, goal: Array) -> bool:
        """Whether ``state [s]`` reaches ``goal [s]``."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Starts an episode; see the class for the options."""
        super().reset(seed=seed)
        options = options or {}
        goal, state = self.checked(options.get("goal"), "goal"), self.checked(options.get("state"), "state")
        # both are drawn even if given, so that giving one does not change the other
        drawn = self.draw_state(), self.draw_state()
        goal, state = (drawn[0] if goal is None else goal), (drawn[1] if state is None else state)
        self._goal = {f"{GOAL}state": goal.astype(np.float32)}
        if self.pixels:
            self._goal[f"{GOAL}pixels"] = self.render_state(goal)
        self.set_state(state)
        return self._observe(), self._info()

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Runs one control step; actions are clipped to the bounds.

        Raises:
            UsageError: the action has another shape or is not finite, or `reset` was never called.
        """
        action = np.asarray(action)
        if action.shape != (self.action_dim,) or not np.isfinite(action).all():
            raise UsageError(
                f"{self.title} cannot take this action",
                expected=f"{self.action_dim} finite numbers in [-1, 1]",
                found=f"shape {action.shape}: {action.tolist()}",
            )
        if not self._goal:
            raise UsageError(f"{self.title} was stepped before its first reset", fix="env.reset(seed=0)")
        self.advance(np.clip(action, -1, 1))
        info = self._info()
        return self._observe(), float(info["success"]), info["success"], False, info

    def observe_frame(self) -> Array:
        """The frame ``uint8 [size, size, 3]`` of the present state."""
        return self.render_state(self.state())

    def render_states(self, states: Array, size: int | None = None) -> Array:
        """Frames ``uint8 [M, size, size, 3]`` of ``states [M, s]``."""
        size = size or self.image_size
        frames = np.empty((len(states), size, size, 3), np.uint8)
        for index, state in enumerate(states):
            frames[index] = self.render_state(state, size)
        return frames

    def checked(self, state: Any, name: str) -> Array | None:
        """``state`` as float64 ``[s]``, or None; raises `UsageError` where it cannot be set."""
        if state is None:
            return None
        array = np.asarray(state, np.float64)
        if array.shape != (len(self.state_names),) or not np.isfinite(array).all():
            raise UsageError(
                f"{self.title} cannot be set to this {name}",
                expected=f"{len(self.state_names)} finite numbers: {', '.join(self.state_names)}",
                found=f"shape {array.shape}: {array.tolist()}",
            )
        return array

    def _observe(self) -> dict[str, Array]:
        # copies: whoever keeps an observation may write into it
        observation = {key: value.copy() for key, value in self._goal.items()}
        observation["state"] = self.state().astype(np.float32)
        if self.pixels:
            observation["pixels"] = self.observe_frame()
        return observation

    def _info(self) -> dict[str, Any]:
        return {"success": self.solves(self.state(), self._goal[f"{GOAL}state"])}
