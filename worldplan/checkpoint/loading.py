"""Loading a checkpoint, and reading what it says about itself."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from worldplan.checkpoint.folder import CARD, CONFIG, read
from worldplan.checkpoint.keys import class_of
from worldplan.checkpoint.sources import Hub, hub_convention, resolve
from worldplan.checkpoint.weights import fill, unpack
from worldplan.errors import CheckpointError
from worldplan.protocol import ModelSpec

if TYPE_CHECKING:
    import torch
    from torch import nn

Module = TypeVar("Module", bound="nn.Module")


def load(source: str | os.PathLike[str], *, device: torch.device | str = "cpu", **hub: Unpack[Hub]) -> Any:
    """Builds the module a checkpoint describes and fills in its weights.

    Args:
        source: a packaged name, a folder, or ``hf://user/repo[@revision][/folder]``.
        device: where the module goes.
        hub: ``revision``, ``cache_dir``, ``token``, ``local_files_only``, as on the hub.

    Returns:
        The module, in evaluation mode. PyTorch's global generator is left as it was.

    Raises:
        CheckpointError: there is no such checkpoint, or it is damaged, or not one for this version.
    """
    import torch

    folder = resolve(source, **hub)
    manifest = read(folder)
    tensors = unpack(folder, manifest)
    kind = class_of(manifest["key"], folder / CONFIG)
    spec = None if manifest["spec"] is None else ModelSpec.from_json(manifest["spec"])
    try:
        with torch.random.fork_rng(devices=[]):
            module: nn.Module = kind.from_config(manifest["config"], spec)
    except (TypeError, KeyError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
        raise CheckpointError(
            f"{folder / CONFIG} does not configure {manifest['key']!r}: {error}",
            expected=f"a configuration of {kind.__name__}",
            found=json.dumps(manifest["config"])[:300],
            fix="the version of worldplan that wrote it",
        ) from error
    fill(module, tensors, folder)
    return module.to(device).eval()


def from_pretrained(
    source: str | os.PathLike[str],
    kind: type[Module] | None = None,
    *,
    device: torch.device | str = "cpu",
    **hub: Unpack[Hub],
) -> Module:
    """Loads as `load` does, and looks for ``user/repo`` on the hub where no such folder exists.

    Args:
        source: a packaged name, a folder, ``user/repo``, or ``hf://user/repo[@revision][/folder]``.
        kind: class the module must be of; None takes any.
        device: where the module goes.
        hub: ``revision``, ``cache_dir``, ``token``, ``local_files_only``, as on the hub.

    Returns:
        The module, in evaluation mode.

    Raises:
        CheckpointError: as `load`, or the checkpoint holds something else than `kind`.
    """
    module: Module = load(hub_convention(source), device=device, **hub)
    if kind is not None and not isinstance(module, kind):
        found = type(module).__name__
        raise CheckpointError(f"{source} holds another model", expected=kind.__name__, found=found)
    return module


def describe(source: str | os.PathLike[str], **hub: Unpack[Hub]) -> dict[str, Any]:
    """What a checkpoint says about itself; its weights are not read.

    Returns:
        ``path, id, key, config, spec, protocol, training, result, weights, card``; ``id`` is the key
        with the first digits of the weights' hash and names this model in records.

    Raises:
        CheckpointError: as `load`.
    """
    folder = resolve(source, **hub)
    manifest = read(folder)
    card = folder / CARD
    facts = ("key", "config", "spec", "protocol", "training", "result", "weights")
    return {
        "path": str(folder),
        "id": f"{manifest['key']}-{str(manifest['weights']['sha256'])[:12]}",
        **{name: manifest[name] for name in facts},
        "card": card.read_text("utf-8", errors="replace") if card.is_file() else "",
    }
