"""What a program's own code can keep values in: the globals its functions use, the attributes of its classes.

One duty: to tell the user's own code from that of Python and of installed packages, and what own code leads to.
`kept_state` looks there. Imports nothing of ours.

NOTE [Installed code]
Globals, classes and modules of Python and of installed packages are not looked at: they keep caches by shape and logs,
not examples, and there are very many of them. One's own code is in no such package: a script, a notebook, a project.
"""

from __future__ import annotations

import dis
import functools
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

#: Packages that may be used from their source, and keep nothing of what they are given.
_TRUSTED = frozenset({"torch", "syft"})
#: Attributes of every class that Python makes.
_MADE_BY_PYTHON = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "_abc_impl"})
_FOLDERS = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@functools.lru_cache(maxsize=4096)
def _is_own_name(module: str) -> bool:
    top = module.partition(".")[0]
    if top in _TRUSTED or (top in sys.stdlib_module_names and top != "__main__"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return not (isinstance(file, str) and file.startswith(_FOLDERS))


def is_own(code: Any) -> bool:
    """Whether this function, class or module is the user's own: see NOTE [Installed code]."""
    name = code.__name__ if isinstance(code, types.ModuleType) else getattr(code, "__module__", None)
    return _is_own_name(name if isinstance(name, str) else "")


@functools.lru_cache(maxsize=4096)
def _names_used(code: types.CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """Globals that code reads or writes, in the functions within it too, and the attributes it names."""
    names, attributes = dict[str, None](), set(code.co_names)
    for step in dis.get_instructions(code):
        if step.opname.endswith(("_GLOBAL", "_NAME", "_OR_GLOBALS")):
            names[step.argval] = None
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more, others = _names_used(inner)
            names.update(dict.fromkeys(more))
            attributes |= others
    return tuple(names), frozenset(attributes)


def variables_used(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Variables of its closure, and of an own function globals too, by name.

    Of own modules among them also what the function may name of them.
    """
    names, attributes = _names_used(function.__code__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield from _named(name, content_of(cell), attributes, set())
    for name in names if is_own(function) else ():
        if name in function.__globals__:
            yield from _named(name, function.__globals__[name], attributes, set())


def content_of(cell: types.CellType) -> Any:
    """What a variable of a closure holds; None if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _named(path: str, value: Any, attributes: frozenset[str], seen: set[int]) -> Iterator[tuple[str, Any]]:
    yield path, value
    if isinstance(value, types.ModuleType) and is_own(value) and id(value) not in seen:
        seen.add(id(value))
        for name, part in list(vars(value).items()):
            if name in attributes:
                yield from _named(f"{path}.{name}", part, attributes, seen)


def class_parts(of: type) -> Iterator[tuple[str, Any]]:
    """What an own class keeps and runs: its attributes and methods, and those of its own bases."""
    for base in of.__mro__:
        if not is_own(base):
            continue
        for name, part in list(vars(base).items()):
            if name in _MADE_BY_PYTHON:
                continue
            if isinstance(part, property):
                for role in ("fget", "fset", "fdel"):
                    yield f"{name}.{role}", getattr(part, role)
            else:
                yield name, part.__func__ if isinstance(part, (staticmethod, classmethod)) else part
