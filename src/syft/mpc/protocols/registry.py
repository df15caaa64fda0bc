"""The comparison protocols, by the name a user gives to `share(protocol=...)`. Each registers itself from its file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syft.mpc.party import Program

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


registry: dict[str, ComparisonProtocol] = {}
"""`protocol=` names; `register_comparison` adds one."""

DEFAULT = "tree"


def register_comparison(protocol: ComparisonProtocol) -> None:
    """Let users name a protocol. The file that has it calls this."""
    registry[protocol.name] = protocol


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
