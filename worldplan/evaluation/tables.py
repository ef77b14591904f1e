"""Records as a table for spreadsheets: one CSV row per episode."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from worldplan.errors import DataError
from worldplan.evaluation import files
from worldplan.evaluation.records import FIELDS, from_json, no_constant, some
from worldplan.types import EvalRecord


def write(path: str | os.PathLike[str], records: Iterable[EvalRecord]) -> Path:
    """Writes one row per episode; entries of `meta` become columns ``meta.<key>``, None an empty cell."""
    rows = [files.plain(asdict(record), f"record {index}") for index, record in enumerate(records)]
    keys = sorted({key for row in rows for key in row["meta"]})
    columns = [name for name in FIELDS if name != "meta"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, *(f"meta.{key}" for key in keys)])
    for row in rows:
        cells = [row[name] for name in columns] + [row["meta"].get(key) for key in keys]
        writer.writerow([_cell(cell) for cell in cells])
    return files.write_text(path, text.getvalue())


def read(path: str | os.PathLike[str]) -> list[EvalRecord]:
    """Reads a table of episodes: ours, or a user's with at least ``policy`` and ``success``.

    Absent columns take these values: task "", seed 0, start the number of the episode of its policy,
    source "real", ret the success as 0 or 1, length 0, seconds 0. Other columns go to `meta`.

    Raises:
        DataError: names the file and the line.
    """
    try:
        return some(_rows(csv.DictReader(io.StringIO(files.read_text(path), newline="")), path), path)
    except csv.Error as error:
        where = os.fspath(path)
        raise DataError(f"{where} is not a table of comma-separated values", found=str(error)) from error


def _rows(reader: csv.DictReader[str], path: str | os.PathLike[str]) -> list[EvalRecord]:
    columns = [name.strip() for name in reader.fieldnames or []]
    if missing := [name for name in ("policy", "success") if name not in columns]:
        raise DataError(
            f"{os.fspath(path)} lacks the column {' and '.join(missing)}",
            expected="a header with policy and success, and one row per episode",
            found=", ".join(columns) or "an empty file",
        )
    reader.fieldnames = columns
    records: list[EvalRecord] = []
    counts: dict[str, int] = {}
    for row in reader:
        where = f"{os.fspath(path)}, line {reader.line_num}"
        if None in row or None in row.values():
            raise DataError(f"{where} does not fit the header", expected=f"{len(columns)} cells")
        index = counts[row["policy"]] = counts.get(row["policy"], -1) + 1
        records.append(_from_row({key: cell.strip() for key, cell in row.items()}, index, where))
    return records


def _from_row(row: dict[str, str], index: int, where: str) -> EvalRecord:
    success = _truth(row["success"], where)

    def number(name: str, default: float, kind: type[int] | type[float]) -> Any:
        text = row.get(name, "")
        try:
            return kind(text) if text else kind(default)
        except ValueError as error:
            raise DataError(f"{where}: {name} is no number", found=repr(text)) from error

    # a start without an id is the n-th episode of its policy, so that policies pair up in order
    data = {
        "task": row.get("task", ""),
        "policy": row["policy"],
        "seed": number("seed", 0, int),
        "start": row.get("start") or str(index),
        "source": row.get("source") or "real",
        "ret": number("ret", float(success or 0), float),
        "success": success,
        "length": number("length", 0, int),
        "seconds": number("seconds", 0, float),
        "model": row.get("model") or None,
        "meta": {
            key.removeprefix("meta."): _value(cell)
            for key, cell in row.items()
            if key not in FIELDS and cell != ""
        },
    }
    return from_json(data, where)


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, list | dict) else value


def _value(cell: str) -> Any:
    try:
        return json.loads(cell, parse_constant=no_constant)
    except ValueError:
        return cell


def _truth(cell: str, where: str) -> bool | None:
    answers = {"true": True, "1": True, "1.0": True, "yes": True}
    answers |= {"false": False, "0": False, "0.0": False, "no": False}
    if cell == "":
        return None
    if cell.lower() not in answers:
        raise DataError(
            f"{where}: success is neither yes nor no", expected="true or false, 1 or 0", found=repr(cell)
        )
    return answers[cell.lower()]
