"""The loop against an environment that counts its steps and echoes its actions."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from worldplan.errors import RunError, UsageError
from worldplan.loop import collect
from worldplan.types import Start

BOX = gymnasium.spaces.Box


class Counting(VectorEnv):
    """``state = [seed, steps, last action]``; row with seed s ends after s steps; success as told."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    name = "counting"

    def __init__(self, num_envs: int, success_at: int | None = 2, declares: bool = True) -> None:
        self.num_envs, self.success_at, self.declares = num_envs, success_at, declares
        self.single_action_space = BOX(-1, 1, (2,), np.float32)
        self.single_observation_space = gymnasium.spaces.Dict(
            {
                "state": BOX(-np.inf, np.inf, (4,), np.float32),
                "pixels": BOX(0, 255, (4, 6, 3), np.uint8),
                "goal/state": BOX(-np.inf, np.inf, (4,), np.float32),
            }
        )
        self.resets: list[dict] = []

    def _observe(self) -> dict[str, np.ndarray]:
        state = np.concatenate([self.seeds[:, None], self.count[:, None], self.last], 1).astype(np.float32)
        pixels = np.zeros((self.num_envs, 4, 6, 3), np.uint8)
        pixels[..., 1] = self.count[:, None, None]
        return {"state": state, "pixels": pixels, "goal/state": np.full_like(state, 7)}

    def reset(self, *, seed=None, options=None):
        self.resets.append(dict(options))
        self.seeds = np.array(seed)
        self.count = np.zeros(self.num_envs, int)
        self.last = np.zeros((self.num_envs, 2))
        return self._observe(), {"success": np.zeros(self.num_envs, bool)} if self.declares else {}

    def step_chunk(self, actions, keep=None):
        parts = [self._one(actions[:, i]) for i in range(keep or actions.shape[1])]
        obs = {key: np.stack([part[0][key] for part in parts], 1) for key in parts[0][0]}
        flags = [np.stack([part[i] for part in parts], 1) for i in (1, 2, 3)]
        info = {"success": np.stack([part[4] for part in parts], 1)} if self.declares else {}
        return obs, *flags, info

    def _one(self, action):
        live = self.count < self.seeds
        self.count = self.count + live
        self.last = np.where(live[:, None], np.clip(action, -1, 1), self.last)
        over = self.count >= self.seeds
        reward = live.astype(float)
        return self._observe(), reward, over, np.zeros_like(over), self.count == self.success_at


@dataclass(frozen=True)
class Drawing:
    """K actions: [carry, noise]; the carry counts decisions."""

    chunk: int = 1
    scale: float = 0.01

    def initial(self, batch_size):
        return {"asked": torch.zeros(batch_size)}

    def act(self, obs, carry, noise):
        assert obs["pixels"].shape[1:] == (3, 4, 6) and obs["pixels"].dtype == torch.uint8
        draws = noise.normal(self.chunk)
        actions = torch.stack((self.scale * carry["asked"][:, None].expand(-1, self.chunk), draws), -1)
        return actions, {"asked": carry["asked"] + 1}


def starts(*seeds: int) -> list[Start]:
    return [Start(f"s{i}", seed) for i, seed in enumerate(seeds)]


def test_observations_and_actions_are_aligned_and_end_with_their_episode() -> None:
    (episode,) = collect(Counting(1), Drawing(), starts(5), max_steps=9)
    assert episode.obs["state"].shape == (6, 4) and episode.actions.shape == (5, 2)
    np.testing.assert_array_equal(episode.obs["state"][:, 1], range(6))
    # what an action did is seen in the next observation, never in its own
    np.testing.assert_allclose(episode.obs["state"][1:, 2:], episode.actions, atol=1e-6)
    assert episode.terminated and not episode.truncated
    assert episode.rewards.tolist() == [1] * 5
    assert (episode.obs["goal/state"] == 7).all() and episode.obs["goal/state"].shape == (6, 4)


@pytest.mark.parametrize("num_envs", [1, 2, 3, 5])
@pytest.mark.parametrize(("chunk", "execute"), [(1, None), (3, None), (3, 2)])
def test_rows_beside_an_episode_change_nothing(num_envs: int, chunk: int, execute: int | None) -> None:
    options = {"max_steps": 7, "execute": execute, "seed": 3}
    alone = [next(collect(Counting(1), Drawing(chunk), [s], **options)) for s in starts(4, 9, 1, 2, 6)]
    together = list(collect(Counting(num_envs), Drawing(chunk), starts(4, 9, 1, 2, 6), **options))
    assert [e.meta["start"] for e in together] == ["s0", "s1", "s2", "s3", "s4"]
    assert [e.meta["length"] for e in together] == [4, 7, 1, 2, 6]
    assert [e.truncated for e in together] == [False, True, False, False, False]
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)
        np.testing.assert_array_equal(one.obs["state"], other.obs["state"])
        assert (
            one.meta["decisions"] == other.meta["decisions"] == -(-one.meta["length"] // (execute or chunk))
        )


def test_success_is_declared_at_any_step_and_never_guessed() -> None:
    reached, short = collect(Counting(2), Drawing(), starts(5, 1), max_steps=9)
    assert reached.meta["success"] is True and short.meta["success"] is False and short.terminated
    (unknown,) = collect(Counting(1, declares=False), Drawing(), starts(5), max_steps=9)
    assert unknown.meta["success"] is None and unknown.terminated
    assert unknown.meta["solved_at_start"] is None and reached.meta["solved_at_start"] is False


def test_success_declared_for_some_rows_is_unknown_for_the_others() -> None:
    class Partly(Counting):
        def step_chunk(self, actions, keep=None):
            *answer, info = super().step_chunk(actions, keep)
            known = np.zeros_like(info["success"])
            known[0] = True
            return *answer, {**info, "_success": known}

    episodes = collect(Partly(2), Drawing(), starts(5, 5), max_steps=9)
    assert [episode.meta["success"] for episode in episodes] == [True, None]


def test_out_of_bounds_actions_are_counted_and_recorded_as_executed() -> None:
    (episode,) = collect(Counting(1), Drawing(scale=0.6), starts(6), max_steps=4)
    assert np.abs(episode.actions).max() <= 1
    wanted = np.array([0, 0.6, 1.2, 1.8]) > 1
    assert episode.meta["out_of_bounds"] >= wanted.mean()
    np.testing.assert_allclose(episode.obs["state"][1:, 2:], episode.actions, atol=1e-6)


def test_decisions_are_timed_one_by_one() -> None:
    ticks = iter(np.arange(0, 1000, 0.5))
    episodes = list(
        collect(Counting(2), Drawing(2), starts(2, 8), max_steps=6, clock=lambda: float(next(ticks)))
    )
    assert [e.meta["seconds_per_decision"] for e in episodes] == [[0.5], [0.5] * 3]
    assert [e.meta["rows"] for e in episodes] == [2, 2]
    assert episodes[0].meta["seconds"] < episodes[1].meta["seconds"]


def test_what_a_policy_tells_about_its_decisions_is_summed() -> None:
    class Telling(Drawing):
        def act(self, obs, carry, noise):
            actions, carry = super().act(obs, carry, noise)
            calls = carry["asked"].to(torch.int64) * 10
            return actions, {**carry, "stats": {"model_calls": calls, "seconds": carry["asked"]}}

    short, long = collect(Counting(2), Telling(2), starts(2, 5), max_steps=9)
    assert short.meta["stats"] == {"model_calls": 10} and long.meta["stats"] == {"model_calls": 60}
    (silent,) = collect(Counting(1), Drawing(), starts(2), max_steps=9)
    assert silent.meta["stats"] == {}


@pytest.mark.parametrize(
    ("keep", "keys"),
    [(True, {"state", "pixels", "goal/state"}), (False, set()), (["pixels"], {"pixels"})],
)
def test_only_wanted_observations_are_kept(keep: bool | list[str], keys: set[str]) -> None:
    (episode,) = collect(Counting(1), Drawing(), starts(3), max_steps=9, keep_obs=keep)
    assert set(episode.obs) == keys and len(episode.actions) == 3


def test_starts_reach_the_environment() -> None:
    env = Counting(2)
    given = [Start(f"s{i}", 3, np.arange(4.0) + i, np.ones(4)) for i in range(3)]
    list(collect(env, Drawing(), given, max_steps=2))
    assert len(env.resets) == 2 and env.resets[0]["state"].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
    # the last wave is filled up with its last start
    assert env.resets[1]["state"].tolist() == [[2, 3, 4, 5], [2, 3, 4, 5]]
    with pytest.raises(UsageError, match="'s1' has no state"):
        list(collect(env, Drawing(), [given[0], Start("s1", 1)], max_steps=2))


def test_progress_counts_episodes() -> None:
    seen: list[tuple[int, int]] = []
    list(
        collect(
            Counting(2), Drawing(), starts(1, 3, 2), max_steps=5, progress=lambda *done: seen.append(done)
        )
    )
    assert seen[0] == (1, 3) and seen[-1] == (3, 3) and seen == sorted(seen)


class Needs(Drawing):
    requires = ("wrist",)


class Reads(Drawing):
    def act(self, obs, carry, noise):
        return obs["wrist"], carry


class Broken(Drawing):
    def act(self, obs, carry, noise):
        return carry["nothing"], carry


@pytest.mark.parametrize("policy", [Needs(), Reads()])
def test_missing_modality_is_an_error(policy: Drawing) -> None:
    with pytest.raises(UsageError, match="wrist.*\n.*\n.*found: *goal/state, pixels, state"):
        list(collect(Counting(1), policy, starts(3), max_steps=3))


def test_wrong_use_is_refused() -> None:
    with pytest.raises(UsageError, match="keep_obs lists"):
        collect(Counting(1), Drawing(), starts(3), max_steps=3, keep_obs=["depth"])
    with pytest.raises(UsageError, match="execute of at most 2"):
        list(collect(Counting(1), Drawing(2), starts(3), max_steps=3, execute=3))
    with pytest.raises(UsageError, match="max_steps"):
        collect(Counting(1), Drawing(), starts(3), max_steps=0)
    resetting = Counting(1)
    resetting.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(UsageError, match="autoreset"):
        collect(resetting, Drawing(), starts(3), max_steps=3)


def test_actions_must_be_finite_where_they_are_run() -> None:
    class Diverging(Drawing):
        def act(self, obs, carry, noise):
            actions, carry = super().act(obs, carry, noise)
            actions[obs["state"][:, 1] == 2] = torch.nan
            return actions, carry

    # the row that ended after two steps may answer anything
    episodes = list(collect(Counting(2), Diverging(), starts(2, 2), max_steps=9))
    assert len(episodes) == 2
    with pytest.raises(RunError, match="Diverging.*\n.*\n.*'s1' at step 2"):
        list(collect(Counting(2), Diverging(), starts(2, 5), max_steps=9))
    with pytest.raises(UsageError, match=r"wrong shape\n.*\[1, K, 2\]"):
        list(collect(Counting(1), Flat(), starts(2), max_steps=9))


class Flat(Drawing):
    def act(self, obs, carry, noise):
        return super().act(obs, carry, noise)[0][:, 0], carry


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_an_environment_that_was_made_here_is_closed(stop: type[BaseException]) -> None:
    made: list[Counting] = []

    class Stopping(Drawing):
        def act(self, obs, carry, noise):
            raise stop

    def make() -> Counting:
        made.append(Counting(2))
        return made[0]

    with pytest.raises(stop):
        list(collect(make, Stopping(), starts(2), max_steps=3))
    assert made[0].closed
    ours = Counting(2)
    list(collect(ours, Drawing(), starts(2), max_steps=3))
    assert not ours.closed


def test_records_say_where_an_episode_came_from() -> None:
    env = Counting(1)
    (episode,) = collect(env, Drawing(), starts(2), max_steps=3, seed=4)
    known = {
        "env": "counting",
        "source": "real",
        "model": None,
        "policy": "Drawing",
        "seed": 2,
        "run_seed": 4,
    }
    assert known.items() <= episode.meta.items()
    env.source, env.model_id = "model", "lewm@1"
    (episode,) = collect(env, Drawing(), starts(2), max_steps=3, policy_name="mine")
    assert {"source": "model", "model": "lewm@1", "policy": "mine"}.items() <= episode.meta.items()
