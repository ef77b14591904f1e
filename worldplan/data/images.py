"""Area resizing: each new pixel is the mean of the area it covers.

``new = round(Wh @ old @ Ww^T)`` per channel, where row i of ``W [n, m]`` holds the share of old
pixel j in the interval ``[i, i+1) * m/n``.
"""

from __future__ import annotations

import functools

import numpy as np

from worldplan.types import Array


def resize(frames: Array, size: int) -> Array:
    """Resizes ``uint8 [M, h, w, c]`` frames to ``uint8 [M, size, size, c]``."""
    count, height, width, channels = frames.shape
    if height == width == size:
        return frames
    rows, columns = _shares(size, height), _shares(size, width)
    small = np.empty((count, size, size, channels), np.uint8)
    for number, frame in enumerate(frames):
        halfway = rows @ frame.reshape(height, width * channels).astype(np.float32)
        halfway = halfway.reshape(size, width, channels)
        small[number] = np.rint(columns @ halfway).clip(0, 255)
    return small


@functools.lru_cache(maxsize=16)
def _shares(new: int, old: int) -> Array:
    edges = np.arange(new + 1) * (old / new)
    pixels = np.arange(old)
    low, high = edges[:-1, None], edges[1:, None]
    overlap = np.minimum(high, pixels + 1) - np.maximum(low, pixels)
    shares: Array = (np.clip(overlap, 0, None) * (new / old)).astype(np.float32)
    return shares
