"""The public list is written by hand; this keeps it true."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import worldplan


def test_list_is_sorted_and_complete() -> None:
    assert worldplan.__all__ == sorted(worldplan.__all__)
    assert set(worldplan.__all__) == {*worldplan._HOMES, "__version__"}
    assert len(worldplan.__all__) <= 30, "the front door stays small"


@pytest.mark.parametrize("name", sorted(worldplan._HOMES))
def test_name_resolves_to_its_home(name: str) -> None:
    module, _, attribute = worldplan._HOMES[name].partition(":")
    value = getattr(worldplan, name)
    assert value is getattr(importlib.import_module(module), attribute)
    assert value.__doc__, f"worldplan.{name} has no docstring"


def test_names_for_type_checkers_are_the_same() -> None:
    import ast
    import inspect

    tree = ast.parse(inspect.getsource(worldplan))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    homes = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == worldplan._HOMES


def test_dir_lists_names_before_they_are_loaded() -> None:
    code = "import worldplan; print(*dir(worldplan))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(worldplan.__all__) <= set(shown.split())


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        worldplan.Trainer  # noqa: B018


def test_import_error_of_a_home_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(worldplan._HOMES, "Ghost", "worldplan.no_such_room:Ghost")
    with pytest.raises(ModuleNotFoundError, match="no_such_room"):
        worldplan.Ghost  # noqa: B018
