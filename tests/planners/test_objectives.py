from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from worldplan.errors import ConfigError
from worldplan.planners.objectives import LatentGoal, SelfConsistency, StateGoal, Sum, squared_distance
from worldplan.types import Rollout


def rollout(latent, steps):
    return Rollout(latent, torch.tensor(steps), torch.zeros(*latent.shape[:2], 3, 2))


def test_latent_goal_is_the_squared_distance_of_the_last_step():
    latent = torch.arange(24.0).reshape(1, 2, 3, 2, 2)  # a latent with two axes
    bound = LatentGoal(lambda obs: obs["x"] * 2).at(
        {"goal/x": torch.ones(1, 2, 2), "x": torch.zeros(1, 2, 2)}
    )
    expected = [sum((v - 2) ** 2 for v in (8, 9, 10, 11)), sum((v - 2) ** 2 for v in (20, 21, 22, 23))]
    assert bound(rollout(latent, [1, 2, 3])).tolist() == [expected]


def test_state_goal_wraps_angles_and_weighs():
    goal = {"goal/state": torch.tensor([[0.0, 3.0]])}
    objective = StateGoal(lambda z: z, (2.0, 1.0), angles=(1,)).at(goal)
    latent = torch.tensor([[[[1.0, -3.0]], [[0.0, 3.0 + 4 * math.pi]]]])
    cost = objective(rollout(latent, [3]))
    torch.testing.assert_close(cost, torch.tensor([[2 + (2 * math.pi - 6) ** 2, 0.0]]), atol=1e-5, rtol=1e-5)


def test_a_turn_is_measured_the_short_way():
    first, second = torch.zeros(2, 1, 7, dtype=torch.float64)
    first[0, 4], second[0, 4] = 0.1, 2 * math.pi - 0.1
    weights = (1, 1, 1, 1, (20 / (math.pi / 9)) ** 2, 0, 0)
    found = squared_distance(first, second, weights, (4,)).sqrt()
    assert found[0].item() == pytest.approx(0.2 * 20 / (math.pi / 9))


def test_state_goal_may_take_the_best_step_but_not_the_start():
    goal = {"goal/state": torch.zeros(1, 1)}
    path = torch.tensor([0.0, 3.0, 1.0, 2.0]).reshape(1, 1, 4, 1)
    nearest = StateGoal(lambda z: z, (1.0,), path="min").at(goal)
    last = StateGoal(lambda z: z, (1.0,)).at(goal)
    assert nearest(rollout(path, [0, 1, 2, 3])).item() == 1
    assert last(rollout(path, [0, 1, 2, 3])).item() == 4
    assert nearest.needs_path and not last.needs_path


def test_state_goal_reads_goals_that_are_only_seen():
    seen = {"goal/pixels": torch.full((2, 3), 5.0)}
    objective = StateGoal(lambda z: z[:, :1] * 10, (1.0,), embed=lambda obs: obs["pixels"]).at(seen)
    assert objective.goal.tolist() == [[50.0], [50.0]]
    latent = torch.full((2, 4, 1, 3), 4.0)
    assert objective(rollout(latent, [3])).tolist() == [[100.0] * 4] * 2


def test_sums_add_scale_bind_and_select():
    near = LatentGoal(lambda obs: obs["z"])
    state = StateGoal(lambda z: z, (1.0, 0.0), path="min", key="z")
    objective = 2 * near + state * 0.5
    assert isinstance(objective, Sum) and objective.needs_path and objective.weights == (2, 0.5)
    assert (objective * 2).weights == (4, 1.0) and len((objective + near).parts) == 3
    obs = {"goal/z": torch.tensor([[0.0, 0.0], [1.0, 1.0]])}
    latent = torch.ones(2, 3, 2, 2)
    bound = objective.at(obs)
    assert bound(rollout(latent, [0, 1])).tolist() == [[4.5] * 3, [0.0] * 3]
    kept = bound.select(torch.tensor([1]))
    assert kept(rollout(latent[:1], [0, 1])).tolist() == [[0.0] * 3]
    terms = bound.terms(rollout(latent, [0, 1]))
    assert {key: value[0, 0].item() for key, value in terms.items()} == {
        "0 LatentGoal": 4.0,
        "1 StateGoal": 0.5,
    }


def test_any_objective_can_be_part_of_a_sum():
    class Constant:
        def __call__(self, rollout):
            return torch.ones(rollout.latent.shape[:2])

        def at(self, obs):
            return self

        def select(self, rows):
            return self

    near = LatentGoal(lambda obs: obs["z"]).at({"goal/z": torch.zeros(1, 2)})
    for objective in (near + Constant(), Constant() + near):
        assert objective(rollout(torch.ones(1, 1, 1, 2), [1])).item() == 3
        assert not objective.needs_path


@pytest.mark.parametrize("objective", [LatentGoal(lambda obs: obs["z"]), StateGoal(lambda z: z, (1.0,))])
def test_unbound_objectives_say_so(objective):
    with pytest.raises(ConfigError, match=r"objective\.at\(obs\)"):
        objective(rollout(torch.zeros(1, 1, 1, 1), [1]))
    with pytest.raises(ConfigError, match="before it knew a goal"):
        objective.select(torch.tensor([0]))
    with pytest.raises(ConfigError, match=r"found:    the keys pixels, state"):
        objective.at({"pixels": torch.zeros(1), "state": torch.zeros(1)})


def test_misfits_are_refused():
    with pytest.raises(ConfigError, match="2 entries, one per weight"):
        StateGoal(lambda z: z, (1.0, 1.0)).at({"goal/state": torch.zeros(1, 3)})
    with pytest.raises(ConfigError, match="goal/state"):
        StateGoal(lambda z: z, (1.0, 1.0)).at({"goal/pixels": torch.zeros(1, 3)})
    with pytest.raises(ConfigError, match="angle"):
        StateGoal(lambda z: z, (1.0,), angles=(1,))
    with pytest.raises(ConfigError, match="last or min"):
        StateGoal(lambda z: z, (1.0,), path="mean")
    with pytest.raises(ConfigError, match="one weight for each"):
        Sum((LatentGoal(lambda obs: obs["z"]),), ())


def test_self_consistency_is_the_distance_between_a_jump_and_a_detour() -> None:
    def jump(latent: Tensor, actions: Tensor) -> Tensor:
        return latent + actions.sum(1) ** 2  # not additive: two jumps are not one

    start, actions = torch.randn(2, 3, 4), torch.randn(2, 3, 5, 4)
    path = [start, *(start + actions[:, :, :k].sum(2) ** 2 for k in range(1, 6))]
    rollout = Rollout(torch.stack(path, 2), torch.arange(6), actions)
    for first, at in ((None, 2), (2, 2), (4, 4)):
        detour = path[at] + actions[:, :, at:].sum(2) ** 2
        expected = (path[-1] - detour).square().sum(-1)
        torch.testing.assert_close(SelfConsistency(jump, first)(rollout), expected)
    assert (SelfConsistency(jump, 5)(rollout) == 0).all()
    single = Rollout(rollout.latent[:, :, :2], torch.arange(2), actions[:, :, :1])
    assert (SelfConsistency(jump)(single) == 0).all()
    with pytest.raises(ConfigError, match="after the plan ends"):
        SelfConsistency(jump, 6)(rollout)
    with pytest.raises(ConfigError, match="out of range"):
        SelfConsistency(jump, 0)
    both = LatentGoal(lambda obs: obs["z"]) + 0.5 * SelfConsistency(jump)
    assert both.needs_path
    bound = both.at({"goal/z": torch.zeros(2, 4)}).select(torch.tensor([1]))
    one = Rollout(rollout.latent[1:], rollout.steps, actions[1:])
    near = path[-1][1:].square().sum(-1)
    torch.testing.assert_close(bound(one), near + 0.5 * SelfConsistency(jump)(one))


def test_self_consistency_of_a_model_whose_jumps_are_steps_is_zero() -> None:
    def jump(latent: Tensor, actions: Tensor) -> Tensor:
        return latent + actions.sum(1)

    actions = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    start = torch.zeros(2, 3, 1, 5, dtype=torch.float64)
    path = torch.cat((start, actions.cumsum(2)), 2)
    cost = SelfConsistency(jump)(Rollout(path, torch.arange(5), actions))
    torch.testing.assert_close(cost, torch.zeros_like(cost))
