"""The causal transformer against its definition, head by head, and its cache against none."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from worldplan.models.transformer import ActionEncoder, Attention, Block, Cache, CausalTransformer
from worldplan.seeding import Noise


def normal(*shape: int, name: str = "x") -> Tensor:
    return Noise.of(7, shape[0]).at(name).normal(*shape[1:])


def stirred(module: nn.Module) -> None:
    """AdaLN begins at zero, where a block is the identity and nothing in it can be seen."""
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            draws = Noise.of(11, 1).at(index).normal(parameter.numel()).view_as(parameter)
            parameter.add_(0.3 * draws)


def standardised(x: Tensor, eps: float) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + eps).sqrt()


def attended(attention: Attention, x: Tensor) -> Tensor:
    """Causal attention from its definition, one head and one query at a time."""
    heads, dim = attention.heads, attention.head_dim
    x = standardised(x, attention.norm.eps) * attention.norm.weight + attention.norm.bias
    query, key, value = (x @ part.T for part in attention.qkv.weight.split(heads * dim))
    rows = []
    for i in range(x.shape[1]):
        found = []
        for head in range(heads):
            at = slice(head * dim, (head + 1) * dim)
            scores = (key[:, : i + 1, at] @ query[:, i, at, None])[..., 0] / math.sqrt(dim)
            found.append((scores.softmax(-1)[..., None] * value[:, : i + 1, at]).sum(1))
        rows.append(torch.cat(found, -1))
    out: Tensor = attention.out[0](torch.stack(rows, 1))
    return out


def made(context: int = 4, dropout: float = 0.0) -> CausalTransformer:
    transformer = CausalTransformer(context, 6, 2, 2, 5, 16, dropout)
    stirred(transformer)
    return transformer.eval()


def test_attention_equals_its_definition_with_an_inner_width_of_its_own() -> None:
    attention = Attention(6, 2, 5, 0.0)
    stirred(attention)
    x = normal(3, 4, 6)
    found, (key, value) = attention(x)
    torch.testing.assert_close(found, attended(attention, x))
    assert key.shape == value.shape == (3, 2, 4, 5)


def test_an_untrained_block_is_the_identity() -> None:
    x, condition = normal(3, 4, 6), normal(3, 4, 6, name="condition")
    assert torch.equal(Block(6, 2, 5, 16, 0.1)(x, condition)[0], x)


def test_a_block_equals_its_formula() -> None:
    block = Block(6, 2, 5, 16, 0.0)
    stirred(block)
    x, condition = normal(3, 4, 6), normal(3, 4, 6, name="condition")
    linear: Any = block.modulation[1]
    read = (condition * condition.sigmoid()) @ linear.weight.T + linear.bias
    shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = read.split(6, -1)
    expected = x + gate_1 * attended(block.attention, (1 + scale_1) * standardised(x, 1e-6) + shift_1)
    inner = (1 + scale_2) * standardised(expected, 1e-6) + shift_2
    expected = expected + gate_2 * block.mlp(inner)
    torch.testing.assert_close(block(x, condition)[0], expected)


@pytest.mark.parametrize("changed", [1, 2, 3])
def test_a_later_token_or_condition_changes_no_earlier_output(changed: int) -> None:
    transformer = made()
    x, condition = normal(3, 4, 6), normal(3, 4, 6, name="condition")
    before, _ = transformer(x, condition)
    for which in range(2):
        inputs = [x.clone(), condition.clone()]
        inputs[which][:, changed, 0] += 1
        after, _ = transformer(*inputs)
        assert torch.equal(after[:, :changed], before[:, :changed])
        # it does change its own output and, through attention, all that follow
        assert ((after - before)[:, changed:].abs().amax((0, 2)) > 1e-4).all()


def test_token_by_token_with_a_cache_equals_all_at_once() -> None:
    transformer = made()
    x, condition = normal(3, 4, 6), normal(3, 4, 6, name="condition")
    whole, _ = transformer(x, condition)
    cache: Cache | None = None
    for i in range(4):
        one, cache = transformer(x[:, i : i + 1], condition[:, i : i + 1], cache)
        torch.testing.assert_close(one, whole[:, i : i + 1])


@pytest.mark.parametrize("known", [1, 2, 3])
def test_only_the_last_output_equals_the_last_of_all_and_its_cache_goes_on(known: int) -> None:
    transformer = made()
    x, condition = normal(3, 4, 6), normal(3, 4, 6, name="condition")
    last, cache = transformer(x[:, :known], condition[:, :known], last=True)
    assert last.shape == (3, 1, 6)
    torch.testing.assert_close(last[:, 0], transformer(x, condition)[0][:, known - 1])
    following, _ = transformer(x[:, known : known + 1], condition[:, known : known + 1], cache, last=True)
    torch.testing.assert_close(following[:, 0], transformer(x, condition)[0][:, known])


def test_more_tokens_than_the_context_are_refused_also_behind_a_cache() -> None:
    transformer = made(context=2)
    x = normal(3, 3, 6)
    with pytest.raises(AssertionError):
        transformer(x, x)
    _, cache = transformer(x[:, :2], x[:, :2])
    with pytest.raises(AssertionError):
        transformer(x[:, 2:], x[:, 2:], cache)


def test_rows_do_not_mix() -> None:
    transformer = made()
    x, condition = normal(4, 3, 6), normal(4, 3, 6, name="condition")
    order = torch.tensor([2, 0, 3, 1])
    whole, _ = transformer(x, condition)
    torch.testing.assert_close(transformer(x[order], condition[order])[0], whole[order])


def test_dropout_is_for_training_only_and_stands_in_all_four_places() -> None:
    without, transformer = made(), made(dropout=0.5)
    x, condition = normal(3, 4, 6), normal(3, 4, 6, name="condition")
    # both are made from the same generator one after the other, so weights are copied
    transformer.load_state_dict(without.state_dict())
    assert torch.equal(transformer(x, condition)[0], without(x, condition)[0])
    transformer.train()
    assert not torch.equal(transformer(x, condition)[0], transformer(x, condition)[0])
    block = transformer.blocks[0]
    assert isinstance(block, Block)
    # with all else off, dropout inside of attention must still show
    for module in transformer.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    assert not torch.equal(transformer(x, condition)[0], transformer(x, condition)[0])
    assert sum(isinstance(module, nn.Dropout) for module in block.modules()) == 3


def test_positions_are_drawn_unscaled_and_weights_have_the_published_size() -> None:
    transformer = CausalTransformer(3, 192, 6, 16, 64, 2048, 0.1)
    # 576 draws: 10 % is more than three times the error of their deviation
    assert transformer.positions.std().item() == pytest.approx(1, rel=0.1)
    inner, norm = 16 * 64, 2 * 192
    attention = norm + 192 * 3 * inner + inner * 192 + 192
    mlp = norm + 192 * 2048 + 2048 + 2048 * 192 + 192
    modulation = 192 * 6 * 192 + 6 * 192
    count = sum(p.numel() for p in transformer.parameters())
    assert count == 3 * 192 + 6 * (attention + mlp + modulation) + norm
    assert round(count / 1e6, 2) == 10.79  # as counted in the published checkpoint


def test_actions_are_embedded_each_step_on_its_own() -> None:
    encoder = ActionEncoder(4, 6)
    actions = normal(3, 5, 4)
    whole = encoder(actions)
    mix: Any = encoder.mix
    first: Any = encoder.embed[0]
    last: Any = encoder.embed[2]
    assert first.weight.shape == (24, 10)
    for t in range(5):
        mixed = actions[:, t] @ mix.weight[..., 0].T + mix.bias
        hidden = mixed @ first.weight.T + first.bias
        expected = (hidden * hidden.sigmoid()) @ last.weight.T + last.bias
        torch.testing.assert_close(whole[:, t], expected)
