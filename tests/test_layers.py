"""Who may know whom: rooms import strictly downward, and Hydra stops at the command line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import worldplan

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "worldplan"
LAYERS = {
    0: ("types", "tree", "seeding", "errors", "checkpoint", "normalize", "protocol"),
    1: ("models", "planners", "envs", "data"),
    2: ("policies", "loop", "compute", "testing"),
    3: ("training", "evaluation"),
    4: ("recipes",),
    5: ("cli", "configs"),
}
LAYER = {room: layer for layer, rooms in LAYERS.items() for room in rooms}
# within a layer: who may know which of its neighbours; the rest of layers 1 to 4 never meet
NEIGHBOURS = {
    "loop": {"policies"},
    "compute": {"policies", "loop"},
    "testing": {"policies", "loop", "compute"},
    "cli": {"configs"},
}
FRONT_DOOR = ("__init__", "__main__")  # name every room, or the command line, on purpose
LINKS = ("models", "planners", "envs", "configs")


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(text: str) -> Iterator[tuple[int, str]]:
    """Every ``(line, dotted name)`` a source imports, also inside functions and for type checking."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def rooms_entered(name: str) -> str | None:
    """The room a dotted name lies in; public names of the package count as their home."""
    parts = name.split(".")
    if parts[0] != "worldplan" or len(parts) < 2 or parts[1] == "__version__":
        return None
    home = worldplan._HOMES.get(parts[1])
    return (home.split(":")[0].split(".") if home else parts)[1]


def allowed(room: str, other: str) -> bool:
    if room == other or (LAYER[room] == LAYER[other] == 0):
        return True
    return LAYER[other] < LAYER[room] or other in NEIGHBOURS.get(room, ())


def test_every_room_has_a_layer() -> None:
    unknown = {room_of(path) for path in sources()} - LAYER.keys() - set(FRONT_DOOR)
    assert not unknown, f"not in the architecture: {sorted(unknown)}"


def test_rooms_import_downward_only() -> None:
    wrong = []
    for path in sources():
        room = room_of(path)
        if room in FRONT_DOOR:
            continue
        for line, name in imported(path.read_text(encoding="utf-8")):
            other = rooms_entered(name)
            if other is not None and not allowed(room, other):
                wrong.append(f"{path.relative_to(ROOT)}:{line} {room} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_front_door_runs_nothing_but_itself() -> None:
    at_import = [
        node
        for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {name for node in at_import for _, name in imported(ast.unparse(node))}
    assert names == {"__future__.annotations", "importlib", "typing.TYPE_CHECKING", "typing.Any"}


def test_only_the_command_line_knows_hydra() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources()
        if room_of(path) != "cli"
        for line, name in imported(path.read_text(encoding="utf-8"))
        if name.split(".")[0] in ("hydra", "omegaconf")
    ]
    assert not wrong, "\n".join(wrong)


def test_nobody_imports_through_the_links() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for folder in ("worldplan", "tests", "benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in imported(path.read_text(encoding="utf-8"))
        if name.split(".")[0] in LINKS
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("room", "other", "expected"),
    [
        ("planners", "types", True),
        ("planners", "models", False),
        ("types", "planners", False),
        ("loop", "policies", True),
        ("policies", "loop", False),
        ("training", "evaluation", False),
        ("cli", "recipes", True),
        ("protocol", "types", True),
    ],
)
def test_the_rule_itself(room: str, other: str, expected: bool) -> None:
    assert allowed(room, other) is expected


def test_imports_inside_functions_and_public_names_are_seen() -> None:
    text = "def f():\n    from worldplan import CEM\n    import worldplan.models.lewm\n"
    assert [rooms_entered(name) for _, name in imported(text)] == ["planners", "models"]
