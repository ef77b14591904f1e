"""Tables of episodes: ours come back whole, and a user's may be short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from worldplan.errors import DataError
from worldplan.evaluation import records, tables
from worldplan.types import EvalRecord

ONE = EvalRecord("pusht", "cem", 3, "s0", "real", 1.0, True, 25, 2.5)


def test_csv_round_trip(tmp_path: Path) -> None:
    some = [
        replace(ONE, policy='a "b", c', meta={"demanding": True, "seconds_per_decision": [0.5, 1.0]}),
        replace(ONE, success=None, source="model", model="m", start="007"),
    ]
    path = tables.write(tmp_path / "r.csv", some)
    assert path.read_text().splitlines()[0].startswith("task,policy,seed,start,source,ret,success,length")
    assert records.read(path) == some


def test_a_users_table_needs_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "real.csv"
    path.write_text("Policy,success\n")
    with pytest.raises(DataError, match="lacks the column policy"):
        records.read(path)
    path.write_text("policy, success ,site\na,1,lab\nb,no,lab\na,,\n")
    first, second, third = records.read(path)
    assert (first.policy, first.start, first.source, first.ret) == ("a", "0", "real", 1.0)
    assert (second.success, second.start, third.success, third.start) == (False, "0", None, "1")
    assert (first.meta, third.meta) == ({"site": "lab"}, {})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,maybe,1", "line 3: success is neither yes nor no"),
        ("a,1", "line 3 does not fit the header"),
        ("a,1,2,3", "line 3 does not fit the header"),
        ("a,1,x", "line 3: length is no number"),
        (",1,2", "the policy has no name"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"policy,success,length\na,1,2\n{row}\n")
    with pytest.raises(DataError, match=message):
        records.read(path)
