"""LpWM's ladder of predictors, from a linear map upwards: how much dynamics does a latent leave to predict?

With the latents z and the embedded action e of the newest frame, over a window of n <= C frames::

    lti        z_{t+1} = sum_i A_i z_{t-i} + B e_t                 A_0 starts as the identity, the rest at 0
    mlp_lti    z_{t+1} = W relu(sum_i A_i z_{t-i} + B e_t)
    mlp_ltv    the same with A_i(z) = A_i + U_i diag(sigmoid(G z_t)) V_i^T, of rank 16

each followed by the link that latents pass through. Above them stand `AdaLNPredictor` with one block and
with six. A shorter history leaves out the terms of the frames it lacks.

Source: Kuang et al., "LpWM", arXiv 2608.22764.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from worldplan.models.predictors import WindowPredictor
from worldplan.models.transformer import ActionEncoder

RUNGS = ("lti", "mlp_lti", "mlp_ltv")


class Rung(WindowPredictor):
    """One of the rungs below the transformers.

    Args:
        rung: one of `RUNGS`.
        context: C.
        latent_dim: D.
        action_dim: A.
        link: applied to what is predicted.
        rank: of the part that varies, for ``"mlp_ltv"``.
    """

    def __init__(
        self, rung: str, context: int, latent_dim: int, action_dim: int, link: nn.Module, rank: int = 16
    ) -> None:
        super().__init__(context)
        assert rung in RUNGS, rung
        self.link = link
        self.actions = ActionEncoder(action_dim, latent_dim)
        self.past = nn.ModuleList(nn.Linear(latent_dim, latent_dim, bias=False) for _ in range(context))
        self.control = nn.Linear(latent_dim, latent_dim, bias=False)
        self.out = None if rung == "lti" else nn.Linear(latent_dim, latent_dim)
        self.gate: nn.Linear | None = None
        if rung == "mlp_ltv":
            self.gate = nn.Linear(latent_dim, context * rank)
            self.inward = nn.Parameter(torch.randn(context, latent_dim, rank) / latent_dim**0.5)
            self.outward = nn.Parameter(torch.zeros(context, rank, latent_dim))
        if rung == "lti":
            for parameter in (*self.past.parameters(), *self.control.parameters()):
                nn.init.zeros_(parameter)
            nn.init.eye_(next(self.past.parameters()))

    def following(self, latents: Tensor, actions: Tensor) -> Tensor:
        """See `Predictor`."""
        known = latents.shape[1]
        assert known <= self.context, (known, self.context)
        newest_first = latents.flip(1)
        x: Tensor = self.control(self.actions(actions[:, -1:])[:, 0])
        for index, layer in zip(range(known), self.past, strict=False):
            x = x + layer(newest_first[:, index])
        if self.gate is not None:
            gates = self.gate(latents[:, -1]).sigmoid().unflatten(1, (self.context, -1))[:, :known]
            narrow = torch.einsum("bnd,ndr->bnr", newest_first, self.inward[:known])
            x = x + torch.einsum("bnr,nrd->bd", gates * narrow, self.outward[:known])
        if self.out is not None:
            x = self.out(x.relu())
        predicted: Tensor = self.link(x)
        return predicted
