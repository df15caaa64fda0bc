"""The comparison protocols, by the name a user gives to `share(protocol=...)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from syft.mpc.party import Party, Program, together, with_provider
from syft.mpc.protocols import fss, securenn, select

Protocol = Callable[..., Program[Any]]


@dataclass(frozen=True)
class ComparisonProtocol:
    """One way to compare. All programs take (party, x) and give additive shares of x's shape."""

    name: str
    is_negative: Protocol
    is_zero: Protocol
    relu: Protocol
    relu_with_bit: Protocol
    holders: int | None = None  # the one number of holders it works for; None: any
    how: int | str | None = (
        None  # what the functions of `select` and `divide` take as `how`; None: they cannot
    )
    low: int = -(1 << 63)  # the inputs for which it is exact
    high: int = (1 << 63) - 1


def _bitwise(name: str, how: int | str, holders: int | None = None) -> ComparisonProtocol:
    return ComparisonProtocol(
        name,
        partial(select.is_negative, how=how),
        partial(select.is_zero, how=how),
        partial(select.relu, how=how),
        partial(select.relu_with_bit, how=how),
        holders,
        how,
    )


@with_provider
def _snn_is_negative(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    positive = yield from securenn.relu_deriv(party, x)
    return 1 - positive if party.first else -positive


@with_provider
def _snn_is_zero(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """[x >= 0] + [-x >= 0] - 1."""
    one, other = yield from together(securenn.relu_deriv(party, x), securenn.relu_deriv(party, -x))
    share: torch.Tensor = one + other
    return share - 1 if party.first else share


@with_provider
def _snn_relu_with_bit(party: Party, x: torch.Tensor) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    bit = yield from securenn.relu_deriv(party, x)
    zero = torch.zeros_like(x)
    return (yield from securenn.select_share(party, bit, zero, x)), bit


registry: dict[str, ComparisonProtocol] = {
    "tree": _bitwise("tree", 4),
    "tree2": _bitwise("tree2", 2),
    "fss": _bitwise("fss", "fss", fss.HOLDERS),
    "snn": ComparisonProtocol(
        "snn",
        _snn_is_negative,
        _snn_is_zero,
        securenn.relu,
        _snn_relu_with_bit,
        securenn.HOLDERS,
        None,
        -(1 << 62) + 1,
        (1 << 62) - 1,
    ),
}
"""`protocol=` names; mutated in place to add one."""

DEFAULT = "tree"


def comparison(name: str | None = None, holders: int | None = None) -> ComparisonProtocol:
    """The protocol of this name (None: the default), checked against the number of holders if that is given."""
    if name is None:
        name = DEFAULT
    if name not in registry:
        raise ValueError(
            f"No comparison protocol is called {name!r}. There are: {', '.join(sorted(registry))}."
        )
    found = registry[name]
    if holders is not None and found.holders is not None and holders != found.holders:
        raise ValueError(
            f"The protocol {name!r} is for {found.holders} holders, and there are {holders}. "
            f"Share among {found.holders}, or leave `protocol` out: {DEFAULT!r} works for any number."
        )
    return found
