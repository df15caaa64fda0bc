"""A plan as torch code for people to read, and what every plan offers of views, costs and exports.

See NOTE [Code of strangers] in syft.execution.naming. Nobody here runs the code.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Sequence
from typing import Any

import torch

from syft.execution.cost import SHARE_PROVIDERS, PlanCost, cost_of
from syft.execution.export import fx_of, torchscript_of
from syft.execution.naming import checked_keyword, identifier
from syft.execution.operation import Operation, Size, Slot
from syft.execution.program import Program
from syft.execution.state import State
from syft.execution.vocabulary import plan_command
from syft.execution.watch import shapes_of

#: Larger constants are handed to the function instead of being written out.
_WRITTEN_OUT = 16
#: More tensors of state than this are named on a line each.
_ON_A_LINE = 4
_TAKEN = frozenset({*dir(builtins), *keyword.kwlist, *keyword.softkwlist, "torch", "state", "constants"})


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

    def provide(self, count: int = 1, *shapes: Sequence[int]) -> Any:
        """Have the randomness of `count` calls on shares dealt before the data is there; the plan's state is shared.

        `shapes` are those of the arguments; -1 of the plan counts as 1 where none is given. See `syft.mpc.provide`.
        """
        return SHARE_PROVIDERS["additive"](self, count, shapes)

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
    return _Writer(program, state).function(name)


class _Names:
    """Names of variables: each is given once, and none hides what the code uses."""

    def __init__(self) -> None:
        self._given: set[str] = set(_TAKEN)
        self._counts: dict[str, int] = {}

    def once(self, wanted: str, instead: str) -> str:
        """`wanted` as a name, with a number if there is one already."""
        name = identifier(wanted, instead)
        return self.numbered(name) if name in self._given else self._take(name)

    def numbered(self, base: str) -> str:
        while True:
            self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}_{self._counts[base]}"
            if name not in self._given:
                return self._take(name)

    def _take(self, name: str) -> str:
        self._given.add(name)
        return name


class _Writer:
    def __init__(self, program: Program, state: State) -> None:
        self.program, self.state = program, state
        self.names = _Names()
        self.slots: dict[int, str] = {}
        self.lines: list[str] = []
        self.shapes = shapes_of(program, state.tensors())

    def function(self, name: str) -> str:
        named = self.names.once(name, "plan")
        parameters = [self._parameter(index, value) for index, value in enumerate(self.program.signature)]
        parameters += self._state_and_constants()
        tracks = True
        for operation in self.program.operations:
            if operation.tracks != tracks and not operation.tracks:
                self.lines.append("with torch.no_grad():")
            tracks = operation.tracks
            self._operation(operation, "" if tracks else "    ")
        self.lines.append(f"return {self.written(self.program.outputs)}")
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"import torch\n\n\ndef {named}({', '.join(parameters)}):\n{body}\n"

    # -- what is given -------------------------------------------------------------------------------

    def _parameter(self, index: int, value: Any) -> str:
        if type(value) is Slot:
            self._input(value)
            return self.slots[value.index]
        name = self.names.once(f"argument_{index}", "argument")
        if isinstance(value, (tuple, list, dict)):
            self._unpack(value, name)
        else:
            self.lines.append(f"# {name} is {_plain(value)}, as it was when the plan was built")
        return name

    def _input(self, slot: Slot) -> None:
        self.slots[slot.index] = self.names.once(f"input_{slot.index}", "input")

    def _unpack(self, value: Any, path: str) -> None:
        """One line for every tensor of a nested argument."""
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in items:
            inner = f"{path}[{key!r}]"
            if type(part) is Slot:
                self._input(part)
                self.lines.append(f"{self.slots[part.index]} = {inner}")
            elif isinstance(part, (tuple, list, dict)):
                self._unpack(part, inner)

    def _state_and_constants(self) -> list[str]:
        first, parameters = len(self.program.inputs), []
        if self.program.state:
            parameters.append("state")
            for index, name in enumerate(self.state.names):
                self.slots[first + index] = self.names.once(name, "state")
            unpacked = [self.slots[first + index] for index in range(self.program.state)]
            if len(unpacked) <= _ON_A_LINE:
                self.lines.append(f"{', '.join(unpacked)}{',' if len(unpacked) == 1 else ''} = state")
            else:
                self.lines += ["(", *(f"    {name}," for name in unpacked), ") = state"]
        for index, constant in enumerate(self.program.constants):
            name = self.slots[first + self.program.state + index] = self.names.numbered("constant")
            written = _written_out(constant)
            if written is None:
                written = f"constants[{index}].clone()"
                parameters = [p for p in parameters if p != "constants"] + ["constants"]
            self.lines.append(f"{name} = {written}")
        return parameters

    # -- what is done --------------------------------------------------------------------------------

    def _operation(self, operation: Operation, indent: str) -> None:
        call = self._call(operation)
        base = identifier(operation.name.rpartition(".")[2], "value")
        target = self._results(operation.results, base)
        comment = self._comment(operation.results)
        self.lines.append(f"{indent}{target}{call}{comment}")

    def _results(self, results: Any, base: str) -> str:
        if results is None:
            return ""
        return f"{self._target(results, base)} = "

    def _target(self, results: Any, base: str) -> str:
        if results is None:
            return "_"
        if type(results) is Slot:
            name = self.slots[results.index] = self.names.numbered(base)
            return name
        parts = [self._target(part, base) for part in results]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def _comment(self, results: Any) -> str:
        shapes = self.shapes.get(results.index) if type(results) is Slot else None
        return "" if shapes is None else f"  # {_shape(shapes)}"

    def _call(self, operation: Operation) -> str:
        args = list(operation.args)
        command = plan_command(operation.name)
        written = self._special(operation) or self._plain_call(operation.name, args, operation.kwargs)
        # As a replay does: fresh memory may have held somebody else's data.
        return f"{written}.zero_()" if command.leaves_memory_uninitialised else written

    def _plain_call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
        given = [self.written(a) for a in args]
        given += [f"{checked_keyword(k)}={self.written(v)}" for k, v in kwargs.items()]
        if name.startswith("torch."):
            return f"{name}({', '.join(given)})"
        if args and type(args[0]) is Slot:
            return f"{given[0]}.{name}({', '.join(given[1:])})"
        return f"torch.Tensor.{name}({', '.join(given)})"

    def _special(self, operation: Operation) -> str | None:
        """An index, or an operator, as one writes it."""
        args, name = operation.args, operation.name
        if operation.kwargs or not args or type(args[0]) is not Slot:
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
        if type(index) is tuple and index:
            return ", ".join(self._index_part(part) for part in index) + ("," if len(index) == 1 else "")
        return self._index_part(index)

    def _index_part(self, part: Any) -> str:
        if type(part) is not slice:
            return self.written(part)
        start, stop, step = ("" if p is None else self.written(p) for p in (part.start, part.stop, part.step))
        return f"{start}:{stop}" + (f":{step}" if step else "")

    def written(self, value: Any) -> str:
        """A value as code."""
        if type(value) is Slot:
            return self.slots[value.index]
        if type(value) is Size:
            return self._size(value)
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

    def _size(self, size: Size) -> str:
        if size.op == "dim":
            return f"{self.slots[size.left]}.shape[{int(size.right)}]"
        if size.op == "neg":
            return f"(-{self.written(size.left)})"
        left, right = _operand(self.written(size.left)), _operand(self.written(size.right))
        return f"({left} {size.op} {right})"


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
