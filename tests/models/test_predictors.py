"""Predictors: what a call, its last entry and a rollout say is one and the same, and nothing looks ahead."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from worldplan.models.predictors import AdaLNPredictor, MLPPredictor, Projector, histories
from worldplan.seeding import Noise

C, D, A = 3, 5, 4
KINDS = ["adaln", "adaln of another width", "mlp"]


def normal(*shape: int, name: str = "x") -> Tensor:
    return Noise.of(7, shape[0]).at(name).normal(*shape[1:])


def made(kind: str) -> AdaLNPredictor | MLPPredictor:
    """A predictor in evaluation mode whose every weight and running statistic matters."""
    predictor: AdaLNPredictor | MLPPredictor
    if kind == "mlp":
        predictor = MLPPredictor(C, D, A, width=8, depth=2)
    else:
        predictor = AdaLNPredictor(
            C, D, A, width=D if kind == "adaln" else 6, depth=2, heads=2, head_dim=3, hidden=8,
            projector_hidden=7, dropout=0.1,
        )  # fmt: skip
    with torch.no_grad():
        for index, parameter in enumerate(predictor.parameters()):
            parameter.add_(0.3 * Noise.of(11, 1).at(index).normal(parameter.numel()).view_as(parameter))
        for module in predictor.modules():
            if isinstance(module, nn.BatchNorm1d):
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.fill_(0.2)
                module.running_var.fill_(1.7)
    return predictor.eval()


def test_a_projector_equals_its_formula_in_both_modes() -> None:
    projector = Projector(4, 6, 3)
    x = normal(8, 4)
    first, norm, last = projector[0], projector[1], projector[3]
    assert isinstance(first, nn.Linear) and isinstance(norm, nn.BatchNorm1d) and isinstance(last, nn.Linear)
    hidden = first(x)
    scaled = (hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + norm.eps).sqrt()
    gelu = scaled * (1 + (scaled / 2**0.5).erf()) / 2
    torch.testing.assert_close(projector(x), last(gelu))
    projector.eval()
    torch.testing.assert_close(projector(x)[2:3], projector(x[2:3]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_entry_is_that_of_all(kind: str) -> None:
    predictor = made(kind)
    latents, actions = normal(4, C, D), normal(4, C, A, name="actions")
    whole = predictor(latents, actions)
    assert whole.shape == (4, C, D)
    for n in range(1, C + 1):
        last = predictor.following(latents[:, :n], actions[:, :n])
        torch.testing.assert_close(last, whole[:, n - 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changed", range(C))
def test_a_later_frame_or_action_changes_no_earlier_prediction(kind: str, changed: int) -> None:
    predictor = made(kind)
    latents, actions = normal(4, C, D), normal(4, C, A, name="actions")
    before = predictor(latents, actions)
    for which in range(2):
        inputs = [latents.clone(), actions.clone()]
        inputs[which][:, changed, 0] += 1
        difference = (predictor(*inputs) - before).abs().amax((0, 2))
        assert (difference[:changed] == 0).all() and (difference[changed:] > 1e-5).all(), difference


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", range(1, C + 1))
def test_a_rollout_equals_sliding_windows_without_a_cache(kind: str, known: int) -> None:
    predictor = made(kind)
    horizon = 5
    latents, past = normal(4, known, D), normal(4, known - 1, A, name="past")
    actions = normal(4, horizon, A, name="actions")
    path, taken = latents, torch.cat((past, actions), 1)
    for end in range(known, known + horizon):
        window = slice(max(0, end - C), end)
        path = torch.cat((path, predictor(path[:, window], taken[:, window])[:, -1:]), 1)
    found = torch.stack(predictor.rollout(latents, past, actions), 1)
    torch.testing.assert_close(found, path[:, known:])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_rollout_do_not_mix(kind: str) -> None:
    predictor = made(kind)
    latents, past, actions = normal(4, 2, D), normal(4, 1, A, name="past"), normal(4, 3, A, name="actions")
    order = torch.tensor([2, 0, 3, 1])
    whole = torch.stack(predictor.rollout(latents, past, actions), 1)
    mixed = torch.stack(predictor.rollout(latents[order], past[order], actions[order]), 1)
    torch.testing.assert_close(mixed, whole[order])


def test_the_mlp_adds_to_the_newest_latent() -> None:
    predictor = made("mlp")
    assert isinstance(predictor, MLPPredictor)
    for parameter in predictor.outward[1].parameters():
        nn.init.zeros_(parameter)
    latents, actions = normal(4, C, D), normal(4, C, A, name="actions")
    assert torch.equal(predictor(latents, actions), latents)


@pytest.mark.parametrize("known", range(1, C + 1))
def test_the_mlp_reads_a_window_that_ends_with_the_newest_frame_and_its_length(known: int) -> None:
    predictor = made("mlp")
    assert isinstance(predictor, MLPPredictor)
    latents, actions = normal(4, known, D), normal(4, known, A, name="actions")
    frames = torch.cat((latents, actions), 2).flatten(1)
    absent = torch.zeros(4, (C - known) * (D + A))
    length = torch.eye(C)[known - 1].expand(4, C)
    x = predictor.inward(torch.cat((absent, frames, length), 1))
    for block in predictor.blocks:
        x = x + block(x)
    torch.testing.assert_close(predictor.following(latents, actions), latents[:, -1] + predictor.outward(x))


def test_more_frames_than_the_context_are_refused() -> None:
    for kind in KINDS:
        with pytest.raises(AssertionError):
            made(kind).following(normal(2, C + 1, D), normal(2, C + 1, A, name="actions"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("future", [2, 5])
def test_histories_are_all_true_beginnings_fed_back(kind: str, steps: int, future: int) -> None:
    predictor = made(kind)
    latents, actions = normal(3, future + 1, D), normal(3, future, A, name="actions")
    expected: dict[int, list[Tensor]] = {}
    for known in range(1, min(C, future) + 1):
        ahead = min(steps, future + 1 - known)
        given = actions[:, known - 1 : known - 1 + ahead]
        path = predictor.rollout(latents[:, :known], actions[:, : known - 1], given)
        for step, predicted in enumerate(path):
            expected.setdefault(known + step, []).append(predicted)
    found = dict(histories(predictor, latents, actions, C, steps))
    assert sorted(found) == sorted(expected)
    for index, several in expected.items():
        torch.testing.assert_close(found[index], torch.stack(several))


def test_the_gradient_flows_through_predictions_of_predictions() -> None:
    predictor = made("mlp")
    latents, actions = normal(3, 5, D), normal(3, 4, A, name="actions").requires_grad_()
    found = dict(histories(predictor, latents, actions, C, 4))
    # frame 4 is read off the window of frames 1..3; the first action is known from predictions only
    found[4][0].sum().backward()
    assert actions.grad is not None and (actions.grad.abs().amax((0, 2)) > 0).all()
