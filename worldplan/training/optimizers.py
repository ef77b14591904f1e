"""AdamW, its settings, and the learning rate of a step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from worldplan.errors import ConfigError


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter, ICLR 2019); LeWM's values by default.

    Attributes:
        lr: peak learning rate.
        weight_decay: per step, times the learning rate.
        betas: decay of the first and second moment.
        eps: added to the root of the second moment.
        decay_vectors: whether biases, gains and other tensors of fewer than two axes decay too.
    """

    lr: float = 5e-5
    weight_decay: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    decay_vectors: bool = True

    def build(self, model: nn.Module) -> torch.optim.AdamW:
        """The optimiser of all parameters of `model` that ask for a gradient."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not trained:
            raise ConfigError(
                f"{type(model).__name__} has nothing to train",
                expected="at least one parameter that requires a gradient",
                found="none",
            )
        matrices = [p for p in trained if p.ndim >= 2 or self.decay_vectors]
        vectors = [p for p in trained if p.ndim < 2 and not self.decay_vectors]
        groups = [
            {"params": matrices, "weight_decay": self.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=self.lr, betas=self.betas, eps=self.eps
        )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Gives every parameter group the learning rate of this step."""
    for group in optimizer.param_groups:
        group["lr"] = rate
