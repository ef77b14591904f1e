from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
import torch

from worldplan import tree
from worldplan.envs.registry import task
from worldplan.envs.simulator_model import SimulatorModel
from worldplan.envs.vector import SimVectorEnv
from worldplan.errors import ConfigError, UsageError
from worldplan.loop import collect
from worldplan.planners.cem import CEM
from worldplan.planners.objectives import StateGoal
from worldplan.policies.planning import PlanningPolicy
from worldplan.policies.random import RandomPolicy
from worldplan.seeding import Noise
from worldplan.testing.policies import check_policy
from worldplan.testing.toys import DoubleIntegrator
from worldplan.types import ActionSpec, Plan, Start

OBS = {
    "state": torch.tensor([[0.0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]),
    "goal/state": torch.tensor([[0.2, 0, 0, 0], [1, 0, 0, 0], [0, 0.9, 0, 0]]),
}
GOAL = StateGoal(lambda latent: latent, (1.0, 1.0, 0.1, 0.1))
NOISE = Noise.of(0, [5, 6, 7])


@dataclass
class Remembering(DoubleIntegrator):
    """A model with a context that keeps what it was shown."""

    shown: list[Any] = field(default_factory=list)

    def __post_init__(self):
        super().__init__()
        self.spec = replace(self.spec, context=3)

    def encode(self, obs, actions, valid):
        self.shown.append((obs["state"], actions, valid))
        return super().encode(obs, actions, valid)


@dataclass(frozen=True)
class Fixed:
    """Plans the numbers 1..H*A times the decision's row id, and keeps what it was given."""

    horizon: int = 3
    inits: list[Plan | None] = field(default_factory=list)

    def __call__(self, model, state, objective, noise, init=None):
        self.inits.append(init)
        size = self.horizon * model.spec.action_dim
        numbers = torch.arange(1, size + 1.0).view(1, self.horizon, -1) / 100
        cost = torch.zeros(noise.batch_size)
        trace = {
            "model_calls": 4,
            "model_steps": noise.rows,
            "std": torch.ones(noise.batch_size, 2),
            "x": "y",
        }
        return Plan(numbers.repeat(noise.batch_size, 1, 1), cost, trace=trace)


def test_keeps_the_contract_of_a_policy():
    planner = CEM(horizon=3, num_samples=60, num_elites=8, num_iterations=4)
    model = DoubleIntegrator()
    for execute in (None, 1, 2):
        assert check_policy(PlanningPolicy(model, planner, GOAL, execute), OBS, action=model.spec.action)


def test_returns_the_executed_part_in_environment_units():
    model = DoubleIntegrator()
    actions, _ = (policy := PlanningPolicy(model, Fixed(), GOAL, execute=2)).act(
        OBS, policy.initial(3), NOISE
    )
    assert actions.shape == (3, 2 * 2, 2) and actions.dtype == torch.float32
    torch.testing.assert_close(actions[1].flatten(), 0.1 + 0.5 * torch.arange(1, 9.0) / 100)


def test_actions_keep_the_bounds_of_the_environment():
    model = DoubleIntegrator()
    model.spec = replace(model.spec, action=ActionSpec(2, (-1.0, -1.0), (0.12, 1.0)))
    policy = PlanningPolicy(model, Fixed(), GOAL)
    actions, _ = policy.act(OBS, policy.initial(3), NOISE)
    assert actions[..., 0].max() == pytest.approx(0.12) and actions[..., 1].max() > 0.12


def test_reaches_goals_in_closed_loop():
    model = DoubleIntegrator()
    policy = PlanningPolicy(model, CEM(horizon=4, num_iterations=12), GOAL, execute=1)
    state, carry = OBS["state"], policy.initial(3)
    for step in range(8):
        actions, carry = policy.act({**OBS, "state": state}, carry, NOISE.at("policy", step))
        units = model.normalizer.normalize(actions.reshape(3, 1, -1))
        state = model.predict({"x": state}, units, NOISE).latent[:, -1]
    assert (state - OBS["goal/state"])[:, :2].abs().max() < 0.05
    assert carry["stats"]["decisions"].tolist() == [8, 8, 8]


def test_the_last_plan_seeds_the_next():
    planner = Fixed()
    policy = PlanningPolicy(DoubleIntegrator(), planner, GOAL, execute=2)
    _, carry = policy.act(OBS, policy.initial(3), NOISE)
    assert tree.rows(carry["plan"]) == 3
    policy.act(OBS, carry, NOISE)
    first, second = planner.inits
    assert first is None
    assert second.actions.shape == (3, 3, 4) and second.trace["executed"].tolist() == [2, 2, 2]
    assert set(second.trace) == {"executed", "model_steps", "std"}  # tensors with a row per problem


def test_records_what_a_decision_took():
    ticks = count(step=3)
    policy = PlanningPolicy(DoubleIntegrator(), Fixed(), GOAL, clock=lambda: float(next(ticks)))
    carry = policy.initial(3)
    for decisions in (1, 2):
        _, carry = policy.act(OBS, carry, NOISE)
        stats = {key: value.tolist() for key, value in carry["stats"].items()}
        assert stats == {
            "seconds": [3.0] * 3,
            "model_calls": [4] * 3,
            "model_steps": [5, 6, 7],
            "nan_costs": [0] * 3,
            "decisions": [decisions] * 3,
        }


def test_one_frame_is_shown_by_default_and_padded_to_the_context():
    model = Remembering()
    policy = PlanningPolicy(model, Fixed(), GOAL)
    carry = policy.initial(3)
    for _ in range(2):
        _, carry = policy.act(OBS, carry, NOISE)
    for frames, actions, valid in model.shown:
        assert frames.shape == (3, 3, 4) and actions.shape == (3, 2, 4)
        assert valid.tolist() == [[False, False, True]] * 3
    assert carry["history"] == {}


def test_a_history_holds_frames_and_the_actions_between_them():
    model = Remembering()
    policy = PlanningPolicy(model, Fixed(horizon=2), GOAL, execute=1, history=2)
    carry = policy.initial(3)
    for step in range(4):
        _, carry = policy.act({**OBS, "state": OBS["state"] + step}, carry, NOISE)
    frames, actions, valid = model.shown[0]
    assert valid.tolist() == [[False, False, True]] * 3
    frames, actions, valid = model.shown[3]
    assert valid.tolist() == [[False, True, True]] * 3  # no more than was asked for
    torch.testing.assert_close(frames, torch.stack([OBS["state"] + step for step in (1, 2, 3)], 1))
    torch.testing.assert_close(actions, (torch.arange(1, 5.0) / 100).expand(3, 2, 4))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"execute": 4}, "1..3, the planner's horizon"),
        ({"execute": 0}, "1..3, the planner's horizon"),
        ({"history": 2}, "1..1 frames"),
        ({"history": 0}, "1..1 frames"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        PlanningPolicy(DoubleIntegrator(), Fixed(), GOAL, **settings)


def test_a_history_needs_every_model_step():
    with pytest.raises(ConfigError, match="execute=1"):
        PlanningPolicy(Remembering(), Fixed(), GOAL, history=2)


def test_missing_observations_and_goals_are_named():
    policy = PlanningPolicy(DoubleIntegrator(), Fixed(), GOAL)
    with pytest.raises(UsageError, match="reads state"):
        policy.act({"pixels": OBS["state"]}, policy.initial(3), NOISE)
    with pytest.raises(ConfigError, match="without a goal"):
        policy.act({"state": OBS["state"]}, policy.initial(3), NOISE)
    assert policy.requires == ("state",)


def test_training_mode_is_refused():
    model = DoubleIntegrator()
    model.training = True
    policy = PlanningPolicy(model, Fixed(), GOAL)
    with pytest.raises(UsageError, match=r"model\.eval\(\)"):
        policy.act(OBS, policy.initial(3), NOISE)


def test_true_dynamics_reach_recorded_goals():
    """The whole loop: recorded episodes give goals, CEM finds its own way there in the simulator."""
    room = task("tworoom")
    with closing(SimVectorEnv("tworoom", 4, pixels=False)) as env:
        wander = RandomPolicy(room.action, chunk=25)
        recorded = list(collect(env, wander, [Start(str(i), i) for i in range(4)], max_steps=25))
        starts = [
            Start(f"goal-{i}", 100 + i, episode.obs["state"][0], episode.obs["state"][-1])
            for i, episode in enumerate(recorded)
        ]
        planner = CEM(num_samples=100, num_elites=10, num_iterations=8)
        policy = PlanningPolicy(SimulatorModel(room), planner, StateGoal(lambda latent: latent, (1.0, 1.0)))
        reached = list(collect(env, policy, starts, max_steps=room.budget))
    assert [episode.meta["success"] for episode in reached] == [True] * 4
    assert reached[0].meta["stats"]["model_steps"] == (8 * 100 + 1) * 5 * reached[0].meta["decisions"]
