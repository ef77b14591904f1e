"""`check_policy` accepts our policies and finds each kind of broken one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from worldplan.planners.cem import CEM
from worldplan.policies.planning import PlanningPolicy
from worldplan.policies.pusht_scripted import PushTScripted
from worldplan.policies.replay import ReplayPolicy
from worldplan.seeding import Noise
from worldplan.testing import DoubleIntegrator, Reach, check_policy
from worldplan.types import ActionSpec, Carry, Obs, Start

BOUNDS = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))
OBS = {"state": torch.linspace(-1, 1, 12).view(3, 4), "goal/state": torch.linspace(1, -1, 12).view(3, 4)}


class Drifts:
    """A good recurrent policy: a noisy average of what it has seen, two actions at once."""

    def initial(self, batch_size: int) -> Carry:
        return {"mean": {"x": torch.zeros(batch_size, 2)}, "step": torch.zeros(batch_size, dtype=torch.int64)}

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        mean = 0.9 * carry["mean"]["x"] + 0.1 * obs["state"][:, :2] + 0.01 * noise.normal(2)
        action = mean.tanh() / (1 + carry["step"][:, None])
        return torch.stack((action, -action), 1), {"mean": {"x": mean}, "step": carry["step"] + 1}


def test_good_policies_pass() -> None:
    assert check_policy(Drifts(), OBS, action=BOUNDS) == ("shapes", "purity", "batch", "bounds")
    assert "bounds" not in check_policy(Drifts(), OBS)
    world = torch.tensor([[100.0, 100, 256, 300, 1, 0, 0], [400, 380, 200, 256, 3, 0, 0]])
    check_policy(PushTScripted(), {"state": world}, action=BOUNDS, steps=5)


def test_planning_is_a_policy() -> None:
    planner = CEM(horizon=2, num_samples=32, num_iterations=2, num_elites=4)
    check_policy(PlanningPolicy(DoubleIntegrator(), planner, Reach()), OBS, action=BOUNDS)


def test_replay_is_a_policy() -> None:
    rng = np.random.default_rng(0)
    starts = [Start(f"s{i}", i + 5, actions=rng.uniform(-1, 1, (6, 2)).astype(np.float32)) for i in range(3)]
    check_policy(ReplayPolicy(starts, chunk=2), OBS, action=BOUNDS, starts=[start.seed for start in starts])
    with pytest.raises(AssertionError, match="every row has a start"):
        check_policy(Drifts(), OBS, starts=[1])


class OneAction(Drifts):
    """Forgets the axis of chunks."""

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        actions, carry = super().act(obs, carry, noise)
        return actions[:, 0], carry


class TooFar(Drifts):
    """Leaves the bounds."""

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        actions, carry = super().act(obs, carry, noise)
        return actions * 100, carry


class Undefined(Drifts):
    """Answers NaN."""

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        actions, carry = super().act(obs, carry, noise)
        return actions / 0 * 0, carry


class OwnNoise(Drifts):
    """Draws from torch's global generator."""

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        torch.rand(1)
        return super().act(obs, carry, noise)


class Counts(Drifts):
    """Keeps a count in itself."""

    count = 0

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        self.count += 1
        actions, carry = super().act(obs, carry, noise)
        return actions / self.count, carry


class Writes(Drifts):
    """Writes into the carry it was given."""

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        answer = super().act(obs, carry, noise)
        carry["step"].add_(1)
        return answer


class Centres(Drifts):
    """Looks at the whole batch."""

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        return super().act({"state": obs["state"] - obs["state"].mean(0)}, carry, noise)


class ByPlace(Drifts):
    """Draws by place in the batch."""

    def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
        return super().act(obs, carry, Noise.of(0, noise.batch_size))


class SharedCarry(Drifts):
    """Carries a tensor without rows."""

    def initial(self, batch_size: int) -> Carry:
        return {**super().initial(batch_size), "clock": torch.zeros(())}


class NoMapping(Drifts):
    """Carries no mapping."""

    def initial(self, batch_size: int) -> Carry:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (OneAction(), r"actions \[B, K, a\]"),
        (TooFar(), "environment's bounds"),
        (Undefined(), "actions are finite"),
        (OwnNoise(), "noise it is given only(.|\n)*torch"),
        (Counts(), "same answer"),
        (Writes(), "carry alone"),
        (Centres(), "episodes beside it"),
        (ByPlace(), "episodes beside it"),
        (SharedCarry(), "one row per episode"),
        (NoMapping(), "carry is a mapping"),
    ],
)
def test_broken_policies_are_found(policy: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_policy(policy, OBS, action=BOUNDS)


def test_the_size_of_an_action_is_checked() -> None:
    with pytest.raises(AssertionError, match="environment's size"):
        check_policy(Drifts(), OBS, action=ActionSpec(3, (-1.0,) * 3, (1.0,) * 3))
    with pytest.raises(AssertionError, match="has rows"):
        check_policy(Drifts(), {key: value[:1] for key, value in OBS.items()})


def test_a_module_is_checked_as_it_is_used() -> None:
    @dataclass(eq=False)
    class Network(nn.Module):
        def __post_init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def initial(self, batch_size: int) -> Carry:
            return {}

        def act(self, obs: Obs, carry: Carry, noise: Noise) -> tuple[Tensor, Carry]:
            return self.drop(obs["state"])[:, None, :2], carry

    network = Network()
    check_policy(network, OBS, action=BOUNDS)
    assert network.training
