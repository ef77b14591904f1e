"""worldplan: train world models, plan in them, and evaluate robot policies inside them.

A world model predicts; an objective scores a prediction; a planner searches for actions whose
prediction scores well; a policy acts; an environment, real or imagined, answers; episodes remember;
records judge.

The names below are the whole front door; each is imported when it is first asked for (PEP 562), so
``import worldplan`` costs nothing. Everything else is reached by its room, e.g.
``worldplan.evaluation.agreement``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worldplan.checkpoint import load as load
    from worldplan.data.native import open as open_dataset
    from worldplan.data.windows import Windows as Windows
    from worldplan.envs.imagined import ImaginedVectorEnv as ImaginedVectorEnv
    from worldplan.envs.registry import task as task
    from worldplan.envs.vector import SimVectorEnv as SimVectorEnv
    from worldplan.errors import WorldplanError as WorldplanError
    from worldplan.evaluation.ranking import rank as rank
    from worldplan.evaluation.report import report as report
    from worldplan.loop import collect as collect
    from worldplan.models.lewm import LeWM as LeWM
    from worldplan.planners.cem import CEM as CEM
    from worldplan.planners.objectives import LatentGoal as LatentGoal
    from worldplan.planners.random_shooting import RandomShooting as RandomShooting
    from worldplan.policies.planning import PlanningPolicy as PlanningPolicy
    from worldplan.seeding import Noise as Noise
    from worldplan.training.fit import fit as fit
    from worldplan.types import ActionSpec as ActionSpec
    from worldplan.types import Batch as Batch
    from worldplan.types import Episode as Episode
    from worldplan.types import Estimate as Estimate
    from worldplan.types import EvalRecord as EvalRecord
    from worldplan.types import Plan as Plan
    from worldplan.types import Rollout as Rollout
    from worldplan.types import Start as Start

__version__ = "0.1.0"

_HOMES = {
    "ActionSpec": "worldplan.types:ActionSpec",
    "Batch": "worldplan.types:Batch",
    "CEM": "worldplan.planners.cem:CEM",
    "Episode": "worldplan.types:Episode",
    "Estimate": "worldplan.types:Estimate",
    "EvalRecord": "worldplan.types:EvalRecord",
    "ImaginedVectorEnv": "worldplan.envs.imagined:ImaginedVectorEnv",
    "LatentGoal": "worldplan.planners.objectives:LatentGoal",
    "LeWM": "worldplan.models.lewm:LeWM",
    "Noise": "worldplan.seeding:Noise",
    "Plan": "worldplan.types:Plan",
    "PlanningPolicy": "worldplan.policies.planning:PlanningPolicy",
    "RandomShooting": "worldplan.planners.random_shooting:RandomShooting",
    "Rollout": "worldplan.types:Rollout",
    "SimVectorEnv": "worldplan.envs.vector:SimVectorEnv",
    "Start": "worldplan.types:Start",
    "Windows": "worldplan.data.windows:Windows",
    "WorldplanError": "worldplan.errors:WorldplanError",
    "collect": "worldplan.loop:collect",
    "fit": "worldplan.training.fit:fit",
    "load": "worldplan.checkpoint:load",
    "open_dataset": "worldplan.data.native:open",
    "rank": "worldplan.evaluation.ranking:rank",
    "report": "worldplan.evaluation.report:report",
    "task": "worldplan.envs.registry:task",
}

__all__ = [
    "ActionSpec",
    "Batch",
    "CEM",
    "Episode",
    "Estimate",
    "EvalRecord",
    "ImaginedVectorEnv",
    "LatentGoal",
    "LeWM",
    "Noise",
    "Plan",
    "PlanningPolicy",
    "RandomShooting",
    "Rollout",
    "SimVectorEnv",
    "Start",
    "Windows",
    "WorldplanError",
    "__version__",
    "collect",
    "fit",
    "load",
    "open_dataset",
    "rank",
    "report",
    "task",
]


def __getattr__(name: str) -> Any:
    """Imports a public name from its home on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'worldplan' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
