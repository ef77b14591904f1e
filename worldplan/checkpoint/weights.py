"""Between the state of a module and ``model.safetensors``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worldplan.checkpoint.folder import CONFIG, WEIGHTS
from worldplan.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_SHOWN = 5  # differing tensors a message lists


def unwrapped(module: nn.Module) -> Any:
    """The module itself, where ``torch.compile`` put another around it."""
    return getattr(module, "_orig_mod", module)


def as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """The dtype of that name; raises `ConfigError` for one that weights are not stored in."""
    import torch

    known = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if name not in known:
        raise ConfigError("weights are not stored in this dtype", expected=", ".join(known), found=name)
    return known[name]


def pack(module: nn.Module, dtype: torch.dtype | None) -> bytes:
    """The state of a module in the safetensors format.

    Raises:
        CheckpointError: the state holds something else than tensors, or `dtype` cannot hold it.
    """
    import torch
    from safetensors.torch import save

    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    tensors = {}
    for name, value in module.state_dict().items():
        if not isinstance(value, torch.Tensor):
            found = f"{name}: {type(value).__name__}"
            raise CheckpointError("the state of the module cannot be stored", expected="tensors", found=found)
        # tied weights share memory, which safetensors refuses: each name gets a copy
        stored = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        # buffers hold statistics, which half precision would round
        if dtype is not None and name in parameters and value.is_floating_point():
            stored = stored.to(dtype)
            if bool(stored.isinf().sum() > value.isinf().sum()):
                found = f"values up to {float(value.abs().max()):g}"
                raise CheckpointError(f"{name} does not fit {dtype}", found=found, fix="dtype=None")
        tensors[name] = stored
    return save(tensors, {"format": "pt"})


def unpack(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Tensor]:
    """Reads the weights of a checkpoint.

    Raises:
        CheckpointError: they cannot be read, or are not the ones the manifest describes.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    path = folder / WEIGHTS
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read", found=f"{error.strerror or error}") from error
    expected, found = str(manifest["weights"]["sha256"]), hashlib.sha256(data).hexdigest()
    if found != expected:
        raise CheckpointError(
            f"{path} does not hold the weights that {CONFIG} describes",
            expected=f"sha256 {expected[:12]}…",
            found=f"sha256 {found[:12]}…",
            fix="copy or download the whole folder again",
        )
    try:
        return load(data)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged: {error}", fix="copy or download it again") from error


def fill(module: nn.Module, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Copies the weights in, or says in a few lines where they differ from the architecture."""
    state = module.state_dict()
    lines = []
    for name in sorted({*state, *tensors}):
        expected = list(state[name].shape) if name in state else "nothing"
        found = list(tensors[name].shape) if name in tensors else "nothing"
        lines += [f"{name}: expected {expected}, found {found}"] if expected != found else []
    if lines:
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        raise CheckpointError(
            f"the weights in {folder} do not fit the architecture its {CONFIG} describes:\n    "
            + "\n    ".join([*lines[:_SHOWN], *more]),
            fix=f"the {CONFIG} and {WEIGHTS} of one and the same run",
        )
    module.load_state_dict(dict(tensors))
