"""Whether a name of 2020 resolves today, and the literal table of those that do not.

    python tests/compat/names.py            what is missing and in no table
    python tests/compat/names.py --prune    strike the pending rows that resolve by now
    python tests/compat/names.py --pending  add everything that is missing to the pending rows

`names_2020.tsv` has one row per name: module, dotted name, parameters or kind. `names_left_out.toml` says of each row
that does not resolve why not; `pending` in it are rows that somebody is working on.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syft.hooking.secrets import AddedLater

HERE = Path(__file__).parent
TABLE = HERE / "names_left_out.toml"
_MISSING = object()


@dataclass(frozen=True)
class Row:
    """One name of 2020."""

    module: str
    name: str
    kind: str

    def __str__(self) -> str:
        return f"{self.module} {self.name} {self.kind}".strip()


@dataclass(frozen=True)
class Parameters:
    """The documented parameters of a callable, the receiver left out."""

    required: tuple[str, ...]
    optional: tuple[str, ...]


def read_rows() -> list[Row]:
    """All rows, each once, in the order of the file."""
    rows = []
    for line in (HERE / "names_2020.tsv").read_text().splitlines():
        if line and not line.startswith("#"):
            module, name, kind = (*line.split("\t"), "", "")[:3]
            rows.append(Row(module, name, kind))
    return list(dict.fromkeys(rows))


# -- the table ---------------------------------------------------------------------------------------


def left_out() -> list[dict[str, Any]]:
    """The entries of the table: `module`, `names` and `reason`."""
    return tomllib.loads(TABLE.read_text())["left_out"]  # type: ignore[no-any-return]


def pending() -> list[str]:
    return tomllib.loads(TABLE.read_text())["pending"]  # type: ignore[no-any-return]


def is_listed(row: Row, entry: dict[str, Any]) -> bool:
    """Whether an entry names this row. `a.b.*` is the module a.b and all below it; `*` is every name."""
    module = entry["module"]
    if module.endswith(".*"):
        if row.module != module[:-2] and not row.module.startswith(module[:-1]):
            return False
    elif row.module != module:
        return False
    return any(
        name == "*" or row.name == name or (name.endswith(".*") and row.name.startswith(name[:-1]))
        for name in entry["names"]
    )


# -- resolving ---------------------------------------------------------------------------------------


def fault(row: Row) -> str | None:
    """What is wrong with a row; None if it resolves."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(row.module)
    except ImportError as error:
        return f"the module does not import: {str(error)[:80]}"
    if row.name == "module":
        return None
    if row.name == "*":
        return None if getattr(module, "__all__", None) else "there is no __all__"
    holder, found = _find(module, row.name)
    if found is _MISSING:
        return "there is no such name"
    if row.kind.startswith("class("):
        return None if inspect.isclass(found) else f"it is a {type(found).__name__} and no class"
    if row.kind.startswith("property"):
        sets = len(_names_in(row.kind)) > 1 and "new" in row.kind
        if sets and isinstance(found, property) and found.fset is None:
            return "it cannot be set"
        return None
    if "(" not in row.kind:
        return None
    return _fault_of_parameters(row, holder, found)


def _find(module: Any, dotted: str) -> tuple[Any, Any]:
    """What holds the last name, and what it names; looked up on the class and on what users see of it."""
    first, *rest = dotted.split(".")
    found = getattr(module, first, _MISSING)
    holder: Any = module
    for name in rest:
        if name.startswith("__") and not name.endswith("__"):
            name = f"_{first}{name}"
        for holder in _seen_as(found):
            static = inspect.getattr_static(holder, name, _MISSING)
            if isinstance(static, AddedLater):  # asking for it puts the real one in its place
                getattr(holder, name)
                static = inspect.getattr_static(holder, name)
            if static is not _MISSING:
                bound = isinstance(static, (staticmethod, classmethod)) or not hasattr(static, "__get__")
                found = getattr(holder, name) if bound or inspect.isfunction(static) else static
                break
        else:
            return holder, _MISSING
    return holder, found


def _seen_as(cls: Any) -> Iterator[Any]:
    """The class, and the class on which its names are when a program uses it."""
    import torch

    yield cls
    if getattr(cls, "__name__", "") == "TorchTensor":  # its names are transferred to torch's tensors
        yield torch.Tensor


def _names_in(kind: str) -> list[str]:
    inside = re.search(r"\((.*)\)", kind)
    return [part.strip() for part in inside[1].split(",") if part.strip()] if inside else []


def documented(row: Row) -> Parameters:
    """The parameters of a row, without `self` or `cls`, `*args` or `**kwargs`."""
    names = _names_in(row.kind)
    is_method = "." in row.name and not row.kind.startswith("static")
    if is_method and names and not names[0].startswith("*"):
        names = names[1:]
    passed = ("_self",) if row.name.endswith(".__init__") else ("_self", "self_")
    names = [n for n in names if n not in passed]  # what `@overloaded` passes, and no caller
    before_star = [n for n in names if not n.startswith("*")]
    required = tuple(n for n in before_star if not n.endswith("="))
    return Parameters(required, tuple(n[:-1] for n in before_star if n.endswith("=")))


def _fault_of_parameters(row: Row, holder: Any, found: Any) -> str | None:
    if not callable(found):
        return f"it is a {type(found).__name__} and cannot be called"
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # torch's own, in C
        return None
    wanted = documented(row)
    static = inspect.getattr_static(holder, row.name.rpartition(".")[2], None)
    is_bound = inspect.ismodule(holder) or isinstance(static, (staticmethod, classmethod))
    receiver = [] if is_bound else [object()]
    if "_self" in signature.parameters:
        receiver.append(object())
    last = row.name.rpartition(".")[2]
    is_operator = last.startswith("__") and last.endswith("__") and last not in ("__init__", "__call__")
    calls: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("by position", [*receiver, *wanted.required], {}),
    ]
    if not is_operator:
        by_name = dict.fromkeys(wanted.required + wanted.optional)
        calls.append(("by name", list(receiver), by_name))
    for how, args, kwargs in calls:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            return f"called {how}: {error}; ours is {signature}"[:300]
    return None


# -- the command -------------------------------------------------------------------------------------


def missing() -> dict[Row, str]:
    """Every row that does not resolve, with what is wrong."""
    faults = {row: fault(row) for row in read_rows()}
    return {row: why for row, why in faults.items() if why is not None}


def unlisted(faults: dict[Row, str]) -> dict[Row, str]:
    entries = left_out()
    return {row: why for row, why in faults.items() if not any(is_listed(row, e) for e in entries)}


def write_pending(rows: list[str]) -> None:
    """Rewrite the pending section; everything before it stays as it is."""
    head, mark, tail = TABLE.read_text().partition("\npending = [")
    after = tail.partition("\n]\n")[2]
    lines = "".join(f"\n    {_quoted(row)}," for row in rows)
    TABLE.write_text(f"{head}{mark}{lines}\n]\n{after}")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main(arguments: list[str]) -> int:
    import torch

    import syft

    syft.TorchHook(torch)
    faults = missing()
    open_rows = unlisted(faults)
    known = set(pending())
    if "--prune" in arguments:
        kept = [row for row in pending() if row in {str(r) for r in open_rows}]
        write_pending(kept)
        print(f"{len(known) - len(kept)} rows struck, {len(kept)} pending")
        return 0
    if "--pending" in arguments:
        write_pending([str(row) for row in open_rows])
        print(f"{len(open_rows)} pending")
        return 0
    for row, why in open_rows.items():
        mark = "pending" if str(row) in known else "MISSING"
        print(f"{mark}  {row}\n         {why}")
    print(f"{len(read_rows())} rows, {len(faults)} missing, {len(open_rows)} of them not left out on purpose")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
