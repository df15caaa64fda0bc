"""`func2protocol`: a function of roles, each of which is given a worker.

    @sy.func2protocol(roles=["alice", "bob"], states={"bob": (weights,)})
    def protocol(alice, bob):
        x = alice.torch.rand(2)                  # made by alice
        (w,) = bob.load_state()                  # bob's own
        return bob.receive(x * 2) + w            # alice's tensor goes to bob

    protocol.assign("alice", a_worker)
    protocol.assign("bob", another)
    protocol()                                   # pointers to what bob has

A role without a worker is played here. `build()` plays all of them here, and tells what each does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from syft.core.objects import AbstractObject
from syft.execution.computation import ComputationAction
from syft.execution.errors import PlanProtocolError
from syft.execution.operation import leaves
from syft.execution.role import Role
from syft.execution.state import State
from syft.execution.trace_log import Trace


class func2protocol:
    """Decorator which makes a protocol of a function of roles.

    roles    their names; the function takes them in this order, and then what the protocol is called with
    states   tensors that belong to a role, by its name; `role.load_state()` has them
    """

    def __init__(self, roles: Sequence[str] | None = None, states: Mapping[str, Any] | None = None) -> None:
        if callable(roles):
            raise TypeError(
                'func2protocol is called before it decorates: write @sy.func2protocol(roles=["alice"]).'
            )
        self.roles, self.states = roles, dict(states or {})

    def __call__(self, function: Callable[..., Any]) -> RoleProtocol:
        names = list(self.roles) if self.roles else list(inspect.signature(function).parameters)
        unknown = [name for name in self.states if name not in names]
        if unknown or len(set(names)) != len(names):
            raise PlanProtocolError(
                f"func2protocol was given the roles {names}, and states of {list(self.states)}. Each role has one "
                "name, and states belong to roles."
            )
        roles = {name: Role(name, state=State.of(self.states.get(name, ()))) for name in names}
        return RoleProtocol(function, roles)


class RoleProtocol(AbstractObject):
    """A function of roles. `assign` gives them workers, a call runs it."""

    def __init__(self, function: Callable[..., Any], roles: dict[str, Role], **identity: Any) -> None:
        super().__init__(**identity)
        self.name = getattr(function, "__name__", "protocol")
        self.roles = roles
        self.is_built = False
        self._function = function

    def assign(self, role: str, worker: Any) -> RoleProtocol:
        """Give a role its worker; returns self."""
        if role not in self.roles:
            raise PlanProtocolError(
                f"assign() was called for the role {role!r}; the protocol {self.name!r} has {', '.join(self.roles)}."
            )
        self.roles[role].assign(worker)
        return self

    def assign_roles(self, roles: Mapping[str, Any]) -> RoleProtocol:
        """Give several roles their workers, by name; returns self."""
        for role, worker in roles.items():
            self.assign(role, worker)
        return self

    def __call__(self, *args: Any) -> Any:
        """Run it: what a role makes and computes is at its worker, or here if it has none."""
        return self._function(*self.roles.values(), *args)

    def run(self, *args: Any) -> Any:
        return self(*args)

    def build(self, *args: Any) -> RoleProtocol:
        """Play all roles here once, to know what each does (`protocol.roles[name].actions`); returns self."""
        players = {name: Role(name, state=role.state.copy()) for name, role in self.roles.items()}
        log = Trace()
        with torch.random.fork_rng(devices=[]), log.enabled():
            self._function(*players.values(), *args)
        for command, response in log.logs:
            self._note(players, command, response)
        for name, role in self.roles.items():
            role.actions = players[name].actions
        self.is_built = True
        return self

    def _note(self, players: dict[str, Role], command: tuple[Any, ...], response: Any) -> None:
        name, target, args, kwargs = command
        given = [leaf for leaf in leaves((target, args, kwargs)) if isinstance(leaf, torch.Tensor)]
        results = [leaf for leaf in leaves(response) if isinstance(leaf, torch.Tensor)]
        players_of = [role for role in players.values() if any(role.owns(t) for t in results)]
        givers = [role for role in players.values() if any(role.owns(t) for t in given)]
        if len(givers) > 1:
            raise PlanProtocolError(
                f"{name} of the protocol {self.name!r} takes tensors of {', '.join(str(r.id) for r in givers)}. They "
                "are at different workers: move one first, with role.receive(tensor)."
            )
        if not players_of and not givers:
            return
        role = (players_of or givers)[0]
        if givers and givers[0] is not role:
            givers[0].sends(given[0], [role.id])
            return
        for tensor in results:
            role.takes(tensor)
        ids = tuple(tensor.id for tensor in results)  # type: ignore[attr-defined]
        role.actions.append(ComputationAction(name, target, tuple(args), dict(kwargs), ids))

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{n}: {'here' if r.worker is None else r.worker.id}" for n, r in self.roles.items()
        )
        return f"<RoleProtocol {self.name} id:{self.id} {parts}>"
