"""Where a checkpoint is: a packaged name, a folder, or a repository on the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from worldplan.checkpoint.folder import CONFIG
from worldplan.errors import CheckpointError, suggest

_PATTERNS = ("*.safetensors", "*.json", "*.md")
_REPO = r"[\w.-]+/[\w.-]+"
_ADDRESS = re.compile(rf"hf://(?P<repo>{_REPO})(?:@(?P<revision>[^/]+))?(?:/(?P<inside>.+))?")


class Hub(TypedDict, total=False):
    """How to reach the hub; as `huggingface_hub.snapshot_download` takes it."""

    revision: str | None
    cache_dir: str | Path | None
    token: str | bool | None
    local_files_only: bool


def packaged() -> dict[str, Path]:
    """Checkpoints that came with the library: short name -> folder."""
    package = Path(__file__).resolve().parents[1]
    # a source checkout keeps them at its root, a wheel inside the package
    shelves = (package.parent / "assets" / "checkpoints", package / "_assets" / "checkpoints")
    found = [path.parent for shelf in shelves for path in sorted(shelf.glob(f"*/{CONFIG}"))]
    return {folder.name: folder for folder in found}


def resolve(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Path:
    """The folder behind a packaged name, a path, or ``hf://user/repo[@revision][/folder]``, in this order.

    From the hub only ``*.safetensors``, ``*.json`` and ``*.md`` are fetched; ``HF_HOME`` and
    ``HF_HUB_OFFLINE`` are honoured.

    Raises:
        CheckpointError: there is nothing of that name, or the hub does not serve it.
    """
    text = os.fspath(source)
    known = packaged()
    if text in known:
        return known[text]
    if os.path.exists(text):
        return Path(text)
    if not text.startswith("hf://"):
        raise _unknown(text, list(known))
    address = _ADDRESS.fullmatch(text)
    inside = (address["inside"] or "").strip("/") if address else ""
    if not address or ".." in inside.split("/"):
        raise CheckpointError(
            f"{text} is no address on the hub", expected="hf://user/repo[@revision][/folder]", found=text
        )
    repo, named = address["repo"], address["revision"]

    def download() -> str:
        from huggingface_hub import snapshot_download

        path = snapshot_download(
            repo,
            revision=revision or named,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
            allow_patterns=[f"{inside}/{pattern}" if inside else pattern for pattern in _PATTERNS],
        )
        return str(path)

    return Path(ask_hub(download, repo)) / inside


def hub_convention(source: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Reads ``user/repo`` as an address on the hub where no such path exists."""
    text = os.fspath(source)
    is_repo = re.fullmatch(_REPO, text) and not text.startswith(".")
    return f"hf://{text}" if is_repo and not os.path.lexists(text) else source


def ask_hub(call: Callable[[], str], repo: str) -> str:
    """Makes a call of the hub; whatever it raises becomes a `CheckpointError`."""
    try:
        return call()
    # the hub, its transport and its cache each raise their own; all mean the same to the user
    except Exception as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
        raise CheckpointError(
            f"the hub did not serve {repo}: {reason}",
            expected="a repository you may reach, or a copy of it in the cache",
            found=type(error).__name__ + (" (HF_HUB_OFFLINE is set)" if offline else ""),
            fix="check the name, the revision and the token; or fetch it once while online",
        ) from error


def _unknown(text: str, names: list[str]) -> CheckpointError:
    parent = Path(text).parent
    siblings = [str(path.parent) for path in sorted(parent.glob(f"*/{CONFIG}"))]
    fix = suggest(text, names + siblings) if names + siblings else None
    if re.fullmatch(_REPO, text) and not siblings:
        fix = f"hf://{text}, if you mean the hub" + (f"; or {fix}" if fix else "")
    return CheckpointError(
        f"there is no checkpoint {text!r}",
        expected="a packaged name, an existing folder, or hf://user/repo",
        found="nothing of that name",
        fix=fix,
    )
