"""Antialiased drawing with NumPy alone, for simulators that need no graphics library."""

from __future__ import annotations

import numpy as np

from worldplan.types import Array


def coverage(low: float, high: float, size: int, world: float) -> Array:
    """Share of each of `size` pixels that lies between `low` and `high`, float32 ``[size]``.

    Args:
        low: one end, in world units.
        high: the other end, in world units.
        size: pixels along the axis.
        world: length of the axis in world units.
    """
    edges = np.arange(size + 1) * (world / size)
    inside = np.clip(edges[1:], low, high) - np.clip(edges[:-1], low, high)
    return np.asarray(inside * (size / world), np.float32)


def paint_discs(frames: Array, centres: Array, radius: float, colour: tuple[int, int, int]) -> None:
    """Draws one soft-edged disc into each of ``frames [M, s, s, 3]`` (uint8), in place.

    A pixel at distance d from the centre is covered by ``clip(radius - d + 1/2, 0, 1)``.

    Args:
        frames: what is drawn into.
        centres: ``[M, 2]`` x and y in pixels; parts outside the frame are cut off.
        radius: pixels.
        colour: red, green and blue.
    """
    size, reach = frames.shape[1], int(np.ceil(radius)) + 1
    offsets = np.arange(-reach, reach + 1)
    nearest = np.floor(centres).astype(np.int64)
    columns, rows = (nearest[:, axis, None] + offsets for axis in (0, 1))  # [M, window]
    across, down = (np.square(p + 0.5 - centres[:, a, None]) for p, a in ((columns, 0), (rows, 1)))
    alpha = np.clip(radius + 0.5 - np.sqrt(down[:, :, None] + across[:, None, :]), 0, 1)
    alpha *= ((rows >= 0) & (rows < size))[:, :, None] & ((columns >= 0) & (columns < size))[:, None, :]
    frame, row, column = np.nonzero(alpha > 0)
    weight = alpha[frame, row, column][:, None]
    y, x = rows[frame, row], columns[frame, column]
    mixed = frames[frame, y, x] * (1 - weight) + np.asarray(colour) * weight
    frames[frame, y, x] = np.rint(mixed).astype(np.uint8)


def shrink(image: Array, height: int, width: int) -> Array:
    """Resizes ``uint8 [h, w, c]`` by the mean over the area of each new pixel."""

    def weights(old: int, new: int) -> Array:
        return (
            np.stack([coverage(i * old / new, (i + 1) * old / new, old, old) for i in range(new)]) * new / old
        )

    rows, columns = weights(image.shape[0], height), weights(image.shape[1], width)
    mean = np.einsum("ih,hwc->iwc", rows, image.astype(np.float32), optimize=True)
    mean = np.einsum("jw,iwc->ijc", columns, mean, optimize=True)
    return np.asarray(np.rint(np.clip(mean, 0, 255)), np.uint8)
