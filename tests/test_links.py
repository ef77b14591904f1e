"""The links at the root show the rooms; nothing depends on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["models", "planners", "envs", "configs"])
def test_link_points_into_the_package(name: str) -> None:
    link = ROOT / name
    if not link.is_symlink():
        pytest.skip("links are not checked out here")
    assert Path(os.readlink(link)) == Path("worldplan", name)
    assert link.resolve() == (ROOT / "worldplan" / name).resolve()
    assert (ROOT / "worldplan" / name).is_dir()
