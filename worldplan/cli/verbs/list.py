"""``worldplan list``: names that other verbs understand."""

from __future__ import annotations

import json

from worldplan.cli.arguments import Arguments
from worldplan.errors import ConfigError, suggest

USAGE = "models | planners | policies | envs | formats | checkpoints"


def names(kind: str) -> list[str]:
    """Names of one kind.

    Raises:
        ConfigError: unknown kind.
    """
    from worldplan.cli import resolve
    from worldplan.cli.values import choices

    if kind == "models":
        return choices("model")
    if kind == "planners":
        return choices("planner")
    if kind == "policies":
        return [*resolve.PLAIN, "PLANNER@CHECKPOINT", "POLICY+noiseSTD", "CHECKPOINT", "module:attribute"]
    if kind == "envs":
        from worldplan.envs import registry

        return [*registry.names(), "gym:Namespace/Name-v0", "module:attribute"]
    if kind == "formats":
        return ["worldplan HDF5 (.h5)", "stable-worldmodel HDF5 (.h5)"]
    if kind == "checkpoints":
        return sorted(path.parent.name for path in (resolve.assets() / "checkpoints").glob("*/config.json"))
    kinds = USAGE.split(" | ")
    raise ConfigError(f"cannot list {kind!r}", fix=suggest(kind, kinds))


def run_plain(arguments: Arguments) -> int:
    """Prints names, one a line."""
    kinds = list(arguments.words) or USAGE.split(" | ")
    found = {kind: names(kind) for kind in kinds}
    if arguments.json:
        print(json.dumps(found))
    elif len(kinds) == 1:
        print("\n".join(found[kinds[0]]))
    else:
        print("\n".join(f"{kind}: {', '.join(each)}" for kind, each in found.items()))
    return 0
