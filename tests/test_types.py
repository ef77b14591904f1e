"""The vocabulary: light to import, and actions projected onto their bounds."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import subprocess
import sys

import pytest
import torch

from worldplan import types
from worldplan.types import ActionSpec, EvalRecord, Start


def test_importing_the_vocabulary_imports_no_torch() -> None:
    program = (
        "import sys, worldplan.types, worldplan.protocol, worldplan.errors; print('torch' in sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "False"


def test_bounds_repeat_for_every_action_of_a_model_step() -> None:
    spec = ActionSpec(dim=2, low=(-1, 0), high=(1, 0.5))
    actions = torch.tensor([[-3.0, -3.0, 3.0, 3.0], [0.5, 0.25, 0.0, 0.0]])
    projected = spec.project(actions)
    assert projected.tolist() == [[-1, 0, 1, 0.5], [0.5, 0.25, 0, 0]]
    assert actions[0, 0] == -3
    assert spec.project(actions.double()).dtype == torch.float64


def test_projection_is_idempotent_and_keeps_the_graph() -> None:
    spec = ActionSpec(dim=1, low=(-1,), high=(1,))
    actions = torch.tensor([[0.5], [2.0]], requires_grad=True)
    once = spec.project(actions)
    assert torch.equal(spec.project(once), once)
    once.sum().backward()
    assert actions.grad is not None
    assert actions.grad.tolist() == [[1], [0]]


def test_discrete_and_unbounded_actions() -> None:
    assert ActionSpec(dim=1, choices=4).project(torch.tensor([[-2], [9], [3]])).tolist() == [[0], [3], [3]]
    far = torch.full((2, 3), 1e6)
    assert torch.equal(ActionSpec(dim=3).project(far), far)


def test_a_chunk_that_is_no_multiple_of_the_action_is_refused() -> None:
    with pytest.raises(AssertionError):
        ActionSpec(dim=2, low=(-1, -1), high=(1, 1)).project(torch.zeros(4, 3))


def test_records_are_frozen_and_travel_between_processes() -> None:
    start = Start(id="a", seed=3, meta={"block_px": 2.0})
    assert pickle.loads(pickle.dumps(start)) == start
    with pytest.raises(dataclasses.FrozenInstanceError):
        start.seed = 4  # type: ignore[misc]
    record = EvalRecord("pusht", "cem", 0, "a", "real", 1.0, None, 50, 2.0)
    assert record.success is None


def test_every_noun_says_what_it_is() -> None:
    nouns = [
        value
        for value in vars(types).values()
        if inspect.isclass(value) and value.__module__ == types.__name__
    ]
    assert len(nouns) > 15
    assert [noun.__name__ for noun in nouns if not (noun.__doc__ or "").strip()] == []
