"""A plan as text, and what every plan offers of views, costs and exports. The text is that of its graph (`graph`).

See NOTE [Code of strangers] in syft.execution.naming. Nobody here runs the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from syft.execution.cost import SHARE_PROVIDERS, PlanCost, cost_of
from syft.execution.export import fx_of, torchscript_of
from syft.execution.graph import (
    ARGUMENT,
    CLEARED,
    COPY,
    DETACHED,
    INPUT,
    PART,
    RESULT,
    SIZE,
    STATE,
    free_name,
    graph_of,
)
from syft.execution.naming import identifier
from syft.execution.operation import Operation
from syft.execution.program import Program
from syft.execution.state import State
from syft.execution.watch import shapes_of

#: Larger constants are handed to the function instead of being written out.
_WRITTEN_OUT = 16
#: More tensors of state than this are named on a line each.
_ON_A_LINE = 4
#: Names in the code that are no nodes. (Keywords and builtins are none for fx.)
_TAKEN = ("state", "constants")


class HasViews:
    """The part of a plan that is about looking at it and taking it elsewhere."""

    name: str

    @property
    def program(self) -> Program:
        raise NotImplementedError  # a plan has one

    @property
    def state(self) -> State:
        raise NotImplementedError  # a plan has one

    @property
    def code(self) -> str:
        """A function of torch, as text, that does what the plan does: arguments first, then `state`.

        It is named after the plan. `state` is what `plan.state.tensors()` gives. A plan with larger constants has one
        more argument, `constants`, which is `plan.program.constants`.
        """
        return code_of(self.program, self.state, self.name)

    def cost(self, *shapes: Sequence[int], protocol: Any = None, holders: int = 2) -> PlanCost:
        """What one call costs for arguments of these shapes; -1 of the plan counts as 1 where no shape is given.

        protocol   the name of a comparison protocol of shares, or several: also tell rounds and bytes on shares. The
                   plan is run once for each, on random numbers
        holders    among how many
        """
        return cost_of(self, shapes, protocol, holders)

    def provide(self, count: int = 1, *shapes: Sequence[int], store: str | None = None, lot: int = 16) -> Any:
        """Have the randomness of `count` calls on shares dealt before the data is there; the plan's state is shared.

        `shapes` are those of the arguments; -1 of the plan counts as 1 where none is given. `store`, `lot`: on the disks
        of the holders, under a name, in lots of so many calls. See `syft.mpc.provide`.
        """
        return SHARE_PROVIDERS["additive"](self, count, shapes, store, lot)

    def to_fx(self) -> Any:
        """The plan as a `torch.fx.GraphModule` that has the plan's own parameters; of a training plan, its loss."""
        return fx_of(self.program, self.state, self.name)

    def to_torchscript(self) -> torch.jit.ScriptModule:
        """The plan as TorchScript, with parameters of its own; of a training plan, its loss.

        It takes the tensors of a call in order. Where the plan returns a dict it returns the tuple of its values.
        """
        return torchscript_of(self.program, self.state, self.name)


def code_of(program: Program, state: State, name: str) -> str:
    """The text of a function that does what a program does."""
    named = free_name(identifier(name, "plan"), _TAKEN)
    text = _Text(program, state, (*_TAKEN, named))
    lines = [*text.arguments(), *text.state(), *text.operations(shapes_of(program, state.tensors()))]
    body = "\n".join(f"    {line}" for line in lines)
    return f"import torch\n\n\ndef {named}({', '.join(text.parameters())}):\n{body}\n"


def listing(program: Program, state: State) -> list[str]:
    """One line for each input, tensor of the state and operation, and one for what is returned."""
    text = _Text(program, state, ())
    inputs = [
        f"{node.name} = input {given}" for node, given in zip(text.of(INPUT), program.inputs, strict=True)
    ]
    tensors = zip(text.of(STATE), state.names, state.tensors(), strict=True)
    held = [f"{node.name} = state {name} {tuple(tensor.shape)}" for node, name, tensor in tensors]
    return [f"  {line}" for line in (*inputs, *held, *text.operations({}))]


class _Text:
    """A graph as lines of Python."""

    def __init__(self, program: Program, state: State, taken: Sequence[str]) -> None:
        self.program = program
        self.graph = graph_of(program, state.names, taken=taken)
        self.written_out = [_written_out(constant) for constant in program.constants]

    def of(self, kind: str) -> list[fx.Node]:
        return [node for node in self.graph.nodes if node.meta.get("plan") == kind]

    def parameters(self) -> list[str]:
        names = [node.name for node in self.graph.nodes if node.op == "placeholder"]
        names += ["state"] if self.program.state else []
        return names + (["constants"] if None in self.written_out else [])

    def arguments(self) -> Iterator[str]:
        """What is said of arguments, and a line for every tensor of a nested one."""
        for node in self.graph.nodes:
            kind = node.meta.get("plan")
            if kind == ARGUMENT and not isinstance(node.meta["value"], (tuple, list, dict)):
                yield f"# {node.name} is {_plain(node.meta['value'])}, as it was when the plan was built"
            elif kind == INPUT and node.op != "placeholder":
                yield f"{node.name} = {self._part(node)}"

    def state(self) -> Iterator[str]:
        names = [node.name for node in self.of(STATE)]
        if len(names) > _ON_A_LINE:
            yield from ("(", *(f"    {name}," for name in names), ") = state")
        elif names:
            yield f"{', '.join(names)}{',' if len(names) == 1 else ''} = state"

    def operations(self, shapes: dict[int, tuple[int, ...]]) -> Iterator[str]:
        for node in self.graph.nodes:
            kind = node.meta.get("plan")
            if node.op == "output":
                yield f"return {self.written(node.args[0])}"
            elif kind == COPY:
                index = node.args[0].meta["index"]
                yield f"{node.name} = {self.written_out[index] or f'constants[{index}].clone()'}"
            elif kind == CLEARED:
                yield f"{node.name} = {self.written(node.args[0])}.zero_()"
            elif kind == RESULT:
                yield f"{node.name} = {self._part(node)}"
            elif isinstance(kind, Operation):
                target = "" if kind.results is None else f"{node.name} = "
                shape = shapes.get(node.meta.get("slot", -1))
                yield f"{target}{self._call(kind, node)}{'' if shape is None else f'  # {_shape(shape)}'}"

    def _part(self, node: fx.Node) -> str:
        return f"{self.written(node.args[0])}[{node.args[1]!r}]"

    def _call(self, operation: Operation, node: fx.Node) -> str:
        return self._special(operation, node) or self._plain_call(operation.name, node)

    def _plain_call(self, name: str, node: fx.Node) -> str:
        given = [self.written(a) for a in node.args]
        given += [f"{k}={self.written(v)}" for k, v in node.kwargs.items()]
        if name.startswith("torch."):
            return f"{name}({', '.join(given)})"
        if node.args and isinstance(node.args[0], fx.Node):
            return f"{given[0]}.{name}({', '.join(given[1:])})"
        return f"torch.Tensor.{name}({', '.join(given)})"

    def _special(self, operation: Operation, node: fx.Node) -> str | None:
        """An index, or an operator, as one writes it."""
        args, name = node.args, operation.name
        if node.kwargs or not args or not isinstance(args[0], fx.Node):
            return None
        first = self.written(args[0])
        if name == "__getitem__" and len(args) == 2:
            return f"{first}[{self._index(args[1])}]"
        if name == "__setitem__" and len(args) == 3 and operation.results is None:
            return f"{first}[{self._index(args[1])}] = {self.written(args[2])}"
        symbol = _OPERATORS.get(name)
        if symbol is None or len(args) != 2:
            return None
        left, right = first, self.written(args[1])
        if name.startswith("__r") and name not in _NOT_REFLECTED:
            left, right = right, left
        return f"{_operand(left)} {symbol} {_operand(right)}"

    def _index(self, index: Any) -> str:
        if isinstance(index, tuple) and index:
            return ", ".join(self._index_part(part) for part in index) + ("," if len(index) == 1 else "")
        return self._index_part(index)

    def _index_part(self, part: Any) -> str:
        if type(part) is not slice:
            return self.written(part)
        start, stop, step = ("" if p is None else self.written(p) for p in (part.start, part.stop, part.step))
        return f"{start}:{stop}" + (f":{step}" if step else "")

    def written(self, value: Any) -> str:
        """A value as code."""
        if isinstance(value, fx.Node):
            return self._expression(value)
        if isinstance(value, tuple):
            inner = ", ".join(self.written(v) for v in value)
            return f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(self.written(v) for v in value)}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.written(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({', '.join(self.written(v) for v in (value.start, value.stop, value.step))})"
        return _plain(value)

    def _expression(self, node: fx.Node) -> str:
        """A node that has no line of its own is written where it is used."""
        kind = node.meta["plan"]
        if kind == DETACHED:
            return f"{self.written(node.args[0])}.detach()"
        if kind == PART:
            return self._part(node)
        return self._size(node) if kind == SIZE else node.name

    def _size(self, node: fx.Node) -> str:
        parts = [self.written(part) for part in node.args]
        if node.meta["op"] == "dim":
            return f"{parts[0]}.shape[{parts[1]}]"
        if node.meta["op"] == "neg":
            return f"(-{parts[0]})"
        return f"({_operand(parts[0])} {node.meta['op']} {_operand(parts[1])})"


_OPERATORS = {
    f"__{prefix}{name}__": symbol
    for name, symbol in {
        "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
        "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    }.items()
    for prefix in ("", "r")
}  # fmt: skip
_OPERATORS |= {"__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_NOT_REFLECTED = frozenset({"__rshift__"})


def _operand(written: str) -> str:
    # -2 ** x is another number than (-2) ** x
    return f"({written})" if written.startswith("-") else written


def _plain(value: Any) -> str:
    if value is ...:
        return "..."
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({_plain(value.real)}, {_plain(value.imag)})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    return repr(value)


def _written_out(constant: torch.Tensor) -> str | None:
    """A small constant as code; None for a larger one."""
    if constant.numel() > _WRITTEN_OUT or (constant.dtype.itemsize == 1 and constant.dtype.is_floating_point):
        return None
    return f"torch.tensor({_numbers(constant.tolist())}, dtype={constant.dtype})"


def _numbers(value: Any) -> str:
    return f"[{', '.join(_numbers(v) for v in value)}]" if isinstance(value, list) else _plain(value)


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
