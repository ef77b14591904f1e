"""Every kind of world model trains from the same file with the same words, then plans and imagines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from worldplan.cli.main import main

FAST = ["model.prefix_hidden=16", "model.predictor_values=8", "model.predictor_hidden=16"]
SETTINGS: dict[str, list[str]] = {
    "lewm_small": [],
    "lpwm_small": ["model.directions=8", "model.predictor=mlp_ltv"],
    "fast_lewm_small": [*FAST, "model.prefix_steps=2", "model.curriculum_steps=2"],
}
PLAN = [
    "planner.num_samples=8",
    "planner.num_iterations=2",
    "planner.num_elites=2",
    "baselines=[]",
    "videos=0",
]


def tiny_of(kind: str, words: list[str]) -> list[str]:
    """The words of a tiny training, less a setting that this kind does not have."""
    return [word for word in words if kind != "lpwm_small" or not word.startswith("model.sigreg")]


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_model_trains_is_refined_plans_and_imagines(
    kind: str, made: Any, train: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"data={made.data}", f"out={tmp_path / 'm'}", "train.refine_steps=2"]
    assert (
        main(["train", f"model={kind}", *words, *tiny_of(kind, train), *SETTINGS[kind], "train.frames=4"])
        == 0
    )
    model = tmp_path / "m" / "checkpoint"
    common = [f"starts={made.starts}", "episodes=2", "workers=0", "videos=0", "--quiet"]
    consistent = ["consistency=0.1"] if kind.startswith("fast") else []
    plan = ["plan", f"model={model}", *PLAN, *consistent, *common, f"out={tmp_path / 'p'}"]
    assert main(plan) == 0
    found = json.loads((tmp_path / "p" / "result.json").read_text())
    assert found["success"]["n"] == 2
    rank = ["rank", f"model={model}", f"reader={made.reader}", "policies=[nothing,random]"]
    assert main([*rank, *common, f"out={tmp_path / 'r'}"]) == 0, capsys.readouterr().err
    assert len(json.loads((tmp_path / "r" / "result.json").read_text())["ranking"]) == 2
