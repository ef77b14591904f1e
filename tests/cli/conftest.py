"""Tiny inputs for commands: episodes of Two-Room, and models that have learnt nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from worldplan.cli.main import main

ODD = "two rooms ü = #1 'x' (a,b) [c] {d} $e %f"  # what a shell, a URL or a configuration may trip over
TRAIN = [
    "train.steps=2",
    "train.head_steps=1",
    "train.batch_size=4",
    "train.frames=2",
    "train.probe_every=0",
    "held_out=0.25",
    "cache=false",
    "--quiet",
]
READER = ["model=reader", "model.widths=[8,8]", "model.keypoints=4", "model.features=16", "model.hidden=16"]


@dataclass(frozen=True)
class Made:
    """Paths of files that commands made, in a folder with an odd name."""

    data: Path
    starts: Path
    model: Path
    reader: Path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, tiny: list[str]) -> Made:
    """Episodes, an evaluation set, a world model and a reader."""
    folder = tmp_path_factory.mktemp(ODD)
    data, starts = folder / "episodes.h5", folder / "starts.npz"
    collect = ["collect", "env=tworoom", f"out={data}", "episodes=4", "steps=20", "workers=0", "--quiet"]
    assert main(collect) == 0
    drawn = ["held_out=1", "pairs=4", "goal_offset=5", "budget=5", f"out={starts}"]
    assert main(["data", "evalset", str(data), *drawn]) == 0
    assert main(["train", f"data={data}", f"out={folder / 'model'}", *tiny, *TRAIN]) == 0
    assert main(["train", f"data={data}", f"out={folder / 'reader'}", *READER, *TRAIN]) == 0
    return Made(data, starts, folder / "model" / "checkpoint", folder / "reader" / "checkpoint")


@pytest.fixture
def train(tiny: list[str]) -> list[str]:
    """Words that make a training take a second."""
    return [*tiny, *TRAIN]
