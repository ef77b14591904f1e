"""The examples run as they are shown, in small."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SETTINGS = {
    "own_environment": ["--steps", "60"],
    "own_policy": ["--starts", "20"],
    "plan_pusht": ["--episodes", "2", "--samples", "16", "--iterations", "1"],
    "rank_policies": ["--starts", "3"],
    "train_small": ["--episodes", "4", "--steps", "20", "--batch-size", "4", "--seconds", "0.5"],
}
NEEDS = {"plan_pusht": ("gym_pusht", "PIL"), "rank_policies": ("gym_pusht",), "train_small": ("gym_pusht",)}


@pytest.fixture
def said(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """What an example prints."""
    name = request.param
    for module in NEEDS.get(name, ()):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](SETTINGS[name])
    return capsys.readouterr().out


def example(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("said", [name], indirect=True)


@example("plan_pusht")
def test_planning_reports_a_rate_and_writes_a_video(said: str, tmp_path: Path) -> None:
    assert len(re.findall(r"^pusht-25/\d+: (?:reached|missed) after \d+ steps$", said, re.MULTILINE)) == 2
    assert re.search(r"^success \d\.\d\d \[\d\.\d\d, \d\.\d\d\], n = 2$", said, re.MULTILINE)
    assert (tmp_path / "runs" / "plan.gif").read_bytes()[:4] == b"GIF8"


@example("rank_policies")
def test_ranking_lists_every_policy_once(said: str) -> None:
    ranked = re.findall(
        r"^\d\. (.*): imagined \d\.\d\d \[.*\], simulator \d\.\d\d \[.*\]$", said, re.MULTILINE
    )
    assert sorted(ranked) == ["behaviour cloning", "random", "replay"]
    assert "Kendall" in said


@example("train_small")
def test_training_saves_what_loads(said: str, tmp_path: Path) -> None:
    assert "3 episodes to train on, 1 held out" in said
    assert re.search(r"step \d+: loss \d+\.\d+", said) and "my-model, which loads as LeWM" in said
    assert (tmp_path / "runs" / "my-model" / "model.safetensors").exists()


@example("own_environment")
def test_the_pendulum_swings_up(said: str) -> None:
    found = re.findall(r"^(\w+): return (-?\d+), (\d+) degrees", said, re.MULTILINE)
    assert [name for name, _, _ in found] == ["cem"] * 2 + ["random"] * 2
    planned, random = ([int(value) for _, value, _ in part] for part in (found[:2], found[2:]))
    assert min(planned) > max(random) and max(int(angle) for _, _, angle in found[:2]) < 20


@example("own_policy")
def test_a_function_is_a_policy(said: str) -> None:
    rates = {
        name: float(rate) for name, rate in re.findall(r"^(\w+): success (\d\.\d\d)", said, re.MULTILINE)
    }
    assert rates["straight"] > 0.5 > rates["random"]


def test_the_pendulum_of_the_example_is_gymnasiums() -> None:
    """The equations of the example against the environment itself."""
    gymnasium, np = pytest.importorskip("gymnasium"), pytest.importorskip("numpy")
    advance = runpy.run_path(str(EXAMPLES / "own_environment.py"))["advance"]
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    states, actions = np.random.default_rng(0).uniform(-2, 2, (2, 20, 2))
    for state, action in zip(states, actions[:, :1], strict=True):
        env.state = state
        env.step(action)
        np.testing.assert_allclose(advance(state[None], action[None])[0], env.state, atol=1e-6)


def test_every_example_is_tested_and_short() -> None:
    found = {path.stem: path for path in EXAMPLES.glob("*.py")}
    assert found.keys() == SETTINGS.keys()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, path in found.items():
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, name
        assert f"examples/{name}.py" in readme, f"{name} is not in the README"
