"""Two-Room: a round agent walks between two rooms joined by one door, in a world of 224 x 224 px.

The size and the success predicate are LeWM's; walls, door and speed are ours:

* a border and a vertical wall in the middle, with one door at a fixed height (an argument of the
  environment, not part of the state);
* an action moves the agent by ``5 * action`` px, so 25 steps reach 125 px along an axis;
* walls stop the agent along its whole path, not only at its end: the straight move is cut where
  it meets a wall and the rest slides along the wall, so no wall can be jumped;
* the state is ``[x, y]``, y pointing down; success: the distance to the goal is under 16 px.

NumPy is all it needs, and moves and frames are computed for many states at once.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import numpy as np

from worldplan.envs.drawing import coverage, paint_discs
from worldplan.envs.goal_env import GoalEnv
from worldplan.errors import UsageError
from worldplan.types import GOAL, Array

WORLD = 224.0
TOLERANCE = 16.0
ACTION_SCALE = 5.0
DOOR = 112.0
STATE_NAMES = ("agent_x", "agent_y")
RADIUS, BORDER = 7.0, 14.0
WALL_X, WALL_HALF, DOOR_HALF = WORLD / 2, 5.0, 21.0
LOW, HIGH = BORDER + RADIUS, WORLD - BORDER - RADIUS  # where the agent's centre can be
_NEAR, _FAR = WALL_X - WALL_HALF - RADIUS, WALL_X + WALL_HALF + RADIUS  # the wall, seen by the centre
_WHITE, _GREY, _RED = 255, 96, (214, 69, 65)


def success(states: Array, goals: Array) -> Array:
    """Whether ``states [..., 2]`` are within 16 px of ``goals [..., 2]``."""
    return np.asarray(np.linalg.norm(states - goals, axis=-1) < TOLERANCE)


def progress(states: Array, goals: Array) -> Array:
    """1 at the goal, falling to 0 at 200 px of straight distance."""
    return np.asarray(1 - np.clip(np.linalg.norm(states - goals, axis=-1) / 200, 0, 1))


def displacement(states: Array, goals: Array) -> dict[str, Array]:
    """What a goal asks for: straight distance in px, and whether it lies in the other room."""
    return {
        "agent_px": np.linalg.norm(states - goals, axis=-1),
        "other_room": (states[..., 0] < WALL_X) != (goals[..., 0] < WALL_X),
    }


def demanding(states: Array, goals: Array) -> Array:
    """Whether the agent must go through the door."""
    return np.asarray(displacement(states, goals)["other_room"])


def move(positions: Array, actions: Array, door: float = DOOR) -> Array:
    """Where ``positions [M, 2]`` get to under ``actions [M, 2]``, walls in the way.

    A move is the straight segment to its end, which the border clamps. Where the segment enters the
    wall, grown by the agent's radius, it stops at that face and the rest goes on along the face.
    """
    start = np.asarray(positions, np.float64)
    end = np.clip(start + ACTION_SCALE * np.asarray(actions, np.float64), LOW, HIGH)
    across = np.stack((start[:, 0], end[:, 0]))
    rows = np.flatnonzero((across.min(0) < _FAR) & (across.max(0) > _NEAR))
    if len(rows):
        end[rows] = _around_wall(start[rows], end[rows] - start[rows], door)
    return np.asarray(end)


def _around_wall(start: Array, left: Array, door: float) -> Array:
    gap = DOOR_HALF - RADIUS
    # at most the wall's face and one side of the door can stop the same step
    for _ in range(3):
        above = _first_hit(start, left, (_NEAR, -np.inf), (_FAR, door - gap))
        below = _first_hit(start, left, (_NEAR, door + gap), (_FAR, np.inf))
        time, axis, face = np.where(above[0] <= below[0], above, below)
        rows = np.flatnonzero(time <= 1)
        if not len(rows):
            break
        along, spent = axis[rows].astype(np.int64), time[rows, None]
        start, left = start.copy(), left.copy()
        start[rows] += spent * left[rows]
        left[rows] *= 1 - spent
        start[rows, along] = face[rows]  # exactly on the face, which is outside
        left[rows, along] = 0
    return np.asarray(np.clip(start + left, LOW, HIGH))


def _first_hit(start: Array, way: Array, low: tuple[float, float], high: tuple[float, float]) -> Array:
    """When and where segments enter an open rectangle, ``[3, M]``: time in [0, 1) or infinity, axis, face.

    A start inside, which only an inexact state can be, is never stopped.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second = (np.array(low) - start) / way, (np.array(high) - start) / way
    still = way == 0
    inside = (start > low) & (start < high)
    enter = np.where(still, np.where(inside, -np.inf, np.inf), np.minimum(first, second))
    leave = np.where(still, np.where(inside, np.inf, -np.inf), np.maximum(first, second))
    axis = enter.argmax(1)
    time = enter.max(1)
    hit = (time >= 0) & (time < 1) & (time < leave.min(1))
    rows = np.arange(len(start))
    face = np.where(way[rows, axis] > 0, np.array(low)[axis], np.array(high)[axis])
    return np.stack((np.where(hit, time, np.inf), axis, face))


def is_free(states: Array, door: float = DOOR) -> Array:
    """Whether the agent fits at ``states [..., 2]``: inside the border and clear of the wall."""
    x, y = states[..., 0], states[..., 1]
    border = ((states >= LOW) & (states <= HIGH)).all(-1)
    wall = (x > _NEAR) & (x < _FAR) & (np.abs(y - door) > DOOR_HALF - RADIUS)
    return np.asarray(border & ~wall)


def frames(states: Array, size: int, door: float = DOOR) -> Array:
    """Frames ``uint8 [M, size, size, 3]`` of ``states [M, 2]``, which may lie anywhere."""
    drawn = np.repeat(_empty_frame(size, float(door))[None], len(states), 0)
    scale = size / WORLD
    # what lies far outside, or nowhere, is out of the picture
    centres = np.clip(np.nan_to_num(states, nan=-1e3), -1e3, 1e3) * scale
    paint_discs(drawn, centres, RADIUS * scale, _RED)
    return drawn


@cache
def _empty_frame(size: int, door: float) -> Array:
    inner = coverage(BORDER, WORLD - BORDER, size, WORLD)
    wall = coverage(WALL_X - WALL_HALF, WALL_X + WALL_HALF, size, WORLD)
    opening = coverage(door - DOOR_HALF, door + DOOR_HALF, size, WORLD)
    floor = inner[:, None] * inner[None] * (1 - wall[None] * (1 - opening[:, None]))
    grey = np.rint(_GREY + (_WHITE - _GREY) * floor).astype(np.uint8)
    return np.repeat(grey[..., None], 3, -1)


class TwoRoom(GoalEnv):
    """Two-Room; see `GoalEnv` for options, observations and success.

    Args:
        image_size: height and width of observed frames.
        pixels: False leaves frames out of the observation.
        render_mode: ``"rgb_array"`` or None; `render` draws the goal as a pale disc.
        door: height of the middle of the door, px.
    """

    title: ClassVar[str] = "Two-Room"
    state_names: ClassVar[tuple[str, ...]] = STATE_NAMES

    def __init__(
        self,
        image_size: int = 64,
        pixels: bool = True,
        render_mode: str | None = None,
        door: float = DOOR,
    ) -> None:
        super().__init__(image_size, pixels, render_mode)
        if not BORDER + DOOR_HALF <= door <= WORLD - BORDER - DOOR_HALF:
            raise UsageError(
                "the door does not fit between the borders",
                expected=f"{BORDER + DOOR_HALF:g}..{WORLD - BORDER - DOOR_HALF:g} px",
                found=f"{door:g}",
            )
        self.door = float(door)
        self._position = np.array([WORLD / 4, WORLD / 2])

    def advance(self, action: Array) -> None:
        """Moves the agent by ``5 * action`` px, walls in the way; nothing is clipped."""
        self._position = move(self._position[None], np.asarray(action)[None], self.door)[0]

    def state(self) -> Array:
        """The state, float64 ``[2]`` in px."""
        return self._position.copy()

    def set_state(self, state: Array) -> None:
        """Puts the agent at ``state [2]``."""
        self._position = np.array(state, np.float64)

    def solves(self, state: Array, goal: Array) -> bool:
        """Whether the distance is under 16 px."""
        return bool(success(state, goal))

    def draw_state(self) -> Array:
        """A random place in which the agent fits."""
        while True:
            state = self.np_random.uniform(LOW, HIGH, 2)
            if is_free(state, self.door):
                return state

    def checked(self, state: object, name: str) -> Array | None:
        """As `GoalEnv.checked`; a place in a wall is refused too."""
        array = super().checked(state, name)
        if array is not None and not is_free(array, self.door):
            raise UsageError(
                f"Two-Room cannot be set to this {name}",
                expected=f"x and y in {LOW:g}..{HIGH:g} px, and outside the wall except in the door",
                found=f"x {array[0]:g}, y {array[1]:g}",
            )
        return array

    def render_state(self, state: Array, size: int | None = None) -> Array:
        """The frame ``uint8 [size, size, 3]`` of any state."""
        return np.asarray(self.render_states(np.asarray(state)[None], size)[0])

    def render_states(self, states: Array, size: int | None = None) -> Array:
        """Frames ``uint8 [M, size, size, 3]`` of ``states [M, 2]``."""
        return frames(np.asarray(states, np.float64), size or self.image_size, self.door)

    def render(self) -> Array:
        """A frame ``uint8 [256, 256, 3]`` with the goal as a pale disc beneath the agent."""
        frame = np.array(_empty_frame(256, self.door))[None]
        scale = 256 / WORLD
        if self._goal:
            paint_discs(frame, self._goal[f"{GOAL}state"][None] * scale, RADIUS * scale, (150, 205, 150))
        paint_discs(frame, self._position[None] * scale, RADIUS * scale, _RED)
        return np.asarray(frame[0])
