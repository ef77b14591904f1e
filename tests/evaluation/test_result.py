"""result.json: valid or refused, never NaN."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from worldplan.errors import DataError
from worldplan.evaluation import result
from worldplan.evaluation.estimates import quantile, wilson
from worldplan.evaluation.ranking import rank
from worldplan.types import Estimate, EvalRecord


def _some() -> list[EvalRecord]:
    return [
        EvalRecord("pusht", policy, 0, f"s{i}", source, 0.0, i < k, 1, 0.1, model)
        for policy, k in (("a", 3), ("b", 1))
        for source, model in (("real", None), ("model", "m"))
        for i in range(4)
    ]


def _full() -> dict[str, object]:
    return result.build(
        policy="cem",
        success=wilson(7, 10),
        demanding=wilson(0, 0),
        baselines={"nothing": wilson(0, 10), "random": wilson(1, 10)},
        seconds_per_decision={"p50": quantile([0.1, 0.2], 0.5), "p95": quantile([0.1, 0.2], 0.95)},
        ranking=rank(_some(), resamples=20),
        protocol={"goal_offset": 25},
        command="worldplan rank",
        extra={"loss": math.nan, "path": Path("x")},
    )


def test_round_trip(tmp_path: Path) -> None:
    found = _full()
    path = result.write(tmp_path / "result.json", found)
    assert result.read(path) == found
    assert "NaN" not in path.read_text()
    assert found["extra"] == {"loss": None, "path": "x"}
    assert found["version"] == 1
    assert (found["task"], found["model"]) == ("pusht", "m")
    assert set(found["agreement"]) >= {"pearson", "spearman", "kendall", "mmrv"}
    assert found["mmrv"] == {"weight_by": "real", "ties": "simpler"}
    assert found["versions"]["numpy"]
    assert result.to_estimate(found["success"]) == wilson(7, 10)
    assert result.to_estimate(None) is None


def test_what_was_not_measured_is_null_or_empty() -> None:
    found = result.build()
    assert found["success"] is None
    assert found["baselines"] == {}
    result.check(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "other"}, "not a result"),
        ({"version": 2}, "another version(.|\n)*upgrade"),
        ({"version": None}, "another version"),
        ({"sucess": None}, "unknown entry 'sucess'(.|\n)*success"),
        ({"success": 0.7}, "success is no estimate"),
        ({"success": {"value": 0.7}}, "success is no estimate"),
        ({"agreement": {"mmrv": {"value": "x", "low": 0, "high": 1, "n": 1, "method": ""}}}, "no number"),
        ({"baselines": {"random": {"value": 1, "low": 0, "high": 1, "n": -1, "method": ""}}}, "no count"),
        ({"ranking": [{"policy": "a"}]}, r"ranking\[0\] is no row"),
        ({"ranking": {}}, "ranking has the wrong type"),
        ({"notes": None}, "notes has the wrong type"),
    ],
)
def test_what_does_not_fit_is_named_and_not_written(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        result.write(tmp_path / "result.json", _full() | change)
    assert not list(tmp_path.iterdir())


def test_a_missing_entry_is_named() -> None:
    found = _full()
    del found["protocol"]
    with pytest.raises(DataError, match="protocol"):
        result.check(found)


def test_files_that_are_no_results(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    for text in ("", "[]", json.dumps(_full()).replace("0.7,", "NaN,", 1)):
        path.write_text(text)
        with pytest.raises(DataError, match="not JSON|not a result"):
            result.read(path)


def test_values_json_cannot_hold_are_named() -> None:
    with pytest.raises(DataError, match=r"result.extra.model cannot be written"):
        result.build(extra={"model": object()})


def test_a_nan_estimate_becomes_null() -> None:
    assert result.build(success=Estimate(math.nan, None, None, 3, "x"))["success"]["value"] is None
