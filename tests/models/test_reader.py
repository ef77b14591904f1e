"""The reader learns states from frames that exist, and judges by what it reads."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from worldplan.errors import ConfigError, DataError, UsageError
from worldplan.models.reader import Judge, Reader, ReaderConfig
from worldplan.seeding import Noise
from worldplan.types import Array, Batch

SMALL = ReaderConfig(
    image_size=16, state_dim=3, state_angles=(2,), widths=(6, 5), narrow=3, features=6, hidden=8
)


def made(columns: Any, **changes: Any) -> Reader:
    reader = Reader(replace(SMALL, **changes))
    reader.fit_statistics(columns())
    return reader.eval()


def drawn(rows: int = 4, name: str = "frames") -> Tensor:
    return Noise.of(7, rows).at(name).integers(256, 3, 16, 16).to(torch.uint8)


def test_a_reader_comes_back_from_its_plain_values(columns: Any) -> None:
    reader = made(columns, centred=True, keypoints=2)
    plain = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in asdict(reader.config).items()
    }
    other = Reader.from_config(plain).eval()
    assert other.config == reader.config
    other.load_state_dict(reader.state_dict())
    assert torch.equal(other.read({"pixels": drawn()}), reader.read({"pixels": drawn()}))


def test_a_reader_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="state_dim of ReaderConfig"):
        ReaderConfig(state_dim=0)
    with pytest.raises(ConfigError, match="hidden of ReaderConfig"):
        ReaderConfig(hidden=0)


@pytest.mark.parametrize("centred", [False, True])
def test_rows_do_not_mix(centred: bool, columns: Any) -> None:
    reader, order = made(columns, centred=centred), torch.tensor([2, 0, 3, 1])
    whole = reader.read({"pixels": drawn()})
    assert whole.shape == (4, 3) and (whole[0] - whole[1]).abs().max() > 1e-4
    torch.testing.assert_close(reader.read({"pixels": drawn()[order]}), whole[order])
    torch.testing.assert_close(reader.read({"pixels": drawn()[1:2]}), whole[1:2])


def test_the_loss_is_the_error_of_features_over_frames_that_exist(columns: Any, batch: Any) -> None:
    reader, full = made(columns), batch()
    mask = torch.arange(3) < torch.tensor([0, 1, 2, 3, 3, 1])[:, None]
    masked = replace(full, mask=mask)
    loss, metrics = reader.loss(masked, Noise.of(0, 6), 0)
    seen = torch.cat((torch.ones(6, 1, dtype=torch.bool), mask), 1)
    with torch.no_grad():
        found = reader.head(reader.encoder(full.obs["pixels"][seen]))
        target = reader.head.features.encode(full.obs["state"][seen])
    torch.testing.assert_close(loss.detach(), (found - target).square().mean())
    assert torch.equal(metrics["state"], loss.detach()) and not metrics["state"].requires_grad
    obs = {
        "pixels": torch.where(seen[..., None, None, None], full.obs["pixels"], 0),
        "state": torch.where(seen[..., None], full.obs["state"], 1e6),
    }
    torch.testing.assert_close(reader.loss(replace(masked, obs=obs), Noise.of(0, 6), 0)[0], loss)


@pytest.mark.parametrize("centred", [False, True])
def test_it_learns_where_a_block_is(centred: bool) -> None:
    reader = Reader(replace(SMALL, state_dim=2, state_angles=(), centred=centred, hidden=32, features=32))
    places = torch.cartesian_prod(torch.arange(0, 12, 2), torch.arange(0, 12, 2))
    frames = torch.full((len(places), 3, 16, 16), 255, dtype=torch.uint8)
    for frame, (x, y) in zip(frames, places.tolist(), strict=True):
        frame[:, y : y + 4, x : x + 4] = 50
    states = places.float()
    reader.fit_statistics({"state": states.numpy(), "pixels": np.full((1, 16, 16, 3), 255, np.uint8)})
    # windows of one frame each
    rows, nothing = len(frames), torch.zeros(len(frames), 0)
    windows = Batch({"pixels": frames[:, None], "state": states[:, None]}, nothing[..., None], nothing.bool())
    optimizer = torch.optim.Adam(reader.parameters(), 3e-3)
    for step in range(150):
        optimizer.zero_grad()
        reader.loss(windows, Noise.of(0, rows), step)[0].backward()
        optimizer.step()
    found = reader.eval().read({"pixels": frames})
    assert (found - states).abs().mean() < 1


def test_what_cannot_be_measured_is_named(columns: Any) -> None:
    have = columns()
    for wrong in ({}, {"state": have["state"][:, :2]}):
        with pytest.raises(DataError, match=r"'state' cannot be measured(.|\n)*shape \[3\]"):
            Reader(SMALL).fit_statistics(wrong)
    # the crop is cut around what differs from the mean frame, so that reader needs frames as well
    for more in ({}, {"pixels": have["pixels"][:, :8, :8]}):
        with pytest.raises(DataError, match=r"'pixels' cannot be measured(.|\n)*shape \[16, 16, 3\]"):
            Reader(replace(SMALL, centred=True)).fit_statistics({"state": have["state"], **more})


def test_the_mean_frame_is_measured_for_the_crop(columns: Any) -> None:
    reader = made(columns, centred=True)
    assert reader.crop is not None
    expected = torch.from_numpy(columns()["pixels"]).double().mean(0).movedim(-1, 0).float()
    torch.testing.assert_close(reader.crop.mean_frame, expected)


def test_batches_without_states_and_other_frames_are_refused(columns: Any, batch: Any) -> None:
    reader, full = made(columns), batch()
    with pytest.raises(DataError, match="nothing to learn from"):
        reader.loss(replace(full, obs={"pixels": full.obs["pixels"]}), Noise.of(0, 6), 0)
    with pytest.raises(UsageError, match=r"\[B, T, 3, 16, 16\]"):
        reader.loss(replace(full, obs={**full.obs, "pixels": drawn()}), Noise.of(0, 6), 0)
    with pytest.raises(UsageError, match="lacks"):
        made(columns, pixels="top").read({"pixels": drawn()})


def near(states: Array, goals: Array) -> Array:
    found: Array = np.abs(states - goals).max(1) < 1e-3
    return found


def share(states: Array, goals: Array) -> Array:
    found: Array = 1 / (1 + np.abs(states - goals).max(1))
    return found


def test_a_judge_compares_what_it_reads_with_the_state_or_the_frame_of_the_goal(columns: Any) -> None:
    reader = made(columns)
    judge = reader.judge(near, share)
    frames, goals = drawn(), drawn(name="goals")
    goals[1] = frames[1]
    success, progress = judge({"pixels": frames, "goal/pixels": goals})
    assert success.tolist() == [False, True, False, False]
    assert success.dtype == torch.bool and progress.dtype == torch.float32
    with torch.no_grad():
        read, wanted = reader.read({"pixels": frames}), reader.read({"pixels": goals})
    torch.testing.assert_close(progress, 1 / (1 + (read - wanted).abs().amax(1)))
    # a goal's state is what counts where there is one: its frame is not even looked at
    state = read.clone()
    state[1] += 1
    success, _ = judge({"pixels": frames, "goal/pixels": goals[:, :1], "goal/state": state})
    assert success.tolist() == [True, False, True, True]


def test_a_judge_needs_a_goal_and_a_reader_in_evaluation_mode(columns: Any) -> None:
    reader = made(columns)
    judge = Judge(reader, near, share)
    with pytest.raises(ConfigError, match="goal/state or goal/pixels"):
        judge({"pixels": drawn()})
    with pytest.raises(UsageError, match=r"Reader judges in training mode(.|\n)*reader\.eval\(\)"):
        Judge(reader.train(), near, share)({"pixels": drawn(), "goal/pixels": drawn()})
