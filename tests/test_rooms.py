"""Modules of one room do not import each other in circles: what is shared lies below those who share it.

Imports at the top of a module and inside functions count; those for type checkers only do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import syft

ROOT = Path(syft.__file__).parent


def modules() -> dict[str, Path]:
    """Dotted name -> file, of all modules of the package."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("syft", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(name: str, source: str, is_package: bool) -> set[str]:
    """The modules that a module imports anywhere, but for type checkers."""
    found = set()
    for node in _running(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = name.split(".")[: None if is_package else -1]
            base = ".".join(start[: len(start) + 1 - node.level]) + "." if node.level else ""
            full = (base + (node.module or "")).rstrip(".")
            found |= {one if (one := f"{full}.{a.name}") in MODULES else full for a in node.names}
    return found - {name}


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, but the bodies of `if TYPE_CHECKING:`."""
    yield node
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        children = list(node.orelse)
    for child in children:
        yield from _running(child)


def cycles(edges: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one node."""

    def reached(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            for target in edges[todo.pop()] & edges.keys() - seen:
                seen.add(target)
                todo.append(target)
        return seen

    reach = {node: reached(node) for node in edges}
    on_cycles = {frozenset(other for other in reach[node] if node in reach[other]) for node in edges}
    return [set(found) for found in on_cycles if len(found) > 1]


ROOMS = sorted({name.split(".")[1] for name in MODULES if name.count(".") > 1})


@pytest.mark.parametrize("room", ROOMS)
def test_the_modules_of_a_room_import_each_other_in_one_direction(room: str) -> None:
    inside = {name: path for name, path in MODULES.items() if f"{name}.".startswith(f"syft.{room}.")}
    edges = {
        name: imported(name, path.read_text(), path.name == "__init__.py") for name, path in inside.items()
    }
    found = {
        " ".join(sorted(name.removeprefix(f"syft.{room}.") for name in cycle)) for cycle in cycles(edges)
    }
    assert not found, "Move what these modules share into a module below them."


def test_a_cycle_through_a_function_is_found() -> None:
    sources = {
        "syft.mpc.ring": "def f():\n    from syft.mpc.party import Party",
        "syft.mpc.party": "from syft.mpc import group",
        "syft.mpc.group": "import syft.mpc.ring",
        "syft.mpc.drivers": "from . import group\nif TYPE_CHECKING:\n    from syft.mpc import storage",
        "syft.mpc.storage": "from .drivers import Lockstep",
    }
    edges = {name: imported(name, source, False) for name, source in sources.items()}
    assert edges["syft.mpc.drivers"] == {"syft.mpc.group"} and edges["syft.mpc.storage"] == {
        "syft.mpc.drivers"
    }
    assert cycles(edges) == [{"syft.mpc.ring", "syft.mpc.party", "syft.mpc.group"}]
