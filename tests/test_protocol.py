"""What must match: round trips through JSON, and the difference that is printed."""

from __future__ import annotations

import json

import pytest

from worldplan.errors import CheckpointError, ProtocolMismatch
from worldplan.protocol import EvalProtocol, ModelSpec, diff, require_match
from worldplan.types import ActionSpec

SPEC = ModelSpec(
    env="pusht",
    obs={"pixels": (3, 64, 64), "state": (7,)},
    context=3,
    frame_skip=5,
    action=ActionSpec(2, (-1.0, -1.0), (1.0, 1.0), unit="100 px"),
    latent_shape=(128,),
)


def test_a_specification_survives_json() -> None:
    assert ModelSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC
    assert SPEC.action_dim == 10


def test_a_protocol_survives_json() -> None:
    protocol = EvalProtocol(success="joint 20 px", extra={"pairs": 300})
    assert EvalProtocol.from_json(json.loads(json.dumps(protocol.to_json()))) == protocol


@pytest.mark.parametrize(
    "change",
    [
        {"frameskip": 5},
        {"action": None},
        {"action": {"dims": 2, "low": [], "high": []}},
        {"obs": [3, 64, 64]},
        {"latent_shape": 128},
    ],
)
def test_a_damaged_specification_is_a_checkpoint_error(change: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="no valid model specification"):
        ModelSpec.from_json({**SPEC.to_json(), **change})


def test_missing_fields_are_a_checkpoint_error() -> None:
    for field in SPEC.to_json():
        if field == "pixels":
            continue
        with pytest.raises(CheckpointError):
            ModelSpec.from_json({key: value for key, value in SPEC.to_json().items() if key != field})
    with pytest.raises(CheckpointError, match="evaluation protocol"):
        EvalProtocol.from_json({"goal_ofset": 25})


def test_the_difference_names_every_leaf() -> None:
    expected = {"a": 1, "nested": {"b": (3, 64, 64), "c": 2}, "gone": True}
    found = {"a": 1.0, "nested": {"b": [3, 32, 32], "c": 2}, "new": None}
    assert diff(expected, found) == [
        "gone: expected True, found nothing",
        "nested.b: expected (3, 64, 64), found [3, 32, 32]",
        "new: expected nothing, found None",
    ]


def test_tuples_and_lists_compare_alike() -> None:
    assert diff({"a": ((1, 2), [3])}, {"a": [[1, 2], (3,)]}) == []


def test_a_mismatch_prints_the_keys_and_the_way_out() -> None:
    require_match({"budget": 50}, {"budget": 50}, "protocols")
    with pytest.raises(ProtocolMismatch) as caught:
        require_match(
            {"budget": 50, "k": 5}, {"budget": 100, "k": 1}, "checkpoint and request", fix="budget=50"
        )
    text = str(caught.value)
    assert "budget: expected 50, found 100" in text
    assert "k: expected 5, found 1" in text
    assert "budget=50" in text
