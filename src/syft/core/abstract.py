"""`AbstractTensor`: the base of every tensor type that can stand in a chain.

A chain is `Wrapper > A > B > ... > torch tensor`. The `Wrapper` is what torch sees; A, B, ... are light
Python objects, the interpreters. An interpreter is asked twice:

- at the public level, for the names it overloads (`syft.core.overload`);
- at the dispatcher, for every aten operation (`interpret`).

The default of both is to pass the call on to the child and to put itself back on top of the result.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from syft.core.descent import descend, rewrap, rewrap_response
from syft.core.objects import AbstractObject, initialize_object
from syft.core.ops import facts_of, written_argument
from syft.core.overload import Overload, collect_overloads, run_public_command
from syft.core.public_names import public_name
from syft.exceptions import ChainError, NoRemoteValueError, UnsupportedOperationError

Command = tuple[str, Any, tuple[Any, ...], dict[str, Any]]


#: What a shortcut answers when it is none.
MISSED: Any = object()


class AbstractTensor(AbstractObject):
    """One link of a chain. Subclass it, overload some names, register it: that is a new tensor type."""

    #: name -> handler of the public names this type overloads, collected when the class is made.
    public_overloads: ClassVar[dict[str, Overload]] = {}
    #: resolved handlers by torch function, filled on first use.
    public_routes: ClassVar[dict[Any, Any]] = {}
    #: whether `on_function_call` wants to hear of every public call.
    observes_calls: ClassVar[bool] = False
    #: whether it is enough for `on_public_call` to see the chains as the user passed them, whatever stands above.
    observes_from_above: ClassVar[bool] = False
    _passes_everything_on: ClassVar[bool] = True
    #: aten overload -> rule(cls, func, args, kwargs), for types that change what an operation means.
    aten_rules: ClassVar[dict[Any, Callable[..., Any]]] = {}
    #: False: an aten operation without a rule is refused instead of being passed on to the child.
    passes_unknown_ops: ClassVar[bool] = True
    _chain: Any = None
    #: (func, args, kwargs), the wrappers still on -> the response, or MISSED to go the usual way down.
    #: Differentiates a wrapper of this type; whether it did. If not, or without one, torch's own graph is used.
    backward_there: ClassVar[Callable[[Any], bool] | None] = None

    #: Told that a function (or `grad_fn`, a property) which uses torch's graph is called on wrappers of this type.
    graph_is_used: ClassVar[Callable[[Any, Any], None] | None] = None

    shortcut: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parents = [base for base in reversed(cls.__bases__) if issubclass(base, AbstractTensor)]
        inherited = {name: value for base in parents for name, value in base.public_overloads.items()}
        cls.public_overloads = {**inherited, **collect_overloads(cls)}
        cls.public_routes = {}
        cls.aten_rules = {op: rule for base in parents for op, rule in base.aten_rules.items()}
        cls.observes_calls = _overrides(cls, "on_function_call", "on_public_call")
        cls._passes_everything_on = not _overrides(cls, "interpret", "pass_on")

    # -- building chains ---------------------------------------------------------------------------

    def on(self, tensor: Any, wrap: bool = True) -> Any:
        """Put this node on top of `tensor` (below its wrapper, if it has one); returns the new chain.

        A leaf that requires grad gives a leaf that requires grad. A tensor with a history stays
        connected to it.
        """
        from syft.core.levels import put_on_top

        if isinstance(tensor, torch.Tensor):
            return put_on_top(self, tensor, wrap)
        if not isinstance(tensor, AbstractTensor):
            raise ChainError(
                f"{type(self).__name__}().on() was given a {type(tensor).__name__}. It stands on tensors: pass "
                "torch.tensor(value), or a chain."
            )
        self.child = tensor
        return self.wrap() if wrap else self

    def wrap(self, type: Any = None, register: bool = False, **kwargs: Any) -> torch.Tensor:
        """This node as something torch understands: `Wrapper > self > ...`; `register` makes its owner keep it."""
        from syft.core.levels import wrap_node

        chain = wrap_node(self)
        if register:
            self.owner.register_obj(chain, self.id)
        return chain

    def get_class_attributes(self) -> dict[str, Any]:
        """Constructor arguments that a result of this tensor must share (e.g. its precision)."""
        return {}

    def like(self, child: Any) -> AbstractTensor:
        """A node of this type and these attributes over another child."""
        made: AbstractTensor = rewrap(type(self), child, self.get_class_attributes())
        return made

    # -- metadata ----------------------------------------------------------------------------------

    @property
    def spec(self) -> Any:
        """Something with the shape, dtype and strides to present: a torch tensor or a TensorSpec."""
        child = self.child
        return child.spec if isinstance(child, AbstractTensor) else child

    @property
    def shape(self) -> torch.Size:
        return self.spec.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        return self.spec.dtype  # type: ignore[no-any-return]

    @property
    def number_format(self) -> tuple[int, int] | None:
        """Base and fractional digits of a type in fixed precision, whose comparisons are numbers; None for others."""
        return None

    @property
    def is_wrapper(self) -> bool:
        return False

    @property
    def is_remote(self) -> bool:
        """Whether the values are on other machines."""
        return isinstance(self.child, AbstractTensor) and self.child.is_remote

    @property
    def location(self) -> Any:
        """The worker that holds the value, or None when it is here."""
        return getattr(self.child, "location", None)

    @property
    def id_at_location(self) -> Any:
        return getattr(self.child, "id_at_location", None)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(
                f"len() was asked of a {type(self).__name__} with no dimensions. Use `.shape`, or `.numel()`."
            )
        return self.shape[0]

    def __bool__(self) -> bool:
        # NB: Python would ask for the length. A node is a thing, so `node or default` asks whether it is
        # there; the truth of the value is asked of the chain: bool(node.wrap()).
        return True

    def __str__(self) -> str:
        return f"{type(self).__name__}>" + str(self.child)

    __repr__ = __str__

    @classmethod
    def is_transparent(cls) -> bool:
        """Whether aten operations pass through this type unchanged."""
        return cls._passes_everything_on and cls.passes_unknown_ops and not cls.aten_rules

    def belong_to(self, chain: torch.Tensor) -> None:
        """Remember, weakly, the wrapper above, so that the node can be asked for its gradient."""
        self._chain = weakref.ref(chain)

    def chain(self) -> Any:
        """The wrapper above, if it is known and still has this node as its head; else None."""
        chain = None if self._chain is None else self._chain()
        return chain if chain is not None and chain.child is self else None

    @property
    def grad(self) -> Any:
        """The gradient that torch keeps for the chain of this node; None if it has none."""
        chain = self.chain()
        return None if chain is None else chain.grad

    @grad.setter
    def grad(self, value: Any) -> None:
        chain = self.chain()
        if chain is None:
            raise ChainError(
                f"`.grad` of a bare {type(self).__name__} was set, and its chain is gone or never was. Gradients belong "
                "to chains: set `.grad` of the tensor whose `.child` it is."
            )
        if isinstance(value, AbstractTensor):
            value = value.wrap()
        chain.grad = value

    # -- the dispatcher's question -----------------------------------------------------------------

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one aten operation on nodes of this type; the default passes it on to the children."""
        rule = cls.aten_rules.get(func)
        if rule is not None:
            return rule(cls, func, args, kwargs)
        if not cls.passes_unknown_ops:
            raise UnsupportedOperationError(str(func), cls)
        return cls.pass_on(func, args, kwargs)

    @classmethod
    def pass_on(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operation one level down and put this type back on top of what returns."""
        inner_args, inner_kwargs, template, below = descend(cls, func, args, kwargs)
        response = (
            func(*inner_args, **inner_kwargs)
            if below is None
            else below.interpret(func, inner_args, inner_kwargs)
        )
        if facts_of(func).mutates:
            return _own_written_arguments(func, response, args, kwargs, template)
        return rewrap_response(cls, func, response, template)

    # -- the public level's questions --------------------------------------------------------------

    @classmethod
    def on_function_call(cls, command: Command) -> None:
        """Called with (name, None, args, kwargs) before a public function that is not overloaded."""

    @classmethod
    def on_public_call(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called before a public torch function that a type observes; tells it the name."""
        cls.on_function_call((public_name(func), None, args, kwargs))

    @classmethod
    def handle_func_command(cls, command: Command) -> Any:
        """Run the public torch function named in `command` on nodes or chains of this type."""
        return run_public_command(cls, command)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Any torch function takes a bare node: it is wrapped for the call and unwrapped after."""
        from syft.core.levels import on_bare_nodes

        return on_bare_nodes(func, args, kwargs or {})

    def copy(self) -> Any:
        """A copy, with a value of its own."""
        return torch.clone(self)  # type: ignore[arg-type]

    def refresh(self) -> Any:
        """The same node over fresh shares; only secrets have them."""
        if not isinstance(self.child, AbstractTensor):
            raise ChainError(
                f"refresh() was called on a {type(self).__name__} without shares. Call share(...) first."
            )
        return self.like(self.child.refresh())

    # -- moving ------------------------------------------------------------------------------------

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch what the chain points to; the types above the pointer stay on top."""
        return self.like(_as_child(self.child.get(*args, **kwargs))).wrap()

    def place(self) -> AbstractTensor:
        """Something like this node that holds no value: it can only `put_back`."""
        return self.like(self.child.place())

    def get_garbage_collect_data(self) -> bool:
        """Whether the remote values below go when the last reference to them goes."""
        return bool(self._remote_child("get_garbage_collect_data").get_garbage_collect_data())

    def set_garbage_collect_data(self, value: bool) -> None:
        """Choose whether the remote values below go when the last reference to them goes."""
        self._remote_child("set_garbage_collect_data").set_garbage_collect_data(value)

    def _remote_child(self, request: str) -> Any:
        if not self.is_remote:
            raise NoRemoteValueError(request, f"a {type(self).__name__} on this machine")
        return self.child

    def put_back(self, value: Any) -> AbstractTensor:
        """The inverse of `get`: a local value (a node of this type, or a plain tensor) where this chain keeps its own."""
        below = value.child if type(value) is type(self) else value
        return self.like(self.child.put_back(below))


def initialize_tensor(
    hook: Any, obj: Any, owner: Any = None, id: Any = None, init_args: Any = (), init_kwargs: Any = None
) -> Any:
    """Give a tensor an owner and an id, and let the owner keep it. A tensor is made already: it takes no arguments."""
    if init_args or init_kwargs:
        raise TypeError(
            "initialize_tensor() was given arguments for a tensor that is made already. Leave them out."
        )
    initialize_object(hook, obj, owner, False, id)
    obj.owner.register_obj(obj, obj.id)
    return obj


def _overrides(cls: type, *names: str) -> bool:
    return any(getattr(cls, n).__func__ is not getattr(AbstractTensor, n).__func__ for n in names)


def _as_child(value: Any) -> Any:
    return value.child if getattr(value, "is_wrapper", False) else value


def _own_written_arguments(
    func: Any, response: Any, args: tuple[Any, ...], kwargs: dict[str, Any], template: AbstractTensor
) -> Any:
    """The response of an operation that writes into its arguments: those arguments themselves."""
    facts = facts_of(func)
    several = isinstance(response, (tuple, list))
    owned = []
    for index, value in enumerate(response if several else (response,)):
        target = written_argument(facts, index, args, kwargs)
        if target is None:
            target = template.like(value) if isinstance(value, (torch.Tensor, AbstractTensor)) else value
        owned.append(target)
    return type(response)(owned) if several else owned[0]
