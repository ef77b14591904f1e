import multiprocessing
import pickle
from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from worldplan.data import native
from worldplan.data.windows import Windows
from worldplan.errors import DataError
from worldplan.seeding import Noise

KEYS = ("pixels", "counter", "echo")


def all_of(windows: Windows):
    return windows.batch(np.arange(len(windows)))


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("frame_skip", [1, 3])
@pytest.mark.parametrize("pad", [False, True])
def test_every_window_is_aligned(dataset, steps, frame_skip, pad):
    lengths = [12, 1, 4, 7, 2, 13]
    data = dataset(lengths)
    windows = Windows(data, steps, frame_skip, keys=KEYS, pad=pad)
    span = (steps - 1) * frame_skip + 1
    if not pad or steps == 1:
        assert len(windows) == sum(max(0, length - span + 1) for length in lengths)
        assert windows.dropped.tolist() == [i for i, length in enumerate(lengths) if length < span]
    else:
        assert len(windows) == sum(max(0, length - frame_skip) for length in lengths)
    batch = all_of(windows)
    count, future = len(windows), steps - 1
    assert batch.obs["pixels"].shape == (count, steps, 3, 8, 8) and batch.obs["pixels"].dtype == torch.uint8
    assert batch.actions.shape == (count, future, frame_skip * 2) and batch.actions.dtype == torch.float32
    assert batch.mask.shape == (count, future)
    assert pad or batch.mask.all()
    counter, number = batch.obs["counter"].unbind(-1)
    assert (number == number[:, :1]).all()
    real = torch.cat((torch.ones(count, 1, dtype=torch.bool), batch.mask), 1)
    expected = counter[:, :1] + frame_skip * torch.arange(steps)
    assert (counter == expected)[real].all()
    assert (batch.obs["pixels"][:, :, 1, 0, 0] == counter).all()
    assert (batch.obs["pixels"][:, :, 0, 0, 0] == number).all()
    assert (batch.obs["pixels"][:, :, 2, 0] == torch.arange(8)).all()  # columns are the last axis
    if not future:
        return
    folded = batch.actions.unflatten(-1, (frame_skip, 2))
    steps_taken = counter[:, :-1, None] + torch.arange(frame_skip)
    wanted = torch.stack((1000 * number[:, :1, None] + steps_taken, -steps_taken), -1)
    assert (folded == wanted)[batch.mask].all()
    assert not folded[~batch.mask].any()
    # the last action before a frame is the one that frame echoes
    assert (folded[:, :, -1] == batch.obs["echo"][:, 1:])[batch.mask].all()


def test_the_published_number_of_windows_is_contained(dataset):
    # spans of F*k rows, as stable-worldmodel cuts them, are those that leave k-1 more rows behind
    data = dataset([49, 60, 20, 19])
    windows = Windows(data, 4, 5, keys=("counter",))
    _, step = windows.locate(np.arange(len(windows)))
    episode, _ = windows.locate(np.arange(len(windows)))
    assert (step + 20 <= data.lengths[episode]).sum() == sum(max(0, n - 19) for n in data.lengths)


@pytest.mark.parametrize("chosen", [[0, 2, 4], [4, 2, 0], [3], [5, 0]])
def test_any_selection_of_episodes(dataset, chosen):
    data = dataset([6, 7, 8, 9, 6, 7])
    windows = Windows(data, 3, 1, episodes=chosen, keys=("counter",))
    seen = all_of(windows).obs["counter"][:, 0]
    expected = [[s, e] for e in chosen for s in range(data.lengths[e] - 2)]
    assert seen.tolist() == expected
    backwards = windows.batch(np.arange(len(windows))[::-1])
    assert backwards.obs["counter"][:, 0].tolist() == expected[::-1]
    statistics = windows.columns(("action",))["action"]
    assert len(statistics) == data.lengths[chosen].sum()


def test_short_episodes_are_counted_and_none_left_is_an_error(dataset):
    data = dataset([1, 2, 12])
    windows = Windows(data, 4, 3)
    assert windows.dropped.tolist() == [0, 1] and "2 shorter than 10 rows" in repr(windows)
    with pytest.raises(DataError, match=r"17 observations(.|\n)*longest has 12"):
        Windows(data, 5, 4)
    with pytest.raises(DataError, match="longest has 2"):
        Windows(data, 4, 3, episodes=[0, 1])
    for bad in ([], [3], [-1]):
        with pytest.raises(DataError, match="not in"):
            Windows(data, 4, 3, episodes=bad)
    with pytest.raises(IndexError):
        windows.batch(np.array([len(windows)]))


def test_nan_inside_an_episode_names_the_step(dataset):
    data = dataset([5, 6])
    data.close()
    with h5py.File(data.path, "a") as file:
        file["action"][7, 1] = np.nan  # episode 1, step 2
    data = native.open(data.path)
    with pytest.raises(DataError, match="'action' is not finite in episode 1, step 2"):
        Windows(data, 2, 1)
    assert len(Windows(data, 2, 1, episodes=[0])) == 4
    with pytest.raises(DataError, match="episode 1, step 2"):
        data.episode(1)
    data.close()
    with h5py.File(data.path, "a") as file:
        file["counter"][4, 0] = np.inf
    with pytest.raises(DataError, match="'counter' is not finite in episode 0, step 4"):
        Windows(native.open(data.path), 2, 1, episodes=[0], keys=("counter",))


def test_video_without_actions(tmp_path, episode):
    mute = [replace(episode(i, 6), actions=np.zeros((5, 0), np.float32)) for i in range(2)]
    data = native.write(tmp_path / "v.h5", mute)
    with pytest.raises(DataError, match=r"no actions(.|\n)*actions=False"):
        Windows(data, 3, 2)
    batch = all_of(Windows(data, 3, 2, actions=False))
    assert batch.actions.shape == (4, 2, 0) and batch.mask.all()


def test_wrong_keys_and_layouts_are_named(tmp_path, dataset, episode):
    data = dataset([5])
    with pytest.raises(DataError, match="did you mean pixels"):
        Windows(data, 2, 1, keys=("pixel",))
    with pytest.raises(DataError, match=r"Batch\.actions"):
        Windows(data, 2, 1, keys=("action",))
    data.close()
    with h5py.File(data.path, "a") as file:
        file.create_dataset("first", data=np.zeros((5, 3, 8, 8), np.uint8))
        file.create_dataset("floats", data=np.zeros((5, 8, 8, 3), np.float32))
        file.create_dataset("words", data=["a"] * 5)
    data = native.open(data.path)
    for key in ("first", "floats"):
        with pytest.raises(DataError, match=rf"{key}(.|\n)*uint8 \[h, w, 3\]"):
            Windows(data, 2, 1, keys=(key,))
    with pytest.raises(DataError, match="text"):
        Windows(data, 2, 1, keys=("words",))


def test_numbers_become_float32_and_int64(tmp_path, episode):
    base = episode(0, 4)
    obs = {"double": np.arange(4.0), "small": np.arange(4, dtype=np.int8), "flag": np.arange(4) > 1}
    discrete = replace(base, obs=obs, actions=np.array([[2], [0], [1]], np.int16))
    batch = all_of(Windows(native.write(tmp_path / "a.h5", [discrete]), 2, 1, keys=tuple(obs)))
    assert [batch.obs[key].dtype for key in obs] == [torch.float32, torch.int64, torch.bool]
    assert batch.actions.dtype == torch.int64 and batch.actions.flatten().tolist() == [2, 0, 1]


def test_sampling_depends_on_seed_epoch_and_number_only(dataset):
    windows = Windows(dataset([9, 9, 9]), 3, 1, keys=("counter",))
    assert len(windows) == 21
    sampler = windows.sampler(4, seed=5)
    assert len(sampler) == 5
    epoch = np.concatenate([sampler.indices(i) for i in range(5)])
    assert len(set(epoch.tolist())) == 20
    assert [sampler.indices(i).tolist() for i in range(5, 10)] == [
        windows.sampler(4, seed=5, epoch=1).indices(i).tolist() for i in range(5)
    ]
    assert sampler.indices(0).tolist() != sampler.indices(5).tolist()
    assert sampler.indices(0).tolist() != windows.sampler(4, seed=6).indices(0).tolist()
    resumed = pickle.loads(pickle.dumps(sampler))
    assert torch.equal(resumed[13].obs["counter"], sampler[13].obs["counter"])
    assert len(list(sampler)) == 5
    few = windows.sampler(100)
    assert len(few) == 1 and sorted(few.indices(3).tolist()) == list(range(21))


@pytest.mark.parametrize("cache", [False, True])
def test_workers_and_cache_change_no_item(dataset, cache):
    data = dataset([9, 9, 9])
    sampler = Windows(data, 3, 2, keys=("pixels", "counter"), cache=cache).sampler(4, seed=1)
    plain = list(Windows(data, 3, 2, keys=("pixels", "counter")).sampler(4, seed=1))
    context = multiprocessing.get_context("fork")
    for workers in (0, 2):
        loader = DataLoader(
            sampler,
            batch_size=None,
            num_workers=workers,
            multiprocessing_context=context if workers else None,
        )
        found = list(loader)
        assert len(found) == len(plain)
        for first, second in zip(found, plain, strict=True):
            assert torch.equal(first.actions, second.actions) and torch.equal(first.mask, second.mask)
            assert all(torch.equal(first.obs[key], second.obs[key]) for key in ("pixels", "counter"))


def test_goals_lie_ahead_in_the_same_episode(dataset):
    windows = Windows(dataset([9, 30, 5]), 3, 1, keys=("counter", "pixels"))
    indices = np.repeat(np.arange(len(windows)), 20)
    noise = Noise.of(0, len(indices))
    goals, offsets = windows.goals(indices, (2, 6), noise)
    start = windows.batch(indices).obs["counter"][:, 0]
    assert (goals["goal/counter"][:, 1] == start[:, 1]).all()
    assert (goals["goal/counter"][:, 0] - start[:, 0] == offsets).all()
    assert goals["goal/pixels"].shape == (len(indices), 3, 8, 8)
    ahead = torch.from_numpy(windows.dataset.lengths)[start[:, 1].long()] - 1 - start[:, 0].long()
    assert ((offsets >= 2) & (offsets <= torch.minimum(ahead, torch.tensor(6)))).all()
    free = offsets[ahead >= 6]
    assert all(abs((free == k).float().mean() - 0.2) < 0.06 for k in range(2, 7))
    again, _ = windows.goals(indices[:7], (2, 6), noise.select(torch.arange(7)))
    assert torch.equal(again["goal/counter"], goals["goal/counter"][:7])
    with pytest.raises(DataError, match="ahead"):
        windows.goals(indices, (6, 2), noise)
