"""Nothing in the library unpickles, evaluates or executes."""

from __future__ import annotations

import ast
from pathlib import Path

import syft

SOURCE = Path(syft.__file__).parent
MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
CALLS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {
    ("torch", "load"),
    ("torch", "save"),
    ("np", "load"),
    ("numpy", "load"),
    ("torch.serialization", "load"),
}


def offences(path: Path, root: Path = SOURCE) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [f"imports {name}" for name in names if name.split(".")[0] in MODULES]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            owner, _, last = called.rpartition(".")
            if (
                called in CALLS
                or (owner, last) in ATTRIBUTES
                or called.startswith(tuple(f"{m}." for m in MODULES))
            ):
                found.append(f"calls {called}")
    return [f"{path.relative_to(root)}: {what}" for what in found]


def test_no_file_of_the_library_turns_bytes_into_code() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 50
    assert [line for path in files for line in offences(path)] == []


def test_the_search_finds_what_is_planted(tmp_path: Path) -> None:
    planted = tmp_path / "bad.py"
    planted.write_text(
        "import pickle as p\nfrom marshal import loads\neval('1')\nimport torch\ntorch.load('x')\n"
    )
    assert offences(planted, tmp_path) == [
        "bad.py: imports pickle",
        "bad.py: imports marshal",
        "bad.py: calls eval",
        "bad.py: calls torch.load",
    ]


def test_serde_looks_nothing_up_by_a_name_from_the_wire() -> None:
    """`getattr` appears only with names that are written in the source, or that were registered there."""
    allowed = {"chain_types.py": 1, "error_types.py": 1}
    for path in sorted((SOURCE / "serde").glob("*.py")):
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "globals", "locals", "vars")
            and not (len(node.args) > 1 and isinstance(node.args[1], ast.Constant))
            and ast.unparse(node) not in ("vars(torch)", "vars(message)", "vars(exceptions)")
        ]  # fmt: skip
        assert len(calls) <= allowed.get(path.name, 0), (path.name, [ast.unparse(c) for c in calls])
