"""Every documented path imports, is the same thing as its home, and has the documented signature."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest

import syft

PATHS = tomllib.loads((Path(__file__).parent / "paths.toml").read_text())["path"]


def reach(module: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        module = getattr(module, part)
    return module


def names_of(entry: dict[str, Any]) -> list[str]:
    return [*entry.get("names", []), *entry.get("parameters", {})]


@pytest.mark.parametrize("entry", PATHS, ids=lambda e: e["path"])
def test_a_documented_path_is_its_home(entry: dict[str, Any]) -> None:
    here, home = importlib.import_module(entry["path"]), importlib.import_module(entry["home"])
    for name in names_of(entry):
        top = name.split(".")[0]
        assert getattr(here, top) is getattr(home, top), name


@pytest.mark.parametrize("entry", [e for e in PATHS if "parameters" in e], ids=lambda e: e["path"])
def test_a_documented_signature_is_kept(entry: dict[str, Any]) -> None:
    module = importlib.import_module(entry["path"])
    for name, documented in entry["parameters"].items():
        actual = [
            p
            for p in inspect.signature(reach(module, name)).parameters
            if p != "self" or "self" in documented
        ]
        assert [p for p in actual if p in documented] == documented, (name, actual)


def test_a_cache_rebound_at_a_historical_path_is_rebound_at_home() -> None:
    alias = importlib.import_module("syft.generic.frameworks.hook.hook_args")
    home = importlib.import_module("syft.core.hook_args")
    before = home.hook_method_args_functions
    alias.hook_method_args_functions = {}
    try:
        assert home.hook_method_args_functions == {}
        assert home.hook_method_args_functions is not before
    finally:
        home.hook_method_args_functions = before


def test_the_public_names_are_exactly_those_listed() -> None:
    public = {
        name for name in dir(syft) if not name.startswith("_") and not inspect.ismodule(getattr(syft, name))
    }
    assert public == set(syft.__all__) - {"exceptions", "hook_args", "serde"}
    assert all(hasattr(syft, name) for name in syft.__all__)
