"""Registers our simulators with Gymnasium, under ``worldplan/...``."""

from __future__ import annotations

import gymnasium

_STEPS = 100
_IDS = {
    "worldplan/PushT-v0": "worldplan.envs.pusht:PushT",
    "worldplan/TwoRoom-v0": "worldplan.envs.tworoom:TwoRoom",
    "worldplan/Reacher-v0": "worldplan.envs.reacher:Reacher",
}


def register() -> None:
    """Registers each id once; a second call does nothing."""
    for name, entry_point in _IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=entry_point, max_episode_steps=_STEPS)
