"""States to features and back: z-scores where they were, angles on the circle at the end."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from worldplan.errors import ConfigError, DataError
from worldplan.models.states import StateFeatures
from worldplan.normalize import Statistics
from worldplan.seeding import Noise

STATISTICS = Statistics((10.0, 99.0, -3.0, 99.0), (2.0, 99.0, 0.5, 99.0), 7)


def made(angles: tuple[int, ...] = (1, 3)) -> StateFeatures:
    features = StateFeatures(4, angles)
    features.fit(STATISTICS)
    return features


def drawn(*shape: int) -> Tensor:
    states = Noise.of(7, shape[0]).at("states").normal(*shape[1:], 4) * 5
    states[..., [1, 3]] = states[..., [1, 3]].remainder(2 * math.pi)
    return states


def test_features_are_z_scores_then_cosines_then_sines() -> None:
    found = made().encode(torch.tensor([[14.0, math.pi / 2, -2.5, math.pi]]))
    torch.testing.assert_close(found, torch.tensor([[2.0, 1.0, 0.0, -1.0, 1.0, 0.0]]))
    # the order of the angles is the one they are given in
    found = made((3, 1)).encode(torch.tensor([[14.0, math.pi / 2, -2.5, math.pi]]))
    torch.testing.assert_close(found, torch.tensor([[2.0, 1.0, -1.0, 0.0, 0.0, 1.0]]))


@pytest.mark.parametrize("angles", [(), (1,), (3, 1), (0, 1, 2, 3)])
def test_states_come_back_from_their_features_in_their_own_order(angles: tuple[int, ...]) -> None:
    features, states = made(angles), drawn(3, 2)
    states[..., list(angles)] = states[..., list(angles)].remainder(2 * math.pi)
    encoded = features.encode(states)
    assert encoded.shape == (3, 2, features.size) == (3, 2, 4 + len(angles))
    torch.testing.assert_close(features.decode(encoded), states, rtol=1e-5, atol=1e-5)


def test_whole_turns_are_forgotten() -> None:
    features, states = made(), drawn(5)
    turned = states + 2 * math.pi * torch.tensor([0.0, 3.0, 0.0, -2.0])
    torch.testing.assert_close(features.encode(turned), features.encode(states), rtol=0, atol=1e-5)


def test_an_angle_is_read_off_any_point_in_its_direction() -> None:
    features, states = made(), drawn(5)
    encoded = features.encode(states)
    encoded[..., 2:] *= 0.1
    torch.testing.assert_close(features.decode(encoded), states, rtol=1e-5, atol=1e-5)


def test_a_tiny_negative_angle_stays_below_a_whole_turn() -> None:
    point = torch.tensor([[0.0, 0.0, 1.0, 1.0, -1e-12, 0.0]])
    angles = made().decode(point)[0, [1, 3]]
    assert (angles >= 0).all() and (angles < 2 * math.pi).all()
    assert angles[0] == 0


def test_angles_alone_need_no_statistics_and_others_do() -> None:
    only = StateFeatures(2, (0, 1))
    only.fit(Statistics((0.0, 0.0), (1.0, 1.0), 1))
    torch.testing.assert_close(only.encode(torch.zeros(1, 2)), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    with pytest.raises(DataError, match="statistics"):
        StateFeatures(2, (0,)).encode(torch.zeros(1, 2))


def test_the_gradient_of_an_angle_is_one_over_its_circle() -> None:
    point = torch.tensor([[0.0, 0.0, 2.0, 1.0, 0.0, 0.0]], requires_grad=True)
    made().decode(point)[0, 1].backward()
    # moving along the tangent at radius 2 turns by half as much
    expected = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.5, 0.0]])
    assert point.grad is not None
    torch.testing.assert_close(point.grad, expected)


def test_statistics_travel_with_the_weights() -> None:
    other = StateFeatures(4, (1, 3))
    other.load_state_dict(made().state_dict())
    states = drawn(3)
    assert torch.equal(other.encode(states), made().encode(states))
    measured = Statistics.of(states.numpy().astype(np.float64), "state")
    other.fit(measured)
    plain = other.encode(states)[:, :2]
    torch.testing.assert_close(plain.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(plain.std(0, correction=0), torch.ones(2))


@pytest.mark.parametrize("angles", [(4,), (-1,), (1, 1)])
def test_angles_that_are_no_entries_or_twice_the_same_are_refused(angles: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"0\.\.3"):
        StateFeatures(4, angles)
