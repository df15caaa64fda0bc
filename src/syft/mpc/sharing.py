"""`AdditiveSharingTensor`: integers mod 2^64 split into random shares, one per holder, that add up to the secret.

The child maps each holder's id to a pointer to its share. What is linear runs at every holder on its own share;
everything else is a party program (`syft.mpc.protocols`) that the group's driver runs among them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, NoReturn

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.core.hook_args import (
    get_child,
    one,
    register_backward_func,
    register_forward_func,
    register_type_rule,
)
from syft.core.nested import found_in
from syft.core.overload import overloaded, overloads_chain
from syft.core.public_names import spoken_name
from syft.exceptions import ChainError, ValueNotHereError
from syft.messaging.message import ForceObjectDeleteMessage
from syft.mpc import authenticated, fixed_layers, ring, watching
from syft.mpc.lazy_shares import LazyShares
from syft.mpc.node_methods import FIELD as FIELD
from syft.mpc.node_methods import SharedMethods, checked_field
from syft.mpc.protocols import (
    beaver,
    derived,
    divide,
    exponential,
    leading,
    local,
    lookup,
    select,
    softmax,
    spdz2k,
    truncate,
    waves,
)
from syft.mpc.protocols.registry import comparison
from syft.mpc.reuse import Masked, Remembered
from syft.mpc.rules.registry import Interpret
from syft.mpc.shared_node import SharedNode, split_among
from syft.serde import add_byte_methods, register
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.tensors.pointer import PointerTensor
from syft.workers.abstract import AbstractWorker

CPU = torch.device("cpu")

#: What programs of 2020 pass on to get nodes instead of chains: `x.share(alice, bob, **no_wrap)`.
no_wrap = {"no_wrap": True}


def secret_of(node: Any) -> Any:
    """The AdditiveSharingTensor of a chain, or None."""
    while node is not None and not isinstance(node, AdditiveSharingTensor):
        node = getattr(node, "child", None) if not isinstance(node, torch.Tensor) else None
    return node


def roll(self: Any, shifts: Any, dims: Any = None) -> Any:
    """torch.roll; a shift may be known to the holders only, as pointers to it at each of them."""
    each = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    if not any(type(shift) is Wrapper for shift in each):
        with torch._C.DisableTorchFunctionSubclass():
            return torch.roll(self, shifts) if dims is None else torch.roll(self, shifts, dims)
    if dims is None or dims == ():
        if len(each) != 1:
            raise ValueError("roll with several shifts takes as many dims.")
        return roll(self.reshape(-1), each[0], 0).reshape(self.shape)
    places = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if len(places) != len(each):
        raise ValueError(
            f"roll was given {len(each)} shifts for {len(places)} dims. Give one shift per dimension."
        )
    made = self
    for shift, dim in zip(each, places, strict=True):
        made = _rolled(made, shift, dim)
    return made


def _rolled(tensor: Any, shift: Any, dim: int) -> Any:
    if type(shift) is not Wrapper:
        return torch.roll(tensor, shift, dim)
    if not isinstance(shift.child, MultiPointerTensor) or secret_of(tensor.child) is None:
        raise ChainError(
            "roll was given a shift that is elsewhere. Of a secret, send it to every holder: shift.send(*x.locations); "
            "else fetch it with `.get()`."
        )
    size = tensor.shape[dim]
    places = torch.arange(size).send(*shift.child.locations)  # type: ignore[attr-defined]
    return tensor.index_select(dim, (places - shift) % size)


class AdditiveSharingTensor(SharedMethods, SharedNode):
    """A secret tensor of integers. Nobody who holds fewer than all shares learns anything about it but its shape.

    NOTE [The first get]
    `pointer.share(...)` splits a value where it is. In the documented programs its result is a pointer to the secret,
    and one `get()` brings the secret here, still shared; opening it takes another. A program that was written so
    must not open every single value, so the first `get()` of such a secret is the secret itself. What is computed
    from such secrets alone is still there, so its first `get()` is the same.
    """

    was_shared_there = False
    #: It was found at its holders, or is offered there to others: it stays when it is fetched. See `offers`.
    is_found = False
    #: See `syft.mpc.reuse`: what is remembered of the values, and how this view of them was made.
    _remembered: Remembered | None = None
    _path: tuple[Any, ...] = ()
    transpose_of: weakref.ref[AdditiveSharingTensor] | None = None
    #: See NOTE [Views] in `syft.mpc.authenticated`.
    is_view = is_stale = False
    #: Put here by `syft.mpc.rules`, which stands on this class: for operations without a rule.
    interpret_unknown: ClassVar[Interpret]
    #: As well: see `syft.mpc.rules.fixed_ring`.
    product_truncated: ClassVar[Callable[..., Any]]
    squared: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        shares: dict[Any, PointerTensor] | None = None,
        crypto_provider: Any = None,
        field: int | None = None,
        protocol: str | None = None,
        n_bits: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(shares, crypto_provider, **kwargs)
        if n_bits is not None and (not isinstance(n_bits, int) or not 0 < n_bits < 63):
            raise ValueError(
                f"n_bits={n_bits!r}: a field has 1 to 62 bits. Leave it out for the default of 62."
            )
        self.protocol = protocol
        #: Where each holder in this process keeps its share; on a network, `home`.
        self.device = CPU
        #: Where the values came from: what is opened comes there.
        self.home = CPU
        #: See NOTE [The field].
        self.field = checked_field(2**n_bits if field is None and n_bits is not None else field)

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The rule for the operation if it has one, else what `syft.mpc.rules.shared_nonlinear` makes of it."""
        for value in args:
            if isinstance(value, PointerTensor):
                raise ChainError(
                    f"{spoken_name(func)} was called with a secret and a pointer to {value.location.id!r}. A secret that "
                    "was shared there comes here, still shared, with `.get()`; share plain data with share(...)."
                )
            if isinstance(value, AdditiveSharingTensor) and not value.is_split:
                raise ChainError(
                    f"{func} was called on an AdditiveSharingTensor that is not split yet. Call "
                    "x.child.init_shares(alice, bob) first, or write tensor.share(alice, bob)."
                )
        if watching.is_on():
            return watching.interpreted(cls, func, args, kwargs)
        return cls._interpreted(func, args, kwargs)

    @classmethod
    def _interpreted(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = cls.aten_rules.get(func, cls.interpret_unknown)
        first = next((value for value in args if isinstance(value, AdditiveSharingTensor)), None)
        if first is None or first.locations[0].is_in_process:
            return rule(cls, func, args, kwargs)
        with first.group.waiting():
            return rule(cls, func, args, kwargs)

    def get_class_attributes(self) -> dict[str, Any]:
        return {"crypto_provider": self.crypto_provider, "protocol": self.protocol}

    def of(self, pointers: list[PointerTensor]) -> AdditiveSharingTensor:
        """A node of the same holders and provider over other shares."""
        made = AdditiveSharingTensor(
            {p.location.id: p for p in pointers}, crypto_provider=self.crypto_provider, protocol=self.protocol
        )
        made.field, made.device, made.home = self.field, self.device, self.home
        return made

    @property
    def locations(self) -> list[Any]:
        """The holders."""
        return list(self.child.workers) if isinstance(self.child, LazyShares) else super().locations

    @property
    def public_device(self) -> torch.device:
        """Where public values are put that meet the shares. A worker on a network brings them to its own device."""
        return self.device if self.locations[0].is_in_process else CPU

    @classmethod
    def takes_in(cls, other: type) -> bool:
        """Every holder uses its own of what a MultiPointerTensor has for them, as an index for example.

        A pointer is taken in to be refused with the cure.
        """
        return issubclass(other, (MultiPointerTensor, PointerTensor))

    @property
    def spec(self) -> Any:
        if not self.is_split:
            return self.child
        foretold = getattr(self.child, "spec", None)  # of shares that are not computed yet
        if foretold is not None:
            return foretold
        return authenticated.spec_of(super().spec) if authenticated.is_authenticated(self) else super().spec

    def __str__(self) -> str:
        if not self.is_split:
            return f"[AdditiveSharingTensor, not split yet]>{self.child}"
        lines = "".join(f"\n\t-> {pointer}" for pointer in self.child.values())
        return f"[AdditiveSharingTensor]{lines}\n\t*crypto provider: {getattr(self.crypto_provider, 'id', None)}*"

    __repr__ = __str__

    # -- running programs --------------------------------------------------------------------------

    def run(self, protocol: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a party program on this secret first and `args` after it; every result is a node."""
        for other in (*args, *kwargs.values()):
            if isinstance(other, AdditiveSharingTensor):
                self.check_same_holders(other)
        there = are_there((self, *args, kwargs))
        if authenticated.is_authenticated(self):
            return self.nodes(authenticated.run(self, protocol, args, kwargs), there)
        return self.nodes(self.group.run(protocol, self, *args, **kwargs), there)

    def run_masked(self, protocol: Any, *args: Any) -> Any:
        """Run a program on secrets of the same holders, some of them in their masked form (`reuse.GivenMasked`)."""
        nodes = [getattr(value, "node", value) for value in args]
        return self.nodes(self.group.run(protocol, *args), are_there(nodes))

    def nodes(self, result: Any, there: bool = False) -> Any:
        """Shares of tensors as nodes, tuples of them as tuples, None as None. `there`: see NOTE [The first get]."""
        if isinstance(result, Masked):
            return result
        if isinstance(result, tuple) and result and isinstance(result[0], PointerTensor):
            made = self.of(list(result))
            made.was_shared_there = there
            return made
        if isinstance(result, tuple) and all(part is None for part in result):
            return None
        return tuple(self.nodes(part, there) for part in result)

    def check_same_holders(self, other: AdditiveSharingTensor) -> None:
        """!! ChainError unless both are held by the same workers. `other` lists them in the order of this secret then.

        Shares are summands, so their order means nothing by itself; those of one program only have to agree.
        """
        if set(self.child) != set(other.child) or self.crypto_provider.id != other.crypto_provider.id:
            raise ChainError(
                f"Two secrets with different holders met: one is held by {', '.join(map(str, self.child))} with provider "
                f"{self.crypto_provider.id}, the other by {', '.join(map(str, other.child))} with provider "
                f"{other.crypto_provider.id}. Share both among the same workers, with the same crypto_provider."
            )
        authenticated.check_alike(self, other)
        if list(self.child) != list(other.child):
            other.child = {holder: other.child[holder] for holder in self.child}

    # -- what fixed precision asks of its integers (see rules.fixed_ring) ---------------------------

    def truncate(self, divisor: int) -> AdditiveSharingTensor:
        """x / divisor, rounded to one of the two integers next to it."""
        if divisor > truncate.HIGH:  # nothing in its range is as large: 0 is next to every quotient
            return self.run(local.zeros)
        return self.run(truncate.truncate, divisor)

    def less_than_zero(self) -> AdditiveSharingTensor:
        return self.run(comparison(self.protocol).is_negative)

    def equals_zero(self) -> AdditiveSharingTensor:
        return self.run(comparison(self.protocol).is_zero)

    def multiply_bit(self, bits: AdditiveSharingTensor) -> AdditiveSharingTensor:
        return self.run(beaver.spdz_mul, bits)

    def one_hot(self, size: int) -> AdditiveSharingTensor:
        """Shape (size, *shape): row i is 1 where x is i; size is a power of two."""
        return self.run(derived.one_hot, size)

    def rescaled(self, factor: int, divisor: int) -> AdditiveSharingTensor:
        """x * factor / divisor, rounded to one of the two integers next to it."""
        return self.run(truncate.rescale, factor, divisor)

    def rescaled_together(self, others: Any, factor: int, divisor: int) -> Any:
        """The same for this and others, in one program."""
        if authenticated.is_authenticated(self) or not others:
            return [one.rescaled(factor, divisor) for one in (self, *others)]
        return self.run(truncate.rescale_together, factor, divisor, *others)

    def polynomial(self, coefficients: bytes, shift: int, bits: int) -> AdditiveSharingTensor:
        return self.run(lookup.polynomial, coefficients, shift, bits)

    def piecewise(self, shift: int, size: int, tables: bytes) -> AdditiveSharingTensor:
        return self.run(lookup.piecewise, shift, size, tables)

    def exponential(self, *parameters: Any) -> AdditiveSharingTensor:
        return self.run(exponential.exponential, *parameters)

    def exponential_cut(self, *parameters: Any) -> AdditiveSharingTensor:
        return self.run(exponential.exponential, *parameters, **self.how)

    def divided_bounded(self, other: AdditiveSharingTensor, *parameters: Any) -> AdditiveSharingTensor:
        return self.run(divide.divide_bounded, other, *parameters, **self.how)

    def clamped(self, low: int, high: int) -> AdditiveSharingTensor:
        return self.run(select.clamp, low, high, **self.how)

    def cut_magnitude(self, edge: int) -> tuple[AdditiveSharingTensor, ...]:
        return self.run(select.cut_magnitude, edge, **self.how)

    @property
    def scaled_function(self) -> Callable[..., AdditiveSharingTensor] | None:
        """A function of the leading bit and of what follows it, times a power of two."""
        return None if authenticated.is_authenticated(self) else partial(self.run, leading.scaled_function)

    @property
    def shifted_function(self) -> Callable[..., AdditiveSharingTensor] | None:
        """The same, plus a multiple of the place of the leading bit."""
        return None if authenticated.is_authenticated(self) else partial(self.run, leading.shifted_function)

    @property
    def odd_function(self) -> Callable[..., AdditiveSharingTensor] | None:
        """A sum of sines within an edge, and a number beyond it."""
        if authenticated.is_authenticated(self):
            return None
        return partial(self.run, waves.odd_function, **self.how)

    @property
    def sines(self) -> Callable[..., AdditiveSharingTensor] | None:
        """A sum of sines."""
        return None if authenticated.is_authenticated(self) else partial(self.run, waves.sines)

    def leading_bit(self, size: int) -> AdditiveSharingTensor:
        """Shape (size, *shape): row i is 1 where 2^i <= x < 2^(i+1)."""
        return self.run(derived.leading_bit, size)

    def maximum_along(self, dim: int) -> tuple[AdditiveSharingTensor, AdditiveSharingTensor]:
        """The maximum along `dim`, and a 0/1 tensor that shows where it is."""
        return self.run(derived.maximum_and_place, dim, **self.how)

    def maximum_of_windows(
        self, pooling: select.Pooling, lowest: int
    ) -> tuple[AdditiveSharingTensor, AdditiveSharingTensor] | None:
        """The maximum of each window, and a 0/1 tensor that shows where it is."""
        if authenticated.is_authenticated(self):
            return None
        return self.run(derived.maximum_of_windows, pooling, lowest, **self.how)

    def relu_of_windows(self, pooling: select.Pooling, lowest: int) -> AdditiveSharingTensor | None:
        """The maximum of each window and 0."""
        if authenticated.is_authenticated(self):
            return None
        return self.run(derived.relu_of_windows, pooling, lowest, **self.how)

    def largest_along(self, dim: int) -> AdditiveSharingTensor:
        """The maximum along `dim`, which is gone."""
        return self.run(derived.largest, dim, **self.how)

    def softmax_along(self, *parameters: Any) -> AdditiveSharingTensor | None:
        if authenticated.is_authenticated(self):
            return None
        return self.run(softmax.softmax, *parameters, **self.how)

    def log_softmax_along(self, *parameters: Any) -> tuple[AdditiveSharingTensor, ...] | None:
        if authenticated.is_authenticated(self):
            return None
        return self.run(softmax.log_softmax, *parameters, **self.how)

    def log_softmax_backward(self, *parameters: Any) -> AdditiveSharingTensor:
        return self.run(softmax.log_softmax_backward, *parameters)

    def positive_part(self) -> tuple[AdditiveSharingTensor, AdditiveSharingTensor]:
        """max(x, 0), and 1 where x > 0."""
        if self.how:
            return self.run(derived.positive_part, **self.how)
        positive = self.run(local.negate).less_than_zero()
        return self.multiply_bit(positive), positive

    @property
    def how(self) -> dict[str, Any]:
        """Which comparison the programs made of others use: that of the secret, where it works inside them."""
        how = comparison(self.protocol).how
        return {} if how is None else {"how": how}

    # -- opening -----------------------------------------------------------------------------------

    def waiting(self) -> Any:
        """Inside, whoever waits for one holder is told when another one, or the provider, is gone."""
        return nullcontext() if self.crypto_provider is None else self.group.waiting()

    def get(self, *args: Any, user: str | None = None, reason: str = "", **kwargs: Any) -> torch.Tensor:
        """The secret as signed integers; the shares are removed at the holders, unless others find them there.

        Each holder gives its share to those whom the owners of all that went into the secret have named. See NOTE [The
        first get].
        """
        if not self.is_split:
            raise ChainError(
                "get() was called on an AdditiveSharingTensor that is not split yet. Call "
                "x.child.init_shares(alice, bob) first, or write tensor.share(alice, bob)."
            )
        if self.was_shared_there:
            self.was_shared_there = False
            return new_wrapper(self)
        with self.waiting():
            if authenticated.is_authenticated(self):
                value = authenticated.leave(self)
            else:
                value = ring.reconstruct([p.get_share(user, reason, self.is_found) for p in self.pointers])
        value = value.to(self.home)
        if self.is_found:
            return value
        for pointer in self.pointers:
            if not pointer.garbage_collect_data:
                pointer.ask(ForceObjectDeleteMessage((pointer.id_at_location,)))
        return value

    def place(self) -> AdditiveSharingTensor:
        """The same holders without a secret: what `put_back` needs."""
        return self.of([pointer.place() for pointer in self.pointers])

    def put_back(self, value: torch.Tensor) -> AdditiveSharingTensor:
        """Integers that are here, shared among the same holders."""
        return share_integers(value.to(self.home), self.locations, self.crypto_provider, self.protocol)

    def virtual_get(self) -> torch.Tensor:
        """The secret, read from holders in this process; the shares stay (for tests and debugging)."""
        if not all(location.is_in_process for location in self.locations):
            self.group.read(self)  # says why not
        shares = [p.location.get_obj(p.id_at_location) for p in self.pointers]
        # of one with MACs the first word of each share is the share itself
        return ring.reconstruct([s[0] for s in shares] if authenticated.is_authenticated(self) else shares)

    def reconstruct(self) -> MultiPointerTensor:
        """Let the holders open the secret among themselves: each has it then, and you have pointers to it."""
        program = spdz2k.reveal if authenticated.is_authenticated(self) else beaver.reveal
        return MultiPointerTensor(children=list(self.group.run(program, self)))

    def refresh(self) -> AdditiveSharingTensor:
        """The same secret under new shares."""
        zero = self.zero(self.shape)
        return self.run(local.add, zero)

    def zero(self, shape: Any = None) -> AdditiveSharingTensor:
        """A secret of zeros, with the same holders."""
        size = tuple(self.shape if shape is None else shape)
        zeros = torch.zeros(size, dtype=torch.int64, device=self.public_device)
        made = share_integers(zeros, self.locations, self.crypto_provider, self.protocol, is_public=True)
        made.device, made.home = self.device, self.home
        return made

    def refuse_reading(self, request: str) -> NoReturn:
        where = "split among " + ", ".join(map(str, self.child))
        raise ValueNotHereError(request, where)

    # NB: at the end: below it `torch` is this in the body of the class.

    @staticmethod
    @overloaded.module
    def torch(module: Any) -> None:
        """Functions of torch whose arguments torch itself would read: `torch.roll` by what only the holders know,
        `embedding_bag` at secret places.
        """

        module.roll = overloads_chain(roll)

        @overloaded.module
        def nn(module: Any) -> None:
            @overloaded.module
            def functional(module: Any) -> None:
                module.embedding_bag = overloads_chain(fixed_layers.embedding_bag)

            module.functional = functional

        module.nn = nn


def are_there(operands: Any) -> bool:
    """Whether all secrets among operands were shared where they are and not fetched since: NOTE [The first get]."""
    return all(node.was_shared_there for node in found_in(operands, AdditiveSharingTensor))


def share_integers(
    values: torch.Tensor,
    holders: list[Any],
    provider: Any,
    protocol: str | None = None,
    is_public: bool = False,
) -> AdditiveSharingTensor:
    """Split int64 values here and send every holder its share."""
    if protocol == authenticated.PROTOCOL:
        pointers = authenticated.enter(values, holders, provider)
    else:
        pointers = split_among(values, holders, provider, is_public)
    made = AdditiveSharingTensor(pointers, crypto_provider=provider, protocol=protocol)
    made._remembered = Remembered(is_lasting=True)
    made.home = values.device
    if holders[0].is_in_process:  # shares with MACs are made on the CPU
        made.device = holders[0].device or (CPU if protocol == authenticated.PROTOCOL else values.device)
    else:
        made.device = values.device
    return made


register_type_rule({AdditiveSharingTensor: one})
register_forward_func({AdditiveSharingTensor: get_child})
register_backward_func({AdditiveSharingTensor: lambda node, **_kwargs: node})


def _shared_again(_me: Any, parts: Any) -> AdditiveSharingTensor:
    obj_id, tags, description, pointers, provider, protocol = parts
    shares = {p.location.id: p for p in pointers}
    if not shares or len(shares) != len(pointers):
        raise ValueError("a secret has one share or more, each at a worker of its own")
    made = AdditiveSharingTensor(
        shares, provider, protocol=protocol, id=obj_id, tags=tags, description=description
    )
    made._remembered = Remembered(is_lasting=True)
    holder = made.locations[0]
    made.device = (holder.device if holder.is_in_process else None) or CPU
    return made


register(
    AdditiveSharingTensor,
    "AdditiveSharingTensor",
    lambda _me, n: (n._id, n.tags, n.description, n.pointers, n.crypto_provider, n.protocol),
    _shared_again,
    fields=tuple[
        int | str | None, set[str], str | None, list[PointerTensor], AbstractWorker | None, str | None
    ],
)
add_byte_methods(AdditiveSharingTensor, "tensor")
