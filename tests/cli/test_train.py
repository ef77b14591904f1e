"""`worldplan train`: what it refuses before it begins, and what it says about held-out episodes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from worldplan.cli.main import main
from worldplan.cli.probing import reading_errors
from worldplan.cli.verbs.train import held_out_loss
from worldplan.data import native
from worldplan.data.windows import Windows
from worldplan.types import Batch


@dataclass
class Counts:
    """A trainable whose loss is a number of windows, and which notes what it is shown."""

    seen: list[Any]

    def loss(self, batch: Batch, noise: Any, step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The mean of the frames' first pixel."""
        self.seen.append(batch)
        assert len(noise.rows) == len(batch.mask)
        return batch.obs["pixels"].float().mean(), {}


def test_the_held_out_loss_is_a_mean_over_held_out_windows_only(made: Any) -> None:
    dataset = native.open(made.data)
    train, test = [0, 1], [2, 3]
    windows = Windows(dataset, 2, 5, train, ("pixels",))
    toy = Counts([])
    found = held_out_loss(toy, windows, dataset, test)["loss"]
    assert toy.seen
    held = np.concatenate([dataset.array("pixels", dataset.rows([i])) for i in test])
    for batch in toy.seen:
        for frame in batch.obs["pixels"].flatten(0, 1).movedim(1, -1).numpy():
            assert (held == frame).all((1, 2, 3)).any()
    means = [float(batch.obs["pixels"].float().mean()) for batch in toy.seen]
    assert found == pytest.approx(np.mean(means))


class OffBy:
    """Reads the state that a frame was made from, off by a given amount."""

    training = False

    def __init__(self, states: Any, off: Any) -> None:
        self.states, self.off = states, torch.tensor(off)

    def read(self, obs: Any) -> torch.Tensor:
        """The frame's first pixel says which state it shows."""
        return torch.from_numpy(self.states[obs["pixels"][:, 0, 0, 0].numpy()]).float() + self.off

    def train(self, mode: bool = True) -> None:
        """Nothing."""

    def eval(self) -> None:
        """Nothing."""


def test_the_errors_of_a_reader_are_those_of_held_out_frames_and_angles_go_the_short_way() -> None:
    class Toy:
        """Ten rows of which the last five are held out."""

        def rows(self, episodes: Any) -> Any:
            """Of the one held-out episode."""
            assert episodes == [1]
            return np.arange(5, 10)

        def array(self, key: str, rows: Any) -> Any:
            """States at random, and frames that say which."""
            assert (rows >= 5).all()
            return (
                states[rows]
                if key == "state"
                else np.full((len(rows), 2, 2, 3), 0, np.uint8) + rows[:, None, None, None].astype(np.uint8)
            )

    states = np.random.default_rng(0).uniform(-3, 3, (10, 2))
    task = SimpleNamespace(name="toy", state_names=("x", "angle"))
    found = reading_errors(OffBy(states, [-0.5, 6.0]), Toy(), [1], task)
    expected = {"error/x/p50": 0.5, "error/x/p90": 0.5, "error/angle/p50": 2 * np.pi - 6}
    expected["error/angle/p90"] = expected["error/angle/p50"]
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("model", ["lewm_small", "gcbc", "reader"])
def test_frames_of_another_size_are_refused_with_the_key_that_helps(
    made: Any, model: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", f"model={model}", "model.image_size=96", f"data={made.data}", f"out={tmp_path / 'm'}"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "96 x 96" in said and "64 x 64" in said and "model.image_size=64" in said
    assert not (tmp_path / "m").exists()


def test_a_file_without_frames_is_refused(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "states.h5"
    collect = ["collect", "env=tworoom", f"out={data}", "episodes=2", "steps=20", "workers=0", "--quiet"]
    assert main([*collect, "pixels=false"]) == 0
    assert main(["train", f"data={data}", f"out={tmp_path / 'm'}"]) == 2
    assert "pixels" in capsys.readouterr().err


def test_videos_without_the_package_that_draws_them_are_refused_before_the_first_episode(
    made: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    plan = ["plan", f"model={made.model}", "baselines=[]"]
    rank = ["rank", f"model={made.model}", f"reader={made.reader}", "policies=[nothing]"]
    for words in (plan, rank):
        out = tmp_path / words[0]
        common = [f"starts={made.starts}", "episodes=2", "workers=0", f"out={out}"]
        assert main([*words, *common, "videos=1"]) != 0
        said = capsys.readouterr()
        assert "worldplan[report]" in said.err and "simulator" not in said.err
        assert not (out / "records.jsonl").exists()
