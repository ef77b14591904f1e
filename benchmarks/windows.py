"""Windows per second from disk: the decoded cache, the file itself, and plain h5py.

Random batches of windows of 64 x 64 frames, the same windows for every reader, readers taking turns.
The frames are a moving T-like shape on a plain ground, which compresses about as rendered
Push-T does.

    python -m benchmarks.windows [--quick] [--out benchmarks/results/windows.json]
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from benchmarks import record
from worldplan.data.native import Dataset, write
from worldplan.data.windows import Windows
from worldplan.types import Array, Episode

STEPS, FRAME_SKIP = 4, 5
Reader = Callable[[Array], Any]


def frames(rng: np.random.Generator, length: int, size: int = 64) -> Array:
    """A block and a disc that wander, ``uint8 [length, size, size, 3]``."""
    pixels = np.full((length, size, size, 3), 245, np.uint8)
    rows, columns = np.mgrid[:size, :size]
    places = np.cumsum(rng.normal(0, 1.5, (length, 2, 2)), 0) + rng.uniform(20, 44, (2, 2))
    for frame, ((by, bx), (dy, dx)) in zip(pixels, places % size, strict=True):
        bar = (abs(rows - by) < 4) & (abs(columns - bx) < 12)
        stem = (abs(columns - bx) < 3) & (rows > by) & (rows < by + 16)
        frame[bar | stem] = (119, 136, 153)
        distance = np.hypot(rows - dy, columns - dx)
        edge = np.clip(4 - distance, 0, 1)[..., None]
        frame[:] = frame * (1 - edge) + edge * np.array((65, 105, 225))
    return pixels


def episodes(count: int, length: int) -> Iterator[Episode]:
    """Synthetic episodes of `length` frames."""
    rng = np.random.default_rng(0)
    for number in range(count):
        yield Episode(
            obs={"pixels": frames(rng, length), "state": rng.normal(size=(length, 7)).astype(np.float32)},
            actions=rng.normal(size=(length - 1, 2)).astype(np.float32),
            rewards=np.zeros(length - 1, np.float32),
            terminated=False,
            truncated=True,
            meta={"source": "real", "env": "synthetic", "seed": number},
        )


def plain_rows(file: h5py.File, windows: Windows) -> Reader:
    """By hand, the fast way: row by row."""

    def read(indices: Array) -> int:
        starts = first_rows(windows, indices)
        rows = (starts[:, None] + np.arange(STEPS) * FRAME_SKIP).reshape(-1).tolist()
        pixels, action = file["pixels"], file["action"]
        images = np.stack([pixels[row] for row in rows]).reshape(len(starts), STEPS, *pixels.shape[1:])
        torch.from_numpy(np.stack([action[row : row + (STEPS - 1) * FRAME_SKIP] for row in starts.tolist()]))
        return len(torch.from_numpy(images).movedim(-1, -3))

    return read


def plain_spans(file: h5py.File, windows: Windows) -> Reader:
    """By hand, as common loaders do: the whole span, then every k-th frame of it."""

    def read(indices: Array) -> int:
        starts, span = first_rows(windows, indices).tolist(), (STEPS - 1) * FRAME_SKIP
        pixels, action = file["pixels"], file["action"]
        images = np.stack([pixels[row : row + span + 1][::FRAME_SKIP] for row in starts])
        torch.from_numpy(np.stack([action[row : row + span] for row in starts]))
        return len(torch.from_numpy(images).movedim(-1, -3))

    return read


def first_rows(windows: Windows, indices: Array) -> Array:
    """Row of the file where each window starts."""
    episode, step = windows.locate(indices)
    rows: Array = windows.dataset.offsets[episode] + step
    return rows


def measure(dataset: Dataset, batch_size: int, rounds: int) -> tuple[list[dict[str, Any]], float]:
    """Windows per second of each reader over interleaved rounds; seconds to decode the cache once."""
    options: dict[str, Any] = {"steps": STEPS, "frame_skip": FRAME_SKIP, "keys": ("pixels",)}
    started = time.perf_counter()
    cached, uncached = Windows(dataset, cache=True, **options), Windows(dataset, **options)
    cached.batch(np.arange(1))
    decode_seconds = time.perf_counter() - started
    sampler = cached.sampler(batch_size, seed=0)
    with h5py.File(dataset.path, "r") as file:
        readers: dict[str, Reader] = {
            "Windows, cached": cached.batch,
            "Windows, from the file": uncached.batch,
            "plain h5py, row by row": plain_rows(file, cached),
            "plain h5py, whole spans": plain_spans(file, cached),
        }
        first = cached.batch(sampler.indices(0))
        assert torch.equal(first.obs["pixels"], uncached.batch(sampler.indices(0)).obs["pixels"])
        rates: dict[str, list[float]] = {name: [] for name in readers}
        for number in range(rounds + 1):  # round 0 warms up
            for name, read in readers.items():
                repeats = 10 if name == "Windows, cached" else 1
                begun = time.perf_counter()
                for repeat in range(repeats):
                    read(sampler.indices(number * 10 + repeat))
                rates[name].append(batch_size * repeats / (time.perf_counter() - begun))
    plain = statistics.median(rates["plain h5py, row by row"][1:])
    gigabytes = STEPS * 64 * 64 * 3 / 1e9
    cases = [
        record.case(
            name,
            rounds,
            windows_per_second=record.quartiles(values[1:]),
            times_plain_row_by_row=record.digits(statistics.median(values[1:]) / plain, 3),
            gigabytes_per_second=record.quartiles([value * gigabytes for value in values[1:]]),
        )
        for name, values in rates.items()
    ]
    return cases, decode_seconds


def copy_rates(repeats: int) -> list[float]:
    """Gigabytes per second of copying frames at random within memory: the bound for any reader."""
    source = np.ones((20_000, 64 * 64 * 3), np.uint8)
    rows = np.random.default_rng(0).permutation(len(source))[:2048]
    rates = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        np.take(source, rows, axis=0)
        rates.append(len(rows) * source.shape[1] / 1e9 / (time.perf_counter() - begun))
    return rates[1:]


def main(argv: Sequence[str] | None = None) -> None:
    """Writes synthetic data, measures, prints and saves."""
    parser = record.parser(__doc__)
    parser.add_argument("--episodes", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.episodes, arguments.batch_size, arguments.rounds = 4, 16, 3
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        dataset = write(Path(folder) / "data.h5", episodes(arguments.episodes, 101))
        write_seconds = time.perf_counter() - started
        cases, decode_seconds = measure(dataset, arguments.batch_size, arguments.rounds)
        copied = record.quartiles(copy_rates(arguments.rounds))
        cases.append(
            record.case("frames copied within memory", arguments.rounds, gigabytes_per_second=copied)
        )
        setting = {
            "frames": dataset.num_rows,
            "image": [64, 64, 3],
            "steps": STEPS,
            "frame_skip": FRAME_SKIP,
            "batch_size": arguments.batch_size,
            "file_megabytes": round(dataset.path.stat().st_size / 1e6, 1),
            "seconds_to_make_and_write": round(write_seconds, 1),
            "seconds_to_decode_the_cache_once": round(decode_seconds, 2),
            "h5py": h5py.__version__,
        }
        dataset.close()
    record.finish("windows", arguments, setting, cases)


if __name__ == "__main__":
    main()
