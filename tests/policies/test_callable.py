from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch

from worldplan.errors import ConfigError, UsageError
from worldplan.policies.callable import CallablePolicy, from_attribute
from worldplan.policies.random import RandomPolicy
from worldplan.seeding import Noise
from worldplan.types import ActionSpec

BOX = ActionSpec(2, (-1.0, -1.0), (1.0, 1.0))
OBS = {"state": torch.arange(6.0).reshape(3, 2)}
NOISE = Noise.of(0, 3)


def follow(obs):
    return obs["state"] * 2


@pytest.fixture
def module(monkeypatch):
    """A module a user might write."""
    made = types.ModuleType("their_policies")
    made.follow = follow
    made.ready = RandomPolicy(BOX)
    made.make = lambda: RandomPolicy(BOX, chunk=2)
    made.make_function = lambda: follow
    made.make_number = lambda size=3: size
    made.two = lambda obs, carry: obs
    made.number = 3

    class Theirs:
        def initial(self, batch_size):
            return {}

        def act(self, obs, carry, noise):
            return obs["state"][:, None], carry

    made.Theirs = Theirs
    monkeypatch.setitem(sys.modules, "their_policies", made)
    return made


def act(policy):
    return policy.act(OBS, policy.initial(3), NOISE)[0]


@pytest.mark.parametrize(
    "function",
    [follow, lambda obs: follow(obs)[:, None], lambda obs: follow(obs).numpy().astype(np.float64),
     lambda obs: follow(obs).tolist()],
    ids=["tensor", "chunk", "numpy", "list"],
)  # fmt: skip
def test_any_function_of_an_observation_is_a_policy(function):
    actions = act(CallablePolicy(function, BOX))
    assert actions.shape == (3, 1, 2) and actions.dtype == torch.float32
    assert actions[:, 0].tolist() == [[0, 2], [4, 6], [8, 10]]


def test_a_chunk_stays_a_chunk_and_choices_stay_integers():
    answer = torch.ones(3, 4, 1, dtype=torch.int64)
    actions = act(CallablePolicy(lambda obs: answer, ActionSpec(1, choices=2)))
    assert torch.equal(actions, answer)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda obs: obs["state"][:2], r"\[3, 2\] or \[3, K, 2\].*\n.*\[2, 1, 2\]"),
        (lambda obs: obs["state"][:, :1], r"\[3, 1, 1\]"),
        (lambda obs: obs["state"][0], r"\[2\]"),
        (lambda obs: "left", "str"),
        (lambda obs: None, "NoneType"),
        (lambda obs: torch.tensor([[0, 1], [0, torch.nan], [0, 1]]), r"rows \[1\]"),
    ],
)
def test_unusable_answers_are_named(function, message):
    with pytest.raises(UsageError, match=message):
        act(CallablePolicy(function, BOX))


def test_policies_are_loaded_by_name(module):
    assert from_attribute("their_policies:ready") is module.ready
    assert from_attribute("their_policies:make").chunk == 2
    assert act(from_attribute("their_policies:Theirs")).shape == (3, 1, 2)
    for name in ("follow", "make_function"):
        policy = from_attribute(f"their_policies:{name}")
        assert policy.name == f"their_policies:{name}"
        assert act(policy)[2, 0].tolist() == [8, 10]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("their_policies", "names no attribute"),
        ("their_policies:", "names no attribute"),
        ("no_such_module_here:x", "no module 'no_such_module_here'"),
        ("their_policies.deeper:x", "no module 'their_policies.deeper'"),
        ("their_policies:folow", "did you mean follow"),
        ("their_policies:number", "an object of type int"),
        ("their_policies:two", "a function of 2 arguments"),
        ("their_policies:make_number", "makes an object of type int"),
    ],
)
def test_what_is_no_policy_is_said_clearly(module, path, message):
    with pytest.raises(ConfigError, match=message):
        from_attribute(path)


def test_a_module_that_fails_to_import_keeps_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "broken_policies.py").write_text("import no_such_dependency_here\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency_here"):
        from_attribute("broken_policies:x")
