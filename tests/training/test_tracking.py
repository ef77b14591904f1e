"""Trackers, without accounts or networks."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from worldplan.errors import ConfigError, DataError, MissingExtra
from worldplan.training import tracking


def test_json_lines_are_always_there_and_valid(tmp_path: Path) -> None:
    with tracking.open(tmp_path / "a b") as log:
        log(1, {"loss": 0.5})
        log(2, {"loss": math.nan, "error": 1.0})
        # readable while the training runs
        assert len(tracking.read(tmp_path / "a b" / tracking.METRICS)) == 2
    lines = (tmp_path / "a b" / tracking.METRICS).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": None, "error": 1.0},
    ]


def test_a_resumed_run_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    kinds = ["csv"]
    with tracking.open(tmp_path, kinds) as log:
        for step in range(1, 6):
            log(step, {"loss": float(step)})
    with (tmp_path / tracking.METRICS).open("a") as file:
        file.write('{"step": 6, "lo')  # killed in the middle of a line
    with tracking.open(tmp_path, kinds, since=3) as log:
        log(4, {"loss": 40.0})
    assert [(row["step"], row["loss"]) for row in tracking.read(tmp_path / tracking.METRICS)] == [
        (1, 1.0),
        (2, 2.0),
        (3, 3.0),
        (4, 40.0),
    ]
    with (tmp_path / "metrics.csv").open() as file:
        assert [(row["step"], row["loss"]) for row in csv.DictReader(file)] == [
            ("1", "1.0"),
            ("2", "2.0"),
            ("3", "3.0"),
            ("4", "40.0"),
        ]
    with tracking.open(tmp_path, kinds) as log:
        log(1, {"loss": 9.0})
    assert tracking.read(tmp_path / tracking.METRICS) == [{"step": 1, "loss": 9.0}]


def test_a_table_widens_when_a_metric_appears(tmp_path: Path) -> None:
    with tracking.open(tmp_path, ["csv"]) as log:
        log(1, {"loss": 1.0})
        log(2, {"loss": 2.0, "validation": 3.0})
        log(3, {"loss": 4.0})
    assert (tmp_path / "metrics.csv").read_text().split() == [
        "step,loss,validation",
        "1,1.0,",
        "2,2.0,3.0",
        "3,4.0,",
    ]


def test_tensorboard_reads_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tracking.open(tmp_path, ["tensorboard"]) as log:
        log(3, {"loss": 0.5})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(3, 0.5)]


def test_wandb_stays_offline_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Run:
        def log(self, metrics: dict[str, float], step: int) -> None:
            calls.append((step, metrics))

        def finish(self) -> None:
            calls.append("finished")

    def init(**options: Any) -> Run:
        calls.append(options)
        return Run()

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with tracking.open(tmp_path, ["wandb"], config={"lr": 1}) as log:
        log(1, {"loss": 0.5})
    assert calls[0]["mode"] == "offline" and calls[0]["config"] == {"lr": 1}
    assert calls[1:] == [(1, {"loss": 0.5}), "finished"]
    monkeypatch.setenv("WANDB_MODE", "online")
    with tracking.open(tmp_path, ["wandb"]):
        pass
    assert calls[3]["mode"] == "online"


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(ConfigError, match="did you mean tensorboard"),
        tracking.open(tmp_path, ["tensorbord"]),
    ):
        pass
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match="pip install wandb"), tracking.open(tmp_path, ["wandb"]):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"), tracking.open(tmp_path / "file" / "run"):
        pass
