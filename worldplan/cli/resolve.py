"""Turns the names of a command into objects: tasks, starts, checkpoints, policies, planners.

A name is, in this order: something packaged, an existing path, ``hf://user/repo``, and
``module:attribute``. Policies may carry a planner and noise: ``cem@CHECKPOINT``, ``replay+noise0.3``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from worldplan.cli.job import build
from worldplan.cli.values import choices
from worldplan.errors import ConfigError, UsageError, suggest
from worldplan.types import Policy, Start

PLAIN = ("nothing", "random", "replay", "scripted", "planned")
SCRIPTED = {
    "pusht": "worldplan.policies.pusht_scripted:PushTScripted",
    "tworoom": "worldplan.policies.tworoom_scripted:TwoRoomScripted",
    "reacher": "worldplan.policies.reacher_scripted:ReacherScripted",
}
# one unit of cost is a distance of one pixel; an angle counts as its tolerance does: pi/9 like 20 px
STATE_COSTS: dict[str, tuple[float, ...]] = {
    "pusht": (1, 1, 1, 1, (20 / 0.3490658503988659) ** 2, 0, 0),
    "tworoom": (1, 1),
    "reacher": (1, 1, 0, 0),
}
READERS = {"pusht": "pusht-reader", "tworoom": "tworoom-reader"}
SETS = {"pusht": "pusht-25", "tworoom": "tworoom-25", "reacher": "reacher-25"}


def assets() -> Path:
    """The folder of packaged checkpoints and evaluation sets."""
    packaged = Path(str(resources.files("worldplan"))) / "_assets"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "assets"


def threads(config: Mapping[str, Any]) -> None:
    """Sets PyTorch's threads, the one process-wide setting of a command."""
    import torch

    torch.set_num_threads(max(1, int(config.get("threads") or 1)))


def task(name: str) -> Any:
    """An environment by packaged name, ``gym:...`` or ``module:attribute``."""
    from worldplan.envs import registry

    return registry.task(name)


def checkpoint(source: str) -> Any:
    """A trained module, in evaluation mode."""
    from worldplan import checkpoint as room

    module: Any = room.from_pretrained(source)
    module.eval()
    return module


def world_model(source: str) -> Any:
    """A checkpoint that predicts."""
    module = checkpoint(source)
    if not hasattr(module, "predict"):
        raise UsageError(
            f"{source} is no world model",
            expected="a checkpoint with encode and predict",
            found=type(module).__name__,
            fix="worldplan list checkpoints",
        )
    return module


def start_set(name: str | None, env: str, limit: int) -> tuple[list[Start], dict[str, Any]]:
    """Starts of an evaluation set, and what to say about it."""
    from worldplan.data import evalset

    wanted = name or SETS.get(env)
    if wanted is None:
        raise ConfigError(
            f"there is no packaged evaluation set for {env}",
            expected=f"starts=FILE.npz, or an environment among {', '.join(SETS)}",
            fix="worldplan data evalset FILE.h5 held_out=1 out=starts.npz",
        )
    found = evalset.load(wanted)
    if found.task != env:
        raise UsageError("the starts belong to another task", expected=env, found=f"{found.task} ({wanted})")
    if limit > len(found):
        raise UsageError(
            f"the evaluation set {found.name} is smaller than asked for",
            expected=f"episodes of at most {len(found)}",
            found=str(limit),
        )
    facts = {
        "start_set": found.name,
        "pairs": len(found),
        "used": limit,
        "goal_offset": found.goal_offset,
        "budget": found.budget,
        "solved_left_out": found.solved,
    }
    return evalset.starts(found, limit), facts


def planner(config: Mapping[str, Any] | str) -> Any:
    """A planner from its configuration, or from the name of a packaged one."""
    if isinstance(config, str):
        if config not in choices("planner"):
            raise ConfigError(f"unknown planner {config!r}", fix=suggest(config, choices("planner")))
        import yaml

        text = (resources.files("worldplan.configs") / "planner" / f"{config}.yaml").read_text(
            encoding="utf-8"
        )
        config = yaml.safe_load(text)
    return build(config)  # type: ignore[arg-type]


def planner_name(planner_: Any) -> str:
    """What it is called in tables, with the planner it wraps."""
    inner = getattr(planner_, "planner", None)
    name = type(planner_).__name__
    return name if inner is None else f"{name}({planner_name(inner)})"


def angles(task_: Any) -> tuple[int, ...]:
    """Which entries of the task's state are angles."""
    return tuple(index for index, name in enumerate(task_.state_names) if "angle" in name or "joint" in name)


def state_cost(task_: Any) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Weights of a squared distance of states, and which entries are angles."""
    return STATE_COSTS.get(task_.name, (1.0,) * len(task_.state_names)), angles(task_)


def state_goal(task_: Any, read: Callable[[Any], Any] = lambda latent: latent) -> Any:
    """The task's distance of states as an objective; `read` is left out where latents are states."""
    from worldplan.planners.objectives import StateGoal

    weights, turns = state_cost(task_)
    return StateGoal(read=read, weights=weights, angles=turns)


def objective(kind: str, model: Any, task_: Any, consistency: float = 0.0) -> Any:
    """What a planner minimises with a learned model."""
    from worldplan.planners.objectives import LatentGoal, SelfConsistency

    if kind == "latent":
        near: Any = LatentGoal(model.embed)
    elif kind == "state":
        near = state_goal(task_, lambda latent: model.decode(latent)["state"])
    else:
        raise ConfigError(f"unknown objective {kind!r}", fix=suggest(kind, ("latent", "state")))
    if not consistency:
        return near
    if not hasattr(model, "jump"):
        raise ConfigError(
            f"consistency={consistency:g} compares two ways of predicting; {type(model).__name__} has one",
            expected="a model that jumps over several steps, e.g. trained with model=fast_lewm_small",
            found=type(model).__name__,
            fix="consistency=0",
        )
    return near + consistency * SelfConsistency(model.jump)


def planning_policy(
    model: Any,
    planner_: Any,
    task_: Any,
    *,
    execute: int | None = None,
    history: int = 1,
    kind: str = "latent",
    consistency: float = 0.0,
    name: str = "cem",
) -> Policy:
    """A planner as a policy."""
    from worldplan.policies.planning import PlanningPolicy

    minimised = objective(kind, model, task_, consistency)
    return PlanningPolicy(model, planner_, minimised, execute=execute, history=history, name=name)


def policy(
    text: str, task_: Any, starts: Sequence[Start], *, execute: int | None = None
) -> tuple[Policy, dict[str, Any]]:
    """A policy by name, and facts for its records (``plans_with``: checkpoints it plans with)."""
    from worldplan.policies.noisy import NoisyPolicy

    base, plus, noise = text.partition("+noise")
    if plus:
        try:
            std = float(noise)
        except ValueError:
            raise ConfigError(f"{text!r} has no noise level", fix=f"{base}+noise0.3") from None
        inner, facts = policy(base, task_, starts, execute=execute)
        return NoisyPolicy(inner, std, task_.action, name=text), facts
    kind, at, source = text.partition("@")
    if at and kind in choices("planner"):
        model = world_model(source)
        require_task(model, task_, source)
        made = planning_policy(model, planner(kind), task_, execute=execute, name=text)
        return made, {"plans_with": _name(source)}
    return _plain(text, task_, starts), {}


def _plain(text: str, task_: Any, starts: Sequence[Start]) -> Policy:
    from worldplan.policies.callable import from_attribute
    from worldplan.policies.constant import ConstantPolicy
    from worldplan.policies.random import RandomPolicy
    from worldplan.policies.replay import ReplayPolicy

    if text == "nothing":
        return ConstantPolicy(task_.action)
    if text == "random":
        return RandomPolicy(task_.action, chunk=task_.frame_skip)
    if text == "replay":
        return ReplayPolicy(starts, chunk=task_.frame_skip)
    if text == "scripted":
        if task_.name not in SCRIPTED:
            raise ConfigError(f"there is no scripted policy for {task_.name}", expected=", ".join(SCRIPTED))
        return from_attribute(SCRIPTED[task_.name])
    if text == "planned":
        return _planned(task_)
    if text.partition(":")[1] and not os.path.exists(text) and not text.startswith("hf://"):
        return from_attribute(text)
    module = checkpoint(text)
    if not hasattr(module, "act"):
        raise UsageError(
            f"{text} is a {type(module).__name__}, not a policy",
            expected="a policy checkpoint, or a planner with a model",
            fix=f"cem@{text}",
        )
    require_task(module, task_, text)
    module.name = _name(text)
    policy_: Policy = module
    return policy_


def _planned(task_: Any) -> Policy:
    """Short searches on the true dynamics, toward goals drawn along the way."""
    from worldplan.planners.cem import CEM
    from worldplan.policies.segments import PlannedSegments

    search = CEM(num_samples=48, num_iterations=4, num_elites=6, init_std=0.25)
    return PlannedSegments(task_, search, state_goal(task_))


def reader(source: str | None, task_: Any) -> Any:
    """The judge of imagined frames: a state reader with the task's success predicate."""
    wanted = source or READERS.get(task_.name)
    if wanted is None:
        raise ConfigError(
            f"there is no packaged reader for {task_.name}",
            fix="reader=CHECKPOINT, trained with model=reader",
        )
    module = checkpoint(wanted)
    if not hasattr(module, "judge"):
        raise UsageError(
            f"{wanted} is no reader of states",
            expected="a checkpoint trained with model=reader",
            found=type(module).__name__,
            fix="worldplan list checkpoints",
        )
    require_task(module, task_, wanted)
    return module.judge(task_.success, task_.progress)


def require_task(module: Any, task_: Any, source: str) -> None:
    """Refuses a checkpoint that was trained on another environment.

    Raises:
        ProtocolMismatch: names the environment, the size of actions or states, or a world model's
            frame-skip, where they differ.
    """
    from worldplan import checkpoint as room
    from worldplan.protocol import require_match

    spec = getattr(module, "spec", None)
    if spec is not None:
        expected = {"env": spec.env, "action_dim": spec.action.dim}
        if hasattr(module, "predict"):
            expected["frame_skip"] = spec.frame_skip
    else:  # a reader knows its states, and its checkpoint what it was trained on
        trained = (room.describe(source).get("training") or {}).get("data") or {}
        expected = {"env": (trained.get("attrs") or {}).get("env"), "state_dim": module.config.state_dim}
    found = {
        "env": task_.name,
        "action_dim": task_.action.dim,
        "state_dim": len(task_.state_names),
        "frame_skip": task_.frame_skip,
    }
    known = {key: value for key, value in expected.items() if value is not None}
    require_match(
        known, {key: found[key] for key in known}, f"{source} and the environment",
        fix=f"env={known['env']}, or a checkpoint trained on {task_.name}" if "env" in known else None,
    )  # fmt: skip


def _name(source: str) -> str:
    """A name that two checkpoints share only if they hold the same weights.

    Packaged checkpoints, and copies of them, keep their short name; others are called after their
    folder and the hash of their weights. Every training saves to a folder of the same name, so the
    folder alone would take two models for one.
    """
    from worldplan import checkpoint as room

    known = room.packaged()
    if source in known:
        return source
    found = room.describe(source)
    weights = str(found["id"])
    for name, folder in known.items():
        if room.describe(folder)["id"] == weights:
            return name
    folder = Path(str(found["path"])).resolve()
    label = folder.parent.name if folder.name == "checkpoint" else folder.name
    return f"{label}-{weights[-8:]}"


model_name = _name
