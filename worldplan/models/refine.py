"""More training for a predictor alone, on latents that are computed once.

Most of what a training step of a world model costs is its encoder. Once the latents hold what they
should, the encoder can rest: every frame is embedded once, and the predictor goes on learning from
stored latents, at a hundredth of the cost and on much larger batches. The latents cannot collapse, so
no regulariser is needed:

    L = mean_h || z_hat_{t+h} - z_{t+h} ||^2,  h = 1 ... H

with every prediction but the first made from predictions, as planning makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from worldplan.errors import DataError, UsageError
from worldplan.normalize import Normalizer
from worldplan.protocol import ModelSpec
from worldplan.seeding import Noise
from worldplan.types import Array, Batch, Obs

LATENT = "latent"


class Embeds(Protocol):
    """What `embedded` asks of a model."""

    training: bool

    def parameters(self) -> Iterator[nn.Parameter]:
        """Its weights, whose device is that of the frames."""
        ...

    def embed(self, obs: Obs) -> Tensor:
        """Latents ``[B, D]`` of an observation without a time axis."""
        ...


class HasPredictor(Embeds, Protocol):
    """What `PredictorTraining` asks of a model."""

    spec: ModelSpec
    normalizer: Normalizer
    predictor: nn.Module

    def forecast(self, latents: Tensor, past: Tensor, actions: Tensor, steps: Sequence[int]) -> list[Tensor]:
        """Latents ``[B, D]`` after some of H steps, from ``[B, n, D]`` and the actions between and after."""
        ...


class PredictorTraining(nn.Module):
    """Trains the predictor of a model whose latents stay as they are; a `Trainable`.

    Batches hold latents ``[B, F, D]`` under ``"latent"``, as `embedded` computes them. Every other
    step begins from one true latent, as planning does, the steps between from 2 ... C.

    Only the predictor is a submodule: the rest of the model keeps its weights and its mode.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: HasPredictor) -> None:
        super().__init__()
        self.predictor = model.predictor
        self._model = [model]  # in a list, where PyTorch does not look for submodules

    def loss(self, batch: Batch, noise: Noise, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of what is predicted from the first latents of each window.

        Raises:
            DataError: the batch has no latents.
        """
        if LATENT not in batch.obs:
            raise DataError(
                "the predictor has nothing to learn from",
                expected=f"{LATENT} [B, F, D] in every batch",
                found=", ".join(sorted(batch.obs)),
                fix='dataset.with_columns({"latent": embedded(model, ...)}), and windows of the key "latent"',
            )
        latents, actions = batch.obs[LATENT], self._model[0].normalizer.normalize(batch.actions)
        known = self.known(step, latents.shape[1] - 1)
        ahead = range(1, latents.shape[1] - known + 1)
        past, future = actions[:, : known - 1], actions[:, known - 1 :]
        path = self._model[0].forecast(latents[:, :known], past, future, ahead)
        error = (torch.stack(path, 1).float() - latents[:, known:]).square().mean(-1)  # [B, F-known]
        real = batch.mask[:, known - 1 :]
        loss = torch.where(real, error, 0.0).sum() / real.sum().clamp(min=1)
        return loss, {"prediction": loss.detach()}

    def known(self, step: int, future: int) -> int:
        """How many true latents the predictions of a training step begin from."""
        most = min(self._model[0].spec.context, future)
        if step % 2 == 0 or most == 1:
            return 1
        return 2 + (step // 2) % (most - 1)

    def after_step(self) -> None:
        """Nothing to do."""


def embedded(
    model: Embeds,
    read: Callable[[slice], Mapping[str, Array]],
    rows: int,
    *,
    rows_per_call: int = 256,
    progress: Callable[[int, int], None] | None = None,
) -> Array:
    """The latents of many frames, a block at a time.

    Args:
        model: in evaluation mode.
        read: gives the observations of some rows as they are stored, images ``[n, h, w, 3]``.
        rows: how many there are.
        rows_per_call: of a block.
        progress: told how many are done, and of how many.

    Returns:
        float32 ``[rows, D]``.

    Raises:
        UsageError: the model is in training mode.
    """
    if model.training:
        raise UsageError(
            "latents are computed by a model in training mode",
            expected="latents that do not depend on the batch",
            found="model.training is True",
            fix="model.eval()",
        )
    device = next(model.parameters(), torch.empty(0)).device
    parts = []
    with torch.inference_mode():
        for first in range(0, rows, rows_per_call):
            block = read(slice(first, min(first + rows_per_call, rows)))
            obs = {key: _tensor(values, device) for key, values in block.items()}
            parts.append(model.embed(obs).float().cpu().numpy())
            if progress is not None:
                progress(min(first + rows_per_call, rows), rows)
    return np.concatenate(parts)


def _tensor(values: Array, device: torch.device) -> Tensor:
    given = torch.from_numpy(np.array(values)).to(device)
    is_image = given.dtype == torch.uint8 and given.ndim == 4
    return given.movedim(-1, 1) if is_image else given
