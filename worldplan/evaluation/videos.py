"""Videos: frames side by side with captions, as MP4 or GIF, in memory or in a file.

MP4 is H.264 with yuv420p and even sizes, which every browser plays; GIF is what remains where ffmpeg
is absent. The same frames give the same bytes.
"""

from __future__ import annotations

import base64
import io
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from worldplan.errors import DataError, MissingExtra, UsageError, require
from worldplan.evaluation import files
from worldplan.types import Array

MIMES = {".mp4": "video/mp4", ".gif": "image/gif", ".png": "image/png"}
INDEX = "clips.json"
_INDEXED: dict[str, type] = {"title": str, "mime": str, "width": int, "height": int, "note": str}
_PAPER, _INK = 255, (40, 40, 40)
_GAP = 6


@dataclass(frozen=True)
class Clip:
    """A video or picture that a report carries inside itself.

    Attributes:
        title: one line above it.
        data: the file.
        mime: ``"video/mp4"``, ``"image/gif"`` or ``"image/png"``.
        width: pixels.
        height: pixels.
        note: one line below it.
    """

    title: str
    data: bytes
    mime: str
    width: int
    height: int
    note: str = ""

    @property
    def uri(self) -> str:
        """The file as a ``data:`` address."""
        return f"data:{self.mime};base64,{base64.b64encode(self.data).decode('ascii')}"


def clip(title: str, frames: Array, *, fps: float = 10, note: str = "") -> Clip:
    """Encodes frames for a report: MP4, or GIF where the extra ``video`` is not installed.

    Args:
        title: one line above the video.
        frames: ``uint8 [T, h, w, 3]``.
        fps: frames per second.
        note: one line below it.
    """
    checked = _even(_checked(frames))
    try:
        data, suffix = encode(checked, ".mp4", fps=fps), ".mp4"
    except MissingExtra:
        data, suffix = encode(checked, ".gif", fps=fps), ".gif"
    return Clip(title, data, MIMES[suffix], checked.shape[2], checked.shape[1], note)


def read(path: str | os.PathLike[str], title: str = "", note: str = "") -> Clip:
    """A clip from a ``.mp4``, ``.gif`` or ``.png`` file, for a report.

    Raises:
        DataError: the file is absent, of another kind, or does not open.
        MissingExtra: ``.mp4`` without the extra ``video``.
    """
    source = Path(path)
    suffix = source.suffix.lower()
    if suffix not in MIMES:
        raise DataError(f"{source} is no clip", expected=" or ".join(MIMES), found=repr(suffix))
    ffmpeg: Any = require("imageio_ffmpeg", "video") if suffix == ".mp4" else None
    images: Any = require("PIL.Image", "report")
    try:
        if suffix == ".mp4":
            reader = ffmpeg.read_frames(str(source))
            width, height = next(reader)["size"]
            reader.close()
        else:
            with images.open(source) as image:
                width, height = image.size
        return Clip(title or source.stem, source.read_bytes(), MIMES[suffix], width, height, note)
    except (OSError, StopIteration, ValueError) as error:
        raise DataError(f"{source} cannot be read", found=str(error).strip().split("\n")[-1]) from error


def save(folder: str | os.PathLike[str], clips: Sequence[Clip]) -> None:
    """Writes clips as files that any player opens, in order, and an index of what a report says of them."""
    index = []
    for number, each in enumerate(clips):
        suffix = next(suffix for suffix, mime in MIMES.items() if mime == each.mime)
        name = f"{number:03d}{suffix}"
        files.write_bytes(Path(folder) / name, each.data)
        index.append({"file": name, **{key: getattr(each, key) for key in _INDEXED}})
    files.write_text(Path(folder) / INDEX, files.dumps(index, indent=2) + "\n")


def load(folder: str | os.PathLike[str]) -> list[Clip]:
    """Clips that `save` wrote, in order; without an index, every clip of the folder by name.

    Raises:
        DataError: the index or a file cannot be read.
        MissingExtra: ``.mp4`` without an index and without the extra ``video``.
    """
    source = Path(folder)
    if not (source / INDEX).is_file():
        return [read(path) for path in sorted(source.iterdir()) if path.suffix.lower() in MIMES]
    try:
        rows = json.loads(files.read_text(source / INDEX))
        # a name without its folders: an index never leads out of its own
        paths = [source / Path(str(row["file"])).name for row in rows]
        facts = [{key: kind(row[key]) for key, kind in _INDEXED.items()} for row in rows]
        if strange := {each["mime"] for each in facts} - set(MIMES.values()):
            raise ValueError(f"{strange} is no kind of clip")
        return [Clip(data=path.read_bytes(), **each) for path, each in zip(paths, facts, strict=True)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{source / INDEX} is no index of clips",
            expected="a list of objects with file, " + ", ".join(_INDEXED),
            found=f"{type(error).__name__}: {error}",
            fix="delete it, and the clips are taken by name",
        ) from error


def write(path: str | os.PathLike[str], frames: Array, *, fps: float = 10) -> Path:
    """Writes a whole ``.mp4`` or ``.gif``.

    Args:
        path: its suffix chooses the format.
        frames: ``uint8 [T, h, w, 3]``; odd sizes gain a row or column, as H.264 needs.
        fps: frames per second.

    Raises:
        MissingExtra: ``.mp4`` without the extra ``video``.
        UsageError: another suffix, or something that is not frames.
    """
    return files.write_bytes(path, encode(frames, Path(path).suffix.lower(), fps=fps))


def encode(frames: Array, suffix: str = ".mp4", *, fps: float = 10) -> bytes:
    """The bytes of a video of ``uint8 [T, h, w, 3]`` frames; see `write`."""
    if suffix not in (".mp4", ".gif"):
        raise UsageError("unknown video format", expected=".mp4 or .gif", found=repr(suffix))
    if not 0 < fps <= 1000:
        raise UsageError("not a frame rate", expected="frames per second above 0", found=str(fps))
    even = _even(_checked(frames))
    return _mp4(even, fps) if suffix == ".mp4" else _gif(even, fps)


def side_by_side(
    panels: Sequence[tuple[str, Array]],
    *,
    height: int = 256,
    steps: Sequence[str] | None = None,
) -> Array:
    """Frames of several sequences beside each other, with a caption over each.

    Args:
        panels: caption and frames ``uint8 [T, h, w, 3]``, or one frame ``[h, w, 3]`` that stays, e.g.
            ``[("simulator", ...), ("prediction", ...), ("goal", ...)]``. Shorter sequences hold their
            last frame.
        height: each panel is enlarged by a whole factor, without smoothing, to about this many pixels.
        steps: a line under the panels for each frame; None counts them.

    Returns:
        ``uint8 [T, H, W, 3]``, sizes even.
    """
    if not panels:
        raise UsageError("there is nothing to show", expected="at least one caption with frames")
    sequences = [_checked(frames[None] if frames.ndim == 3 else frames, name) for name, frames in panels]
    length = max(len(frames) for frames in sequences)
    grown = [_enlarge(frames, height) for frames in sequences]
    tallest = max(frames.shape[1] for frames in grown)
    line = 26
    columns = []
    for (name, _), frames in zip(panels, grown, strict=True):
        caption = _text(name, frames.shape[2], line)
        held = frames[np.minimum(np.arange(length), len(frames) - 1)]
        below = tallest - frames.shape[1]
        body = np.pad(held, ((0, 0), (0, below), (0, 0), (0, 0)), constant_values=_PAPER)
        top = np.broadcast_to(caption, (length, *caption.shape))
        columns.append(np.concatenate((top, body), 1))
    gap = np.full((length, tallest + line, _GAP, 3), _PAPER, np.uint8)
    picture = np.concatenate([part for column in columns for part in (column, gap)][:-1], 2)
    labels = steps if steps is not None else [f"step {step}" for step in range(length)]
    if len(labels) != length:
        raise UsageError("each frame needs its line", expected=f"{length} lines", found=str(len(labels)))
    foot = np.stack([_text(label, picture.shape[2], line) for label in labels])
    return _even(np.concatenate((picture, foot), 1))


def _checked(frames: Array, name: str = "frames") -> Array:
    frames = np.asarray(frames)
    if frames.ndim != 4 or frames.shape[-1] != 3 or not frames.size or frames.dtype != np.uint8:
        raise UsageError(
            f"{name} cannot be made into a video",
            expected="uint8 [T, height, width, 3] with T of at least 1",
            found=f"{frames.dtype} {list(frames.shape)}",
        )
    return frames


def _even(frames: Array) -> Array:
    odd_height, odd_width = frames.shape[1] % 2, frames.shape[2] % 2
    return np.pad(frames, ((0, 0), (0, odd_height), (0, odd_width), (0, 0)), mode="edge")


def _enlarge(frames: Array, height: int) -> Array:
    factor = max(1, round(height / frames.shape[1]))
    grown: Array = frames.repeat(factor, 1).repeat(factor, 2)
    return grown


def _text(text: str, width: int, height: int) -> Array:
    drawing: Any = require("PIL.ImageDraw", "report")
    images: Any = require("PIL.Image", "report")
    fonts: Any = require("PIL.ImageFont", "report")
    image = images.new("RGB", (width, height), (_PAPER,) * 3)
    font = fonts.load_default(14)
    pen = drawing.Draw(image)
    # a caption that is too wide loses its middle, where names differ least
    shown = text
    while shown and pen.textlength(shown, font=font) > width - 8:
        keep = (len(shown.replace("…", "")) - 1) // 2
        shown = f"{text[:keep]}…{text[len(text) - keep :]}" if keep > 0 else ""
    pen.text((4, height / 2), shown, fill=_INK, font=font, anchor="lm")
    return np.asarray(image)


def _mp4(frames: Array, fps: float) -> bytes:
    ffmpeg: Any = require("imageio_ffmpeg", "video")
    height, width = frames.shape[1:3]
    with tempfile.TemporaryDirectory(prefix="worldplan-") as folder:
        path = Path(folder) / "video.mp4"
        writer = ffmpeg.write_frames(
            str(path),
            (width, height),
            fps=fps,
            codec="libx264",
            pix_fmt_out="yuv420p",
            macro_block_size=2,
            quality=None,
            ffmpeg_log_level="error",
            # one thread and no time stamp: the same frames give the same bytes
            output_params=["-crf", "18", "-movflags", "+faststart", "-threads", "1", "-fflags", "+bitexact"],
        )
        try:
            writer.send(None)
            for frame in frames:
                writer.send(np.ascontiguousarray(frame))
        finally:
            writer.close()
        return path.read_bytes()


def _gif(frames: Array, fps: float) -> bytes:
    images: Any = require("PIL.Image", "report")
    pictures = [images.fromarray(frame) for frame in frames]
    buffer = io.BytesIO()
    pictures[0].save(
        buffer, "GIF", save_all=True, append_images=pictures[1:], duration=max(20, round(1000 / fps)), loop=0
    )
    return buffer.getvalue()
