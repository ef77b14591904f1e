"""Policies that do not plan."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from worldplan.errors import ConfigError, DataError
from worldplan.policies.constant import ConstantPolicy
from worldplan.policies.noisy import NoisyPolicy
from worldplan.policies.random import RandomPolicy
from worldplan.policies.replay import ReplayPolicy
from worldplan.seeding import Noise
from worldplan.testing.policies import check_policy
from worldplan.types import ActionSpec, Start

BOX = ActionSpec(2, (-1.0, 0.0), (1.0, 4.0))
CHOICES = ActionSpec(1, choices=3)
OBS = {"state": torch.zeros(3, 2)}


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        (RandomPolicy(BOX), BOX),
        (RandomPolicy(BOX, chunk=5), BOX),
        (RandomPolicy(CHOICES), CHOICES),
        (ConstantPolicy(BOX), BOX),
        (ConstantPolicy(CHOICES), CHOICES),
        (NoisyPolicy(RandomPolicy(BOX, chunk=2), 0.7, BOX), BOX),
    ],
    ids=["random", "random-chunk", "random-choices", "constant", "constant-choices", "noisy"],
)
def test_keeps_the_contract_of_a_policy(policy, action):
    assert check_policy(policy, OBS, action=action)


def run(policy, noise, steps):
    carry, actions = policy.initial(noise.batch_size), []
    for step in range(steps):
        chosen, carry = policy.act(OBS, carry, noise.at("policy", step))
        actions.append(chosen)
    return torch.cat(actions, 1)


def test_random_actions_fill_the_box_evenly():
    actions = run(RandomPolicy(BOX, chunk=1000), Noise.of(1, 3), 2).flatten(0, 1)
    assert actions.dtype == torch.float32 and len(actions.unique(dim=0)) == len(actions)
    np.testing.assert_allclose(actions.mean(0), [0, 2], atol=0.1)
    np.testing.assert_allclose(actions.std(0), np.array([2, 4]) / np.sqrt(12), rtol=0.05)


def test_random_choices_are_all_taken():
    actions = run(RandomPolicy(CHOICES, chunk=300), Noise.of(1, 3), 1)
    assert actions.dtype == torch.int64
    assert (actions.flatten().bincount(minlength=3) > 200).all()


def test_random_needs_bounds():
    with pytest.raises(ConfigError, match="unbounded space of 2"):
        RandomPolicy(ActionSpec(2))


def test_constant_does_nothing_or_what_it_is_told():
    assert run(ConstantPolicy(BOX), Noise.of(0, 2), 3).tolist() == [[[0, 0]] * 3] * 2
    assert run(ConstantPolicy(BOX, (0.5, 9.0)), Noise.of(0, 1), 1).tolist() == [[[0.5, 4.0]]]
    assert run(ConstantPolicy(ActionSpec(2)), Noise.of(0, 1), 1).tolist() == [[[0, 0]]]
    with pytest.raises(ConfigError, match="2 numbers"):
        ConstantPolicy(BOX, (0.0,))


def starts():
    def one(seed, length):
        actions = seed + np.arange(2.0 * length).reshape(length, 2) / 10
        return Start(f"start-{seed}", seed, actions=actions)

    return [one(40, 3), one(7, 1), one(2**40, 4)]


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_replay_finds_its_recording_by_seed_and_ends_in_zeros(chunk):
    actions = run(ReplayPolicy(starts(), chunk=chunk), Noise.of(0, [7, 40]), 6)
    expected = torch.zeros(2, 6 * chunk, 2)
    expected[0, 0] = torch.tensor([7.0, 7.1])
    expected[1, :3] = torch.tensor([[40, 40.1], [40.2, 40.3], [40.4, 40.5]])
    torch.testing.assert_close(actions, expected)


def test_replay_does_not_depend_on_batch_mates():
    policy = ReplayPolicy(starts())
    together = run(policy, Noise.of(0, [7, 40, 2**40]), 4)
    alone = run(policy, Noise.of(0, [2**40]), 4)
    assert torch.equal(together[2:], alone) and not torch.equal(alone[0, 3], torch.zeros(2))


def test_replay_names_what_it_cannot_replay():
    with pytest.raises(DataError, match=r"\[8\]"):
        run(ReplayPolicy(starts()), Noise.of(0, [7, 8]), 1)
    with pytest.raises(DataError, match="'empty'.*\n.*\n.*no actions"):
        ReplayPolicy([*starts(), Start("empty", 3)])
    with pytest.raises(DataError, match="seed 7, as 'start-7'"):
        ReplayPolicy([*starts(), Start("twin", 7, actions=np.zeros((2, 2)))])
    with pytest.raises(DataError, match="NaN"):
        ReplayPolicy([Start("broken", 3, actions=np.full((2, 2), np.nan))])
    with pytest.raises(DataError, match="same a"):
        ReplayPolicy([*starts(), Start("wide", 3, actions=np.zeros((2, 3)))])


def test_noise_is_graded_and_paired():
    base, noise = ConstantPolicy(ActionSpec(2)), Noise.of(3, 4)
    half, double = (run(NoisyPolicy(base, std), noise, 500) for std in (0.5, 2.0))
    torch.testing.assert_close(double, 4 * half)
    assert half.std().item() == pytest.approx(0.5, rel=0.05) and abs(half.mean().item()) < 0.05
    assert torch.equal(run(NoisyPolicy(base, 0.0), noise, 2), run(base, noise, 2))
    each = run(NoisyPolicy(base, (0.0, 1.0)), noise, 50)
    assert (each[..., 0] == 0).all() and (each[..., 1] != 0).all()


def test_noise_keeps_bounds_and_the_policy_its_own_draws():
    base = RandomPolicy(BOX)
    assert run(NoisyPolicy(base, 9.0, BOX), Noise.of(0, 3), 20).abs().max() <= 4
    carry = base.initial(3)
    plain, _ = base.act(OBS, carry, Noise.of(0, 3))
    noisy, _ = NoisyPolicy(base, 1e-6).act(OBS, carry, Noise.of(0, 3))
    torch.testing.assert_close(plain, noisy, atol=1e-4, rtol=0)
    assert NoisyPolicy(base, 0.5).name == "random+noise 0.5" and NoisyPolicy(base, 0.5).requires == ()


def test_noise_needs_continuous_actions_and_a_positive_size():
    with pytest.raises(ConfigError, match="3 choices"):
        NoisyPolicy(RandomPolicy(CHOICES), 0.1, CHOICES)
    with pytest.raises(ConfigError, match="int64 actions of RandomPolicy"):
        run(NoisyPolicy(RandomPolicy(CHOICES), 0.1), Noise.of(0, 1), 1)
    with pytest.raises(ConfigError, match="std of NoisyPolicy"):
        NoisyPolicy(RandomPolicy(BOX), -1.0)
