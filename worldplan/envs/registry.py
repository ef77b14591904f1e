"""What the library knows about each task: one row per simulator, found by name.

A task joins an environment to its protocol: what its state and actions mean, when it counts as solved,
how far ahead goals lie, and how many steps an episode may take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium

from worldplan.envs import pusht, reacher, tworoom
from worldplan.errors import ConfigError, suggest
from worldplan.types import ActionSpec, Array

GYM = "gym:"


@dataclass(frozen=True)
class Task:
    """A simulator and the protocol it is used with.

    Attributes:
        name: e.g. ``"pusht"``, or ``"gym:CartPole-v1"``.
        state_names: what the s numbers of a state are; empty where states cannot be set.
        action: one environment action.
        frame_skip: k, environment steps per model step.
        goal_offset: environment steps between start and goal.
        budget: environment steps an episode may take.
        success: ``(states [..., s], goals [..., s]) -> bool [...]``.
        progress: the same to ``[...]`` in [0, 1].
        displacement: the same to named arrays ``[...]``: what a goal asks for.
        demanding: the same to bool ``[...]``: whether doing nothing much cannot suffice.
        success_text: the predicate in words, printed beside every rate.
        factory: makes one environment from ``image_size``, ``pixels`` and ``render_mode``.
        advance: ``(states [M, s], actions [M, a]) -> states [M, s]``, the exact dynamics of many
            states at once, or None where only the simulator has them.
    """

    name: str
    state_names: tuple[str, ...]
    action: ActionSpec
    frame_skip: int
    goal_offset: int
    budget: int
    success: Callable[[Array, Array], Array]
    progress: Callable[[Array, Array], Array]
    displacement: Callable[[Array, Array], dict[str, Array]]
    demanding: Callable[[Array, Array], Array]
    success_text: str
    factory: Callable[..., gymnasium.Env[Any, Any]]
    advance: Callable[[Array, Array], Array] | None = None

    def make(
        self, image_size: int = 64, pixels: bool = True, render_mode: str | None = None
    ) -> gymnasium.Env[Any, Any]:
        """Makes one environment with Dict observations.

        Args:
            image_size: height and width of frames.
            pixels: False leaves frames out of the observation.
            render_mode: ``"rgb_array"`` or None.

        Raises:
            MissingExtra: the simulator is not installed; names the extra.
        """
        return self.factory(image_size=image_size, pixels=pixels, render_mode=render_mode)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles known tasks by name, others, changed copies of them among these, field by field."""
        if _TASKS.get(self.name) is self:
            return task, (self.name,)
        return Task, tuple(getattr(self, name) for name in self.__dataclass_fields__)


def task(name: str) -> Task:
    """The task of that name: a known one, or ``gym:Namespace/Name-v0`` for any Gymnasium id.

    Raises:
        ConfigError: there is none; says which come close.
    """
    if name.startswith(GYM):
        from worldplan.envs.gym import gym_task

        return gym_task(name.removeprefix(GYM))
    if name not in _TASKS:
        raise ConfigError(
            f"unknown environment {name!r}",
            expected=f"{', '.join(names())}, or gym:Namespace/Name-v0",
            fix=suggest(name, names()),
        )
    return _TASKS[name]


def names() -> tuple[str, ...]:
    """Names of the known tasks."""
    return tuple(_TASKS)


def _moved(states: Array, actions: Array) -> Array:
    return tworoom.move(states, actions.clip(-1, 1))


def _box(unit: str) -> ActionSpec:
    return ActionSpec(dim=2, low=(-1.0, -1.0), high=(1.0, 1.0), unit=unit)


_lewm: Callable[..., Task] = partial(Task, frame_skip=5, goal_offset=25, budget=50)
_TASKS: dict[str, Task] = {
    known.name: known
    for known in (
        _lewm(
            name="pusht",
            state_names=pusht.STATE_NAMES,
            action=_box("100 px between the agent and its target"),
            success=pusht.success,
            progress=pusht.progress,
            displacement=pusht.displacement,
            demanding=pusht.demanding,
            success_text="agent and block within 20 px of the goal (joint distance), the block within pi/9",
            factory=pusht.PushT,
        ),
        _lewm(
            name="tworoom",
            state_names=tworoom.STATE_NAMES,
            action=_box("5 px"),
            success=tworoom.success,
            progress=tworoom.progress,
            displacement=tworoom.displacement,
            demanding=tworoom.demanding,
            success_text="agent within 16 px of the goal",
            factory=tworoom.TwoRoom,
            advance=_moved,
        ),
        _lewm(
            name="reacher",
            state_names=reacher.STATE_NAMES,
            action=_box("share of the largest torque"),
            success=reacher.success,
            progress=reacher.progress,
            displacement=reacher.displacement,
            demanding=reacher.demanding,
            success_text="both joints within 0.05 rad of the goal",
            factory=reacher.Reacher,
        ),
    )
}
