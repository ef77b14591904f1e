"""Imagination with a perfect model of a moving disc, so that it must agree with reality."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from worldplan import testing
from worldplan.envs.imagined import ImaginedVectorEnv
from worldplan.errors import ProtocolMismatch, RunError, UsageError
from worldplan.loop import collect
from worldplan.normalize import Normalizer, Statistics
from worldplan.protocol import ModelSpec
from worldplan.types import ActionSpec, Rollout, Start

BOX = gymnasium.spaces.Box
SIZE, SKIP = 12, 3
ACTION = ActionSpec(2, (-1, -1), (1, 1))


def draw(state: np.ndarray) -> np.ndarray:
    """Discs ``uint8 [..., SIZE, SIZE, 3]`` at ``state [..., 2]`` in pixels."""
    grid = np.stack(np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij"), -1)
    distance = np.linalg.norm(grid - state[..., None, None, :], axis=-1)
    return np.repeat((255 * np.clip(2 - distance, 0, 1))[..., None], 3, -1).astype(np.uint8)


def near(state: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return np.linalg.norm(state - goal, axis=-1) < 1


class Disc(VectorEnv):
    """The simulator: actions add to the position."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}
    name = "disc"

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        image, vector = BOX(0, 255, (SIZE, SIZE, 3), np.uint8), BOX(-np.inf, np.inf, (2,), np.float32)
        self.single_observation_space = gymnasium.spaces.Dict(
            {"pixels": image, "goal/pixels": image, "state": vector, "goal/state": vector}
        )
        self.single_action_space = BOX(-1, 1, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.done = np.zeros(num_envs, bool)

    def _observe(self) -> dict[str, np.ndarray]:
        return {
            "pixels": draw(self.state),
            "state": self.state.astype(np.float32),
            "goal/pixels": draw(self.goal),
            "goal/state": self.goal.astype(np.float32),
        }

    def reset(self, *, seed=None, options=None):
        options = options or {}
        drawn = np.stack([np.random.default_rng(s).uniform(2, 9, 4) for s in seed])
        given = [options.get(key) for key in ("state", "goal")]
        self.state = drawn[:, :2] if given[0] is None else np.array(given[0], float)
        self.goal = drawn[:, 2:] if given[1] is None else np.array(given[1], float)
        self.done = np.zeros(self.num_envs, bool)
        return self._observe(), {"success": near(self.state, self.goal)}

    def step_chunk(self, actions, keep=None):
        parts = []
        for i in range(keep or actions.shape[1]):
            move = np.clip(actions[:, i], -1, 1) * ~self.done[:, None]
            reward = (~self.done & near(self.state + move, self.goal)).astype(float)
            self.state = self.state + move
            self.done = self.done | near(self.state, self.goal)
            parts.append((self._observe(), reward, self.done.copy()))
        obs = {key: np.stack([part[0][key] for part in parts], 1) for key in parts[0][0]}
        reward, done = (np.stack([part[i] for part in parts], 1) for i in (1, 2))
        return obs, reward, done, np.zeros_like(done), {"success": done}


class Model:
    """Latent = position; optionally noisy."""

    def __init__(self, noisy: bool = False, skip: int = SKIP) -> None:
        self.spec = ModelSpec("disc", {"pixels": (3, SIZE, SIZE)}, 2, skip, ACTION, (2,))
        self.normalizer, self.noisy = Normalizer(2), noisy
        self.normalizer.fit(Statistics((0.1, -0.2), (0.5, 2.0), 9))
        self.predictions: list[tuple[int, ...]] = []

    def encode(self, obs, actions, valid):
        assert obs["pixels"].shape[1:] == (2, 3, SIZE, SIZE) and valid.tolist() == [[False, True]] * len(
            valid
        )
        assert actions.shape[1:] == (1, SKIP * 2)
        frame = obs["pixels"][:, -1, 0].double()
        weight = frame / frame.sum((1, 2), keepdim=True)
        axis = torch.arange(SIZE, dtype=torch.float64)
        position = torch.stack(((weight.sum(2) * axis).sum(1), (weight.sum(1) * axis).sum(1)), 1)
        return {"position": position}

    def predict(self, state, actions, noise, steps=None):
        rows, horizon = actions.shape[:2]
        self.predictions.append((rows, horizon))
        moves = self.normalizer.unnormalize(actions).reshape(rows, horizon, -1, 2).sum(2).double()
        if self.noisy:
            moves = moves + noise.normal(horizon, 2)
        path = state["position"][:, None] + torch.cat((torch.zeros_like(moves[:, :1]), moves.cumsum(1)), 1)
        steps = torch.arange(horizon + 1) if steps is None else steps
        return Rollout(path[:, steps], steps, actions, final={"position": path[:, -1]})


def decode(latent):
    pixels = torch.from_numpy(np.moveaxis(draw(latent.numpy()), -1, -3).copy())
    return {"pixels": pixels, "state": latent.float()}


def judge(obs):
    distance = (obs["state"] - obs["goal/state"]).norm(dim=-1)
    return distance < 1, (1 - distance / 10).clamp(0, 1)


def imagine(num_envs: int = 1, **options) -> ImaginedVectorEnv:
    model = options.pop("model", None) or Model()
    return ImaginedVectorEnv(model, decode, judge, Disc(num_envs), model_id="perfect", **options)


def integers(*seeds: int) -> list[Start]:
    """Starts and goals on whole pixels, where a drawn disc is read back exactly."""
    rng = np.random.default_rng(1)
    return [Start(f"s{s}", s, rng.integers(3, 9, 2) * 1.0, np.array([11.0, 30.0])) for s in seeds]


class Walk:
    """Whole and half pixels, K at a time."""

    def __init__(self, chunk: int) -> None:
        self.chunk = chunk

    def initial(self, batch_size):
        return {"asked": torch.zeros(batch_size)}

    def act(self, obs, carry, noise):
        actions = (noise.integers(3, self.chunk, 2) - 1) * 0.5
        return actions, {"asked": carry["asked"] + 1}


@pytest.mark.parametrize("execute", [3, 6])
def test_a_perfect_model_imagines_what_happens(execute: int) -> None:
    options = {"max_steps": 12, "seed": 5, "execute": execute}
    real = list(collect(Disc(2), Walk(6), integers(3, 4, 5), **options))
    dreamt = list(collect(imagine(2), Walk(6), integers(3, 4, 5), **options))
    for truth, dream in zip(real, dreamt, strict=True):
        np.testing.assert_array_equal(truth.actions, dream.actions)
        # frames are drawn at model steps and stand still in between
        np.testing.assert_allclose(truth.obs["state"][::SKIP], dream.obs["state"][::SKIP], atol=0.05)
        np.testing.assert_allclose(truth.obs["pixels"][::SKIP], dream.obs["pixels"][::SKIP], atol=12)
        held = dream.obs["state"][:-1].reshape(4, SKIP, 2)
        np.testing.assert_array_equal(held, np.repeat(held[:, :1], SKIP, 1))
        np.testing.assert_array_equal(truth.obs["goal/pixels"], dream.obs["goal/pixels"])
        assert dream.meta["source"] == "model" and dream.meta["model"] == "perfect"
        assert dream.meta["env"] == "disc" and truth.meta["source"] == "real"


def test_single_steps_and_chunks_agree() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 7, 2)).astype(np.float32)
    chunked, stepped = imagine(2), imagine(2)
    chunked.reset(seed=[1, 2]), stepped.reset(seed=[1, 2])
    obs, *flags, info = chunked.step_chunk(actions)
    singles = [stepped.step(actions[:, t]) for t in range(7)]
    for key, value in obs.items():
        together = np.stack([single[0][key] for single in singles], 1)
        np.testing.assert_allclose(value.astype(float), together.astype(float), atol=1e-4)
    for index, flag in enumerate(flags):
        np.testing.assert_array_equal(flag, np.stack([single[index + 1] for single in singles], 1))
    np.testing.assert_array_equal(info["success"], np.stack([single[4]["success"] for single in singles], 1))
    assert chunked._model.predictions == [(2, 2)], "one prediction for the whole chunk"
    assert stepped._model.predictions == [(2, 1), (2, 1)], "one for every third step"
    # the seventh action waits for two more, in both
    more = [env.step_chunk(np.ones((2, 2, 2)))[0]["state"] for env in (chunked, stepped)]
    np.testing.assert_allclose(*more, atol=1e-4)


def test_actions_that_are_not_kept_do_not_move_the_model() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (1, 6, 2))
    first, second = imagine(), imagine()
    first.reset(seed=1), second.reset(seed=1)
    kept = first.step_chunk(actions, keep=3)[0]["state"]
    whole = second.step_chunk(actions[:, :3])[0]["state"]
    assert kept.shape == (1, 3, 2)
    np.testing.assert_array_equal(kept, whole)
    np.testing.assert_array_equal(
        first.step_chunk(actions)[0]["state"], second.step_chunk(actions)[0]["state"]
    )


def test_a_row_that_has_ended_is_frozen_and_success_is_declared_at_model_steps() -> None:
    env = imagine(2)
    goal = np.array([[5.0, 8.0], [30.0, 30.0]])
    env.reset(seed=[1, 2], options={"state": np.full((2, 2), 5.0), "goal": goal})
    right = np.tile(np.array([0.0, 1.0]), (2, 9, 1))
    obs, reward, terminated, truncated, info = env.step_chunk(right)
    assert info["success"][0].tolist() == [False] * 2 + [True] * 7 and not info["success"][1].any()
    assert terminated[0].tolist() == info["success"][0].tolist() and not truncated.any()
    assert reward[0].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0] and not reward[1].any()
    np.testing.assert_allclose(obs["state"][0, 2:, 1], 8, atol=1e-5)
    np.testing.assert_allclose(obs["state"][1, -1], [5, 14], atol=1e-5)
    again = env.step_chunk(right)
    assert again[2][0].all() and again[4]["success"][0].all() and not again[1].any()
    np.testing.assert_array_equal(again[0]["pixels"][0, 0], obs["pixels"][0, -1])
    # only the living row is still predicted
    assert env._model.predictions == [(2, 3), (1, 3)]


def test_time_runs_out_between_model_steps() -> None:
    env = imagine(2, max_steps=4)
    env.reset(seed=[1, 2], options={"state": np.full((2, 2), 5.0), "goal": np.full((2, 2), 30.0)})
    obs, _, terminated, truncated, _ = env.step_chunk(np.full((2, 6, 2), 0.1))
    assert truncated.tolist() == [[False] * 3 + [True] * 3] * 2 and not terminated.any()
    np.testing.assert_allclose(obs["state"][:, -1], 5.3, atol=1e-5)
    env.reset(seed=[1, 2])
    assert not env.step(np.zeros((2, 2)))[3].any()


def test_actions_beyond_the_bounds_are_clipped() -> None:
    env = imagine()
    env.reset(seed=1, options={"state": np.full((1, 2), 5.0), "goal": np.full((1, 2), 30.0)})
    obs = env.step_chunk(np.full((1, 3, 2), 9.0))[0]
    np.testing.assert_allclose(obs["state"][0, -1], 8, atol=1e-5)


def test_some_rows_can_begin_anew() -> None:
    env = imagine(3)
    before = env.reset(seed=[1, 2, 3])[0]
    env.step(np.full((3, 2), 0.5))
    obs, info = env.reset(seed=[1, 2, 3], options={"mask": np.array([False, True, False])})
    assert info["success"].shape == (3,)
    np.testing.assert_array_equal(obs["state"], before["state"])
    env.step(np.full((3, 2), 0.5))
    obs = env.step(np.full((3, 2), 0.5))[0]  # third step of rows 0 and 2, second of row 1
    moved = np.abs(obs["state"] - before["state"]).max(1) > 1
    assert moved.tolist() == [True, False, True]
    assert (np.abs(env.step(np.full((3, 2), 0.5))[0]["state"] - before["state"]).max(1) > 1).all()


@pytest.mark.parametrize("num_envs", [1, 3])
def test_imagined_noise_belongs_to_the_episode(num_envs: int) -> None:
    options = {"max_steps": 6, "seed": 2}
    starts = integers(7, 8, 9)
    together = list(collect(imagine(num_envs, model=Model(noisy=True)), Walk(3), starts, **options))
    for start, episode in zip(starts, together, strict=True):
        (alone,) = collect(imagine(1, model=Model(noisy=True)), Walk(3), [start], **options)
        np.testing.assert_array_equal(alone.obs["state"], episode.obs["state"])
    # from the same frame and under the same actions, another seed dreams differently
    twins = [Start("a", 1, starts[0].state, starts[0].goal), Start("b", 2, starts[0].state, starts[0].goal)]
    env = imagine(2, model=Model(noisy=True))
    env.reset(seed=[s.seed for s in twins], options={"state": np.stack([s.state for s in twins])})
    obs = env.step_chunk(np.zeros((2, 3, 2)))[0]
    assert np.abs(obs["state"][0, -1] - obs["state"][1, -1]).min() > 1e-3


def test_recorded_first_frames_need_no_simulator() -> None:
    truth = Disc(2)
    recorded = truth.reset(seed=[3, 4])[0]
    env = ImaginedVectorEnv(Model(), decode, judge, truth.single_observation_space, num_envs=2)
    with pytest.raises(UsageError, match="nothing to begin with"):
        env.reset(seed=[1, 2])
    obs, _ = env.reset(options={"obs": recorded})
    np.testing.assert_array_equal(obs["pixels"], recorded["pixels"])
    with pytest.raises(UsageError, match="lacks goal/pixels"):
        env.reset(options={"obs": {k: v for k, v in recorded.items() if k != "goal/pixels"}})
    with pytest.raises(UsageError, match="wrong shape"):
        env.reset(options={"obs": {**recorded, "state": np.zeros((2, 3))}})
    meta = [{"obs": {key: value[row] for key, value in recorded.items()}} for row in range(2)]
    starts = [Start(f"s{row}", row, meta=meta[row]) for row in range(2)]
    episodes = list(collect(env, Walk(3), starts, max_steps=3))
    np.testing.assert_array_equal(episodes[1].obs["pixels"][0], recorded["pixels"][1])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="before it was reset"):
        imagine().step(np.zeros((1, 2)))
    model = Model()
    model.spec = ModelSpec("disc", {"pixels": (3, 64, 64)}, 2, SKIP, ACTION, (2,))
    env = imagine()
    env.reset(seed=1)
    for wrong in (np.zeros((1, 3)), np.zeros((2, 2)), np.full((1, 2), np.nan)):
        with pytest.raises(UsageError, match="cannot take these actions"):
            env.step(wrong)
    env._model.training = True
    with pytest.raises(UsageError, match="training mode"):
        env.reset(seed=1)
    with pytest.raises(ProtocolMismatch, match="pixels: expected"):
        imagine(model=model)
    with pytest.raises(UsageError, match="draws no state"):
        env = ImaginedVectorEnv(Model(), lambda z: {"pixels": decode(z)["pixels"]}, None, Disc(1))
        env.reset(seed=1)
        env.step_chunk(np.zeros((1, 3, 2)))
    env = ImaginedVectorEnv(
        Model(), lambda z: {"pixels": decode(z)["pixels"]}, None, Disc(1), keys=["pixels"]
    )
    assert set(env.reset(seed=1)[0]) == {"pixels", "goal/pixels", "goal/state"}
    env.step_chunk(np.zeros((1, 3, 2)))
    with pytest.raises(UsageError, match="num_envs=1"):
        ImaginedVectorEnv(Model(), decode, judge, Disc(1), num_envs=2)
    diverging = Model()
    diverging.normalizer.fit(Statistics((0.0, 0.0), (np.inf, np.inf), 9))
    env = imagine(model=diverging)
    env.reset(seed=7)
    with pytest.raises(RunError, match=r"not finite\n.*seeds \[7\]"):
        env.step_chunk(np.ones((1, 3, 2)))


def test_choices_are_gathered_as_integers() -> None:
    class Choosing(Model):
        def encode(self, obs, actions, valid):
            assert actions.dtype == torch.int64 and actions.shape[1:] == (1, SKIP)
            return {"position": torch.full((len(valid), 2), 5.0)}

        def predict(self, state, actions, noise, steps=None):
            assert actions.dtype == torch.int64
            end = state["position"] + actions.sum((1, 2))[:, None]
            return Rollout(end[:, None], steps, actions, final={"position": end})

    model = Choosing()
    model.spec = ModelSpec("disc", {"pixels": (3, SIZE, SIZE)}, 2, SKIP, ActionSpec(1, choices=3), (2,))
    env = imagine(2, model=model)
    assert env.single_action_space == gymnasium.spaces.Discrete(3)
    env.reset(seed=1, options={"goal": np.full((2, 2), 30.0)})
    env.step(np.array([1, 2]))
    obs = env.step_chunk(np.array([[0, 1], [2, 9]]))[0]
    assert obs["state"][:, -1, 0].tolist() == [7, 11], "and clipped to the choices"


def test_without_a_judge_success_is_unknown() -> None:
    env = ImaginedVectorEnv(Model(), decode, None, Disc(1))
    (episode,) = collect(env, Walk(3), integers(1), max_steps=3)
    assert episode.meta["success"] is None and episode.truncated


def test_it_keeps_the_contract_of_every_vector_environment() -> None:
    exercised = testing.check_env(imagine(3), steps=7)
    assert {"seeds", "chunks", "states", "ends"} <= set(exercised)


@pytest.mark.filterwarnings("ignore:.*(A Box observation space|Not able to test)")
def test_one_row_is_a_gymnasium_environment() -> None:
    env = ImaginedVectorEnv.single(Model(), decode, judge, Disc(1), model_id="perfect")
    check_env(env)
    assert env.source == "model"
    obs, info = env.reset(seed=1, options={"state": np.array([5.0, 5.0]), "goal": np.array([5.0, 7.0])})
    assert obs["state"].shape == (2,) and info == {"success": False, "progress": pytest.approx(0.8)}
    for _ in range(3):
        obs, reward, terminated, truncated, info = env.step(np.array([0.0, 0.5], np.float32))
    assert reward == 1.0 and terminated is True and truncated is False and info["success"] is True
    assert env.render().shape == (SIZE, SIZE, 3)
    env.close()
