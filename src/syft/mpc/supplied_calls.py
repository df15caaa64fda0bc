"""Supplies on disk, as users have them: dealt in the night, used in the morning, each call once over restarts.

    sy.mpc.provide(model, (1, 3, 32, 32), count=100, store="night")     to the disks of the holders
    fast = sy.mpc.supplied("night", model)                              later, in another process, after restarts
    fast(data)                                                          takes the next call; never asks the provider

NOTE [Lots]
Weights are masked once, and the triples of later calls name these masks (`reuse`). A mask is used for one sharing of the
weights only, and shares end with a worker. So calls are dealt in lots: the first call of a lot masks the weights, the
others go with it. When a lot is used up, or a holder or the client was restarted, the next lot begins; what was left of a
lot that was begun in another session is lost, and is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import torch

from syft.core.chain import Wrapper
from syft.core.structs import prepared
from syft.execution.plan import Plan
from syft.mpc.group import Group
from syft.mpc.network import supplying
from syft.mpc.network.driver import NetworkDriver
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.reuse import remembered
from syft.mpc.sharing import AdditiveSharingTensor, secret_of
from syft.mpc.supplies import SupplyError, SupplyMismatchError, SupplyUsedUpError
from syft.mpc.taken import Taken, noting_taken

#: After so many calls from newly shared weights on, each takes what the last one took.
_UNLIKE = 3


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a supply is for: the shapes of the arguments that are secrets, and whether gradients were on."""

    shapes: list[list[int] | None]
    with_gradients: bool
    call: str


def secrets_among(tensors: Any) -> Iterator[Any]:
    """The nodes of reals or integers among tensors that are secrets."""
    for tensor in tensors:
        node = tensor.child if type(tensor) is Wrapper else None
        if isinstance(node, (FixedPrecisionTensor, AdditiveSharingTensor)) and isinstance(
            secret_of(node), AdditiveSharingTensor
        ):
            yield node


def tensors_of(call: Any) -> list[Any]:
    """The parameters, buffers or state of a call."""
    if isinstance(call, Plan):
        return list(call.state.tensors())
    return [*call.parameters(), *call.buffers()] if isinstance(call, torch.nn.Module) else []


def settled(result: Any) -> Any:
    """A result with all its shares computed: what is left undone until it is used would be done by later calls."""
    if type(result) is Wrapper:
        for node in secrets_among([result]):
            len(secret_of(node).child)
    elif isinstance(result, (tuple, list, dict)):
        for part in result.values() if isinstance(result, dict) else result:
            settled(part)
    return result


def _forget(nodes: Any) -> None:
    for node in nodes:
        remembered(secret_of(node)).forget()


# -- making one ----------------------------------------------------------------------------------------------------


def store_calls(
    call: Callable[..., Any],
    examples: Callable[[], list[Any]],
    count: int,
    name: str,
    lot: int,
) -> tuple[int, int]:
    """Deal for calls to the disks of the holders; how many correlations that were, and bytes that each keeps."""
    driver = _driver([*tensors_of(call), *examples()])
    unlike: list[list[Taken]] = []
    _forget(secrets_among(tensors_of(call)))
    shapes: list[list[int] | None] = []
    for _ in range(min(_UNLIKE, lot, count)):
        given = examples()
        _forget(secrets_among(given))
        shapes = _shapes(given)
        with noting_taken() as taken:
            settled(call(*given))
        unlike.append(taken)
    if any(one.provider is not driver.provider for taken in unlike for one in taken):
        raise SupplyError("The call has secrets of several groups of workers. A supply is for one of them.")
    about = msgspec.json.encode(_About(shapes, torch.is_grad_enabled(), _named(call)))
    correlations = nbytes = 0
    first = _free_lot(driver, name)
    for number, begin in enumerate(range(0, count, lot)):
        calls = [unlike[min(at, len(unlike) - 1)] for at in range(min(lot, count - begin))]
        supplying.store_lot(driver, name, first + number, calls, about)
        correlations += sum(map(len, calls))
        nbytes += sum(_size(one) for taken in calls for one in taken)
    return correlations, nbytes


def _free_lot(driver: NetworkDriver, name: str) -> int:
    """The number of the first lot to be made: after all that there are."""
    found = supplying.lots(driver, name)
    return max(found, default=-1) + 1


def _size(one: Taken) -> int:
    return sum(part.nbytes for part in (*one.kind.base, *one.kind.derived))


def _named(call: Any) -> str:
    return str(getattr(call, "name", None) or type(call).__name__)[:100]


def _shapes(arguments: Sequence[Any]) -> list[list[int] | None]:
    return [list(value.shape) if any(secrets_among([value])) else None for value in arguments]


def _driver(tensors: Any) -> NetworkDriver:
    node = next(secrets_among(tensors), None)
    if node is None:
        raise SupplyError(
            "A supply is for calls on secrets, and neither the call nor its arguments have any."
        )
    secret = secret_of(node)
    driver = Group.of(secret.locations, secret.crypto_provider).driver
    if not isinstance(driver, NetworkDriver):
        raise SupplyError(
            "Supplies are kept by workers on a network; those of this process end with it. Leave store=... out: "
            "correlations are then kept in memory."
        )
    return driver


# -- using one -----------------------------------------------------------------------------------------------------


class Supplied:
    """A call that takes everything from a supply. See the top of this file."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(
                f"supplied(name, call): the name of a supply is a text, not a {type(name).__name__}."
            )
        if not callable(call):
            raise TypeError(
                f"supplied({name!r}, call) was given a {type(call).__name__}, which cannot be called. Give a model, a "
                "plan or a function."
            )
        self.name, self.call = name, call
        self._driver: NetworkDriver | None = None
        self._about: _About | None = None
        self._lot: tuple[Any, int, int] | None = None  # the group, the lot, the next call of it
        self._parts: list[tuple[int, int]] = []
        self._lost = 0

    def __repr__(self) -> str:
        return f"Supplied({self.name!r}, {_named(self.call)})"

    def left(self) -> int:
        """How many calls can still be made, as the holders say."""
        driver = self._known_driver()
        with driver.supplying:
            self._look(driver)
            return len(self._usable(driver))

    def drop(self) -> None:
        """Remove what is left of the supply from the disks of the holders."""
        supplying.drop(self._known_driver(), self.name)
        self._about, self._lot, self._parts = None, None, []

    def _known_driver(self) -> NetworkDriver:
        """Of the parameters, or of the last call: a function alone does not say whose supply it uses."""
        if any(secrets_among(tensors_of(self.call))):
            return _driver(tensors_of(self.call))
        if self._driver is None:
            raise SupplyError(
                f"{_named(self.call)} has no shared parameters, so it is not known whose supply {self.name!r} is before "
                "its first call."
            )
        return self._driver

    def __call__(self, *arguments: Any) -> Any:
        driver = self._driver = _driver([*tensors_of(self.call), *arguments])
        with driver.supplying:
            self._check(self._about or self._look(driver), arguments)
            lot, number = self._next(driver)
            if number == 0:
                _forget(secrets_among(tensors_of(self.call)))
            _forget(secrets_among(arguments))
            self._parts.remove((lot, number))
            self._lot = None  # unless it goes well, the next call begins another lot
            with supplying.taking_from(supplying.take(driver, self.name, lot, number)) as portion:
                result = settled(self.call(*arguments))
            if portion.left:
                raise SupplyMismatchError(
                    f"The call took less than the supply {self.name!r} has for it: {len(portion.left)} correlations are "
                    "left. It was made for another model, or for other settings."
                )
            self._lot = driver.joined(), lot, number + 1
            return result

    def _look(self, driver: NetworkDriver) -> _About:
        about, self._parts, self._lost = supplying.listed(driver, self.name)
        try:
            self._about = found = msgspec.json.decode(about, type=prepared(_About))
        except msgspec.DecodeError as error:
            raise SupplyError(f"What the holders say of the supply {self.name!r} cannot be read.") from error
        return found

    def _check(self, about: _About, arguments: Sequence[Any]) -> None:
        """!! SupplyMismatchError, before anything is used"""
        shapes = _shapes(arguments)
        if shapes != about.shapes:
            raise SupplyMismatchError(
                f"The supply {self.name!r} is for secrets of the shapes {_told(about.shapes)}, and the call has "
                f"{_told(shapes)}. Nothing of it was used."
            )
        if torch.is_grad_enabled() != about.with_gradients:
            made, here = ("on", "off") if about.with_gradients else ("off", "on")
            raise SupplyMismatchError(
                f"The supply {self.name!r} was made with gradients {made}, and they are {here} here: a call then takes "
                "other things. Nothing of it was used."
            )

    def _usable(self, driver: NetworkDriver) -> list[tuple[int, int]]:
        """What can be used in this session: whole lots, and the rest of the one that was begun in it."""
        fresh = {lot for lot, number in self._parts if number == 0}
        going, after = -1, 0
        if self._lot is not None and self._lot[0] == driver.joined():
            _, going, after = self._lot
        whole = [one for one in self._parts if one[0] in fresh or (one[0] == going and one[1] >= after)]
        return sorted(whole, key=lambda one: (one[0] != going, one))

    def _next(self, driver: NetworkDriver) -> tuple[int, int]:
        usable = self._usable(driver)
        if not usable:
            self._look(driver)  # somebody may have made more
            usable = self._usable(driver)
        if not usable:
            lost = len(self._parts)
            rest = f" {lost} calls of lots that other sessions began cannot be used." if lost else ""
            rest += f" {self._lost} are not at all holders." if self._lost else ""
            raise SupplyUsedUpError(
                f"No call is left in the supply {self.name!r}.{rest} Make more with sy.mpc.provide(..., "
                f"store={self.name!r}), or call the model itself: then the provider deals."
            )
        first = usable[0]
        if self._lot is None or first[0] != self._lot[1]:
            return first
        return self._lot[1], self._lot[2]


def _told(shapes: Sequence[Sequence[int] | None]) -> str:
    return ", ".join("none" if one is None else str(tuple(one)) for one in shapes) or "none"


def supplied(name: str, call: Callable[..., Any]) -> Supplied:
    """A module, plan or function on secrets that takes its correlations from a supply which `provide(store=name)` made.

    Each call takes one call of it, which is spent before it begins, whatever becomes of it. The provider hears nothing.
    !! SupplyUsedUpError, SupplyMismatchError
    """
    return Supplied(name, call)
