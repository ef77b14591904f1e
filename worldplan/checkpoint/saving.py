"""Saving a checkpoint, and sharing one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worldplan.checkpoint.card import card_text
from worldplan.checkpoint.folder import CARD, CONFIG, FORMAT, VERSION, WEIGHTS, plain, read, write
from worldplan.checkpoint.keys import check_key, key_of
from worldplan.checkpoint.sources import ask_hub, resolve
from worldplan.checkpoint.weights import as_dtype, pack, unwrapped
from worldplan.errors import CheckpointError, ConfigError
from worldplan.protocol import EvalProtocol, ModelSpec

if TYPE_CHECKING:
    import torch
    from torch import nn


def save(
    folder: str | os.PathLike[str],
    module: nn.Module,
    *,
    key: str,
    config: Any,
    spec: ModelSpec | None = None,
    protocol: EvalProtocol | None = None,
    result: Any = None,
    training: Mapping[str, Any] | None = None,
    card: str = "",
    dtype: torch.dtype | str | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes a checkpoint folder, whole or not at all.

    Args:
        folder: where it goes; its parents are made.
        module: gives the weights.
        key: registered name of its class.
        config: a dataclass or mapping of plain values, handed to ``from_config`` at loading.
        spec: what the model is fed.
        protocol: how `result` was measured.
        result: the published numbers, estimates with their intervals.
        training: how it came about: ``command``, ``data``, ``seed`` and what else is worth keeping.
        card: prose that opens ``README.md``; the facts follow by themselves.
        dtype: precision in which parameters are stored, e.g. ``"float16"``; loading restores that of
            the class. Buffers, which hold statistics, keep their own. None stores all as they are.
        overwrite: replaces a checkpoint, and nothing else, that stands there.

    Returns:
        The folder.

    Raises:
        CheckpointError: the folder cannot be taken, a value is not JSON, or a tensor does not fit.
        ConfigError: the key or the dtype is unknown.
        RunError: the disk is full.
    """
    check_key(key)
    precision = as_dtype(dtype)
    facts = {"config": config, "spec": spec, "protocol": protocol, "training": training, "result": result}
    stored = {name: plain(value, name) for name, value in facts.items()}
    if not isinstance(stored["config"], dict):
        found = type(config).__name__
        raise CheckpointError("config cannot be stored", expected="a dataclass or a mapping", found=found)
    bare = unwrapped(module)
    weights = pack(bare, precision)
    about = {
        "bytes": len(weights),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "dtype": None if precision is None else str(precision).removeprefix("torch."),
        "parameters": sum(parameter.numel() for parameter in bare.parameters()),
    }
    manifest = {"format": FORMAT, "version": VERSION, "key": key, **stored, "weights": about}
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    files = {WEIGHTS: weights, CONFIG: text.encode(), CARD: card_text(manifest, card).encode()}
    return write(Path(folder), files, overwrite)


def save_pretrained(module: nn.Module, folder: str | os.PathLike[str], **facts: Any) -> Path:
    """Saves a module that knows its own ``config`` and, where it has one, its ``spec``.

    Args:
        module: of a registered class, with a ``config`` attribute.
        folder: where it goes.
        facts: what `save` takes besides: protocol, result, training, card, dtype, overwrite.

    Returns:
        The folder.

    Raises:
        ConfigError: the class is not registered or has no ``config``.
    """
    bare = unwrapped(module)
    key = key_of(bare)
    if not hasattr(bare, "config"):
        raise ConfigError(
            f"{type(bare).__name__} does not say how it was built",
            expected="an attribute `config`",
            fix="checkpoint.save(folder, module, key=..., config=...)",
        )
    return save(folder, bare, key=key, config=bare.config, spec=getattr(bare, "spec", None), **facts)


def push_to_hub(
    folder: str | os.PathLike[str],
    repo: str,
    *,
    private: bool = False,
    token: str | bool | None = None,
    revision: str | None = None,
    message: str = "Upload a worldplan checkpoint",
) -> str:
    """Uploads a checkpoint to ``user/repo``, which is made if need be, and returns its address.

    Raises:
        CheckpointError: the folder is not a checkpoint, or the hub refuses.
    """
    source = resolve(folder)
    read(source)

    def upload() -> str:
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        address = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repo,
            folder_path=source,
            revision=revision,
            commit_message=message,
            allow_patterns=[WEIGHTS, CONFIG, CARD],
        )
        return str(address)

    return ask_hub(upload, repo)
