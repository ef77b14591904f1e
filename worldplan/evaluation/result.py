"""``result.json``: what a run found, for machines.

::

    schema                  "worldplan.result"
    version                 1
    task, policy, model     names, or null
    success                 Estimate, or null
    demanding               Estimate over the demanding starts, or null
    baselines               {nothing, random, replay, no_planning, true_dynamics}: Estimate each
    seconds_per_decision    {p50, p95}: Estimate each
    agreement               {pearson, spearman, kendall, mmrv, ...}: Estimate each
    mmrv                    {weight_by, ties}, or null
    ranking                 [{policy, model, imagined, real, imagined_rank, real_rank,
                              imagined_tied, real_tied, self_score}]
    validity                {psnr, psnr_copy, psnr_gain, ...}: Estimate each
    protocol                how success was measured
    versions                {package: version}
    command                 text, or null
    notes                   [text]
    extra                   anything else

    Estimate = {value, low, high, n, method}; numbers are finite or null, never NaN
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from worldplan.errors import DataError, suggest
from worldplan.evaluation import files
from worldplan.evaluation.ranking import Ranking, Row
from worldplan.evaluation.records import no_constant
from worldplan.evaluation.validity import Validity
from worldplan.types import Estimate

SCHEMA = "worldplan.result"
VERSION = 1
_PACKAGES = ("worldplan", "torch", "numpy", "scipy", "gymnasium", "mujoco", "gym-pusht")
_TABLES = ("baselines", "seconds_per_decision", "agreement", "validity")
_ESTIMATE = tuple(field.name for field in fields(Estimate))
_ROW = tuple(field.name for field in fields(Row))
_EMPTY: dict[str, Any] = {
    "schema": SCHEMA,
    "version": VERSION,
    "task": None,
    "policy": None,
    "model": None,
    "success": None,
    "demanding": None,
    "baselines": {},
    "seconds_per_decision": {},
    "agreement": {},
    "mmrv": None,
    "ranking": [],
    "validity": {},
    "protocol": {},
    "versions": {},
    "command": None,
    "notes": [],
    "extra": {},
}


def build(
    *,
    task: str | None = None,
    policy: str | None = None,
    model: str | None = None,
    success: Estimate | None = None,
    demanding: Estimate | None = None,
    baselines: Mapping[str, Estimate] | None = None,
    seconds_per_decision: Mapping[str, Estimate] | None = None,
    ranking: Ranking | None = None,
    validity: Validity | None = None,
    protocol: Mapping[str, Any] | None = None,
    command: str | None = None,
    notes: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A valid result as plain values; what was not measured stays null or empty.

    Raises:
        DataError: something does not fit the schema.
    """
    found: dict[str, Any] = {
        "task": task,
        "policy": policy,
        "model": model,
        "success": None if success is None else asdict(success),
        "demanding": None if demanding is None else asdict(demanding),
        "baselines": _estimates(baselines),
        "seconds_per_decision": _estimates(seconds_per_decision),
        "validity": _estimates(None if validity is None else validity.estimates),
        "protocol": dict(protocol or {}),
        "versions": versions(),
        "command": command,
        "notes": list(notes),
        "extra": dict(extra or {}),
    }
    if ranking is not None:
        found["task"], found["model"] = task or ranking.task or None, model or ranking.model
        found["agreement"] = _estimates(ranking.agreement)
        found["mmrv"] = {"weight_by": ranking.weight_by, "ties": ranking.ties}
        found["ranking"] = ranking.to_json()
        found["notes"] = [*notes, *(note for note in ranking.notes if note not in notes)]
    result: dict[str, Any] = files.plain({**_EMPTY, **found}, "result")
    check(result)
    return result


def write(path: str | os.PathLike[str], result: Mapping[str, Any]) -> Path:
    """Checks a result and writes it whole.

    Raises:
        DataError: it does not fit the schema; nothing is written.
    """
    checked = files.plain(result, "result")
    check(checked, "the result")
    return files.write_text(path, files.dumps(checked, indent=2) + "\n")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads and checks ``result.json``."""
    where = os.fspath(path)
    try:
        data = json.loads(files.read_text(path), parse_constant=no_constant)
    except ValueError as error:
        raise DataError(f"{where} is not JSON", found=str(error)) from error
    check(data, where)
    found: dict[str, Any] = data
    return found


def check(result: Any, where: str = "the result") -> None:
    """Raises `DataError` naming the first entry that does not fit the schema."""
    if not isinstance(result, Mapping) or result.get("schema") != SCHEMA:
        raise DataError(f"{where} is not a result", expected=f'an object with "schema": "{SCHEMA}"')
    version = result.get("version")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        raise DataError(
            f"{where} has another version",
            expected=str(VERSION),
            found=repr(version),
            fix="pip install --upgrade worldplan" if newer else None,
        )
    for key in result:
        if key not in _EMPTY:
            raise DataError(f"{where} has an unknown entry {key!r}", expected=suggest(str(key), _EMPTY))
    if missing := [key for key in _EMPTY if key not in result]:
        raise DataError(f"{where} is incomplete", expected=f"the entries {', '.join(missing)}")
    for key, empty in _EMPTY.items():
        kind = dict if isinstance(empty, dict) else list if isinstance(empty, list) else None
        if kind and not isinstance(result[key], kind):
            raise DataError(f"{where}: {key} has the wrong type", expected=kind.__name__)
    for key in ("success", "demanding"):
        _check_estimate(result[key], f"{where}: {key}")
    for table in _TABLES:
        for key, value in result[table].items():
            _check_estimate(value, f"{where}: {table}.{key}")
    for index, row in enumerate(result["ranking"]):
        if not isinstance(row, Mapping) or set(row) != set(_ROW):
            raise DataError(f"{where}: ranking[{index}] is no row", expected=", ".join(_ROW))
        for key in ("imagined", "real"):
            _check_estimate(row[key], f"{where}: ranking[{index}].{key}")


def to_estimate(value: Mapping[str, Any] | None) -> Estimate | None:
    """An Estimate from its plain values."""
    return None if value is None else Estimate(**value)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a result, of those installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _estimates(values: Mapping[str, Estimate] | None) -> dict[str, Any]:
    return {key: asdict(value) for key, value in (values or {}).items()}


def _check_estimate(value: Any, where: str) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping) or set(value) != set(_ESTIMATE):
        raise DataError(
            f"{where} is no estimate", expected=f"null or {{{', '.join(_ESTIMATE)}}}", found=repr(value)
        )
    for key in ("value", "low", "high"):
        number = value[key]
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
            raise DataError(f"{where}.{key} is no number", expected="a number or null", found=repr(number))
    if isinstance(value["n"], bool) or not isinstance(value["n"], int) or value["n"] < 0:
        raise DataError(f"{where}.n is no count", expected="0 or more", found=repr(value["n"]))
    if not isinstance(value["method"], str):
        raise DataError(f"{where}.method is no text", found=repr(value["method"]))
