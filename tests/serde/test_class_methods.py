"""Every class of ours that travels has `simplify` and `detail`, as documented for plans."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest
import torch

import syft as sy
from serde.mutation import corpus
from serde.test_chains import EXAMPLES
from syft import exceptions, serde
from syft.serde import error_types, registry


def is_ours(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "syft"


def registered() -> list[type]:
    """The classes of ours in the registry, once every room that adds to it has been imported."""
    for module in pkgutil.walk_packages(sy.__path__, "syft."):
        if any(f".{room}" in module.name for room in ("execution", "federated", "mpc", "dp", "workers")):
            try:
                importlib.import_module(module.name)
            except (ImportError, exceptions.DependencyError):  # it needs a package that is not here
                continue
    found = (*registry.BY_TYPE, *registry.BY_FAMILY, *error_types.EXCEPTIONS.values())
    return [cls for cls in found if is_ours(cls)]


def test_every_registered_class_has_the_two_static_methods() -> None:
    classes = registered()
    assert len(classes) > 150
    for cls in classes:
        for name in ("simplify", "detail"):
            assert isinstance(vars(cls).get(name), staticmethod), (cls, name)
            parameters = list(inspect.signature(getattr(cls, name)).parameters)
            assert len(parameters) == 2 and parameters[0] == "worker", (cls, name)


def test_what_a_class_simplifies_it_details(bob: Any) -> None:
    examples = [value for data in corpus(bob) for value in _each(serde.deserialize(data))]
    examples += [*EXAMPLES.values(), exceptions.GetNotPermittedError("no")]
    tried = set()
    for example in examples:
        cls: Any = type(example)
        if is_ours(cls) and cls.simplify.__module__ in (
            "syft.serde.class_methods",
            "syft.serde.message_methods",
        ):
            contents = cls.simplify(bob, example)
            assert serde.simplify(bob, example)[1:] == contents
            back = cls.detail(bob, contents)
            assert type(back) is cls
            if not isinstance(example, Exception):  # which note on arrival that they arrived
                assert cls.simplify(bob, back) == contents
            tried.add(cls)
    assert len(tried) > 30


def _each(value: Any) -> list[Any]:
    return value if type(value) is list else [value, getattr(value, "child", None)]


def test_one_class_is_not_taken_for_another(bob: Any) -> None:
    from syft.messaging.message import GetShapeMessage, IsNoneMessage

    is_none: Any = IsNoneMessage
    get_shape: Any = GetShapeMessage
    with pytest.raises(serde.SerdeError, match=r"IsNoneMessage\.simplify was given a GetShapeMessage"):
        is_none.simplify(bob, GetShapeMessage(1))
    with pytest.raises(serde.SerdeError, match=r"IsNoneMessage\.simplify was given a int"):
        is_none.simplify(bob, 3)
    assert get_shape.detail(bob, (1,)) == GetShapeMessage(1)
    with pytest.raises(serde.SerdeError, match="fields"):
        get_shape.detail(bob, (1, 2))
    refused: Any = exceptions.GetNotPermittedError
    other = refused.simplify(bob, exceptions.GetNotPermittedError("no"))
    with pytest.raises(serde.SerdeError, match=r"CompressionNotFoundException\.detail was given"):
        exceptions.CompressionNotFoundException.detail(bob, other)  # type: ignore[attr-defined]
    # A pointer to a text is an ObjectPointer, and travels as itself.
    text: Any = sy.String("text").send(bob)
    with pytest.raises(serde.SerdeError, match=r"ObjectPointer\.simplify was given a StringPointer"):
        sy.ObjectPointer.simplify(bob, text)  # type: ignore[attr-defined]


def test_methods_of_their_own_are_kept_and_other_peoples_classes_are_left_alone() -> None:
    assert sy.Plan.simplify.__module__ == "syft.execution.plan"
    assert not hasattr(torch.Size, "simplify") and not hasattr(Exception, "simplify")

    class Mine:
        pass

    serde.register(Mine, "test.Mine", lambda _me, _mine: (), lambda _me, _parts: Mine())
    assert not hasattr(Mine, "simplify")
