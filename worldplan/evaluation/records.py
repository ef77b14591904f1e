"""Records: one line of ``records.jsonl`` per evaluated episode.

Scores are kept per episode, never only as means: every table, interval and figure is computed
from these lines, and can be computed again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from worldplan.errors import DataError, UsageError, suggest
from worldplan.evaluation import files
from worldplan.types import Array, Episode, EvalRecord, Source, Start

FIELDS = tuple(field.name for field in fields(EvalRecord))
_REQUIRED = ("task", "policy", "seed", "start", "source", "ret", "success", "length", "seconds")
_SOURCES = ("real", "model")
# already columns of the record, so not repeated in its meta
_KNOWN = {"env", "task", "policy", "seed", "start", "source", "success", "length", "seconds", "model"}


class TaskLike(Protocol):
    """The part of a task that records need."""

    @property
    def name(self) -> str:
        """The task's name."""
        ...

    def demanding(self, states: Array, goals: Array) -> Array:
        """Whether the goals ask for more than standing still; bool of the leading shape."""
        ...


def records_from_episodes(
    episodes: Iterable[Episode],
    task: str | TaskLike,
    policy: str | None = None,
    *,
    model: str | None = None,
    starts: Sequence[Start] = (),
    meta: Mapping[str, Any] | None = None,
) -> Iterator[EvalRecord]:
    """Reduces episodes to records, one by one.

    Args:
        episodes: as `collect` yields them; frames are not looked at.
        task: its name, or the task itself, which then says which starts are demanding.
        policy: name of the policy; None takes each episode's own.
        model: id of the world model the episodes were imagined in; None takes each episode's own.
        starts: the starts of the episodes, to look their states and goals up by id.
        meta: entries added to each record, e.g. ``{"plans_with": "model-a"}``.

    Raises:
        DataError: an episode lacks what a record needs.
    """
    by_id = {start.id: start for start in starts}
    name = task if isinstance(task, str) else task.name
    for index, episode in enumerate(episodes):
        known = episode.meta
        chosen = policy or known.get("policy")
        if not chosen or "start" not in known or known.get("source") not in _SOURCES:
            raise DataError(
                f"episode {index} cannot become a record",
                expected="meta with start, source (real or model) and a policy",
                found=f"meta keys {sorted(known)}, source {known.get('source')!r}",
            )
        source = cast(Source, known["source"])
        judge = (model or known.get("model")) if source == "model" else None
        if source == "model" and not judge:
            raise DataError(
                f"episode {index} is imagined, but by which model is unknown",
                fix='records_from_episodes(..., model="name of the model")',
            )
        record = EvalRecord(
            task=name,
            policy=str(chosen),
            seed=int(known.get("seed", 0)),
            start=str(known["start"]),
            source=source,
            ret=float(episode.rewards.sum()),
            success=None if known.get("success") is None else bool(known["success"]),
            length=int(episode.actions.shape[0]),
            seconds=float(known.get("seconds", sum(known.get("seconds_per_decision") or ()))),
            model=judge,
            meta={**_episode_meta(episode, task, by_id.get(str(known["start"]))), **(meta or {})},
        )
        _check(record, f"episode {index}")
        yield record


def write(path: str | os.PathLike[str], records: Iterable[EvalRecord]) -> Path:
    """Writes ``records.jsonl`` whole: the old file stays until the new one is complete."""
    lines = [_line(record, f"record {index}") for index, record in enumerate(records)]
    return files.write_text(path, "".join(lines))


def append(path: str | os.PathLike[str], records: Iterable[EvalRecord]) -> Path:
    """Appends each record in one write, so that a killed run leaves whole lines.

    A last line without its newline, left by a write that was cut short, is removed first.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(target, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise UsageError(f"cannot write {target}", found=error.strerror or str(error)) from error
    try:
        _drop_torn_line(handle)
        for index, record in enumerate(records):
            data = _line(record, f"record {index}").encode("utf-8", "backslashreplace")
            while data:
                data = data[os.write(handle, data) :]
    finally:
        os.close(handle)
    return target


def read(path: str | os.PathLike[str]) -> list[EvalRecord]:
    """Reads records from ``.jsonl``, or from ``.csv`` (see `tables.read`).

    Raises:
        DataError: names the file, the line and what is wrong with it.
    """
    if Path(path).suffix.lower() == ".csv":
        from worldplan.evaluation import tables

        return tables.read(path)
    records = []
    for number, line in enumerate(files.read_text(path).split("\n"), start=1):
        if line.strip():
            where = f"{os.fspath(path)}, line {number}"
            try:
                data = json.loads(line, parse_constant=no_constant)
            except ValueError as error:
                raise DataError(f"{where} is not JSON", expected="one object", found=str(error)) from error
            records.append(from_json(data, where))
    return some(records, path)


def from_json(data: Any, where: str = "record") -> EvalRecord:
    """Builds a record from plain values; raises `DataError` naming `where` and the field."""
    if not isinstance(data, dict):
        raise DataError(f"{where} is not a record", expected="an object", found=type(data).__name__)
    for key in data:
        if key not in FIELDS:
            raise DataError(f"{where} has an unknown field {key!r}", expected=suggest(key, FIELDS))
    if missing := [name for name in _REQUIRED if name not in data]:
        raise DataError(f"{where} is incomplete", expected=f"the fields {', '.join(missing)}")
    record = EvalRecord(**data)
    _check(record, where)
    return record


def _check(record: EvalRecord, where: str) -> None:
    wanted: dict[str, Any] = {"task": str, "policy": str, "start": str, "source": str, "meta": Mapping}
    wanted |= {"seed": int, "length": int, "ret": (int, float), "seconds": (int, float)}
    wanted |= {"success": (bool, type(None)), "model": (str, type(None))}
    for name, kind in wanted.items():
        value = getattr(record, name)
        number = kind in (int, (int, float))
        if not isinstance(value, kind) or (number and isinstance(value, bool)):
            kinds = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise DataError(f"{where}: {name} has the wrong type", expected=kinds, found=repr(value))
        if number and not math.isfinite(value):
            raise DataError(f"{where}: {name} is not finite", expected="a number", found=str(value))
    if not record.policy:
        raise DataError(f"{where}: the policy has no name", expected="some text", found="''")
    if record.source not in _SOURCES:
        raise DataError(f"{where}: unknown source", expected="real or model", found=repr(record.source))
    if record.length < 0 or record.seconds < 0:
        raise DataError(f"{where}: length and seconds cannot be negative")
    if record.source == "model" and not record.model:
        raise DataError(f"{where} is imagined", expected="the id of its model in `model`", found="none")


def _line(record: EvalRecord, where: str) -> str:
    _check(record, where)
    return files.dumps(asdict(record)) + "\n"


def some(records: list[EvalRecord], path: str | os.PathLike[str]) -> list[EvalRecord]:
    """The records; raises `DataError` when a file held none."""
    if not records:
        raise DataError(f"{os.fspath(path)} holds no records", expected="one line per episode")
    return records


def _drop_torn_line(handle: int) -> None:
    size = os.lseek(handle, 0, os.SEEK_END)
    end = size
    while end:
        begin = max(0, end - 65536)
        os.lseek(handle, begin, os.SEEK_SET)
        newline = os.read(handle, end - begin).rfind(b"\n")
        if newline >= 0:
            end = begin + newline + 1
            break
        end = begin
    if end != size:
        os.ftruncate(handle, end)


def _episode_meta(episode: Episode, task: str | TaskLike, start: Start | None) -> dict[str, Any]:
    meta = {key: value for key, value in episode.meta.items() if key not in _KNOWN}
    meta |= {"terminated": bool(episode.terminated), "truncated": bool(episode.truncated)}
    if start is not None:
        # a start may carry whole frames; a record keeps what fits a table
        small = (str, bool, int, float, np.generic)
        meta |= {k: v for k, v in start.meta.items() if k not in _KNOWN and isinstance(v, small)}
        state, goal = start.state, start.goal
        if state is not None and goal is not None and not isinstance(task, str):
            meta.setdefault("demanding", bool(task.demanding(state[None], goal[None])[0]))
    return meta


def no_constant(name: str) -> None:
    """Refuses NaN and Infinity, which Python's JSON would let pass."""
    raise ValueError(f"{name} is not a JSON number; an unknown value is null")
