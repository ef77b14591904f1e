"""What a latent passes through last: the identity, or a rectifier that makes codes sparse.

``RepReLU(u) = sg(ReLU(u)) + GELU(u) - sg(GELU(u))``: the values of ReLU, with exact zeros, and the
gradient of GELU, so that a unit that is off can come back.

Source: Kuang et al., "Rectified LpJEPA", arXiv 2602.01456, and "LpWM", arXiv 2608.22764.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

LINKS = ("identity", "reprelu")


class RepReLU(nn.Module):
    """ReLU forward, GELU backward; element-wise."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``[...]`` to ``[...]``."""
        smooth = functional.gelu(x)
        # in this order the two smooth values cancel to exactly zero
        return functional.relu(x).detach() + (smooth - smooth.detach())


def link(name: str) -> nn.Module:
    """The link of that name, one of `LINKS`."""
    assert name in LINKS, name
    return RepReLU() if name == "reprelu" else nn.Identity()
