"""The contract of a vector environment, real or imagined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from worldplan.seeding import Noise
from worldplan.testing.contracts import require, require_shape
from worldplan.types import GOAL, Array

_GREY = 2  # levels by which a drawn frame may differ where numbers may differ


def check_env(
    env: VectorEnv[Any, Any, Any], *, steps: int = 4, atol: float = 1e-4, seed: int = 0
) -> tuple[str, ...]:
    """Checks that `env` can be driven by `loop.collect`: its shapes, seeds, chunks, states and ends.

    Args:
        env: of 2 rows or more; it is reset several times and left open.
        steps: environment steps per try.
        atol: what may differ where the contract says equal, relative to ``max(1, |value|)``; frames
            may differ by 2 levels of 255.
        seed: of the actions and the first of the rows' seeds.

    Returns:
        The contracts that were exercised; ``"states"`` and ``"ends"`` are missing where observations
        hold no ``state`` and ``goal/state``, and ``"ends"`` where no row could be made to end.

    Raises:
        AssertionError: one of them is broken.
    """
    _check_interface(env)
    case = _Case(env, [seed + 7 * row for row in range(env.num_envs)], _actions(env, steps, seed), atol)
    checks = {
        "reset": _check_reset,
        "step": _check_step,
        "copies": _check_copies,
        "seeds": _check_seeds,
        "chunks": _check_chunks,
        "states": _check_states,
        "ends": _check_ends,
    }
    return ("interface", *(name for name, check in checks.items() if check(case)))


@dataclass(frozen=True)
class _Case:
    env: VectorEnv[Any, Any, Any]
    seeds: list[int]
    actions: Array  # [B, steps, a], or [B, steps] where discrete
    atol: float

    def reset(self, **options: Array) -> dict[str, Array]:
        obs, _ = self.env.reset(seed=list(self.seeds), options=dict(options))  # type: ignore[arg-type]
        return dict(obs)

    def step(self, index: int) -> _Answer:
        return _Answer.of(self.env.step(self.actions[:, index]))

    def run(self) -> list[_Answer]:
        self.reset()
        return [self.step(index) for index in range(self.actions.shape[1])]


@dataclass(frozen=True)
class _Answer:
    obs: dict[str, Array]
    facts: dict[str, Array]

    @classmethod
    def of(cls, answer: tuple[Any, ...]) -> _Answer:
        require(len(answer) == 5, "a step answers Gymnasium's five", 5, len(answer))
        obs, reward, terminated, truncated, info = answer
        facts = {"reward": reward, "terminated": terminated, "truncated": truncated}
        success = info.get("success")
        require(success is not None, 'success is declared in info["success"]', "bool [B]", sorted(info))
        copies = {key: np.array(value) for key, value in {**facts, "success": success}.items()}
        return cls({key: np.array(value) for key, value in obs.items()}, copies)


def _check_interface(env: VectorEnv[Any, Any, Any]) -> None:
    require(isinstance(env, VectorEnv), "it is a gymnasium VectorEnv", "VectorEnv", type(env).__name__)
    require(env.num_envs >= 2, "it has rows to compare", "2 or more", env.num_envs)
    mode = env.metadata.get("autoreset_mode")
    contract = "it never resets itself: metadata['autoreset_mode']"
    require(mode is AutoresetMode.DISABLED, contract, AutoresetMode.DISABLED, mode)
    require(hasattr(env, "step_chunk"), "it takes chunks of actions", "step_chunk", "none")
    single, action = env.single_observation_space, env.single_action_space
    require(isinstance(single, spaces.Dict), "observations are a Dict space", "Dict", single)
    is_known = isinstance(action, spaces.Box | spaces.Discrete)
    require(is_known, "actions are a Box or a Discrete space", "Box or Discrete", action)


def _actions(env: VectorEnv[Any, Any, Any], steps: int, seed: int) -> Array:
    space, noise = env.single_action_space, Noise.of(seed, env.num_envs).at("check_env")
    if isinstance(space, spaces.Discrete):
        return np.asarray(noise.integers(int(space.n), steps).numpy() + space.start, space.dtype)
    assert isinstance(space, spaces.Box), space
    low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
    draws = noise.uniform(steps, *space.shape).numpy()
    return np.asarray(low + draws * (high - low), space.dtype)


def _check_reset(case: _Case) -> bool:
    obs, known = case.reset(), _known(case.env)
    require(obs.keys() == known.keys(), "reset gives the keys of the space", sorted(known), sorted(obs))
    _check_obs(case.env, obs, ())
    return True


def _check_obs(env: VectorEnv[Any, Any, Any], obs: Mapping[str, Array], time: tuple[int, ...]) -> None:
    for key, space in _known(env).items():
        require_shape(obs[key], (env.num_envs, *time, *(space.shape or ())), f"shape of observation {key!r}")
        require(obs[key].dtype == space.dtype, f"dtype of observation {key!r}", space.dtype, obs[key].dtype)
        rows = obs[key].reshape(-1, *(space.shape or ()))
        inside = all(space.contains(row) for row in rows)
        require(inside, f"observation {key!r} lies in its space", space, "values outside")


def _check_step(case: _Case) -> bool:
    case.reset()
    for index in range(case.actions.shape[1]):
        answer = case.step(index)
        _check_obs(case.env, answer.obs, ())
        _check_facts(case.env, answer, ())
    return True


def _check_facts(env: VectorEnv[Any, Any, Any], answer: _Answer, time: tuple[int, ...]) -> None:
    for key, value in answer.facts.items():
        require_shape(value, (env.num_envs, *time), f"{key} has one value per row")
        kind = "f" if key == "reward" else "b"
        require(
            value.dtype.kind == kind, f"dtype of {key}", {"f": "floating", "b": "bool"}[kind], value.dtype
        )
    require(
        bool(np.isfinite(answer.facts["reward"]).all()),
        "rewards are finite",
        "finite",
        answer.facts["reward"],
    )


def _check_copies(case: _Case) -> bool:
    given, _ = case.env.reset(seed=list(case.seeds), options={})  # type: ignore[arg-type]
    kept = {key: np.array(value) for key, value in given.items()}
    actions = case.actions.copy()
    for index in range(case.actions.shape[1]):
        answer = case.env.step(case.actions[:, index])
        contract = "an observation does not change once it was given"
        for key, value in kept.items():
            require(np.array_equal(given[key], value), contract, f"{key} as it was", "other values")
        given, kept = answer[0], {key: np.array(value) for key, value in answer[0].items()}
    require(
        np.array_equal(actions, case.actions), "stepping leaves the actions alone", "as they were", "changed"
    )
    return True


def _check_seeds(case: _Case) -> bool:
    first, again = case.run(), case.run()
    for index, (one, other) in enumerate(zip(first, again, strict=True)):
        _require_close(other, one, case.atol, f"the same seeds and actions lead to the same step {index + 1}")
    flipped = _Case(case.env, case.seeds[::-1], case.actions[::-1], case.atol).run()
    contract = "an episode depends on its own seed and actions, not on its place in the batch"
    for one, other in zip(first, flipped, strict=True):
        turned = _Answer(
            {key: value[::-1] for key, value in other.obs.items()},
            {key: value[::-1] for key, value in other.facts.items()},
        )
        _require_close(turned, one, case.atol, contract)
    return True


def _check_chunks(case: _Case) -> bool:
    single = case.run()
    length = case.actions.shape[1]
    for keep in sorted({1, max(1, length - 1), length}):
        case.reset()
        chunk = _Answer.of(case.env.step_chunk(case.actions, keep=keep))  # type: ignore[attr-defined]
        _check_obs(case.env, chunk.obs, (keep,))
        _check_facts(case.env, chunk, (keep,))
        contract = f"step_chunk(actions, keep={keep}) answers what {keep} steps answer, time on axis 1"
        for index in range(keep):
            part = _Answer(
                {key: value[:, index] for key, value in chunk.obs.items()},
                {key: value[:, index] for key, value in chunk.facts.items()},
            )
            _require_close(part, single[index], case.atol, contract)
    return True


def _check_states(case: _Case) -> bool:
    if not {"state", f"{GOAL}state"} <= _known(case.env).keys():
        return False
    obs = case.reset()
    # every row is put where another one was
    state, goal = np.roll(obs["state"], 1, 0), np.roll(obs[f"{GOAL}state"], 1, 0)
    placed = case.reset(state=state, goal=goal)
    for key, wanted in (("state", state), (f"{GOAL}state", goal)):
        contract = f'reset(options) puts every row where it is told: obs["{key}"]'
        off = float(np.abs(placed[key] - wanted).max())
        require(_close(placed[key], wanted, case.atol), contract, "what was set", f"off by up to {off:g}")
    return True


def _check_ends(case: _Case) -> bool:
    """Puts row 0 onto its goal, sees it end, and goes on."""
    if not {"state", f"{GOAL}state"} <= _known(case.env).keys():
        return False
    obs = case.reset()
    goal = obs[f"{GOAL}state"].copy()
    goal[0] = obs["state"][0]
    case.reset(state=obs["state"], goal=goal)
    rest = np.clip(np.zeros_like(case.actions[:, 0]), _low(case.env), None)
    # imagination looks at the goal once per model step only
    for _ in range(case.actions.shape[1]):
        before = _Answer.of(case.env.step(rest.astype(case.actions.dtype)))
        done = before.facts["terminated"] | before.facts["truncated"]
        if done.any():
            break
    else:
        return False
    for index in range(case.actions.shape[1]):
        after = case.step(index)
        contract = "a row that ended is frozen: same observation and flags, no reward"
        for key, value in before.obs.items():
            equal = np.array_equal(after.obs[key][done], value[done])
            require(equal, contract, f"{key} as it was", "other values")
        for key in ("terminated", "truncated", "success"):
            equal = np.array_equal(after.facts[key][done], before.facts[key][done])
            require(equal, contract, before.facts[key][done], f"{key}: {after.facts[key][done]}")
        require(not after.facts["reward"][done].any(), contract, 0, after.facts["reward"][done])
    return True


def _known(env: VectorEnv[Any, Any, Any]) -> dict[str, spaces.Space[Any]]:
    return dict(env.single_observation_space.spaces)  # type: ignore[attr-defined]


def _low(env: VectorEnv[Any, Any, Any]) -> Any:
    space = env.single_action_space
    return space.start if isinstance(space, spaces.Discrete) else space.low  # type: ignore[attr-defined]


def _require_close(found: _Answer, expected: _Answer, atol: float, contract: str) -> None:
    for here, there in ((found.obs, expected.obs), (found.facts, expected.facts)):
        for key, value in there.items():
            off = np.abs(here[key].astype(np.float64) - value.astype(np.float64))
            what = f"{key} off by up to {float(off.max()) if off.size else 0:g}"
            require(_close(here[key], value, atol), contract, "equal values", what)


def _close(found: Array, expected: Array, atol: float) -> bool:
    one, other = found.astype(np.float64), expected.astype(np.float64)
    if found.dtype == np.uint8:
        return bool((np.abs(one - other) <= (_GREY if atol else 0)).all())
    exact = found.dtype.kind in "biu"
    allowed = 0.0 if exact else atol * np.maximum(1, np.abs(other))
    return bool(((np.abs(one - other) <= allowed) | (one == other)).all())
