"""A refusal of an operation whose result has as many elements as values say gives that as its reason, and a cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import OperationNotAdmittedError, ValueNotHereError
from syft.operations import is_admitted
from syft.operations.decomposition import refusal
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules

RULES = read_rules('[limits]\nmax_bytes = "1 MB"\nmax_objects = 50\n')
LOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "nonzero": lambda x, n: x.nonzero(),
    "argwhere": lambda x, n: torch.argwhere(x > 0),
    "where": lambda x, n: torch.where(x > 0),
    "masked_select": lambda x, n: x.masked_select(x > 0),
    "unique": lambda x, n: n.unique(),
    "bincount": lambda x, n: n.bincount(),
    "a mask": lambda x, n: x[x > 0],
    "repeats": lambda x, n: x.repeat_interleave(n, 0),
}


@pytest.fixture
def given(hook: Any) -> Any:
    worker = sy.VirtualWorker(hook, id="reasons", auto_add=False, policy=OwnerPolicy(RULES))
    with speaking_for("eve"):
        yield torch.randn(3, 3).send(worker), torch.tensor([1, 2, 3]).send(worker)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", LOOKS)
def test_a_shape_that_values_decide_is_said_to_be_one(name: str, given: Any) -> None:
    with pytest.raises((OperationNotAdmittedError, ValueError)) as told:
        LOOKS[name](*given)
    assert "as many elements as" in str(told.value) or "depends on values" in str(told.value)
    assert any(cure in str(told.value) for cure in ("torch.where", "output_size"))
    assert "forward pass" not in str(told.value)


def test_every_operation_of_such_a_shape_says_so() -> None:
    """All that torch marks."""
    count = 0
    for packet in dir(torch.ops.aten):
        for overload in getattr(getattr(torch.ops.aten, packet), "overloads", list)():
            func = getattr(getattr(torch.ops.aten, packet), overload)
            if torch.Tag.dynamic_output_shape in func.tags and not is_admitted(str(func)):
                count += 1
                assert "as many elements as values say" in str(refusal(func))
    assert count > 5


def test_code_that_looks_at_values_is_named(given: Any) -> None:
    """As in DeBERTa, which makes a table as long as the largest position that it finds."""
    with pytest.raises(ValueNotHereError, match="test_told_reasons"):
        torch.arange(given[1].max())
