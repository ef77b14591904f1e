from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from worldplan.errors import ConfigError
from worldplan.planners.cem import CEM
from worldplan.planners.shrinking import ShrinkingHorizon
from worldplan.policies.planning import PlanningPolicy
from worldplan.seeding import Noise
from worldplan.testing.planners import check_planner
from worldplan.types import Plan

H, R = 4, 0.5


@dataclass(frozen=True)
class Exact:
    """Steps straight to the goal: the minimiser of the distance plus ``R`` times the effort."""

    horizon: int = H

    def __call__(self, model, state, objective, noise, init=None):
        step = (objective.goal - state["z"]) / (self.horizon + R)
        actions = step[:, None].expand(-1, self.horizon, -1)
        return Plan(actions, torch.zeros(len(step)), trace={"horizon": self.horizon})


def replanned(world, planner, count):
    """Distances to the goal, as a share of the first, when re-planning after every step."""
    z, plan, shares, horizons = world.state["z"], None, [], []
    bound = world.objective.parts[0]
    for _ in range(count):
        before = plan and replace(plan, trace={"executed": torch.ones(3, dtype=torch.int64)})
        plan = planner(world.model, {"z": z}, bound, world.noise, before)
        horizons.append(plan.actions.shape[1])
        z = z + plan.actions[:, 0]
        shares.append(((world.goal - z) / (world.goal - world.state["z"])).mean().item())
    return shares, horizons


def test_replanning_arrives_where_the_first_plan_would(world):
    shares, horizons = replanned(world(), ShrinkingHorizon(Exact()), H)
    assert horizons == [4, 3, 2, 1]
    # prod_h (1 - 1 / (h + R)) for h = H..1 is R / (H + R), what one plan run to its end leaves
    assert shares[-1] == pytest.approx(R / (H + R))


def test_a_fixed_horizon_puts_the_end_off(world):
    @dataclass(frozen=True)
    class Fixed:
        def __call__(self, *given):
            return Exact()(*given)

    shares, _ = replanned(world(), Fixed(), H)
    assert shares[-1] == pytest.approx((1 - 1 / (H + R)) ** H)
    assert shares[-1] > 2 * R / (H + R)


def test_a_new_horizon_begins_when_little_is_left(world):
    _, horizons = replanned(world(), ShrinkingHorizon(Exact(), shortest=2), 7)
    assert horizons == [4, 3, 2, 4, 3, 2, 4]
    _, horizons = replanned(world(), ShrinkingHorizon(Exact()), 6)
    assert horizons == [4, 3, 2, 1, 4, 3]


def test_the_rest_of_the_plan_is_where_the_search_begins(world):
    made = world()
    inner = CEM(horizon=3, num_samples=50, num_elites=5, num_iterations=2)
    first = ShrinkingHorizon(inner)(made.model, made.state, made.objective, made.noise)
    told = replace(first, trace={"executed": torch.ones(3, dtype=torch.int64)})
    second = ShrinkingHorizon(inner)(made.model, made.state, made.objective, made.noise.at("b"), told)
    alone = replace(inner, horizon=2)(made.model, made.state, made.objective, made.noise.at("b"), told)
    torch.testing.assert_close(second.actions, alone.actions, rtol=0, atol=0)
    assert second.actions.shape[1] == 2


def test_keeps_the_contract_of_a_planner():
    inner = CEM(horizon=3, num_samples=200, num_elites=20, num_iterations=10)
    assert "improvement" in check_planner(lambda: ShrinkingHorizon(inner), share=0.95)


def test_a_policy_runs_the_steps_the_planner_says(world):
    made = world()
    policy = PlanningPolicy(made.model, ShrinkingHorizon(Exact()), made.objective.parts[0])
    obs = {"z": made.state["z"].float(), "goal/z": made.goal.float()}
    carry, lengths = policy.initial(3), []
    for step in range(5):
        actions, carry = policy.act(obs, carry, Noise.of(0, 3).at(step))
        assert actions.shape[1] == made.model.spec.frame_skip
        lengths.append(carry["plan"]["actions"].shape[1])
    assert lengths == [4, 3, 2, 1, 4]


def test_rows_that_began_apart_are_refused(world):
    made = world()
    plan = Plan(torch.zeros(3, H, 2), torch.zeros(3), trace={"executed": torch.tensor([1, 2, 1])})
    with pytest.raises(ConfigError, match="1 to 2"):
        ShrinkingHorizon(Exact())(made.model, made.state, made.objective, made.noise, plan)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"execute": 0}, "execute"), ({"execute": 5}, "execute"), ({"execute": 2}, "shortest")],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ShrinkingHorizon(Exact(), **settings)


def test_a_planner_without_a_horizon_is_refused():
    with pytest.raises(ConfigError, match="horizon"):
        ShrinkingHorizon(lambda *_: None)
