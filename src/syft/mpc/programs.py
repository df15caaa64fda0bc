"""`@party_program`: the party programs that can be asked for by name, and the only list of them.

    @party_program
    def multiply(party, x, y): ...          # in protocols/mine.py: "mine.multiply"

No code travels, and no other name is run. Every file in `protocols` is imported with the package, so a new protocol is
one file. Imports `party` only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from syft.exceptions import UnknownCommandError
from syft.mpc.party import Program

PartyProgram = Callable[..., Program[Any]]
P = TypeVar("P", bound=PartyProgram)

PROGRAMS: dict[str, PartyProgram] = {}
"""name in messages -> generator function."""

_NAMES: dict[PartyProgram, str] = {}

OPENING: set[str] = set()
"""Those whose result is no secret any more to the holders: only for users who may have it."""


Outlining = Callable[[Callable[..., Any], Callable[..., Any], tuple[Any, ...], tuple[Any, ...]], Any]
OUTLINES: dict[str, Outlining] = {}
"""name -> function(ask, make, args, kwargs) that gives the kinds and results of a program without running it.

`ask(name, args, kwargs)` gives the outline of another program, `make(shape, dtype)` describes a tensor (see
`network.outline`).
"""


def party_program(program: P) -> P:
    """Give a party program its name: that of its file and its own."""
    name = f"{program.__module__.rpartition('.')[2]}.{program.__name__}"
    if name in PROGRAMS:
        raise ValueError(
            f"There is a party program {name!r} already. Programs are told apart by their names."
        )
    PROGRAMS[name] = program
    _NAMES[program] = name
    return program


def opening_program(program: P) -> P:
    """The same for a program that tells the holders a secret."""
    party_program(program)
    OPENING.add(_NAMES[program])
    return program


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
    name = _NAMES.get(protocol)
    if name is None:
        raise NotImplementedError(
            f"The program {getattr(protocol, '__qualname__', protocol)!r} has no name among those that workers on a "
            "network run. Write it in a file of syft.mpc.protocols and decorate it with @party_program, which adds it to "
            "PROGRAMS there and at all workers."
        )
    return name, fixed
