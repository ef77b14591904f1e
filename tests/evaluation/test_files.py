"""Values become plain JSON or are refused by name; files are whole or absent."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from worldplan.errors import DataError
from worldplan.evaluation import files


def test_values_become_plain() -> None:
    found = files.plain(
        {
            "a": np.float32(0.5),
            1: (np.int64(2), np.bool_(True)),
            "nan": math.nan,
            "inf": np.array([np.inf, 1]),
        }
        | {"path": Path("x"), "none": None}
    )
    assert found == {"a": 0.5, "1": [2, True], "nan": None, "inf": [None, 1.0], "path": "x", "none": None}
    assert type(found["1"][1]) is bool


def test_what_json_cannot_hold_is_named() -> None:
    with pytest.raises(DataError, match=r"meta\.a\[1\] cannot be written(.|\n)*complex"):
        files.plain({"a": [0, 1j]}, "meta")


def test_text_survives_odd_characters(tmp_path: Path) -> None:
    path = files.write_text(tmp_path / "new" / "a.txt", "ü\u2028")
    assert files.read_text(path) == "ü\u2028"
    path.write_bytes("\ufeffwith a mark".encode())
    assert files.read_text(path) == "with a mark"


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.write_text(tmp_path / "a.txt", "old")

    def interrupt(self: Path, data: bytes) -> int:
        self.open("wb").write(data[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_text(path, "new and longer")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
