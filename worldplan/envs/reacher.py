"""Reacher: a planar arm of two links turns its joints to a goal posture.

Physics are those of Gymnasium's ``Reacher-v5`` (MuJoCo, RK4 at 0.01 s, two physics steps per control
step, so 50 Hz); the protocol is that of LeWM's Reacher:

* an action is the torque of both joints as a share of the largest;
* the state is ``[joint 0, joint 1, velocity 0, velocity 1]`` in rad and rad/s, the goal a state whose
  joints are to be matched; the target ball of the original is hidden;
* success: both joints within 0.05 rad of the goal, turns of 2 pi not counted.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

from worldplan.envs.goal_env import GoalEnv
from worldplan.envs.mujoco_stage import load_mujoco, stage
from worldplan.types import GOAL, Array

TOLERANCE = 0.05
STATE_NAMES = ("joint_0", "joint_1", "velocity_0", "velocity_1")
_PHYSICS_STEPS = 2
_LINKS = (0.1, 0.11)  # metres, the second one up to the fingertip
_FAR = 0.5  # radians; further than that is demanding


def angle_difference(first: Array, second: Array) -> Array:
    """Smallest absolute difference of angles, radians in ``[0, pi]``."""
    return np.asarray(np.abs((first - second + np.pi) % (2 * np.pi) - np.pi))


def success(states: Array, goals: Array) -> Array:
    """Whether both joints of ``states [..., 4]`` are within 0.05 rad of those of ``goals [..., 4]``."""
    return np.asarray(angle_difference(states[..., :2], goals[..., :2]).max(-1) < TOLERANCE)


def progress(states: Array, goals: Array) -> Array:
    """1 at the goal, falling to 0 where a joint is half a turn off."""
    return np.asarray(1 - angle_difference(states[..., :2], goals[..., :2]).max(-1) / np.pi)


def displacement(states: Array, goals: Array) -> dict[str, Array]:
    """What a goal asks for: the larger turn in radians, travel of the fingertip in metres."""
    return {
        "joint_rad": angle_difference(states[..., :2], goals[..., :2]).max(-1),
        "tip_m": np.linalg.norm(fingertip(states) - fingertip(goals), axis=-1),
    }


def demanding(states: Array, goals: Array) -> Array:
    """Whether a joint must turn by more than 0.5 rad."""
    return np.asarray(displacement(states, goals)["joint_rad"] > _FAR)


def fingertip(states: Array) -> Array:
    """Where the fingertip is, ``[..., 2]`` in metres from the shoulder."""
    first, both = states[..., 0], states[..., 0] + states[..., 1]
    near, far = _LINKS
    return np.stack(
        (near * np.cos(first) + far * np.cos(both), near * np.sin(first) + far * np.sin(both)), -1
    )


@cache
def _model() -> Any:
    """The compiled arm, shared by all environments of a process; nothing writes into it."""
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "reacher.xml"
    model = load_mujoco().MjModel.from_xml_path(str(path))
    model.geom("target").rgba[3] = 0
    return model


class Reacher(GoalEnv):
    """Reacher; see `GoalEnv` for options, observations and success.

    Nothing graphical is imported or started before the first frame is drawn.

    Args:
        image_size: height and width of observed frames.
        pixels: False leaves frames out of the observation, which needs no OpenGL.
        render_mode: ``"rgb_array"`` or None; `render` blends the goal posture in.

    Raises:
        MissingExtra: MuJoCo is not installed.
    """

    title: ClassVar[str] = "Reacher"
    state_names: ClassVar[tuple[str, ...]] = STATE_NAMES
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, image_size: int = 64, pixels: bool = True, render_mode: str | None = None) -> None:
        super().__init__(image_size, pixels, render_mode)
        self._mujoco = load_mujoco()
        self._data = self._mujoco.MjData(_model())

    def advance(self, action: Array) -> None:
        """Applies the torques for 0.02 s."""
        self._data.ctrl[:] = action
        self._mujoco.mj_step(_model(), self._data, nstep=_PHYSICS_STEPS)

    def state(self) -> Array:
        """The state, float64 ``[4]``; the first joint, which has no limit, in ``[-pi, pi)``."""
        state = np.concatenate((self._data.qpos[:2], self._data.qvel[:2]))
        state[0] = (state[0] + np.pi) % (2 * np.pi) - np.pi
        return np.asarray(state)

    def set_state(self, state: Array) -> None:
        """Sets joints and velocities; time and the solver's memory start afresh."""
        self._mujoco.mj_resetData(_model(), self._data)
        self._data.qpos[:] = _positions(state)
        self._data.qvel[:2] = state[2:4]
        self._mujoco.mj_forward(_model(), self._data)

    def solves(self, state: Array, goal: Array) -> bool:
        """Whether both joints match."""
        return bool(success(state, goal))

    def draw_state(self) -> Array:
        """A random posture at rest, clear of the elbow's limit."""
        shoulder, elbow = self.np_random.uniform((-np.pi, -2.8), (np.pi, 2.8))
        return np.array([shoulder, elbow, 0.0, 0.0])

    def render_state(self, state: Array, size: int | None = None) -> Array:
        """The frame ``uint8 [size, size, 3]`` of any state; velocities cannot be seen."""
        return stage(_model()).frame(_positions(state), _camera(), size or self.image_size)

    def render(self) -> Array:
        """A frame ``uint8 [256, 256, 3]`` with the goal posture shining through."""
        frame = self.render_state(self.state(), 256)
        if not self._goal:
            return frame
        goal = self.render_state(self._goal[f"{GOAL}state"], 256)
        return np.asarray(np.rint(0.7 * frame + 0.3 * goal).astype(np.uint8))


def _positions(state: Array) -> Array:
    """All joint positions; the hidden target stays in the middle."""
    return np.array([state[0], state[1], 0.0, 0.0])


@cache
def _camera() -> Any:
    """Looks straight down; the outstretched arm fills the frame."""
    camera = load_mujoco().MjvCamera()
    camera.distance, camera.azimuth, camera.elevation = 0.6, 90.0, -90.0
    camera.lookat[:] = 0
    return camera
