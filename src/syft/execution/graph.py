"""`graph_of`: the `torch.fx.Graph` of a program. Code, listings and exports of a plan are all made of this one graph.

Every node says in `node.meta["plan"]` what it is of the program: one of the names below, or the `Operation` it calls.

NOTE [no_grad without a mode]
What a function did inside `torch.no_grad()` is in the graph as the same operation on detached tensors: graphs of fx and
traces of TorchScript know no modes. An in-place operation writes into the memory of the detached tensor, which is that
of the tensor itself, and goes on with the tensor itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from syft.execution.makers import SIZE_FUNCTIONS
from syft.execution.naming import checked_keyword, identifier
from syft.execution.operation import Operation, Size, Slot, leaves, map_structure
from syft.execution.program import Program
from syft.execution.vocabulary import plan_command

#: What a node is: an argument of the call, a tensor in one, a tensor of the state, a constant, a copy of that, ...
ARGUMENT, INPUT, STATE, CONSTANT, COPY = "argument", "input", "state", "constant", "copy"
#: ... a part of an argument on the way to a tensor, a detached tensor, a size; a part of a result, cleared memory.
PART, DETACHED, SIZE, RESULT, CLEARED = "part", "detached", "size", "result", "cleared"

#: Methods that fx writes as operators.
_AS_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
}

#: A trace of TorchScript keeps what these return as a constant, into which no operation may write.
_CONSTANTS_OF_TRACES = frozenset({"torch.tensor", "torch.as_tensor", "torch.asarray", "torch.scalar_tensor"})


def graph_of(
    program: Program,
    labels: Sequence[str],
    *,
    targets: Sequence[str] | None = None,
    flat: bool = False,
    taken: Sequence[str] = (),
) -> fx.Graph:
    """The graph of a program.

    labels    the names of the state
    targets   the attributes of a module that its tensors are
    flat      it takes the tensors of a call and returns tuples of tuples, as TorchScript has to
    taken     names that no node is to have
    """
    return _Maker(program, flat, taken).graph_of(labels, labels if targets is None else targets)


def free_name(wanted: str, taken: Sequence[str]) -> str:
    """A name that neither stands among these nor is a keyword or a builtin, as near to the wanted one as can be."""
    return _with_names(fx.Graph(), taken)._graph_namespace.create_name(wanted, None)


def _with_names(graph: fx.Graph, taken: Sequence[str]) -> fx.Graph:
    for name in taken:
        graph._graph_namespace.create_name(name, None)
    return graph


class _Maker:
    def __init__(self, program: Program, flat: bool, taken: Sequence[str]) -> None:
        self.program, self.flat = program, flat
        self.graph = _with_names(fx.Graph(), taken)
        self.slots: dict[int, fx.Node] = {}

    def graph_of(self, labels: Sequence[str], targets: Sequence[str]) -> fx.Graph:
        self._take_arguments()
        self._take_state(labels, targets)
        for operation in self.program.operations:
            self._operation(operation)
        outputs = self.program.outputs
        self.graph.output(self.value(_without_dicts(outputs) if self.flat else outputs))
        return self.graph

    def _node(
        self, kind: Any, op: str, target: Any, args: Any = (), kwargs: Any = None, name: str | None = None
    ) -> fx.Node:
        # NB: fx counts on from a number at the end of a name that is taken.
        node = self.graph.create_node(op, target, args, kwargs or {}, name=name)
        node.meta["plan"] = kind
        return node

    # -- what is given -------------------------------------------------------------------------------

    def _take_arguments(self) -> None:
        if self.flat:
            for index in range(len(self.program.inputs)):
                self.slots[index] = self._node(INPUT, "placeholder", f"input_{index}")
            return
        for index, value in enumerate(self.program.signature):
            if type(value) is Slot:
                self.slots[value.index] = self._node(INPUT, "placeholder", f"input_{value.index}")
            else:
                node = self._node(ARGUMENT, "placeholder", f"argument_{index}")
                node.meta["value"] = value
                self._unpack(value, node)

    def _unpack(self, value: Any, node: fx.Node) -> None:
        """The tensors of a nested argument."""
        if not isinstance(value, (tuple, list, dict)):
            return
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if type(part) is Slot:
                found = self._node(
                    INPUT, "call_function", operator.getitem, (node, key), name=f"input_{part.index}"
                )
                self.slots[part.index] = found
            elif any(type(leaf) is Slot for leaf in leaves(part)):
                self._unpack(part, self._node(PART, "call_function", operator.getitem, (node, key)))

    def _take_state(self, labels: Sequence[str], targets: Sequence[str]) -> None:
        first = len(self.program.inputs)
        for index, (label, target) in enumerate(zip(labels, targets, strict=True)):
            self.slots[first + index] = self._node(STATE, "get_attr", target, name=identifier(label, "state"))
        for index in range(len(self.program.constants)):
            held = self._node(CONSTANT, "get_attr", f"constant_{index}", name=f"held_{index}")
            held.meta["index"] = index
            # NB: an operation may write into a constant, and the next run must find it as it was.
            copied = self._node(COPY, "call_method", "clone", (held,), name="constant_1")
            self.slots[first + self.program.state + index] = copied

    # -- what is done --------------------------------------------------------------------------------

    def _operation(self, operation: Operation) -> None:
        args, kwargs = self.value(operation.args), self.value(dict(operation.kwargs))
        for name in kwargs:
            checked_keyword(name)
        if not operation.tracks:
            args, kwargs = fx.map_arg((args, kwargs), self._detached)
        node = self._call(operation, tuple(args), kwargs)
        is_in_place = operation.name.endswith("_") and not operation.name.endswith("__")
        if not operation.tracks and is_in_place and type(operation.results) is Slot:
            self.slots[operation.results.index] = self.value(operation.args[0])
        else:
            self._assign(operation.results, node, _base(operation))

    def _detached(self, node: fx.Node) -> fx.Node:
        """See NOTE [no_grad without a mode]; sizes are no tensors, and need no detaching."""
        is_tensor = any(node is held for held in self.slots.values())
        return self._node(DETACHED, "call_method", "detach", (node,)) if is_tensor else node

    def _call(self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        name = operation.name
        command = plan_command(name)
        is_method = not name.startswith("torch.") and args and isinstance(args[0], fx.Node)
        if is_method and name not in _AS_FUNCTIONS:
            node = self._node(operation, "call_method", name, args, kwargs, _base(operation))
        else:
            function = _AS_FUNCTIONS.get(name, command.function)
            node = self._node(operation, "call_function", function, args, kwargs, _base(operation))
        if command.leaves_memory_uninitialised:  # as a replay does: it may have held somebody else's data
            node = self._node(CLEARED, "call_method", "zero_", (node,), name=_base(operation))
        if self.flat and name in _CONSTANTS_OF_TRACES:
            node = self._node(COPY, "call_method", "clone", (node,))
        return node

    def _assign(self, results: Any, node: fx.Node, base: str) -> None:
        if type(results) is Slot:
            self.slots[results.index] = node
            node.meta["slot"] = results.index
        elif isinstance(results, tuple):
            for index, part in enumerate(results):
                if part is not None:
                    taken = self._node(RESULT, "call_function", operator.getitem, (node, index), name=base)
                    self._assign(part, taken, base)

    def value(self, value: Any) -> Any:
        """A value of the program, with nodes for its slots and sizes."""
        return map_structure(self._leaf, value)

    def _leaf(self, leaf: Any) -> Any:
        if type(leaf) is Slot:
            return self.slots[leaf.index]
        return self._size(leaf) if type(leaf) is Size else leaf

    def _size(self, size: Size) -> Any:
        if size.op == "dim":
            made = self._node(SIZE, "call_method", "size", (self.slots[size.left], size.right))
        elif size.op == "neg":
            made = self._node(SIZE, "call_function", operator.neg, (self._leaf(size.left),))
        else:
            parts = self._leaf(size.left), self._leaf(size.right)
            made = self._node(SIZE, "call_function", SIZE_FUNCTIONS[size.op], parts)
        made.meta["op"] = size.op
        return made


def _base(operation: Operation) -> str:
    return f"{identifier(operation.name.rpartition('.')[2], 'value')}_1"


def _without_dicts(value: Any) -> Any:
    """A structure with the tuple of its values for every dict and list."""
    if isinstance(value, dict):
        return tuple([_without_dicts(part) for part in value.values()])
    if isinstance(value, (tuple, list)):
        return tuple([_without_dicts(part) for part in value])
    return value
