import numpy as np
import pytest
import torch

from worldplan.data import cache, native
from worldplan.data.images import resize
from worldplan.data.windows import Windows
from worldplan.errors import DataError


@pytest.mark.parametrize("size", [None, 4, 5])
@pytest.mark.parametrize("where", ["beside", "elsewhere #1"])
def test_items_are_the_same_with_and_without(dataset, tmp_path, size, where):
    data = dataset([7, 3, 6])
    place = True if where == "beside" else tmp_path / where
    plain = Windows(data, 2, 2, image_size=size)
    kept = Windows(data, 2, 2, image_size=size, cache=place)
    rows = np.array([3, 0, 3, len(plain) - 1])
    first, second = plain.batch(rows), kept.batch(rows)
    assert torch.equal(first.obs["pixels"], second.obs["pixels"])
    assert torch.equal(first.actions, second.actions)
    assert first.obs["pixels"].shape[-2:] == ((8, 8) if size is None else (size, size))
    folder = cache.default_folder(data) if where == "beside" else place
    assert len(list(folder.iterdir())) == 1


def test_the_copy_is_reused_and_never_stale(dataset, tmp_path, episode, monkeypatch):
    data = dataset([5])
    first = cache.cached(data, "pixels")
    monkeypatch.setattr(cache, "_decode", lambda *args: pytest.fail("decoded twice"))
    np.testing.assert_array_equal(cache.cached(data, "pixels"), first)
    monkeypatch.undo()
    changed = native.write(data.path, [episode(9, 5)], overwrite=True)
    np.testing.assert_array_equal(cache.cached(changed, "pixels"), changed.array("pixels"))
    assert not np.array_equal(changed.array("pixels"), first)


def test_a_broken_copy_is_made_again(dataset):
    data = dataset([5])
    cache.cached(data, "pixels")
    (copy,) = cache.default_folder(data).iterdir()
    for content in (b"", copy.read_bytes()[:-100], b"junk" * 50):
        copy.write_bytes(content)
        np.testing.assert_array_equal(cache.cached(data, "pixels"), data.array("pixels"))


def test_an_interrupted_copy_leaves_nothing(dataset, monkeypatch):
    data = dataset([5])

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "read_images", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.cached(data, "pixels")
    assert not cache.default_folder(data).exists()


def test_only_images_and_only_where_there_is_room(dataset, monkeypatch):
    data = dataset([5])
    with pytest.raises(DataError, match="images"):
        cache.cached(data, "counter")
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 0})())
    with pytest.raises(DataError, match="no room"):
        cache.cached(data, "pixels")


def test_area_resizing_agrees_with_opencv():
    cv2 = pytest.importorskip("cv2")
    frames = np.random.default_rng(0).integers(0, 256, (3, 56, 84, 3), dtype=np.uint8)
    for size in (28, 16, 9):
        expected = [cv2.resize(frame, (size, size), interpolation=cv2.INTER_AREA) for frame in frames]
        assert np.abs(resize(frames, size).astype(int) - np.stack(expected)).max() <= 1
    assert resize(frames[:, :, :56], 56) is not None
    flat = np.full((1, 7, 5, 3), 200, np.uint8)
    assert (resize(flat, 64) == 200).all()
