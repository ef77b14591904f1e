"""A summary of a data file: episodes, columns with their ranges, what each key means, faults."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from worldplan.data import layout
from worldplan.data.check import check, sample_rows
from worldplan.data.native import Dataset

NOTES = {
    "pixels": "camera frames, uint8 [h, w, 3]",
    "state": "simulator state; enough to set the simulator exactly",
    "proprio": "what the robot senses of itself",
    "observation": "the environment's own observation vector",
    "qpos": "joint positions",
    "qvel": "joint velocities",
    "action": "row t led from row t to row t+1; no action follows an episode's last row",
    "reward": "on the row reached; an episode's first row has none",
    "terminated": "True on the row where the task ended the episode",
    "truncated": "True on the row where something else did, e.g. a time limit",
    "success": "1 on the last row of a success; -1 where it is not known",
    "step_idx": "0, 1, ... within the episode",
    "episode_idx": "number of the episode",
    "ep_idx": "number of the episode",
}
_READ_BYTES = 1 << 30


def inspect(dataset: Dataset) -> dict[str, Any]:
    """Summarises a file as JSON-like values.

    All rows of vectors are read; images are sampled.

    Returns:
        ``path, bytes, writer, episodes, rows, transitions, lengths, source, attrs, columns, faults``. Each
        column has ``dtype, shape, note`` and, where it has numbers, ``min, max, nan_rows`` and
        ``sampled`` (whether those are from a sample).
    """
    lengths = dataset.lengths
    sources: dict[str, int] = {}
    for number in range(len(dataset)):
        source = str(dataset.meta(number)["source"])
        sources[source] = sources.get(source, 0) + 1
    return {
        "path": str(dataset.path),
        "bytes": dataset.path.stat().st_size,
        "writer": "worldplan" if dataset.attrs else "unknown (stable-worldmodel layout)",
        "episodes": len(dataset),
        "rows": dataset.num_rows,
        "transitions": int((lengths - 1).sum()),
        "lengths": {
            "min": int(lengths.min()),
            "median": float(np.median(lengths)),
            "mean": float(lengths.mean()),
            "max": int(lengths.max()),
        },
        "source": sources,
        "attrs": dict(dataset.attrs),
        "columns": {key: _column(dataset, key) for key in dataset.columns},
        "faults": [asdict(fault) for fault in check(dataset)],
    }


def _column(dataset: Dataset, key: str) -> dict[str, Any]:
    column = dataset.columns[key]
    about: dict[str, Any] = {
        "dtype": "text" if column.text else str(column.dtype),
        "shape": list(column.shape),
        "note": NOTES.get(key.rpartition("/")[2] if key.startswith("goal/") else key, ""),
    }
    if key.startswith("goal/"):
        about["note"] = f"the goal's {about['note'] or key}"
    if column.text:
        first = dataset.array(key, slice(0, 1)).reshape(-1)
        return {**about, "first": str(first[0]) if len(first) else ""}
    sampled = len(column.shape) > 1 or column.row_bytes * dataset.num_rows > _READ_BYTES
    values = dataset.array(key, sample_rows(dataset) if sampled else None)
    bad = layout.not_finite(values)
    finite = values[~bad]
    low, high = (finite.min().item(), finite.max().item()) if finite.size else (None, None)
    return {**about, "min": low, "max": high, "nan_rows": int(bad.sum()), "sampled": sampled}
