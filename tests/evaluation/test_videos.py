"""Videos decode to the frames that went in."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from worldplan import errors
from worldplan.errors import DataError, MissingExtra, UsageError
from worldplan.evaluation import videos
from worldplan.types import Array


def _frames(steps: int = 5, height: int = 33, width: int = 47) -> Array:
    ramp = np.linspace(30, 220, steps).astype(np.uint8)
    return np.broadcast_to(ramp[:, None, None, None], (steps, height, width, 3)).copy()


def _decode(path: Path) -> tuple[dict, Array]:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    reader = ffmpeg.read_frames(str(path))
    about = next(reader)
    width, height = about["size"]
    return about, np.stack([np.frombuffer(f, np.uint8).reshape(height, width, 3) for f in reader])


def test_mp4_is_h264_yuv420p_with_even_sizes(tmp_path: Path) -> None:
    path = videos.write(tmp_path / "a b" / "video.mp4", _frames(), fps=12)
    about, frames = _decode(path)
    assert about["codec"] == "h264"
    assert about["pix_fmt"].startswith("yuv420p")
    assert about["size"] == (48, 34)
    assert about["fps"] == 12
    assert frames.shape == (5, 34, 48, 3)
    assert np.abs(frames[:, :33, :47].astype(int) - _frames()).max() < 6
    assert [file.name for file in path.parent.iterdir()] == ["video.mp4"]


def test_the_same_frames_give_the_same_bytes() -> None:
    pytest.importorskip("imageio_ffmpeg")
    assert videos.encode(_frames()) == videos.encode(_frames())
    assert videos.encode(_frames(), ".gif") == videos.encode(_frames(), ".gif")


def test_gif_plays_for_as_long(tmp_path: Path) -> None:
    from PIL import Image

    image = Image.open(io.BytesIO(videos.encode(_frames(), ".gif", fps=5)))
    assert image.n_frames == 5
    assert image.info["duration"] == 200
    assert image.size == (48, 34)


def test_without_ffmpeg_a_report_gets_a_gif(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(module: str, extra: str) -> object:
        if module == "imageio_ffmpeg":
            raise MissingExtra("imageio_ffmpeg is not installed")
        return errors.require(module, extra)

    monkeypatch.setattr(videos, "require", absent)
    found = videos.clip("title", _frames())
    assert found.mime == "image/gif"
    assert found.uri.startswith("data:image/gif;base64,R0lGOD")
    with pytest.raises(MissingExtra):
        videos.write(tmp_path / "video.mp4", _frames())
    assert not list(tmp_path.iterdir())


def test_clip_knows_its_size() -> None:
    found = videos.clip("title", _frames(), note="note")
    assert (found.width, found.height) == (48, 34)
    assert (found.title, found.note) == ("title", "note")


def test_side_by_side_enlarges_without_smoothing_and_holds_the_last_frame() -> None:
    long, short = _frames(4, 16, 16), _frames(2, 8, 16)
    goal = np.full((16, 16, 3), 99, np.uint8)
    found = videos.side_by_side([("truth", long), ("prediction", short), ("goal", goal)], height=64)
    caption = 26
    assert found.shape == (4, 64 + 2 * caption, 64 + 6 + 128 + 6 + 64, 3)
    assert (found[:, caption : caption + 64, :64] == long[:, :1, :1].repeat(64, 1).repeat(64, 2)).all()
    assert (found[1:, caption : caption + 64, 70:198] == short[1, 0, 0]).all()
    assert (found[:, caption : caption + 64, -64:] == 99).all()
    assert found[0, :caption].min() < 128  # the captions are drawn
    assert (found[0, -caption:] != found[1, -caption:]).any()  # and the steps counted


def test_long_captions_are_shortened_and_small_panels_survive() -> None:
    tiny = np.zeros((1, 3, 1, 3), np.uint8)
    found = videos.side_by_side([("a name that is far too long " * 4, tiny)], height=3, steps=["x" * 99])
    assert found.shape == (1, 56, 2, 3)
    wide = videos.side_by_side([("start" + "x" * 99 + "end", np.zeros((1, 64, 64, 3), np.uint8))], height=64)
    assert wide.shape == (1, 64 + 52, 64, 3)


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((0, 4, 4, 3), np.uint8),
        np.zeros((2, 3, 4, 4), np.uint8),
        np.zeros((2, 4, 4, 3), np.float32),
        np.zeros((4, 4), np.uint8),
    ],
)
def test_what_is_not_frames_is_refused(frames: Array) -> None:
    with pytest.raises(UsageError, match="cannot be made into a video"):
        videos.encode(frames)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.mp4 or \.gif"):
        videos.write(tmp_path / "video.avi", _frames())
    with pytest.raises(UsageError, match="frame rate"):
        videos.encode(_frames(), fps=0)
    with pytest.raises(UsageError, match="nothing to show"):
        videos.side_by_side([])
    with pytest.raises(UsageError, match="4 lines"):
        videos.side_by_side([("a", _frames(4))], steps=["one"])


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_clip_comes_back_from_its_file(tmp_path: Path, suffix: str) -> None:
    path = videos.write(tmp_path / f"first{suffix}", _frames())
    found = videos.read(path, note="note")
    assert (found.title, found.note, found.width, found.height) == ("first", "note", 48, 34)
    assert found.data == path.read_bytes()
    assert found.mime == videos.MIMES[suffix]


def test_files_that_are_no_clips_are_refused(tmp_path: Path) -> None:
    for name in ("a.mp4", "a.gif", "a.png"):
        with pytest.raises(DataError, match="cannot be read"):
            videos.read(tmp_path / name)
        (tmp_path / name).write_bytes(b"nothing")
        with pytest.raises(DataError, match="cannot be read"):
            videos.read(tmp_path / name)
    with pytest.raises(DataError, match="no clip"):
        videos.read(tmp_path / "a.avi")


def test_clips_come_back_from_their_folder_in_order(tmp_path: Path) -> None:
    kept = [videos.clip(f"<title> {number} ü", _frames(3 + number), note="note") for number in range(3)]
    videos.save(tmp_path / "clips", kept)
    assert videos.load(tmp_path / "clips") == kept
    (tmp_path / "clips" / videos.INDEX).unlink()
    found = videos.load(tmp_path / "clips")
    assert [each.data for each in found] == [each.data for each in kept]
    assert [each.title for each in found] == ["000", "001", "002"]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"file": "absent.gif"},
        {"file": "../000.gif", "mime": "text/html"},
        {"file": "../outside.gif"},
        {"width": "wide"},
    ],
)
def test_an_index_that_does_not_fit_is_refused(tmp_path: Path, row: dict) -> None:
    folder = tmp_path / "clips"
    (tmp_path / "outside.gif").write_bytes(b"secret")
    videos.save(folder, [videos.clip("title", _frames())])
    index = json.loads((folder / videos.INDEX).read_text())
    (folder / videos.INDEX).write_text(json.dumps([{**index[0], **row} if row else row]))
    with pytest.raises(DataError, match="no index of clips"):
        videos.load(folder)
