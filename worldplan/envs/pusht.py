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
from typing import Any, ClassVar

import numpy as np

from worldplan.envs.goal_env import GoalEnv
from worldplan.errors import require
from worldplan.types import GOAL, Array

WORLD = 512.0
POSITION_TOLERANCE = 20.0
ANGLE_TOLERANCE = np.pi / 9
ACTION_SCALE = 100.0
STATE_NAMES = ("agent_x", "agent_y", "block_x", "block_y", "block_angle", "agent_vx", "agent_vy")
# the extra cannot bring gym-pusht itself, which asks for an OpenCV build that needs libGL
_INSTALL = 'pip install "worldplan[pusht]" && pip install --no-deps "gym-pusht==0.1.8"'
_SUBSTEPS, _DT, _K_P, _K_V = 10, 0.01, 100.0, 20.0


def angle_difference(first: Array, second: Array) -> Array:
    """Smallest absolute difference of two angles, radians in ``[0, pi]``."""
    return np.asarray(np.abs((first - second + np.pi) % (2 * np.pi) - np.pi))


def success(states: Array, goals: Array) -> Array:
    """LeWM's predicate on states ``[..., 7]`` (px, radians) against goals ``[..., 7]``."""
    distance = np.linalg.norm(states[..., :4] - goals[..., :4], axis=-1)
    turned = angle_difference(states[..., 4], goals[..., 4])
    return np.asarray((distance < POSITION_TOLERANCE) & (turned < ANGLE_TOLERANCE))


def progress(states: Array, goals: Array) -> Array:
    """1 at the goal, falling to 0 at 200 px or half a turn, whichever is worse."""
    distance = np.linalg.norm(states[..., :4] - goals[..., :4], axis=-1) / 200
    turned = angle_difference(states[..., 4], goals[..., 4]) / np.pi
    return np.asarray(1 - np.clip(np.maximum(distance, turned), 0, 1))


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
    return np.asarray((asked["block_px"] > POSITION_TOLERANCE) | (asked["block_rad"] > ANGLE_TOLERANCE))


class PushT(GoalEnv):
    """Push-T with settable states and goals; see `GoalEnv` for options, observations and success.

    Args:
        image_size: height and width of observed frames.
        pixels: False leaves frames out of the observation, which needs no drawing at all.
        render_mode: ``"rgb_array"`` or None; `render` draws the goal as an outline.
    """

    title: ClassVar[str] = "Push-T"
    state_names: ClassVar[tuple[str, ...]] = STATE_NAMES

    def __init__(self, image_size: int = 64, pixels: bool = True, render_mode: str | None = None) -> None:
        super().__init__(image_size, pixels, render_mode)
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        self._package = require("gym_pusht.envs.pusht", "pusht", _INSTALL)
        self._cv2 = require("cv2", "pusht", _INSTALL)
        self._pygame = require("pygame", "pusht", _INSTALL)
        self._body = self._package.PushTEnv(obs_type="state")
        self._canvas: Any = None
        self.set_state(np.array([256, 400, 256, 300, 0, 0, 0], np.float64))

    def advance(self, action: Array) -> None:
        """Draws the agent to ``agent + 100 * action`` for 0.1 s; nothing is clipped."""
        agent, space = self._body.agent, self._body.space
        (px, py), (vx, vy) = agent.position, agent.velocity
        x, y = px + ACTION_SCALE * float(action[0]), py + ACTION_SCALE * float(action[1])
        for _ in range(_SUBSTEPS):
            vx, vy = (
                vx + (_K_P * (x - px) - _K_V * vx) * _DT,
                vy + (_K_P * (y - py) - _K_V * vy) * _DT,
            )
            agent.velocity = (vx, vy)
            space.step(_DT)
            # nothing pushes the agent back, so its position need not be read again
            px, py = px + vx * _DT, py + vy * _DT

    def state(self) -> Array:
        """The state, float64 ``[7]``: px, radians in ``[0, 2 pi)``, px/s."""
        agent, block = self._body.agent, self._body.block
        angle = block.angle % (2 * np.pi)
        return np.array([*agent.position, *block.position, angle, *agent.velocity], np.float64)

    def set_state(self, state: Array) -> None:
        """Puts every body where ``state [7]`` says, at rest but for the agent, free of old contacts."""
        # a fresh space forgets the contacts that pymunk caches between steps
        self._body._setup()
        # the package counts contacts in a Python callback, which doubles the cost of touching; a
        # handler for types that no body has still holds the default callback, written in C
        unused = self._body.space.add_collision_handler(98, 99)
        self._body.collision_handeler._handler.postSolveFunc = unused._handler.postSolveFunc
        self._place(self._body, np.asarray(state, np.float64))

    def solves(self, state: Array, goal: Array) -> bool:
        """LeWM's predicate, see `success`."""
        return bool(success(state, goal))

    def render(self) -> Array:
        """A frame ``uint8 [256, 256, 3]`` with the goal pose as an outline."""
        frame = self._frame(self._body, 256)
        if self._goal:
            self._outline(frame, self._goal[f"{GOAL}state"])
        return frame

    def render_state(self, state: Array, size: int | None = None) -> Array:
        """The frame ``uint8 [size, size, 3]`` of any state, drawn with the package's own bodies."""
        if self._canvas is None:
            self._canvas = self._package.PushTEnv(obs_type="state")
            self._canvas._setup()
        self._place(self._canvas, np.asarray(state, np.float64))
        return self._frame(self._canvas, size or self.image_size)

    def observe_frame(self) -> Array:
        """The frame ``uint8 [size, size, 3]`` of the present state."""
        return self._frame(self._body, self.image_size)

    def draw_state(self) -> Array:
        """A random state ``[7]`` at rest in which the agent touches nothing."""
        rng = self.np_random
        while True:
            agent, block = rng.uniform(50, 450, 2), rng.uniform(120, 390, 2)
            state = np.array([*agent, *block, rng.uniform(0, 2 * np.pi), 0, 0])
            self._place(self._body, state)
            if not self._body.space.shape_query(next(iter(self._body.agent.shapes))):
                return state

    def _frame(self, body: Any, size: int) -> Array:
        screen = self._pygame.Surface((512, 512), depth=32)
        screen.fill((255, 255, 255))
        body.space.debug_draw(self._package.DrawOptions(screen))
        blue_first = np.frombuffer(screen.get_buffer(), np.uint8).reshape(512, 512, 4)
        small = self._cv2.resize(blue_first, (size, size), interpolation=self._cv2.INTER_AREA)
        return np.ascontiguousarray(small[..., 2::-1])

    def _outline(self, frame: Array, goal: Array) -> None:
        block = self._package.PushTEnv.get_goal_pose_body(goal[2:5].astype(np.float64))
        block.center_of_gravity = self._body.block.center_of_gravity
        block.angle, block.position = float(goal[4]), tuple(map(float, goal[2:4]))
        scale = frame.shape[0] / WORLD
        for shape in self._body._block_shapes:  # a list: `block.shapes` is a set, in no fixed order
            corners = np.array([block.local_to_world(v) for v in shape.get_vertices()]) * scale
            self._cv2.polylines(frame, [corners.astype(np.int32)], True, (60, 170, 60), 1, self._cv2.LINE_AA)
        centre = (int(goal[0] * scale), int(goal[1] * scale))
        self._cv2.circle(frame, centre, int(15 * scale), (60, 170, 60), 1, self._cv2.LINE_AA)

    @staticmethod
    def _place(body: Any, state: Array) -> None:
        agent, block, space = body.agent, body.block, body.space
        agent.position, agent.velocity = (
            (float(state[0]), float(state[1])),
            (float(state[5]), float(state[6])),
        )
        # the angle turns the body about its centre of gravity, so it is set before the position
        block.angle = float(state[4])
        block.position = (float(state[2]), float(state[3]))
        block.velocity, block.angular_velocity = (0.0, 0.0), 0.0
        space.reindex_shapes_for_body(agent)
        space.reindex_shapes_for_body(block)
