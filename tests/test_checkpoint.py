"""Checkpoints: whole or not at all, loaded as data, and clear about what is wrong with one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from worldplan import checkpoint
from worldplan.checkpoint import folder as layout
from worldplan.checkpoint import keys, sources
from worldplan.errors import CheckpointError, ConfigError, RunError
from worldplan.normalize import Normalizer, Statistics
from worldplan.protocol import EvalProtocol, ModelSpec
from worldplan.types import ActionSpec, Estimate

SPEC = ModelSpec("pusht", {"state": (3,)}, 2, 5, ActionSpec(2, (-1.0, -1.0), (1.0, 1.0)), (4,), None)
FILES = ["README.md", "config.json", "model.safetensors"]


@dataclass(frozen=True)
class ToyConfig:
    """Configuration of `Toy`."""

    width: int = 4
    layers: tuple[int, ...] = (3, 3)


class Toy(nn.Module):
    """A small module with parameters, tied weights, integer and float buffers."""

    def __init__(self, config: ToyConfig, spec: ModelSpec | None) -> None:
        super().__init__()
        self.config, self.spec = config, spec
        self.first = nn.Linear(3, config.width)
        self.tied = nn.Linear(3, config.width)
        self.tied.weight = self.first.weight
        self.norm = nn.BatchNorm1d(config.width)
        self.normalizer = Normalizer(2)

    @classmethod
    def from_config(cls, config: dict[str, Any], spec: ModelSpec | None) -> Toy:
        """Builds from what ``config.json`` holds."""
        return cls(ToyConfig(**{**config, "layers": tuple(config["layers"])}), spec)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Some function of all the weights."""
        return self.norm(self.first(value)) + self.tied(value)


class Other(nn.Module):
    """Registered nowhere."""


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "KEYS", dict(keys.KEYS))
    checkpoint.register_key("toy", f"{__name__}:Toy")


def _toy(width: int = 4) -> Toy:
    generator = torch.Generator().manual_seed(0)
    toy = Toy(ToyConfig(width), SPEC)
    with torch.no_grad():
        for parameter in toy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    toy.normalizer.fit(Statistics((0.1234567, 255.3), (0.01, 512.7), 9))
    toy.norm.running_var.fill_(1e6)  # type: ignore[operator]
    return toy


def _saved(folder: Path, **facts: Any) -> Path:
    return checkpoint.save_pretrained(_toy(), folder, **facts)


def _edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_module_comes_back_bit_for_bit(tmp_path: Path) -> None:
    toy = _toy().eval()
    folder = checkpoint.save(tmp_path / "a" / "b", toy, key="toy", config=toy.config, spec=SPEC)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    copy = checkpoint.load(folder)
    assert isinstance(copy, Toy)
    assert copy.config == toy.config
    assert copy.spec == SPEC
    assert not copy.training
    for name, value in toy.state_dict().items():
        assert torch.equal(value, copy.state_dict()[name]), name
        assert value.dtype == copy.state_dict()[name].dtype
    value = torch.linspace(-1, 1, 6).view(2, 3)
    assert torch.equal(toy(value), copy(value))


def test_half_precision_stores_parameters_in_half_and_statistics_in_full(tmp_path: Path) -> None:
    toy = _toy()
    full, half = _saved(tmp_path / "full"), _saved(tmp_path / "half", dtype="float16")
    assert checkpoint.describe(half)["weights"]["dtype"] == "float16"
    assert checkpoint.describe(full)["weights"]["dtype"] is None
    copy = checkpoint.load(half).state_dict()
    assert torch.equal(copy["first.weight"], toy.first.weight.half().float())
    assert copy["first.weight"].dtype == torch.float32
    for name in ("normalizer.mean", "normalizer.std", "norm.running_var", "norm.num_batches_tracked"):
        assert torch.equal(copy[name], toy.state_dict()[name]), name


def test_a_precision_that_cannot_hold_the_weights_is_refused(tmp_path: Path) -> None:
    toy = _toy()
    with torch.no_grad():
        toy.first.bias[0] = 1e6
    with pytest.raises(CheckpointError, match="first.bias does not fit"):
        checkpoint.save_pretrained(toy, tmp_path / "x", dtype=torch.float16)
    with pytest.raises(ConfigError, match="int8"):
        checkpoint.save_pretrained(toy, tmp_path / "x", dtype="int8")
    assert list(tmp_path.iterdir()) == []


def test_everything_recorded_can_be_read_without_the_weights(tmp_path: Path) -> None:
    protocol = EvalProtocol(success="joint 20 px", start_set="pusht-300")
    result = {
        "success": Estimate(0.8, 0.75, 0.84, 300, "wilson 95%"),
        "none": Estimate(None, None, None, 0, ""),
    }
    training = {"command": "worldplan train model=lewm", "data": Path("pusht.h5"), "seed": np.int64(3)}
    folder = _saved(tmp_path / "c", protocol=protocol, result=result, training=training, card="Pushes a T.")
    told = checkpoint.describe(folder)
    assert told["key"] == "toy"
    assert told["id"].startswith("toy-")
    assert told["config"] == {"width": 4, "layers": [3, 3]}
    assert ModelSpec.from_json(told["spec"]) == SPEC
    assert EvalProtocol.from_json(told["protocol"]) == protocol
    assert told["result"]["success"]["low"] == 0.75
    assert told["training"] == {"command": "worldplan train model=lewm", "data": "pusht.h5", "seed": 3}
    # two names share one tensor, which counts once
    assert told["weights"]["parameters"] == 3 * 4 + 4 + 4 + 2 * 4
    for fact in (
        "Pushes a T.",
        "0.8 [0.75, 0.84] (n = 300, wilson 95%)",
        "worldplan train",
        "undefined (n = 0)",
    ):
        assert fact in told["card"]
    assert told["card"].startswith("---\nlibrary_name: worldplan\ntags:\n- worldplan\n")


def test_a_card_shortens_what_nobody_reads_there(tmp_path: Path) -> None:
    training = {"held_out_episodes": list(range(3, 43)), "seconds": 12.3456789012}
    card = checkpoint.describe(_saved(tmp_path / "c", training=training))["card"]
    assert "`40 entries, 3 to 42; all of them are in config.json`" in card and "`12.3457`" in card
    assert checkpoint.describe(tmp_path / "c")["training"] == training


def test_describing_imports_no_torch(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "c")
    program = f"import sys\nfrom worldplan import checkpoint\ncheckpoint.describe({str(folder)!r})\n"
    program += "print('torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "False"


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), np.nan, {1: 2}, b"x", object(), {"deep": [1, {"x": print}]}, {1, 2}]
)
def test_what_json_cannot_hold_is_named_before_anything_is_written(tmp_path: Path, value: object) -> None:
    with pytest.raises(CheckpointError, match="training.odd"):
        _saved(tmp_path / "c", training={"odd": value})
    assert list(tmp_path.iterdir()) == []


def test_a_config_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    for config in (3, [1], ToyConfig):
        with pytest.raises(CheckpointError, match="config"):
            checkpoint.save(tmp_path / "c", _toy(), key="toy", config=config)


def test_an_existing_checkpoint_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "c", card="first")
    with pytest.raises(CheckpointError, match="overwrite=True"):
        _saved(folder)
    assert "first" in checkpoint.describe(folder)["card"]
    _saved(folder, overwrite=True, card="second")
    assert "second" in checkpoint.describe(folder)["card"]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_overwriting_never_deletes_other_files(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "c")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"notes\.txt"):
        _saved(folder, overwrite=True)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="is a file"):
        _saved(tmp_path / "file", overwrite=True)
    assert (folder / "notes.txt").read_text() == (tmp_path / "file").read_text() == "mine"


def test_an_empty_folder_and_a_link_are_filled(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    _saved(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "config.json").is_file()


@pytest.mark.parametrize(
    "name", ["ünïcode ✓", "a=b,{c}", "with space", "#%?*", "-x", "~", "'quote\"", "new\nline"]
)
def test_any_legal_path_works(tmp_path: Path, name: str) -> None:
    folder = _saved(tmp_path / name)
    assert isinstance(checkpoint.load(str(folder)), Toy)


@pytest.mark.parametrize("broken", ["_put", "_swap"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(13, "Permission denied"), OSError(28, "full")])
def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, error: BaseException
) -> None:
    folder = _saved(tmp_path / "c", card="first")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(layout, broken, fail)
    with pytest.raises((KeyboardInterrupt, CheckpointError, RunError)):
        _saved(folder, overwrite=True, card="second")
    with pytest.raises((KeyboardInterrupt, CheckpointError, RunError)):
        _saved(tmp_path / "new")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_an_interrupt_between_the_two_renames_puts_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _saved(tmp_path / "c", card="first")
    rename = os.rename

    def fail(source: Path, target: Path) -> None:
        if Path(target) == folder and (Path(source) / "config.json").read_text().count("second") == 0:
            monkeypatch.setattr(os, "rename", rename)
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        _saved(folder, overwrite=True, card="again")
    assert "first" in checkpoint.describe(folder)["card"]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user that permissions apply to")
def test_no_permission_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(CheckpointError, match="Permission denied"):
        _saved(tmp_path / "closed" / "c")


def test_a_parent_that_is_a_file_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        _saved(tmp_path / "file" / "c")


def test_the_wrong_folder_names_the_right_one(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "runs" / "best")
    (folder / "inner").mkdir()
    for wrong in (tmp_path / "runs", folder / "inner"):
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load(wrong)
        assert f"did you mean {folder}?" in str(caught.value)
    with pytest.raises(CheckpointError, match="is a file") as caught:
        checkpoint.load(folder / "model.safetensors")
    assert str(folder) in str(caught.value).splitlines()[-1]
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path / "runs" / "bset")
    assert str(folder) in str(caught.value)


def test_nothing_there_lists_what_can_be_written_instead(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="hf://user/repo"):
        checkpoint.load("no-such-checkpoint")
    with pytest.raises(CheckpointError, match="hf://someone/model, if you mean the hub"):
        checkpoint.load("someone/model")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="an empty folder"):
        checkpoint.load(tmp_path / "empty")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "an empty file"),
        ("{", "line 1"),
        ("[1]", "another library"),
        ('{"model_type": "bert"}', "model_type"),
    ],
)
def test_a_damaged_or_foreign_config_is_named(tmp_path: Path, content: str, message: str) -> None:
    folder = _saved(tmp_path / "c")
    (folder / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(folder)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "c")
    (folder / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.load(folder)


def test_a_newer_format_or_missing_parts_are_named(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "c")
    _edit(folder, weights={})
    with pytest.raises(CheckpointError, match="incomplete"):
        checkpoint.load(folder)
    _edit(folder, config=None)
    with pytest.raises(CheckpointError, match="nothing usable under config"):
        checkpoint.load(folder)
    _edit(folder, version=99)
    with pytest.raises(CheckpointError, match="pip install --upgrade"):
        checkpoint.load(folder)


@pytest.mark.parametrize("keep", [0, 1, 7, 100, -1])
def test_truncated_weights_are_named(tmp_path: Path, keep: int) -> None:
    path = _saved(tmp_path / "c") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="damaged or incomplete") as caught:
        checkpoint.load(path.parent)
    assert len(str(caught.value).splitlines()) < 6
    with pytest.raises(CheckpointError, match="damaged or incomplete"):
        checkpoint.describe(path.parent)


def test_weights_of_another_run_are_named(tmp_path: Path) -> None:
    path = _saved(tmp_path / "c") / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match="sha256"):
        checkpoint.load(path.parent)


def test_missing_weights_are_named_and_pickles_are_not_touched(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "c")
    (folder / "model.safetensors").rename(folder / "model.pt")
    with pytest.raises(CheckpointError, match=r"model\.pt, which would run code"):
        checkpoint.load(folder)


def test_an_architecture_that_does_not_fit_prints_a_short_difference(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "c")
    _edit(folder, config={"width": 5, "layers": [3, 3]})
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(folder)
    text = str(caught.value)
    assert "first.bias: expected [5], found [4]" in text
    assert "and 3 more" in text
    assert len(text.splitlines()) < 10


@pytest.mark.parametrize("config", [{"widht": 4, "layers": []}, {}, {"width": "four", "layers": []}])
def test_a_config_of_another_version_is_named(tmp_path: Path, config: dict[str, object]) -> None:
    folder = _saved(tmp_path / "c")
    _edit(folder, config=config)
    with pytest.raises(CheckpointError, match="does not configure 'toy'"):
        checkpoint.load(folder)


@pytest.mark.parametrize("key", ["os:system", "toyy", "builtins.eval", "../toy"])
def test_only_registered_classes_are_built(tmp_path: Path, key: str) -> None:
    folder = _saved(tmp_path / "c")
    _edit(folder, key=key)
    with pytest.raises(CheckpointError, match="unknown class"):
        checkpoint.load(folder)


def test_a_class_that_cannot_be_imported_shows_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more_here.py").write_text("import its_missing_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    folder = _saved(tmp_path / "c")
    for target, message in (
        ("needs_more_here:Model", "No module named 'its_missing_dependency'"),
        ("os:no_such_class", r"from_config\(config, spec\)"),
    ):
        monkeypatch.setitem(keys.KEYS, "toy", target)
        with pytest.raises(CheckpointError, match=message):
            checkpoint.load(folder)


def test_registering() -> None:
    checkpoint.register_key("toy", f"{__name__}:Toy")
    with pytest.raises(ConfigError, match="is taken"):
        checkpoint.register_key("toy", "somewhere:Else")
    for key, target in (("a b", "m:C"), ("a", "m.C"), ("a", "m:C()")):
        with pytest.raises(ConfigError, match="cannot be registered"):
            checkpoint.register_key(key, target)


def test_saving_says_what_the_module_must_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="register_key"):
        checkpoint.save_pretrained(Other(), tmp_path / "c")
    monkeypatch.setitem(keys.KEYS, "other", f"{__name__}:Other")
    with pytest.raises(ConfigError, match="config"):
        checkpoint.save_pretrained(Other(), tmp_path / "c")
    with pytest.raises(ConfigError, match="did you mean toy"):
        checkpoint.save(tmp_path / "c", _toy(), key="toi", config={})


def test_loading_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "c")
    before = torch.get_rng_state()
    checkpoint.load(folder)
    assert torch.equal(before, torch.get_rng_state())


def test_a_class_can_be_demanded(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "c")
    assert checkpoint.from_pretrained(folder, Toy).config.width == 4
    with pytest.raises(CheckpointError, match="holds another model"):
        checkpoint.from_pretrained(folder, Other)


def test_packaged_names_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _saved(tmp_path / "pusht-small")
    monkeypatch.setattr(sources, "packaged", lambda: {"pusht-small": folder})
    monkeypatch.chdir(tmp_path.parent)
    assert isinstance(checkpoint.load("pusht-small"), Toy)
    with pytest.raises(CheckpointError, match="did you mean pusht-small"):
        checkpoint.load("pusht-smal")


def test_packaged_folders_are_checkpoints() -> None:
    for name, folder in checkpoint.packaged().items():
        assert checkpoint.describe(name)["path"] == str(folder)


def _cached(root: Path, inside: str = "") -> Path:
    """A cache as the hub lays it out, holding one repository."""
    commit = "a" * 40
    repository = root / "models--someone--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    _saved(repository / "snapshots" / commit / inside)
    return root


def test_a_repository_is_read_from_the_cache(tmp_path: Path) -> None:
    cache = _cached(tmp_path / "hub")
    for source in ("hf://someone/model", "hf://someone/model@main"):
        assert isinstance(checkpoint.load(source, cache_dir=cache, local_files_only=True), Toy)
    copy = checkpoint.from_pretrained("someone/model", Toy, cache_dir=cache, local_files_only=True)
    assert copy.config.width == 4


def test_a_folder_inside_a_repository(tmp_path: Path) -> None:
    cache = _cached(tmp_path / "hub", "small")
    assert isinstance(
        checkpoint.load("hf://someone/model/small", cache_dir=cache, local_files_only=True), Toy
    )
    with pytest.raises(CheckpointError, match="did you mean"):
        checkpoint.load("hf://someone/model", cache_dir=cache, local_files_only=True)


def test_what_the_hub_does_not_serve_is_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the hub did not serve someone/else") as caught:
        checkpoint.load("hf://someone/else", cache_dir=tmp_path, local_files_only=True)
    assert len(str(caught.value).splitlines()) == 4
    for address in ("hf://", "hf://someone", "hf://a/b/../../c", "hf://a b/c"):
        with pytest.raises(CheckpointError, match="no address on the hub"):
            checkpoint.load(address, cache_dir=tmp_path, local_files_only=True)


def test_only_data_is_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: dict[str, Any] = {}

    def answer(repo: str, **kwargs: Any) -> str:
        asked.update(kwargs, repo=repo)
        return str(folder)

    folder = _saved(tmp_path / "c")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", answer)
    checkpoint.from_pretrained("someone/model", revision="v1", token="t")
    assert asked["repo"] == "someone/model"
    assert asked["allow_patterns"] == ["*.safetensors", "*.json", "*.md"]
    assert asked["revision"] == "v1"
    assert asked["token"] == "t"


def test_pushing_uploads_the_three_files_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    calls: list[tuple[str, Any]] = []

    class Api:
        def __init__(self, token: str | None = None) -> None:
            calls.append(("token", token))

        def create_repo(self, repo: str, *, private: bool, exist_ok: bool) -> str:
            calls.append(("create", (repo, private, exist_ok)))
            return f"https://hub.example/{repo}"

        def upload_folder(self, *, allow_patterns: list[str], **_: Any) -> None:
            calls.append(("upload", sorted(allow_patterns)))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    folder = _saved(tmp_path / "c")
    address = checkpoint.push_to_hub(folder, "me/model", private=True, token="t")
    assert address == "https://hub.example/me/model"
    assert calls == [("token", "t"), ("create", ("me/model", True, True)), ("upload", FILES)]
    shutil.rmtree(folder)
    with pytest.raises(CheckpointError):
        checkpoint.push_to_hub(folder, "me/model")
