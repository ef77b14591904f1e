import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from worldplan.data import native
from worldplan.data.windows import Windows
from worldplan.errors import DataError, MissingExtra
from worldplan.types import Episode

ODD_NAMES = [
    "plain",
    "with space",
    'it\'s "quoted"',
    "ünïcode 地図",
    "#1=a&b",
    "~tilde",
    "a+b%20?*[x]{y}",
    "-dash",
    "$HOME`x`",
]


def same(first: Episode, second: Episode) -> None:
    assert first.obs.keys() == second.obs.keys()
    for key, rows in first.obs.items():
        assert rows.dtype == second.obs[key].dtype, key
        np.testing.assert_array_equal(rows, second.obs[key], strict=True)
    np.testing.assert_array_equal(first.actions, second.actions, strict=True)
    np.testing.assert_array_equal(first.rewards, second.rewards, strict=True)
    assert (first.terminated, first.truncated) == (second.terminated, second.truncated)
    assert dict(first.meta) == dict(second.meta)


def test_episodes_survive_the_file(tmp_path, episode):
    lengths = [5, 1, 2, 9]
    written = native.write(tmp_path / "a.h5", (episode(i, n) for i, n in enumerate(lengths)))
    assert len(written) == 4 and written.lengths.tolist() == lengths and written.num_rows == 17
    for number, length in enumerate(lengths):
        same(written.episode(number), episode(number, length))
    again = native.write(tmp_path / "b.h5", (written.episode(i) for i in range(4)))
    for number, length in enumerate(lengths):
        same(again.episode(number), episode(number, length))


def test_the_action_of_a_row_led_to_the_next_row(tmp_path, episode):
    found = native.write(tmp_path / "a.h5", [episode(3, 6)]).episode(0)
    np.testing.assert_array_equal(found.obs["echo"][1:], found.actions)
    np.testing.assert_array_equal(found.obs["counter"][:, 0], np.arange(6))


def test_columns_lie_as_flat_readers_expect(tmp_path, episode):
    native.write(tmp_path / "a.h5", [episode(0, 4), episode(1, 3)], attrs={"action": {"unit": "px"}})
    with h5py.File(tmp_path / "a.h5", "r", swmr=True) as file:
        assert all(isinstance(item, h5py.Dataset) for item in file.values())
        assert file["ep_len"][:].tolist() == [4, 3] and file["ep_len"].dtype == np.int32
        assert file["ep_offset"][:].tolist() == [0, 4] and file["ep_offset"].dtype == np.int64
        assert file["pixels"].shape == (7, 8, 8, 3) and file["pixels"].chunks == (1, 8, 8, 3)
        assert np.isnan(file["action"][:]).all(1).tolist() == [False] * 3 + [True] + [False] * 2 + [True]
        assert np.isnan(file["reward"][:]).tolist() == [True] + [False] * 3 + [True] + [False] * 2
        assert file["reward"][:][1:4].tolist() == [1, 2, 3]
        assert file["terminated"][:].tolist() == [False] * 3 + [True] + [False] * 3
        assert file["success"][:].tolist() == [0, 0, 0, 1, 0, 0, 0]
        assert file["step_idx"][:].tolist() == [0, 1, 2, 3, 0, 1, 2]
        assert file["episode_idx"][:].tolist() == [0] * 4 + [1] * 3
    attrs = native.open(tmp_path / "a.h5").attrs
    assert attrs["env"] == "counter" and attrs["source"] == "real" and attrs["action"] == {"unit": "px"}


def test_text_survives_per_step_and_per_episode(tmp_path, episode):
    base = episode(0, 3)
    words = np.array(["göal", "", "näxt # line\n"], dtype=object)
    told = replace(
        base, obs={**base.obs, "instruction": words}, meta={**base.meta, "task": "push the T — 押す"}
    )
    found = native.write(tmp_path / "a.h5", [told]).episode(0)
    assert found.obs["instruction"].tolist() == words.tolist()
    assert found.meta["task"] == "push the T — 押す"
    fixed = replace(base, obs={**base.obs, "instruction": np.array(["a", "bc", "d"])})
    again = native.write(tmp_path / "b.h5", [fixed])
    assert again.array("instruction", np.array([2, 0, 2])).tolist() == ["d", "a", "d"]


def test_goal_keys_and_integer_actions_survive(tmp_path, episode):
    base = episode(0, 4)
    goal = np.repeat(base.obs["pixels"][-1:], 4, 0)
    discrete = replace(
        base, obs={**base.obs, "goal/pixels": goal}, actions=np.array([[2], [0], [1]], np.int64)
    )
    found = native.write(tmp_path / "a.h5", [discrete])
    same(found.episode(0), discrete)
    assert found.array("action").reshape(-1).tolist() == [2, 0, 1, -1]
    with h5py.File(tmp_path / "a.h5") as file:
        assert "goal.pixels" in file


def test_rows_come_in_any_order(dataset):
    data = dataset([6, 5, 4])
    everything = data.array("counter")
    for rows in ([3, 3, 0, 14], [], [[1, 2], [2, 1]], [14, 13, 12, 0, 7]):
        rows = np.array(rows, np.int64)
        np.testing.assert_array_equal(data.array("counter", rows), everything[rows])
        np.testing.assert_array_equal(data.array("pixels", rows), data.array("pixels")[rows])
    np.testing.assert_array_equal(
        data.array("counter", data.rows([2, 0])), np.concatenate((everything[11:], everything[:6]))
    )
    with pytest.raises(IndexError):
        data.array("counter", np.array([15]))
    with pytest.raises(IndexError):
        data.array("counter", np.array([-1]))


def public(path: Path, drop: tuple[str, ...] = (), **changes: np.ndarray) -> Path:
    """A file as stable-worldmodel writes it: no attributes, no NaN, other bookkeeping."""
    rng = np.random.default_rng(0)
    columns = {
        "pixels": rng.integers(0, 255, (9, 4, 4, 3), dtype=np.uint8),
        "action": rng.normal(size=(9, 2)).astype(np.float32),
        "proprio": rng.normal(size=(9, 4)).astype(np.float32),
        "state": rng.normal(size=(9, 7)).astype(np.float32),
        "episode_idx": np.repeat([0, 1], [5, 4]).astype(np.int32),
        "step_idx": np.r_[:5, :4].astype(np.int32),
        "ep_len": np.array([5, 4], np.int32),
        "ep_offset": np.array([0, 5], np.int64),
    }
    with h5py.File(path, "w") as file:
        for key, value in {**columns, **changes}.items():
            if key not in drop:
                file.create_dataset(key, data=value)
    return path


def test_public_files_open_as_they_are(tmp_path):
    data = native.open(public(tmp_path / "p.h5"))
    assert data.obs_keys == ("pixels", "proprio", "state")
    found = data.episode(1)
    assert found.actions.shape == (3, 2) and found.obs["state"].shape == (4, 7)
    np.testing.assert_array_equal(found.actions, data.array("action")[5:8])
    assert np.isnan(found.rewards).all() and found.meta == {"source": "real"}
    assert not found.terminated and found.truncated
    video = native.open(public(tmp_path / "v.h5", drop=("action",)))
    assert video.action_dim == 0 and video.episode(0).actions.shape == (4, 0)


def test_compressed_public_files_open_with_the_plugin(tmp_path, monkeypatch):
    plugin = pytest.importorskip("hdf5plugin")
    public(tmp_path / "p.h5", drop=("pixels",))
    frames = np.random.default_rng(0).integers(0, 255, (9, 4, 4, 3), dtype=np.uint8)
    with h5py.File(tmp_path / "p.h5", "a") as file:
        file.create_dataset("pixels", data=frames, chunks=(1, 4, 4, 3), **plugin.Blosc(cname="lz4"))
    np.testing.assert_array_equal(native.open(tmp_path / "p.h5").array("pixels"), frames)
    monkeypatch.setattr(h5py.h5z, "filter_avail", lambda code: False)
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    with pytest.raises(MissingExtra, match="hdf5plugin"):
        native.open(tmp_path / "p.h5")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"drop": ("ep_len",)}, ["ep_len", "native"]),
        ({"drop": ("ep_len", "ep_offset")}, ["ep_len", "ep_offset"]),
        ({"ep_len": np.array([5, 5], np.int32)}, ["episode 1", "9 rows"]),
        ({"ep_len": np.array([6, 3], np.int32)}, ["episode 0"]),
        ({"ep_len": np.array([5, 0], np.int32)}, ["episode 1"]),
        ({"ep_len": np.array([5], np.int32)}, ["no episodes"]),
        ({"ep_len": np.array([], np.int32), "ep_offset": np.array([], np.int64)}, ["no episodes"]),
        ({"state": np.zeros((8, 7), np.float32)}, ["differ in length", "state 8", "pixels 9"]),
    ],
)
def test_layouts_that_do_not_fit_are_named(tmp_path, changes, words):
    path = public(tmp_path / "bad.h5", **changes)
    with pytest.raises(DataError) as caught:
        native.open(path)
    for word in ["bad.h5", *words]:
        assert word in str(caught.value)


def test_other_formats_are_recognised(tmp_path):
    with h5py.File(tmp_path / "r.hdf5", "w") as file:
        file.create_dataset("data/demo_0/actions", data=np.zeros((3, 2)))
    with pytest.raises(DataError, match="robomimic"):
        native.open(tmp_path / "r.hdf5")


def test_unreadable_files_end_in_one_message(tmp_path, dataset):
    whole = dataset([30, 30]).path.read_bytes()
    for name, content in {
        "empty.h5": b"",
        "text.h5": b"hello" * 100,
        "cut.h5": whole[: len(whole) // 2],
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=name.replace(".", r"\.")):
            native.open(tmp_path / name)
    with pytest.raises(DataError, match=r"no such file(.|\n)*did you mean .*empty\.h5"):
        native.open(tmp_path / "emtpy.h5")
    with pytest.raises(DataError, match="no such file"):
        native.open(tmp_path / "nowhere" / "a.h5")
    with pytest.raises(DataError, match="folder"):
        native.open(tmp_path)


def test_a_damaged_frame_is_reported(tmp_path, dataset):
    data = dataset([40])
    with h5py.File(data.path) as file:
        place = file["pixels"].id.get_chunk_info(7)
    with data.path.open("r+b") as raw:
        raw.seek(place.byte_offset)
        raw.write(b"\xff" * place.size)
    with pytest.raises(DataError, match="'pixels' cannot be read"):
        native.open(data.path).array("pixels")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_legal_path_works(tmp_path, episode, name, monkeypatch):
    folder = tmp_path / name
    written = native.write(folder / f"{name}.h5", [episode(0, 3)])
    assert written.path.parent.name == name
    same(native.open(str(written.path)).episode(0), episode(0, 3))
    monkeypatch.chdir(folder)
    assert native.open(f"{name}.h5").num_rows == 3
    assert os.listdir(folder) == [f"{name}.h5"]


def test_bytes_that_are_no_text_work_in_paths(tmp_path, episode):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.h5"))
    native.write(path, [episode(0, 3)])
    assert native.open(path).num_rows == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"actions": np.zeros((5, 2)), "rewards": np.zeros(5)}, ["not aligned", "keep the observation"]),
        ({"actions": np.zeros((3, 2), np.float32)}, ["not aligned", "4 observations for 3 actions"]),
        ({"rewards": np.zeros(5)}, ["rewards", "4 finite"]),
        ({"rewards": np.array([0, np.nan, 0, 0])}, ["rewards"]),
        ({"actions": np.array([[0, 0], [0, np.nan], [0, 0], [0, 0]])}, ["action", "step 1"]),
        ({"actions": np.zeros(4, np.float32)}, ["unusable actions"]),
        ({"meta": {}}, ["where it comes from", "source"]),
        ({"meta": {"source": "model"}}, ["unnamed model"]),
        ({"meta": {"source": "real", "x": object()}}, ["not data", "object"]),
        ({"obs": {}}, ["no observations"]),
        ({"obs": {"action": np.zeros((5, 2))}}, ["may not be called 'action'"]),
        ({"obs": {"pixels": np.zeros((5, 3, 8, 8), np.uint8)}}, ["channels-first"]),
        ({"obs": {"pixels": np.zeros((5, 8, 8, 3), np.float32)}}, ["float images"]),
        ({"obs": {"counter": np.full((5, 2), np.inf, np.float32)}}, ["counter", "step 0"]),
        ({"obs": {"counter": np.zeros((5, 2), np.float32)}}, ["no such key"]),
        ({"actions": np.zeros((4, 3), np.float32)}, ["'action' differs", "[2]", "[3]"]),
    ],
)  # fmt: skip
def test_unusable_episodes_are_refused_and_nothing_is_left(tmp_path, episode, changes, words):
    with pytest.raises(DataError) as caught:
        native.write(tmp_path / "a.h5", [episode(0, 5), replace(episode(1, 5), **changes)])
    for word in ["episode 1", *words]:
        assert word in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_writing_nothing_or_over_something_is_refused(tmp_path, episode):
    with pytest.raises(DataError, match="no episode"):
        native.write(tmp_path / "a.h5", [])
    native.write(tmp_path / "a.h5", [episode(0, 3)])
    with pytest.raises(DataError, match="exists already"):
        native.write(tmp_path / "a.h5", [episode(0, 4)])
    assert native.write(tmp_path / "a.h5", [episode(0, 4)], overwrite=True).num_rows == 4
    with pytest.raises(DataError, match="folder"):
        native.write(tmp_path, [episode(0, 3)], overwrite=True)
    assert [item.name for item in tmp_path.iterdir()] == ["a.h5"]


def test_an_interruption_keeps_the_old_file_and_no_draft(tmp_path, episode):
    native.write(tmp_path / "a.h5", [episode(0, 3)])

    def interrupted():
        yield episode(0, 9)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        native.write(tmp_path / "a.h5", interrupted(), overwrite=True)
    assert [item.name for item in tmp_path.iterdir()] == ["a.h5"]
    assert native.open(tmp_path / "a.h5").num_rows == 3


def test_a_killed_writer_leaves_nothing_under_the_name(tmp_path):
    code = f"""
import sys, time, importlib.util
spec = importlib.util.spec_from_file_location("c", {str(Path(__file__).with_name("conftest.py"))!r})
c = importlib.util.module_from_spec(spec); spec.loader.exec_module(c)
def forever():
    for i in range(10**9):
        if i == 3: print("writing", flush=True)
        if i > 3: time.sleep(0.01)
        yield c.count_up(i % 200, 5)
c.write({str(tmp_path / "a.h5")!r}, forever())
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = [item.name for item in tmp_path.iterdir()]
    assert "a.h5" not in left and all(name.endswith(".tmp") for name in left)


def test_no_permission_is_one_message(tmp_path, episode, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(DataError, match="Permission denied"):
        native.write(tmp_path / "a.h5", [episode(0, 3)])
    monkeypatch.undo()
    path = native.write(tmp_path / "a.h5", [episode(0, 3)]).path
    monkeypatch.setattr(h5py, "File", refuse)
    with pytest.raises(DataError, match="no permission"):
        native.open(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_read_only_folders_are_refused(tmp_path, episode):
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="cannot write"):
        native.write(tmp_path / "a.h5", [episode(0, 3)])


def test_a_full_disk_is_a_failed_run(tmp_path, episode):
    from worldplan.errors import RunError

    def full():
        yield episode(0, 3)
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="disk was full"):
        native.write(tmp_path / "a.h5", full())
    assert not list(tmp_path.iterdir())


def test_a_file_replaced_while_in_use_is_noticed(tmp_path, episode):
    data = native.write(tmp_path / "a.h5", [episode(0, 3)])
    data.array("counter")
    time.sleep(0.01)
    native.write(tmp_path / "a.h5", [episode(0, 30)], overwrite=True)
    assert len(data.array("counter")) == 3  # the open file is still the old one
    data.close()
    with pytest.raises(DataError, match="changed"):
        data.array("counter")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_open_dataset_crosses_into_workers(dataset, method):
    data = dataset([5, 6])
    expected = data.array("pixels")  # the file is open now
    assert pickle.loads(pickle.dumps(data)).num_rows == 11
    data.array("counter")
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        for found in pool.starmap(native.Dataset.array, [(data, "pixels"), (data, "pixels")]):
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(data.array("pixels"), expected)


def test_an_inherited_handle_is_reopened_after_a_fork(dataset):
    data = dataset([5, 6])
    expected = data.array("pixels")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    # no pickling here: the child inherits the object with its open file
    child = context.Process(target=lambda: queue.put((data.array("pixels") == expected).all()))
    child.start()
    assert queue.get(timeout=20)
    child.join()
    np.testing.assert_array_equal(data.array("pixels"), expected)


def test_missing_columns_and_episodes_are_named(dataset):
    data = dataset([3])
    with pytest.raises(DataError, match="did you mean counter"):
        data.array("conter")
    with pytest.raises(DataError, match="no episode 1"):
        data.episode(1)
    with pytest.raises(DataError, match="no episode -1"):
        data.episode(-1)


def test_columns_are_added_in_memory(dataset):
    dataset = dataset([3, 4])
    latents = np.arange(dataset.num_rows * 2, dtype=np.float32).reshape(-1, 2)
    more = dataset.with_columns({"latent": latents})
    np.testing.assert_array_equal(more.array("latent", np.array([3, 0])), latents[[3, 0]])
    np.testing.assert_array_equal(more.array("latent"), latents)
    np.testing.assert_array_equal(more.array("action"), dataset.array("action"))
    assert more.column("latent").shape == (2,) and "latent" in more.obs_keys
    assert "latent" not in dataset.columns
    first, length = more.offsets[1], more.lengths[1]
    np.testing.assert_array_equal(more.episode(1).obs["latent"], latents[first : first + length])
    batch = Windows(more, 2, 1, [1], ["latent"]).batch(np.array([0]))
    np.testing.assert_array_equal(batch.obs["latent"][0].numpy(), latents[first : first + 2])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(more)).array("latent"), latents)


def test_an_added_column_has_a_row_for_each_of_the_file(dataset):
    dataset = dataset([3, 4])
    with pytest.raises(DataError, match=f"{dataset.num_rows} rows"):
        dataset.with_columns({"latent": np.zeros((dataset.num_rows - 1, 2))})
