"""The party programs that can be asked for over a network, by name. No code travels, and no other name is run.

Who adds a program that rules run adds its name here, or to `PROGRAMS` from its own file. May import `protocols`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from syft.exceptions import UnknownCommandError
from syft.mpc.party import Program
from syft.mpc.protocols import beaver, convert, derived, divide, registry, securenn, select, truncate

PartyProgram = Callable[..., Program[Any]]

PROGRAMS: dict[str, PartyProgram] = {}
"""name in messages -> generator function; mutated in place to add one."""

#: Those whose result is no secret any more to the holders: only for users who may have it.
OPENING = frozenset({"beaver.reveal"})


def _add(module: ModuleType, names: str) -> None:
    room = module.__name__.rpartition(".")[2]
    PROGRAMS.update({f"{room}.{name.strip('_')}": vars(module)[name] for name in names.split()})


_add(beaver, "spdz_mul square and_bits reveal")
_add(truncate, "truncate")
_add(convert, "to_bits split_bits from_bits")
_add(
    select,
    """is_negative is_zero sign select relu relu_with_bit absolute clamp maximum minimum argmax argmin
    max_with_indices max_pool2d max_pool2d_backward""",
)
_add(divide, "divide_public divide_shared")
_add(derived, "positive_part maximum_and_place one_hot leading_bit")
_add(
    securenn,
    """select_share private_compare_shared share_convert msb relu_deriv relu division signed_division maxpool
    maxpool_deriv maxpool2d""",
)
_add(registry, "_snn_is_negative _snn_is_zero _snn_relu_with_bit")


def program_named(name: str) -> PartyProgram:
    """The program of a name from a message; !! UnknownCommandError."""
    found = PROGRAMS.get(name)
    if found is None:
        raise UnknownCommandError(name)
    return found


def name_of(protocol: PartyProgram) -> tuple[str, dict[str, Any]]:
    """The name of a program, and the arguments that a `partial` of it has fixed."""
    fixed: dict[str, Any] = {}
    while isinstance(protocol, partial):
        if protocol.args:
            raise NotImplementedError(
                "A partial program fixes arguments by their names; this one fixes some by their place."
            )
        fixed = {**protocol.keywords, **fixed}
        protocol = protocol.func
    name = next((name for name, one in PROGRAMS.items() if one is protocol), None)
    if name is None:
        raise NotImplementedError(
            f"The program {getattr(protocol, '__qualname__', protocol)!r} has no name among those that workers on a "
            "network run. Add it to syft.mpc.network.programs.PROGRAMS, where the client and all workers import it."
        )
    return name, fixed
