"""Between Gymnasium's observations and `Obs`: the one place where an image changes its layout.

Environments speak NumPy with images ``uint8 [..., h, w, 3]``; models and policies speak tensors with
images ``uint8 [..., 3, h, w]`` and vectors in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from worldplan.errors import UsageError
from worldplan.types import Array

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def to_obs(observation: Mapping[str, Array], device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Copies a batched observation into tensors.

    Args:
        observation: entries ``[B, ...]``; ``uint8 [B, ..., h, w, c]`` with c of 1 or 3 is an image.
        device: where the tensors go.

    Returns:
        Images ``uint8 [B, ..., c, h, w]``, floating vectors as float32, integers and booleans as
        they are.

    Raises:
        UsageError: an entry is not numeric.
    """
    return {key: _tensor(key, np.asarray(value), device) for key, value in observation.items()}


def to_arrays(obs: Mapping[str, Tensor]) -> dict[str, Array]:
    """Inverse of `to_obs`: tensors on any device to arrays, images back to ``[..., h, w, c]``."""
    arrays = {}
    for key, value in obs.items():
        array = value.detach().cpu().numpy()
        is_image = array.dtype == np.uint8 and array.ndim >= 4
        arrays[key] = np.ascontiguousarray(np.moveaxis(array, -3, -1)) if is_image else array
    return arrays


def _tensor(key: str, value: Array, device: torch.device | str) -> Tensor:
    import torch

    if value.dtype.kind not in "biuf":
        raise UsageError(
            f"observation {key!r} cannot become a tensor",
            expected="numbers",
            found=f"dtype {value.dtype}",
            fix="leave the key out of the environment's observation, or encode it as numbers",
        )
    if value.dtype == np.uint8 and value.ndim >= 4:
        if value.shape[-1] not in (1, 3):
            raise UsageError(
                f"observation {key!r} has an unknown image layout",
                expected="uint8 [..., height, width, 1 or 3]",
                found=f"uint8 {list(value.shape)}",
                fix="put the channels last, as Gymnasium does",
            )
        value = np.moveaxis(value, -1, -3)
    if value.dtype.kind == "f":
        value = value.astype(np.float32, copy=False)
    # the copy keeps an environment that reuses its buffers from changing what a policy remembers
    return torch.from_numpy(np.array(value, order="C")).to(device)
