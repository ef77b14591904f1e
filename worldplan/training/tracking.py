"""Where numbers go while training: JSON lines always, CSV, TensorBoard and Weights & Biases on request.

::

    with tracking.open(folder, ["csv", "tensorboard"]) as log:
        for record in fit(...):
            log(record.step, {"loss": record.loss, **record.metrics})

A tracker is a function of a step and plain numbers. Nothing here needs an account or a network.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from worldplan.errors import ConfigError, DataError, require, suggest

Log = Callable[[int, Mapping[str, float]], None]
METRICS = "metrics.jsonl"


@contextmanager
def open(  # noqa: A001
    folder: Path | str, kinds: Sequence[str] = (), *, since: int = 0, config: Mapping[str, Any] | None = None
) -> Iterator[Log]:
    """Opens ``metrics.jsonl`` in `folder` and the trackers named by `kinds`, and closes them at the end.

    Args:
        folder: created where it is missing.
        kinds: any of ``csv``, ``tensorboard``, ``wandb``.
        since: the step a resumed training goes on from; what an interrupted one logged after it is
            dropped.
        config: plain values for trackers that show them.

    Raises:
        ConfigError: an unknown tracker.
        MissingExtra: a tracker's package is not installed.
        DataError: the folder cannot be written.
    """
    for kind in kinds:
        if kind not in TRACKERS:
            raise ConfigError(f"unknown tracker {kind!r}", fix=suggest(kind, TRACKERS))
    place, names = Path(folder), dict.fromkeys(["jsonl", *kinds])
    with ExitStack() as stack:
        try:
            place.mkdir(parents=True, exist_ok=True)
            logs = [stack.enter_context(TRACKERS[name](place, since, config or {})) for name in names]
        except OSError as error:
            raise DataError(
                f"metrics cannot be written to {place}",
                found=str(error),
                fix="choose a folder with space and write permission",
            ) from error

        def log(step: int, metrics: Mapping[str, float]) -> None:
            for one in logs:
                one(step, metrics)

        yield log


def read(path: Path | str) -> list[dict[str, Any]]:
    """The lines of a ``metrics.jsonl``; one that was cut off at the end is left out."""
    rows = []
    for line in Path(path).read_text("utf-8").splitlines():
        try:
            rows.append(dict(json.loads(line)))
        except ValueError:
            break
    return rows


@contextmanager
def _jsonl(folder: Path, since: int, _: Mapping[str, Any]) -> Iterator[Log]:
    path = folder / METRICS
    kept = [row for row in read(path) if row["step"] <= since] if since and path.exists() else []
    with path.open("w", encoding="utf-8") as file:

        def log(step: int, metrics: Mapping[str, float]) -> None:
            # JSON has no NaN: null keeps the file readable by everybody
            row = {key: value if math.isfinite(value) else None for key, value in metrics.items()}
            file.write(json.dumps({"step": step, **row}) + "\n")
            file.flush()

        for row in kept:
            file.write(json.dumps(row) + "\n")
        file.flush()
        yield log


@contextmanager
def _csv(folder: Path, since: int, _: Mapping[str, Any]) -> Iterator[Log]:
    path = folder / "metrics.csv"
    rows: list[dict[str, Any]] = []
    if since and path.exists():
        with path.open(newline="", encoding="utf-8") as old:
            rows = [row for row in csv.DictReader(old) if int(row["step"]) <= since]
    keys = list(rows[0]) if rows else []

    def log(step: int, metrics: Mapping[str, float]) -> None:
        row = {"step": step, **metrics}
        rows.append(row)
        is_new = bool(row.keys() - set(keys)) or not path.exists()
        keys.extend(key for key in row if key not in keys)
        # a metric that appears late widens the table, so the rows before it are written again
        with path.open("w" if is_new else "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, keys, restval="")
            if is_new:
                writer.writeheader()
            writer.writerows(rows if is_new else [row])

    if keys:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, keys)
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.unlink(missing_ok=True)
    yield log


@contextmanager
def _tensorboard(folder: Path, since: int, _: Mapping[str, Any]) -> Iterator[Log]:
    require("tensorboard", "train")
    from torch.utils.tensorboard import SummaryWriter

    purge = since + 1 if since else None
    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)

    def log(step: int, metrics: Mapping[str, float]) -> None:
        for key, value in metrics.items():
            writer.add_scalar(key, value, step)

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def _wandb(folder: Path, since: int, config: Mapping[str, Any]) -> Iterator[Log]:
    wandb: Any = require("wandb", "train", "pip install wandb")
    # without WANDB_MODE nothing leaves the machine and nobody is asked to log in
    mode = os.environ.get("WANDB_MODE", "offline")
    run = wandb.init(dir=str(folder), mode=mode, config=dict(config), name=folder.name)
    try:
        yield lambda step, metrics: run.log(dict(metrics), step=step)
    finally:
        run.finish()


TRACKERS: dict[str, Callable[[Path, int, Mapping[str, Any]], AbstractContextManager[Log]]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
