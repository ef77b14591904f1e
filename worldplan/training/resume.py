"""The state of a training in one file: safetensors, with everything that is no tensor as JSON inside.

A file is written beside its place and then moved there, so it is whole or absent; reading one never
unpickles anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from worldplan.errors import CheckpointError, DataError

VERSION = 1
_JSON = "worldplan"


def save_state(
    path: Path,
    facts: Mapping[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    average: nn.Module | None = None,
) -> None:
    """Writes a training state, atomically.

    Args:
        path: the file, e.g. ``last.safetensors``.
        facts: plain values: step, seconds, configuration, best score.
        model: the model.
        optimizer: its moments, or None to save weights only.
        average: averaged weights, or None.

    Raises:
        DataError: the file cannot be written.
    """
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    if average is not None:
        tensors |= {f"average.{key}": value for key, value in average.state_dict().items()}
    if optimizer is not None:
        for index, entries in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in entries.items()}
    # tied weights share memory, which the format refuses: each name gets a copy of its own
    whole = {
        key: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for key, value in tensors.items()
    }
    text = json.dumps({"version": VERSION, **facts}, allow_nan=False)
    with _replacing(path) as partial:
        save_file(whole, partial, metadata={_JSON: text})


def require_writable(folder: Path) -> None:
    """Makes the folder and finds out now, not after hours of training, whether files fit into it.

    Raises:
        DataError: they do not.
    """
    probe = folder / ".writable"
    with _replacing(probe) as partial:
        partial.write_bytes(b"")
    probe.unlink()


def load_facts(path: Path) -> dict[str, Any]:
    """The plain values of a training state.

    Raises:
        CheckpointError: there is no such file, or it is none of ours.
    """
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_JSON)
    except FileNotFoundError as error:
        raise CheckpointError(
            "there is no training to resume",
            expected=str(path),
            found="nothing",
            fix="start without resume, or name the folder of the interrupted run",
        ) from error
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read", found=str(error)) from error
    facts = json.loads(text) if text else {}
    if facts.get("version") != VERSION:
        raise CheckpointError(
            f"{path} is no training state of this version",
            expected=f"version {VERSION}",
            found=f"version {facts.get('version')}",
        )
    return dict(facts)


def load_state(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    average: nn.Module | None = None,
) -> dict[str, Any]:
    """Reads a training state into existing objects, in place, and returns its plain values.

    Raises:
        CheckpointError: the file is missing or does not fit the objects.
    """
    facts = load_facts(path)
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    _load_module(model, _part(tensors, "model."), path)
    if average is not None:
        _load_module(average, _part(tensors, "average."), path)
    if optimizer is not None:
        _load_optimizer(optimizer, _part(tensors, "optimizer."))
    return facts


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of `path` once it is whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"the training state cannot be written to {path.parent}",
            found=str(error),
            fix="choose a folder on a disk with space and write permission",
        ) from error


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _load_module(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(
            f"{path} does not fit {type(module).__name__}",
            found=str(error),
            fix="resume with the configuration the training was started with",
        ) from error


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        like = parameters[int(index)]
        # moments keep the memory layout of their parameter, as in the run that was interrupted
        if key != "step":
            value = torch.empty_like(like, dtype=value.dtype, device="cpu").copy_(value)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
