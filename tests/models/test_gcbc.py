"""Behaviour cloning: which actions count toward a goal, and what comes out in environment units."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from worldplan.errors import ConfigError, DataError, ProtocolMismatch, UsageError
from worldplan.models.gcbc import GCBC, GCBCConfig
from worldplan.seeding import Noise
from worldplan.types import ActionSpec, Batch

ACTION = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))
STATE = GCBCConfig("state", chunk=4, frame_skip=2, state_dim=3, state_angles=(2,), hidden=16, layers=1)
PIXELS = replace(
    STATE, inputs="pixels", state_dim=0, state_angles=(), image_size=16, widths=(6, 5), narrow=3, features=6
)


def made(config: GCBCConfig, columns: Any) -> GCBC:
    policy = GCBC(config, config.spec("toy", ACTION))
    policy.fit_statistics(columns())
    return policy.eval()


def inputs(config: GCBCConfig, rows: int = 4) -> dict[str, Tensor]:
    if config.inputs == "state":
        both = Noise.of(7, rows).at("states").uniform(2, 3) * 6
    else:
        both = Noise.of(7, rows).at("frames").integers(256, 2, 3, 16, 16).to(torch.uint8)
    return {config.inputs: both[:, 0], "goal/" + config.inputs: both[:, 1]}


def silenced(policy: GCBC) -> GCBC:
    """Answers the mean action, z-score 0, so that losses are sums of the targets' squares."""
    for parameter in policy.net[-1].parameters():
        torch.nn.init.zeros_(parameter)
    return policy


@pytest.mark.parametrize("config", [STATE, PIXELS], ids=["state", "pixels"])
def test_a_policy_comes_back_from_its_plain_values_and_weights(config: GCBCConfig, columns: Any) -> None:
    policy = made(config, columns)
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    other = GCBC.from_config(plain, policy.spec).eval()
    assert other.config == config
    other.load_state_dict(policy.state_dict())
    noise = Noise.of(0, 4)
    assert torch.equal(other.act(inputs(config), {}, noise)[0], policy.act(inputs(config), {}, noise)[0])


@pytest.mark.parametrize("config", [STATE, PIXELS], ids=["state", "pixels"])
def test_actions_are_a_chunk_in_environment_units_inside_the_bounds(config: GCBCConfig, columns: Any) -> None:
    policy = made(config, columns)
    obs, noise = inputs(config), Noise.of(0, 4)
    assert policy.requires == tuple(obs)
    actions, carry = policy.act(obs, policy.initial(4), noise)
    assert actions.shape == (4, 4, 2) and dict(carry) == {}
    with torch.no_grad():
        z = policy(*obs.values())
        given = columns()["action"]
        mean, std = torch.from_numpy(given.mean(0)), torch.from_numpy(given.std(0))
        torch.testing.assert_close(actions, (z * std + mean).clamp(-1, 1))
        for parameter in policy.net[-1].parameters():
            parameter.mul_(1000)
    loud, _ = policy.act(obs, {}, noise)
    assert loud.abs().max() == 1 and loud.unique().tolist() == [-1, 1]


@pytest.mark.parametrize("config", [STATE, PIXELS], ids=["state", "pixels"])
def test_rows_do_not_mix_and_present_and_goal_are_told_apart(config: GCBCConfig, columns: Any) -> None:
    policy = made(config, columns)
    present, goal = inputs(config).values()
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        whole = policy(present, goal)
        torch.testing.assert_close(policy(present[order], goal[order]), whole[order])
        torch.testing.assert_close(policy(present[1:2], goal[1:2]), whole[1:2])
        assert (policy(goal, present) - whole).abs().max() > 1e-3


def squares(policy: GCBC, actions: Tensor) -> Tensor:
    """Squared z-scores ``[B, environment steps]``, the errors of a silenced policy."""
    found = policy.normalizer.normalize(actions.reshape(len(actions), -1, 2)).square().mean(-1)
    return found


def test_with_a_goal_all_real_actions_of_the_chunk_count(columns: Any, batch: Any) -> None:
    policy, full = silenced(made(STATE, columns)), batch()
    mask = torch.arange(3) < torch.tensor([0, 1, 2, 3, 3, 1])[:, None]
    with_goal = replace(full, obs={**full.obs, "goal/state": full.obs["state"][:, -1]}, mask=mask)
    loss, metrics = policy.loss(with_goal, Noise.of(0, 6), 0)
    # 2 environment steps per model step, 4 in a chunk: at most 2 model steps
    count = mask[:, :2].repeat_interleave(2, 1)
    torch.testing.assert_close(loss.detach(), squares(policy, full.actions)[:, :4][count].mean())
    assert torch.equal(metrics["action"], loss.detach()) and not metrics["action"].requires_grad
    spoiled = replace(with_goal, actions=torch.where(mask[..., None], full.actions, 1e6))
    assert torch.equal(policy.loss(spoiled, Noise.of(0, 6), 0)[0], loss)


def test_without_a_goal_a_later_frame_is_one_and_actions_after_it_do_not_count(
    columns: Any, batch: Any
) -> None:
    policy, full = silenced(made(STATE, columns)), batch(rows=40)
    lengths = 1 + torch.arange(40) % 3
    masked = replace(full, mask=torch.arange(3) < lengths[:, None])
    goals: list[Tensor] = []
    policy.register_forward_pre_hook(lambda module, given: goals.append(given[1]))
    loss, _ = policy.loss(masked, Noise.of(0, 40), 0)
    reached = []
    for row in range(40):
        (index,) = [t for t in range(4) if torch.equal(full.obs["state"][row, t], goals[0][row])]
        assert 1 <= index <= lengths[row]
        reached.append(index)
    assert {(int(length), index) for length, index in zip(lengths, reached, strict=True)} == {
        (1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3),
    }  # fmt: skip
    count = torch.arange(4) < 2 * torch.tensor(reached)[:, None]
    torch.testing.assert_close(loss.detach(), squares(policy, full.actions)[:, :4][count].mean())
    policy.loss(masked, Noise.of(0, 40), 1)
    policy.loss(masked, Noise.of(0, 40).at(1), 1)
    assert torch.equal(goals[0], goals[1]) and not torch.equal(goals[0], goals[2])


def test_a_window_without_any_real_action_costs_nothing(columns: Any, batch: Any) -> None:
    policy, full = made(STATE, columns), batch()
    assert policy.loss(replace(full, mask=torch.zeros_like(full.mask)), Noise.of(0, 6), 0)[0] == 0


def test_it_learns_to_go_where_the_goal_is() -> None:
    config = replace(STATE, chunk=2, state_dim=2, state_angles=(), hidden=32)
    policy = GCBC(config, config.spec("toy", ACTION))
    draws = Noise.of(3, 128).at("walks").uniform(2, 2) * 2 - 1
    start, move = draws[:, 0], draws[:, 1]
    # two environment steps that each go half of the way
    states, actions = torch.stack((start, start + move), 1), (move / 2).repeat(1, 2)[:, None]
    data = Batch({"state": states}, actions, torch.ones(128, 1, dtype=torch.bool))
    policy.fit_statistics({"action": actions.reshape(-1, 2).numpy(), "state": states.flatten(0, 1).numpy()})
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)
    for step in range(150):
        optimizer.zero_grad()
        policy.loss(data, Noise.of(0, 128).at(step), step)[0].backward()
        optimizer.step()
    found, _ = policy.eval().act({"state": states[:, 0], "goal/state": states[:, 1]}, {}, Noise.of(0, 128))
    assert (found - move[:, None] / 2).abs().mean() < 0.05


def test_what_cannot_be_built_is_refused() -> None:
    spec = STATE.spec("toy", ACTION)
    with pytest.raises(ConfigError, match="without a specification"):
        GCBC.from_config({}, None)
    discrete = ActionSpec(1, choices=4)
    with pytest.raises(ConfigError, match="4 choices"):
        GCBC(STATE, STATE.spec("toy", discrete))
    with pytest.raises(ProtocolMismatch, match="frame_skip: expected 3, found 2"):
        GCBC(replace(STATE, frame_skip=3), spec)
    for wrong in ({"inputs": "sound"}, {"state_dim": 0}, {"chunk": 0}, {"frame_skip": 0}, {"layers": 0}):
        (name,) = wrong
        with pytest.raises(ConfigError, match=f"{name} of GCBCConfig"):
            GCBC.from_config({**asdict(STATE), **wrong}, spec)


def test_what_cannot_be_measured_is_named(columns: Any) -> None:
    policy, have = GCBC(STATE, STATE.spec("toy", ACTION)), columns()
    with pytest.raises(DataError, match="'action'"):
        policy.fit_statistics({"state": have["state"]})
    with pytest.raises(DataError, match=r"'state'(.|\n)*3 entries"):
        policy.fit_statistics({"action": have["action"], "state": np.zeros((5, 4))})
    seeing = GCBC(PIXELS, PIXELS.spec("toy", ACTION))
    seeing.fit_statistics({"action": have["action"]})


@pytest.mark.parametrize("config", [STATE, PIXELS], ids=["state", "pixels"])
def test_inputs_that_cannot_be_read_are_refused(config: GCBCConfig, columns: Any, batch: Any) -> None:
    policy, obs, full = made(config, columns), inputs(config), batch()
    for key in obs:
        wrong: tuple[dict[str, Tensor], ...] = (
            {other: value for other, value in obs.items() if other != key},
            {**obs, key: obs[key][:, :2]},
            {**obs, key: obs[key].int()},
        )
        for each in wrong:
            with pytest.raises(UsageError, match=f"'{key}'"):
                policy.act(each, {}, Noise.of(0, 4))
    bare = replace(full, obs={"other": full.obs[config.inputs]})
    with pytest.raises(UsageError, match=f"'{config.inputs}'"):
        policy.loss(bare, Noise.of(0, 6), 0)
    with pytest.raises(UsageError, match=r"GCBC acts in training mode"):
        policy.train().act(obs, {}, Noise.of(0, 4))
