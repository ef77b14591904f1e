"""Trees of tensors: every function against plain indexing, and arguments left alone."""

from __future__ import annotations

import pytest
import torch

from worldplan import tree


def _tree(offset: float = 0.0) -> dict[str, object]:
    ring = {"count": torch.tensor([1, 2, 3]), "latent": torch.arange(12.0).view(3, 4) + offset}
    return {"ring": ring, "id": torch.tensor([True, False, True])}


def test_map_keeps_the_structure_and_pairs_leaves() -> None:
    summed = tree.map(lambda a, b: a + b, {"x": {"y": torch.ones(2)}}, {"x": {"y": torch.ones(2)}})
    assert summed["x"]["y"].tolist() == [2, 2]
    with pytest.raises(AssertionError, match="other"):
        tree.map(lambda a, b: a, {"x": torch.ones(2)}, {"other": torch.ones(2)})


def test_leaves_and_rows() -> None:
    assert [leaf.dtype for leaf in tree.leaves(_tree())] == [torch.int64, torch.float32, torch.bool]
    assert tree.rows(_tree()) == 3
    with pytest.raises(AssertionError, match=r"\[2, 3\]"):
        tree.rows({"a": torch.ones(2), "b": torch.ones(3)})


def test_stack_and_concatenate() -> None:
    stacked = tree.stack([_tree(), _tree(1.0)], 1)
    assert stacked["ring"]["latent"].shape == (3, 2, 4)
    joined = tree.concatenate([_tree(), _tree(1.0)])
    assert tree.rows(joined) == 6
    assert torch.equal(joined["ring"]["latent"][3:], _tree(1.0)["ring"]["latent"])  # type: ignore[index]


def test_select_by_index_and_by_mask() -> None:
    picked = tree.select(_tree(), torch.tensor([2, 0, 2]))
    assert picked["ring"]["count"].tolist() == [3, 1, 3]
    assert tree.select(_tree(), torch.tensor([False, True, False]))["ring"]["count"].tolist() == [2]


def test_repeat_keeps_copies_together() -> None:
    assert tree.repeat(_tree(), 2)["ring"]["count"].tolist() == [1, 1, 2, 2, 3, 3]


def test_write_copies_and_keeps_the_dtype() -> None:
    original = _tree()
    new = {"ring": {"count": torch.tensor([9.0]), "latent": torch.zeros(1, 4)}, "id": torch.tensor([True])}
    written = tree.write(original, torch.tensor([1]), new)
    assert written["ring"]["count"].tolist() == [1, 9, 3]
    assert written["ring"]["count"].dtype == torch.int64
    assert written["id"].tolist() == [True, True, True]
    assert original["ring"]["count"].tolist() == [1, 2, 3]  # type: ignore[index]


def test_write_keeps_the_graph() -> None:
    new = torch.ones(1, 2, requires_grad=True)
    tree.write({"x": torch.zeros(3, 2)}, torch.tensor([2]), {"x": new})["x"].sum().backward()
    assert new.grad is not None
    assert new.grad.tolist() == [[1, 1]]


def test_detach_cuts_the_graph() -> None:
    leaf = torch.ones(2, requires_grad=True) * 2
    assert not tree.detach({"x": leaf})["x"].requires_grad


def test_a_dtype_moves_floating_leaves_only() -> None:
    half = tree.to(_tree(), torch.float16)
    assert half["ring"]["latent"].dtype == torch.float16
    assert half["ring"]["count"].dtype == torch.int64
    assert half["id"].dtype == torch.bool
    assert tree.to(_tree(), "meta")["id"].device.type == "meta"
