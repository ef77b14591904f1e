"""The one loop: runs a policy in an environment, real or imagined, and remembers episodes.

Time is aligned once, here: an episode holds T+1 observations and the T actions between them, the
frame in which an episode ends belongs to it, and environments never reset themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from worldplan.envs.observations import to_obs
from worldplan.errors import RunError, UsageError
from worldplan.seeding import Noise
from worldplan.types import GOAL, Array, Carry, Episode, Obs, Policy, Start

Environment = VectorEnv[Any, Any, Any]
Progress = Callable[[int, int], None]
_FACTS = ("success", "_success", "progress")
_TIMED_HERE = ("seconds", "decisions")
_BOUND_SLACK = 1e-6  # float32 rounding of an action at its bound is not a violation


def collect(
    env: Environment | Callable[[], Environment],
    policy: Policy,
    starts: Sequence[Start],
    *,
    max_steps: int,
    seed: int = 0,
    execute: int | None = None,
    keep_obs: bool | Sequence[str] = True,
    progress: Progress | None = None,
    policy_name: str | None = None,
    device: torch.device | str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Episode]:
    """Runs one episode per start, ``env.num_envs`` at a time, and yields them in order of `starts`.

    Each episode's randomness is keyed by its own `Start.seed`: the environment is reset with it, and
    the policy draws from ``noise.at("policy", step)`` with the seeds as row ids. So an episode does
    not depend on the others beside it. Gradients are off while the policy acts; a planner that needs
    them turns them on itself.

    `Episode.meta` holds ``env, source, model, policy, seed, run_seed, start, success, solved_at_start,
    progress, length, out_of_bounds, decisions, seconds_per_decision, rows, seconds, stats``.
    ``success`` is latched from ``info["success"]`` at any step, and None where the environment declares
    none. The seconds of a decision are those of one call for all ``rows`` problems beside each other.
    ``stats`` sums what the policy's carry says under that name about each decision (model calls, …).

    Args:
        env: an environment with `step_chunk`, or a function that makes one; what the function made is
            closed at the end, also after an error or Ctrl-C.
        policy: answers ``[B, K, a]`` actions in environment units. Actions beyond the bounds are
            clipped by the environment and recorded clipped; ``out_of_bounds`` is their share.
        starts: where episodes begin. The last wave is filled up with copies that are thrown away.
        max_steps: environment steps after which an episode is truncated.
        seed: seed of the run.
        execute: how many of the K actions are run before the policy is asked again; None means all.
        keep_obs: which observations episodes remember: all, none, or the listed keys. Goals never
            change within an episode and are stored once.
        progress: called with the number of finished episodes and of all.
        policy_name: name in the records; None takes ``policy.name`` or the class.
        device: where the policy's observations are put.
        clock: seconds, for tests.

    Raises:
        UsageError: an observation the policy needs or `keep_obs` lists is missing, actions have the
            wrong shape, or the environment cannot be driven by this loop.
        RunError: the policy answered an action that is not finite.
    """
    if max_steps < 1 or (execute is not None and execute < 1):
        raise UsageError(
            "nothing would be run",
            expected="max_steps and execute of at least 1",
            found=f"{max_steps}, {execute}",
        )
    if isinstance(env, VectorEnv):
        _check(env, policy, keep_obs)
    name = policy_name or str(getattr(policy, "name", type(policy).__name__))
    settings = _Settings(name, max_steps, seed, execute, keep_obs, progress, device, clock)
    return _episodes(env, policy, list(starts), settings)


@dataclass(frozen=True)
class _Settings:
    policy_name: str
    max_steps: int
    seed: int
    execute: int | None
    keep_obs: bool | Sequence[str]
    progress: Progress | None
    device: torch.device | str
    clock: Callable[[], float]


def _episodes(
    env: Environment | Callable[[], Environment], policy: Policy, starts: list[Start], settings: _Settings
) -> Iterator[Episode]:
    owned = not isinstance(env, VectorEnv)
    world = env if isinstance(env, VectorEnv) else env()
    try:
        if owned:
            _check(world, policy, settings.keep_obs)
        for first in range(0, len(starts), world.num_envs):
            wave = _run(world, policy, starts, first, settings)
            for row in range(len(wave.starts)):
                yield wave.episode(row)
    finally:
        if owned:
            world.close()


def _run(env: Environment, policy: Policy, starts: list[Start], first: int, settings: _Settings) -> _Wave:
    part = starts[first : first + env.num_envs]
    padded = part + [part[-1]] * (env.num_envs - len(part))
    seeds = [start.seed for start in padded]
    noise = Noise.of(settings.seed, torch.tensor(seeds, device=settings.device))
    began = settings.clock()
    observation, info = env.reset(seed=seeds, options=_options(padded, env))  # type: ignore[arg-type]
    wave = _Wave.begin(env, part, observation, info, settings)
    carry, step = policy.initial(env.num_envs), 0
    while step < settings.max_steps and not wave.done.all():
        obs = to_obs(observation, settings.device)
        asked = settings.clock()
        actions, carry = _act(policy, obs, carry, noise.at("policy", step))
        chunk = actions.detach().cpu().numpy()
        wave.note(settings.clock() - asked, carry)
        _check_actions(chunk, env, wave, step, settings)
        keep = min(settings.execute or chunk.shape[1], settings.max_steps - step)
        answer = env.step_chunk(chunk, keep=keep)  # type: ignore[attr-defined]
        step += keep
        wave.add(chunk[:, :keep], answer, settings.clock() - began)
        observation = {key: value[:, -1] for key, value in answer[0].items()}
        if settings.progress:
            settings.progress(first + int(wave.done.sum()), len(starts))
    wave.truncate(settings.clock() - began)
    if settings.progress:
        settings.progress(first + len(part), len(starts))
    return wave


def _act(policy: Policy, obs: Obs, carry: Carry, noise: Noise) -> tuple[torch.Tensor, Carry]:
    try:
        with torch.no_grad():
            return policy.act(obs, carry, noise)
    except KeyError as error:
        key = error.args[0] if error.args else None
        if not isinstance(key, str) or key in obs or key in carry:
            raise
        raise _missing(f"the policy needs the observation {key!r}", obs) from error


@dataclass
class _Wave:
    """What a wave of episodes has seen so far; arrays of a chunk are ``[B, l, ...]``."""

    starts: Sequence[Start]
    low: Array
    high: Array
    shared: Mapping[str, Any]  # meta that all episodes have in common
    first: Mapping[str, Array]
    solved: Array | None
    done: Array
    lengths: Array
    finished: Array  # seconds after the reset
    obs: list[Mapping[str, Array]] = field(default_factory=list)
    steps: list[tuple[Array, ...]] = field(default_factory=list)  # actions, rewards, terminated, truncated
    infos: list[Mapping[str, Array]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    stats: list[dict[str, Array]] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)  # steps run when each decision had been executed

    @classmethod
    def begin(
        cls,
        env: Environment,
        starts: Sequence[Start],
        observation: Mapping[str, Array],
        info: Mapping[str, Any],
        settings: _Settings,
    ) -> _Wave:
        """Begins with the observation after the reset."""
        keep = settings.keep_obs
        keys = list(observation) if keep is True else [] if keep is False else list(keep)
        rows = len(starts)
        low, high = _bounds(env)
        shared = {
            "env": _name(env),
            "source": getattr(env, "source", "real"),
            "model": getattr(env, "model_id", None),
            "policy": settings.policy_name,
            "run_seed": settings.seed,
            "rows": env.num_envs,
        }
        first = {key: np.array(observation[key]) for key in keys}
        solved = info.get("success")
        zeros = np.zeros(rows, np.int64)
        return cls(starts, low, high, shared, first, solved, np.zeros(rows, bool), zeros, np.zeros(rows))

    def note(self, seconds: float, carry: Carry) -> None:
        """Remembers what a decision took."""
        self.seconds.append(seconds)
        told = carry.get("stats", {})
        counts = {key: value.cpu().numpy() for key, value in told.items() if key not in _TIMED_HERE}
        self.stats.append(counts)

    def add(self, actions: Array, answer: tuple[Any, ...], seconds: float) -> None:
        """Appends the l steps of a chunk."""
        obs, rewards, terminated, truncated, info = answer
        length = actions.shape[1]
        assert rewards.shape == terminated.shape == truncated.shape == actions.shape[:2], rewards.shape
        self.obs.append({key: obs[key] for key in self.first if not key.startswith(GOAL)})
        self.steps.append((actions, rewards, terminated, truncated))
        self.infos.append({key: info[key] for key in _FACTS if key in info})
        ended = (terminated | truncated)[: len(self.starts)]
        fresh = ended.any(1) & ~self.done
        self.lengths += np.where(self.done, 0, np.where(fresh, ended.argmax(1) + 1, length))
        self.finished[~self.done] = seconds
        self.done |= fresh
        self.decisions.append(length + (self.decisions[-1] if self.decisions else 0))

    def truncate(self, seconds: float) -> None:
        """Ends the rows that are still running."""
        self.finished[~self.done] = seconds

    def episode(self, row: int) -> Episode:
        """Cuts out one row, up to its own end."""
        length = int(self.lengths[row])
        actions, rewards, terminated, truncated = (
            np.concatenate([chunk[i][row] for chunk in self.steps])[:length] for i in range(4)
        )
        outside = ((actions < self.low - _BOUND_SLACK) | (actions > self.high + _BOUND_SLACK)).any(-1)
        return Episode(
            obs={key: self._column(key, row, length) for key in self.first},
            actions=np.clip(actions, self.low, self.high).astype(actions.dtype),
            rewards=rewards.astype(np.float32),
            terminated=bool(terminated[-1]),
            truncated=bool(truncated[-1] or not terminated[-1]),
            meta={**self._meta(row, length), "out_of_bounds": float(outside.mean())},
        )

    def _column(self, key: str, row: int, length: int) -> Array:
        first = self.first[key][row]
        if key.startswith(GOAL):
            return np.broadcast_to(first, (length + 1, *first.shape))
        return np.concatenate([first[None], *(chunk[key][row] for chunk in self.obs)])[: length + 1]

    def _meta(self, row: int, length: int) -> dict[str, Any]:
        start = self.starts[row]
        # a decision counts if at least one of its actions was run before the episode ended
        count = sum(done < length for done in (0, *self.decisions[:-1]))
        success, best = self._facts("success", row, length), self._facts("progress", row, length)
        declared = self._facts("_success", row, length)  # Gymnasium's mask of a key, where there is one
        if success is not None and declared is not None:
            success = (success & declared) if declared.any() else None
        return {
            **self.shared,
            "seed": start.seed,
            "start": start.id,
            "success": None if success is None else bool(success.any()),
            "solved_at_start": None if self.solved is None else bool(self.solved[row]),
            "progress": None if best is None else float(best.max()),
            "length": length,
            "decisions": count,
            "seconds_per_decision": self.seconds[:count],
            "seconds": float(self.finished[row]),
            "stats": {
                key: sum(stats[key][row].item() for stats in self.stats[:count]) for key in self.stats[0]
            },
        }

    def _facts(self, key: str, row: int, length: int) -> Array | None:
        if not all(key in info for info in self.infos):
            return None
        return np.concatenate([np.asarray(info[key])[row] for info in self.infos])[:length]


def _options(starts: Sequence[Start], env: Environment) -> dict[str, Any]:
    """Start states, goals and (for imagination) recorded first observations; for all rows or for none."""
    options: dict[str, Any] = {}
    for key in ("state", "goal"):
        values = [getattr(start, key) for start in starts]
        given = [value is not None for value in values]
        if any(given) and not all(given):
            missing = starts[given.index(False)].id
            raise UsageError(
                f"start {missing!r} has no {key}, others beside it have one",
                expected=f"a {key} for every start, or for none",
                found=f"{sum(given)} of {len(given)}",
                fix="split the starts into two runs",
            )
        options[key] = np.stack(values) if all(given) else None
    if getattr(env, "source", "real") == "model" and all("obs" in start.meta for start in starts):
        keys = starts[0].meta["obs"].keys()
        options["obs"] = {key: np.stack([start.meta["obs"][key] for start in starts]) for key in keys}
    return options


def _bounds(env: Environment) -> tuple[Array, Array]:
    space = env.single_action_space
    if isinstance(space, spaces.Discrete):
        return np.array([space.start]), np.array([space.start + space.n - 1])
    assert isinstance(space, spaces.Box), space
    return space.low, space.high


def _name(env: Environment) -> str:
    name = getattr(env, "name", None) or (env.spec.id if env.spec else None)
    return str(name or type(env).__name__)


def _check(env: Environment, policy: Policy, keep_obs: bool | Sequence[str]) -> None:
    """Refuses what would fail in the middle of a run."""
    mode = env.metadata.get("autoreset_mode")
    if not hasattr(env, "step_chunk") or mode is not AutoresetMode.DISABLED:
        raise UsageError(
            f"{type(env).__name__} cannot be driven by collect",
            expected="a vector environment with step_chunk() that never resets itself (autoreset disabled)",
            found=f"step_chunk: {hasattr(env, 'step_chunk')}, autoreset mode: {mode}",
            fix="wrap the single environment: SimVectorEnv(factory, num_envs)",
        )
    known = getattr(env.single_observation_space, "spaces", {})
    for key in getattr(policy, "requires", ()):
        if key not in known:
            raise _missing(f"the policy needs the observation {key!r}", known)
    for key in () if isinstance(keep_obs, bool) else keep_obs:
        if key not in known:
            raise _missing(f"keep_obs lists the observation {key!r}", known)


def _missing(what: str, present: Mapping[str, Any]) -> UsageError:
    return UsageError(
        f"{what}, which the environment does not give",
        expected="an environment with that modality",
        found=", ".join(sorted(present)) or "no observations",
        fix="check the environment's pixels and image_size arguments, or use another policy",
    )


def _check_actions(chunk: Array, env: Environment, wave: _Wave, step: int, settings: _Settings) -> None:
    dim = wave.low.shape[-1]
    if chunk.ndim != 3 or chunk.shape[0] != env.num_envs or chunk.shape[2] != dim or chunk.shape[1] < 1:
        raise UsageError(
            f"the policy {settings.policy_name} answered actions of the wrong shape",
            expected=f"[{env.num_envs}, K, {dim}], one chunk of K actions per row",
            found=str(list(chunk.shape)),
        )
    if settings.execute is not None and settings.execute > chunk.shape[1]:
        raise UsageError(
            "more actions are to be executed than the policy gives",
            expected=f"execute of at most {chunk.shape[1]}",
            found=f"execute={settings.execute}",
        )
    finite = np.isfinite(chunk[: len(wave.starts)]).all((1, 2)) | wave.done
    if not finite.all():
        start = wave.starts[int(finite.argmin())]
        raise RunError(
            f"the policy {settings.policy_name} answered an action that is not finite",
            expected="finite actions",
            found=f"{chunk[int(finite.argmin())].tolist()} in episode {start.id!r} at step {step}",
        )
