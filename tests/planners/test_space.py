from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from worldplan.errors import ConfigError
from worldplan.normalize import Normalizer, Statistics
from worldplan.planners.space import action_bounds, continuous_space
from worldplan.types import ActionSpec


def test_bounds_repeat_over_the_frame_skip(world):
    low, high = action_bounds(world(bound=0.3).model)
    torch.testing.assert_close(low, torch.tensor([-0.3, -0.3]))
    torch.testing.assert_close(high, torch.tensor([0.3, 0.3]))


def test_bounds_are_given_in_model_units(world):
    normalizer = Normalizer(1)
    normalizer.fit(Statistics((1.0,), (0.5,), 9))
    low, high = action_bounds(world(bound=2.0, normalizer=normalizer).model)
    assert low.tolist() == [-6, -6] and high.tolist() == [2, 2]


def test_unbounded_actions_have_infinite_bounds(world):
    low, high = action_bounds(world().model)
    assert low.tolist() == [-math.inf] * 2 and high.tolist() == [math.inf] * 2


def test_discrete_actions_have_no_bounds(world):
    model = world().model
    with pytest.raises(ConfigError, match="3 choices in adder"):
        action_bounds(replace(model, spec=replace(model.spec, action=ActionSpec(1, choices=3))))


def test_the_search_begins_inside_bounds_that_exclude_zero(world):
    problems = world()
    spec = replace(problems.model.spec, action=ActionSpec(1, (0.5,), (1.0,)))
    space = continuous_space("it", replace(problems.model, spec=spec), problems.state, 4)
    assert space.centre.shape == (3, 4, 2) and (space.centre == 0.5).all()
    assert space.centre.dtype == torch.float64
