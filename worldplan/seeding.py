"""Randomness as a function: a draw depends only on its seed, its names and its row.

`Noise` is counter-based. A key is hashed from (seed, names); a counter is made of (row id,
candidate id, element index); Philox4x32-10 turns both into random bits. So neither batch mates,
chunking nor the device change a draw, and a new consumer shifts nobody else's.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Name = str | int

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def derive(seed: int, *names: Name) -> int:
    """Hashes a seed and names into a new seed in ``[0, 2**63)``; needs no torch.

    A name is a word or an integer of any type: a step counted in NumPy names the same stream.
    """
    text = "\0".join([str(operator.index(seed)), *(_spelled(name) for name in names)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _spelled(name: Name) -> str:
    return f"str:{name}" if isinstance(name, str) else f"int:{operator.index(name)}"


def philox(counter: Tensor, key: tuple[int, int]) -> Tensor:
    """Philox4x32 with 10 rounds.

    Args:
        counter: int64 ``[..., 4]``, each entry in ``[0, 2**32)``.
        key: two words in ``[0, 2**32)``.

    Returns:
        int64 ``[..., 4]`` of uniformly random words in ``[0, 2**32)``.
    """
    import torch

    c0, c1, c2, c3 = counter.unbind(-1)
    k0, k1 = key
    for _ in range(10):
        # int64 products wrap modulo 2**64, so both halves are read off their bits
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((p1 >> 32) & _MASK) ^ c1 ^ k0,
            p1 & _MASK,
            ((p0 >> 32) & _MASK) ^ c3 ^ k1,
            p0 & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return torch.stack((c0, c1, c2, c3), -1)


@dataclass(frozen=True)
class Noise:
    """A source of draws for a batch of rows.

    Attributes:
        seed: key of the whole run.
        rows: int64 ``[B]``, an id per row that travels with it.
        candidates: int64 ``[B]`` in ``[0, 2**24)``, tells copies of one row apart; or None.
        names: path of the consumer.
    """

    seed: int
    rows: Tensor
    candidates: Tensor | None = None
    names: tuple[Name, ...] = ()

    @classmethod
    def of(cls, seed: int, rows: Tensor | Sequence[int] | int) -> Noise:
        """Noise for given row ids, or for rows ``0..rows-1``."""
        import torch

        if isinstance(rows, torch.Tensor):
            return cls(int(seed), rows.to(torch.int64))
        ids = range(rows) if isinstance(rows, int) else rows
        return cls(int(seed), torch.tensor([int(row) for row in ids], dtype=torch.int64))

    @property
    def batch_size(self) -> int:
        """B, the number of rows."""
        return int(self.rows.shape[0])

    def at(self, *names: Name) -> Noise:
        """The same rows under a longer path: an independent stream."""
        return replace(self, names=(*self.names, *names))

    def select(self, index: Tensor) -> Noise:
        """Keeps some rows, by int64 or bool index."""
        kept = None if self.candidates is None else self.candidates[index]
        return replace(self, rows=self.rows[index], candidates=kept)

    def split(self, count: int) -> Noise:
        """Repeats each row `count` times, each copy with draws of its own; order as `tree.repeat`."""
        import torch

        assert self.candidates is None, "rows are already split"
        copies = torch.arange(count, device=self.rows.device).repeat(self.batch_size)
        return replace(self, rows=self.rows.repeat_interleave(count), candidates=copies)

    def bits(self, count: int, device: torch.device | None = None) -> Tensor:
        """int64 ``[B, count]`` of random words in ``[0, 2**32)``."""
        import torch

        device = device or self.rows.device
        rows = self.rows.to(device)
        blocks = torch.arange((count + 3) // 4, device=device)
        copies = torch.zeros_like(rows) if self.candidates is None else self.candidates.to(device) + 1
        parts = (blocks[None], copies[:, None], (rows & _MASK)[:, None], ((rows >> 32) & _MASK)[:, None])
        counter = torch.stack([part.expand(len(rows), len(blocks)) for part in parts], -1)
        key = derive(self.seed, *self.names)
        return philox(counter, (key & _MASK, key >> 32)).flatten(1)[:, :count]

    def uniform(
        self, *shape: int, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> Tensor:
        """``[B, *shape]`` in the open interval (0, 1); half precision may round to its ends."""
        import torch

        dtype = dtype or torch.float32
        words = self.bits(math.prod(shape), device)
        # 24 bits fit float32 exactly; the half keeps 0 out, and the clamp what it rounds up to 1
        wide = torch.promote_types(dtype, torch.float32)
        draws = (((words >> 8).to(wide) + 0.5) * 2.0**-24).clamp(max=1 - 2.0**-24)
        return draws.to(dtype).reshape(self.batch_size, *shape)

    def normal(
        self, *shape: int, dtype: torch.dtype | None = None, device: torch.device | None = None
    ) -> Tensor:
        """``[B, *shape]`` of standard normal draws (Box-Muller), equal across devices up to rounding."""
        import torch

        dtype, count = dtype or torch.float32, math.prod(shape)
        wide = torch.promote_types(dtype, torch.float32)
        uniform = self.uniform(2, (count + 1) // 2, dtype=wide, device=device)
        radius, angle = (-2 * uniform[:, 0].log()).sqrt(), 2 * math.pi * uniform[:, 1]
        draws = torch.cat((radius * angle.cos(), radius * angle.sin()), 1)
        return draws[:, :count].to(dtype).reshape(self.batch_size, *shape)

    def integers(self, high: int, *shape: int, device: torch.device | None = None) -> Tensor:
        """int64 ``[B, *shape]`` uniform in ``[0, high)``, for ``high`` up to ``2**31``."""
        assert 0 < high <= 2**31, high
        words = self.bits(math.prod(shape), device)
        return ((words * high) >> 32).reshape(self.batch_size, *shape)
