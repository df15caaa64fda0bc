"""The reference has every public name and nothing that does not exist; the page of errors has every error."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import Any

import pytest

import syft
import syft.exceptions
from forked_runs import ROOT

PAGES = sorted((ROOT / "docs/reference").glob("*.md"))
DIRECTIVES = [
    (page.name, path) for page in PAGES for path in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]
#: Names that no page can describe by their docstrings, in tables: `sy.Variable`.
IN_TABLES = [
    (page.name, name)
    for page in PAGES
    for name in re.findall(r"^\| `sy\.([\w.]+)` \|", page.read_text(), re.MULTILINE)
]
#: The modules whose `__all__` is public.
PUBLIC = [
    "syft",
    "syft.federated",
    "syft.mpc",
    "syft.identity",
    "syft.serde",
    "syft.federated.secure_aggregation",
]


def named(path: str) -> Any:
    """The object at a dotted path. !! AttributeError, ImportError"""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("path", [path for _page, path in DIRECTIVES])
def test_what_the_reference_names_exists_and_says_what_it_is(path: str) -> None:
    documented = named(path)
    assert (inspect.getdoc(documented) or "").strip(), f"{path} has no docstring"


@pytest.mark.parametrize("name", [name for _page, name in IN_TABLES])
def test_what_a_table_of_the_reference_names_exists(name: str) -> None:
    named(f"syft.{name}")


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    described = [named(path) for _page, path in DIRECTIVES]
    in_tables = [named(f"syft.{name}") for _page, name in IN_TABLES]
    errors = error_classes()
    public = importlib.import_module(module)
    missing = [
        name
        for name in public.__all__
        if not any(getattr(public, name) is one for one in [*described, *in_tables, *errors])
    ]
    assert missing == [], f"add them to docs/reference: {module}"


def test_every_name_of_the_reference_is_in_an_example_on_its_page() -> None:
    """`tests/test_docs.py` runs the examples."""
    examples = {
        page.name: "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
        for page in PAGES
    }
    names = [(page, path.rpartition(".")[2]) for page, path in DIRECTIVES]
    assert [(page, name) for page, name in names if not re.search(rf"\b{name}\b", examples[page])] == []


def test_no_name_is_described_twice() -> None:
    paths = [path for _page, path in DIRECTIVES]
    assert len(paths) == len(set(paths))


def test_every_page_of_the_reference_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in PAGES if f"reference/{page.name}" not in navigation] == []


# -- errors ------------------------------------------------------------------------------------------


def error_classes() -> list[type[Exception]]:
    """Every public class of error, after every module that has some was imported."""
    for found in pkgutil.walk_packages(syft.__path__, "syft."):
        if found.name.endswith((".errors", ".exceptions")):
            importlib.import_module(found.name)
    from syft.core import rooms

    rooms.load_rest()
    classes: list[type[Exception]] = []
    pending: list[type[Exception]] = [syft.exceptions.SyftError]
    while pending:
        one = pending.pop()
        pending += one.__subclasses__()
        if one not in classes and one.__module__.startswith("syft.") and not one.__name__.startswith("_"):
            classes.append(one)
    return classes


def test_every_error_is_on_the_page_of_errors() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    assert sorted(one.__name__ for one in error_classes() if f"`{one.__name__}`" not in page) == []


def test_every_error_on_the_page_can_be_imported_from_syft_exceptions() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    rows = re.findall(r"^\| (`.*?)\|", page, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) > 60
    assert [name for name in names if not issubclass(getattr(syft.exceptions, name), Exception)] == []


def test_every_error_is_the_very_class_of_its_room() -> None:
    from syft.federated.secure_aggregation import TooFewClientsError
    from syft.serde import SerdeError

    assert syft.exceptions.TooFewClientsError is TooFewClientsError
    assert syft.exceptions.SerdeError is SerdeError


def test_an_error_that_does_not_exist_is_an_attribute_error_with_the_closest_names() -> None:
    with pytest.raises(AttributeError, match=r"no error 'SerdeErorr'.*SerdeError"):
        _ = syft.exceptions.SerdeErorr
