"""Push-T: a round pusher moves a T-shaped block to a goal pose, quasi-statically, in 2-D.

Bodies, walls and physics are those of the ``gym-pusht`` package; the protocol is LeWM's:

* the world is 512 x 512 pixels, control runs at 10 Hz with ten physics steps each;
* an action is a *relative* target: the pusher is drawn to ``position + 100 * action`` by a PD law;
* the state is ``[agent x, agent y, block x, block y, block angle, agent vx, agent vy]``; the block
  keeps no velocity between physics steps, so this is all there is, and any state can be set;
* success: the joint distance of agent and block positions to the goal is under 20 px and the
  block's angle is within pi/9.

Frames show the walls, the block and the pusher. The goal is a frame of its own
(``goal/pixels``), never drawn into the observation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from worldplan.errors import UsageError, require
from worldplan.types import Array

WORLD = 512.0
POSITION_TOLERANCE = 20.0
ANGLE_TOLERANCE = np.pi / 9
ACTION_SCALE = 100.0
STATE_NAMES = ("agent_x", "agent_y", "block_x", "block_y", "block_angle", "agent_vx", "agent_vy")
_SUBSTEPS, _DT, _K_P, _K_V = 10, 0.01, 100.0, 20.0


def angle_difference(first: Array, second: Array) -> Array:
    """Smallest absolute difference of two angles, radians in ``[0, pi]``."""
    return np.abs((first - second + np.pi) % (2 * np.pi) - np.pi)


def success(states: Array, goals: Array) -> Array:
    """LeWM's predicate on states ``[..., 7]`` (px, radians) against goals ``[..., 7]``."""
    distance = np.linalg.norm(states[..., :4] - goals[..., :4], axis=-1)
    turned = angle_difference(states[..., 4], goals[..., 4])
    return (distance < POSITION_TOLERANCE) & (turned < ANGLE_TOLERANCE)


def progress(states: Array, goals: Array) -> Array:
    """1 at the goal, falling to 0 at 200 px or half a turn, whichever is worse."""
    distance = np.linalg.norm(states[..., :4] - goals[..., :4], axis=-1) / 200
    turned = angle_difference(states[..., 4], goals[..., 4]) / np.pi
    return 1 - np.clip(np.maximum(distance, turned), 0, 1)


def displacement(states: Array, goals: Array) -> dict[str, Array]:
    """What a goal asks for: block travel in px, block turn in radians, agent travel in px."""
    return {
        "block_px": np.linalg.norm(states[..., 2:4] - goals[..., 2:4], axis=-1),
        "block_rad": angle_difference(states[..., 4], goals[..., 4]),
        "agent_px": np.linalg.norm(states[..., :2] - goals[..., :2], axis=-1),
    }


def demanding(states: Array, goals: Array) -> Array:
    """Whether the block must move more than 20 px or turn more than pi/9."""
    asked = displacement(states, goals)
    return (asked["block_px"] > POSITION_TOLERANCE) | (asked["block_rad"] > ANGLE_TOLERANCE)


class PushT(gymnasium.Env[dict[str, Array], Array]):
    """Push-T with settable states and goals.

    ``reset(options={"state": [7], "goal": [7]})`` sets both exactly; without options they are drawn
    from the seed. ``info["success"]`` is declared at every step and ends the episode.

    Args:
        image_size: height and width of observed frames.
        pixels: False leaves frames out of the observation, which needs no drawing at all.
        render_mode: ``"rgb_array"`` or None; `render` draws the goal as an outline.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self, image_size: int = 64, pixels: bool = True, render_mode: str | None = None
    ) -> None:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        self._package = require("gym_pusht.envs.pusht", "pusht")
        self._cv2 = require("cv2", "pusht")
        self._pygame = require("pygame", "pusht")
        self.render_mode = render_mode
        self.image_size, self.pixels = image_size, pixels
        box = gymnasium.spaces.Box
        spaces: dict[str, gymnasium.Space[Any]] = {
            "state": box(-np.inf, np.inf, (7,), np.float32),
            "goal/state": box(-np.inf, np.inf, (7,), np.float32),
        }
        if pixels:
            for key in ("pixels", "goal/pixels"):
                spaces[key] = box(0, 255, (image_size, image_size, 3), np.uint8)
        self.observation_space = gymnasium.spaces.Dict(spaces)
        self.action_space = box(-1, 1, (2,), np.float32)
        self._body = self._package.PushTEnv(obs_type="state")
        self._goal: dict[str, Array] = {}
        self._build(np.array([256, 400, 256, 300, 0, 0, 0], np.float64))

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Starts an episode; see the class for the options."""
        super().reset(seed=seed)
        options = options or {}
        goal = self._checked(options.get("goal"), "goal")
        state = self._checked(options.get("state"), "state")
        drawn = self._draw_state(), self._draw_state()
        goal, state = (drawn[0] if goal is None else goal), (drawn[1] if state is None else state)
        self._goal = {"goal/state": goal.astype(np.float32)}
        if self.pixels:
            self._goal["goal/pixels"] = self.render_state(goal)
        self._build(state)
        return self._observe(), self._info()

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Holds the target ``agent + 100 * action`` for 0.1 s; actions are clipped to the bounds."""
        self.advance(np.clip(action, -1, 1))
        info = self._info()
        return self._observe(), float(info["success"]), bool(info["success"]), False, info

    def advance(self, action: Array) -> None:
        """Runs the physics of one step and nothing else (no clipping, no frame)."""
        agent, space = self._body.agent, self._body.space
        x, y = agent.position
        x, y = x + ACTION_SCALE * float(action[0]), y + ACTION_SCALE * float(action[1])
        for _ in range(_SUBSTEPS):
            (px, py), (vx, vy) = agent.position, agent.velocity
            agent.velocity = (
                vx + (_K_P * (x - px) - _K_V * vx) * _DT,
                vy + (_K_P * (y - py) - _K_V * vy) * _DT,
            )
            space.step(_DT)

    def state(self) -> Array:
        """The state, float64 ``[7]``: px, radians in ``[0, 2 pi)``, px/s."""
        agent, block = self._body.agent, self._body.block
        angle = block.angle % (2 * np.pi)
        return np.array([*agent.position, *block.position, angle, *agent.velocity], np.float64)

    def set_state(self, state: Array) -> None:
        """Puts every body where ``state [7]`` says, at rest but for the agent, free of old contacts."""
        self._build(np.asarray(state, np.float64))

    def render(self) -> Array:
        """A frame ``uint8 [256, 256, 3]`` with the goal pose as an outline."""
        frame = self.render_state(self.state(), 256)
        if self._goal:
            self._outline(frame, self._goal["goal/state"])
        return frame

    def render_state(self, state: Array, size: int | None = None) -> Array:
        """The frame ``uint8 [size, size, 3]`` of any state, drawn with the package's own bodies."""
        kept = self.state()
        self._place(np.asarray(state, np.float64))
        try:
            return self._frame(size or self.image_size)
        finally:
            self._place(kept)

    def _frame(self, size: int) -> Array:
        pygame = self._pygame
        screen = pygame.Surface((512, 512), depth=32)
        screen.fill((255, 255, 255))
        self._body.space.debug_draw(self._package.DrawOptions(screen))
        blue_first = np.frombuffer(screen.get_buffer(), np.uint8).reshape(512, 512, 4)
        small = self._cv2.resize(blue_first, (size, size), interpolation=self._cv2.INTER_AREA)
        return np.ascontiguousarray(small[..., 2::-1])

    def _outline(self, frame: Array, goal: Array) -> None:
        block = self._package.PushTEnv.get_goal_pose_body(goal[2:5].astype(np.float64))
        block.center_of_gravity = self._body.block.center_of_gravity
        block.angle, block.position = float(goal[4]), tuple(map(float, goal[2:4]))
        scale = frame.shape[0] / WORLD
        for shape in self._body.block.shapes:
            corners = np.array([block.local_to_world(v) for v in shape.get_vertices()]) * scale
            self._cv2.polylines(frame, [corners.astype(np.int32)], True, (60, 170, 60), 1, self._cv2.LINE_AA)
        centre = (int(goal[0] * scale), int(goal[1] * scale))
        self._cv2.circle(frame, centre, int(15 * scale), (60, 170, 60), 1, self._cv2.LINE_AA)

    def _build(self, state: Array) -> None:
        # a fresh space forgets the contacts that pymunk caches between steps
        self._body._setup()
        self._place(state)

    def _place(self, state: Array) -> None:
        agent, block, space = self._body.agent, self._body.block, self._body.space
        agent.position, agent.velocity = (float(state[0]), float(state[1])), (float(state[5]), float(state[6]))
        # the angle turns the body about its centre of gravity, so it is set before the position
        block.angle = float(state[4])
        block.position = (float(state[2]), float(state[3]))
        block.velocity, block.angular_velocity = (0.0, 0.0), 0.0
        space.reindex_shapes_for_body(agent)
        space.reindex_shapes_for_body(block)

    def _draw_state(self) -> Array:
        rng = self.np_random
        while True:
            agent, block = rng.uniform(50, 450, 2), rng.uniform(120, 390, 2)
            state = np.array([*agent, *block, rng.uniform(0, 2 * np.pi), 0, 0])
            self._place(state)
            if not self._body.space.shape_query(next(iter(self._body.agent.shapes))):
                return state

    def _observe(self) -> dict[str, Array]:
        observation = {"state": self.state().astype(np.float32), **self._goal}
        if self.pixels:
            observation["pixels"] = self._frame(self.image_size)
        return observation

    def _info(self) -> dict[str, Any]:
        return {"success": bool(success(self.state(), self._goal["goal/state"]))}

    @staticmethod
    def _checked(state: Any, name: str) -> Array | None:
        if state is None:
            return None
        array = np.asarray(state, np.float64)
        if array.shape != (7,) or not np.isfinite(array).all():
            raise UsageError(
                f"Push-T cannot be set to this {name}",
                expected=f"7 finite numbers: {', '.join(STATE_NAMES)}",
                found=f"shape {array.shape}: {array.tolist()}",
            )
        return array
