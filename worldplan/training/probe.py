"""What a latent knows: simulator state read off it by ridge regression on held-out frames.

With standardised latents X and targets Y of the training rows, ``W = (X'X + s n I)^-1 X'Y``, and
``R2 = 1 - sum (y - y_hat)^2 / sum (y - mean)^2`` on the test rows. An angle is read as its cosine and
sine, with one R2 over both, so that it does not jump at a full turn. A latent from which the block's
angle cannot be read plans and ranks badly whatever its loss says: watch this while training.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from worldplan.errors import DataError


def probe(
    latents: Tensor,
    states: Tensor,
    names: Sequence[str],
    angles: Sequence[str] = (),
    *,
    train: Tensor,
    test: Tensor,
    strength: float = 1e-3,
) -> dict[str, float | None]:
    """R2 of each state dimension, read linearly from a latent.

    Args:
        latents: ``[N, ...]``, flattened per row.
        states: ``[N, s]``.
        names: of the s dimensions.
        angles: those of them that are angles, in radians.
        train: rows to fit on, int64 or bool; take test rows from other episodes.
        test: rows to score on.
        strength: s, of the penalty, relative to the variance of a standardised feature.

    Returns:
        Name to R2, at most 1, negative where the mean would have been better, and None for a
        dimension that does not vary on the test rows.

    Raises:
        DataError: no rows to fit or score on, or values that are not finite.
    """
    features, targets = latents.detach().flatten(1).double(), states.detach().double()
    assert targets.shape == (len(features), len(names)), (targets.shape, features.shape, len(names))
    if not (features[train].shape[0] > 1 and features[test].shape[0] > 1):
        raise DataError("there are too few frames to probe a latent", expected="at least two on each side")
    if not (torch.isfinite(features).all() and torch.isfinite(targets).all()):
        raise DataError("a latent or state to probe is not finite")
    columns = [_columns(targets[:, i], name in angles) for i, name in enumerate(names)]
    truth = torch.cat(columns, 1)
    guess = _ridge(features[train], truth[train], features[test], strength)
    widths = [column.shape[1] for column in columns]
    scores: dict[str, float | None] = {}
    parts = zip(names, torch.split(truth[test], widths, 1), torch.split(guess, widths, 1), strict=True)
    for name, actual, read in parts:
        spread = (actual - actual.mean(0)).square().sum()
        scores[name] = None if spread < 1e-12 else float(1 - (actual - read).square().sum() / spread)
    return scores


def _columns(values: Tensor, is_angle: bool) -> Tensor:
    return torch.stack((values.cos(), values.sin()), 1) if is_angle else values[:, None]


def _ridge(features: Tensor, targets: Tensor, new: Tensor, strength: float) -> Tensor:
    mean, std = features.mean(0), features.std(0).clamp_min(1e-8)
    known = (features - mean) / std
    offset = targets.mean(0)
    count, dim = known.shape
    penalty = strength * count * torch.eye(dim, dtype=known.dtype, device=known.device)
    weights: Tensor = torch.linalg.solve(known.T @ known + penalty, known.T @ (targets - offset))
    return (new - mean) / std @ weights + offset
