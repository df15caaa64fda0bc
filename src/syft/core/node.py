"""`Node`: one link of a chain, as far as those know it who walk chains.

A chain is `Wrapper > A > B > ... > torch tensor`. The `Wrapper` is what torch sees; A, B, ... are light
Python objects, the interpreters. An interpreter is asked twice:

- at the public level, for the names it overloads (`syft.core.routes`);
- at the dispatcher, for every aten operation (`interpret`).

The default of both is to pass the call on to the child and to put itself back on top of the result. What a node does with
chains, to stand on one and to be wrapped, is `AbstractTensor`'s (`syft.core.abstract`), above `chain` and `levels`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch

from syft.core.descent import descend, rewrap, rewrap_response
from syft.core.objects import AbstractObject
from syft.core.ops import facts_of, written_argument
from syft.core.public_names import public_name
from syft.core.routes import Overload, collect_overloads
from syft.exceptions import UnsupportedOperationError

Command = tuple[str, Any, tuple[Any, ...], dict[str, Any]]


#: What a shortcut answers when it is none.
MISSED: Any = object()


class Node(AbstractObject):
    """One link of a chain. Tensor types derive from `AbstractTensor`, which is one."""

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
    #: Differentiates a wrapper of this type; whether it did. If not, or without one, torch's own graph is used.
    backward_there: ClassVar[Callable[[Any], bool] | None] = None

    #: Told that a public function will write a node of this type into a plain tensor; may make that tensor a chain.
    takes_over: ClassVar[Callable[[Any, torch.Tensor, Any], torch.Tensor | None] | None] = None

    #: Told that a function (or `grad_fn`, a property) which uses torch's graph is called on wrappers of this type.
    graph_is_used: ClassVar[Callable[[Any, Any], None] | None] = None

    #: (func, args, kwargs), the wrappers still on -> the response, or MISSED to go the usual way down.
    shortcut: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parents = [base for base in reversed(cls.__bases__) if issubclass(base, Node)]
        inherited = {name: value for base in parents for name, value in base.public_overloads.items()}
        cls.public_overloads = {**inherited, **collect_overloads(cls)}
        cls.public_routes = {}
        cls.aten_rules = {op: rule for base in parents for op, rule in base.aten_rules.items()}
        cls.observes_calls = _overrides(cls, "on_function_call", "on_public_call")
        cls._passes_everything_on = not _overrides(cls, "interpret", "pass_on")

    def get_class_attributes(self) -> dict[str, Any]:
        """Constructor arguments that a result of this tensor must share (e.g. its precision)."""
        return {}

    def like(self, child: Any) -> Self:
        """A node of this type and these attributes over another child."""
        made: Self = rewrap(type(self), child, self.get_class_attributes())
        return made

    # -- metadata ----------------------------------------------------------------------------------

    @property
    def spec(self) -> Any:
        """Something with the shape, dtype and strides to present: a torch tensor or a TensorSpec."""
        child = self.child
        return child.spec if isinstance(child, Node) else child

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
        return isinstance(self.child, Node) and self.child.is_remote

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


def _overrides(cls: type, *names: str) -> bool:
    return any(getattr(cls, n).__func__ is not getattr(Node, n).__func__ for n in names)


def _own_written_arguments(
    func: Any, response: Any, args: tuple[Any, ...], kwargs: dict[str, Any], template: Node
) -> Any:
    """The response of an operation that writes into its arguments: those arguments themselves."""
    facts = facts_of(func)
    several = isinstance(response, (tuple, list))
    owned = []
    for index, value in enumerate(response if several else (response,)):
        target = written_argument(facts, index, args, kwargs)
        if target is None:
            target = template.like(value) if isinstance(value, (torch.Tensor, Node)) else value
        owned.append(target)
    return type(response)(owned) if several else owned[0]
