"""Plans as modules of torch: `torch.fx.GraphModule` and TorchScript, so that a plan is not a dead end.

NOTE [no_grad without a mode]
What a function did inside `torch.no_grad()` is exported as the same operation on detached tensors: graphs of fx and
traces of TorchScript know no modes. An in-place operation writes into the memory of the detached tensor, which is that
of the tensor itself, and goes on with the tensor itself.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn

from syft.core.chain import Wrapper
from syft.execution.build import example
from syft.execution.errors import PlanError
from syft.execution.makers import SIZE_FUNCTIONS
from syft.execution.merge import example_shapes
from syft.execution.naming import checked_keyword, identifier, is_attribute
from syft.execution.operation import Operation, Size, Slot, leaves, map_structure
from syft.execution.program import Program
from syft.execution.state import State
from syft.execution.vocabulary import plan_command

#: Methods that fx writes as operators.
_AS_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
}

#: A trace of TorchScript keeps what these return as a constant, into which no operation may write.
_CONSTANTS_OF_TRACES = frozenset({"torch.tensor", "torch.as_tensor", "torch.asarray", "torch.scalar_tensor"})


def fx_of(program: Program, state: State, name: str) -> fx.GraphModule:
    """A program as a module with the tensors of the state themselves: training it trains them."""
    for label, tensor in zip(state.names, state.tensors(), strict=True):
        if type(tensor) is Wrapper:
            raise PlanError(
                f"The plan {name!r} was to be exported, and {label!r} of its state is elsewhere, shared or of fixed "
                "precision. Bring it back first, with plan.get_() and plan.float_precision_()."
            )
    return _Exporter(program, state, flat=False).module(name)


# -- fx --------------------------------------------------------------------------------------------


class _Exporter:
    """Makes the graph of a program.

    flat   it takes the tensors of a call and returns tuples of tuples, as TorchScript has to
    """

    def __init__(self, program: Program, state: State, flat: bool) -> None:
        self.program, self.state, self.flat = program, state, flat
        self.root, self.graph = nn.Module(), fx.Graph()
        self.slots: dict[int, fx.Node] = {}

    def module(self, name: str) -> fx.GraphModule:
        self._take_arguments()
        self._take_state()
        for operation in self.program.operations:
            self._operation(operation)
        outputs = self.program.outputs
        self.graph.output(self.value(_without_dicts(outputs) if self.flat else outputs))
        self.graph.lint()
        return fx.GraphModule(self.root, self.graph, identifier(name, "Plan"))

    def _take_arguments(self) -> None:
        if self.flat:
            for index in range(len(self.program.inputs)):
                self.slots[index] = self.graph.placeholder(f"input_{index}")
            return
        for index, value in enumerate(self.program.signature):
            if type(value) is Slot:
                self.slots[value.index] = self.graph.placeholder(f"input_{value.index}")
            else:
                self._unpack(value, self.graph.placeholder(f"argument_{index}"))

    def _unpack(self, value: Any, node: fx.Node) -> None:
        """The tensors of a nested argument."""
        if type(value) is Slot:
            self.slots[value.index] = node
        elif isinstance(value, (tuple, list, dict)):
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                if any(type(leaf) is Slot for leaf in leaves(part)):
                    self._unpack(part, self.graph.call_function(operator.getitem, (node, key)))

    def _take_state(self) -> None:
        first = len(self.program.inputs)
        for index, (label, tensor) in enumerate(zip(self.state.names, self.state.tensors(), strict=True)):
            target = _register(self.root, label, f"state_{index}", tensor)
            self.slots[first + index] = self.graph.get_attr(target)
        for index, constant in enumerate(self.program.constants):
            target = f"constant_{index}"
            self.root.register_buffer(target, constant, persistent=False)
            # NB: an operation may write into a constant, and the next run must find it as it was.
            copied = self.graph.call_method("clone", (self.graph.get_attr(target),))
            self.slots[first + self.program.state + index] = copied

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
            self._assign(operation.results, node)

    def _detached(self, node: fx.Node) -> fx.Node:
        """See NOTE [no_grad without a mode]; sizes are no tensors, and need no detaching."""
        is_tensor = any(node is held for held in self.slots.values())
        return self.graph.call_method("detach", (node,)) if is_tensor else node

    def _call(self, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        name = operation.name
        command = plan_command(name)
        is_method = not name.startswith("torch.") and args and isinstance(args[0], fx.Node)
        if is_method and name not in _AS_FUNCTIONS:
            node = self.graph.call_method(name, args, kwargs)
        else:
            node = self.graph.call_function(_AS_FUNCTIONS.get(name, command.function), args, kwargs)
        if command.leaves_memory_uninitialised:  # as a replay does: it may have held somebody else's data
            node = self.graph.call_method("zero_", (node,))
        if self.flat and name in _CONSTANTS_OF_TRACES:
            node = self.graph.call_method("clone", (node,))
        return node

    def _assign(self, results: Any, node: fx.Node) -> None:
        if type(results) is Slot:
            self.slots[results.index] = node
        elif isinstance(results, tuple):
            for index, part in enumerate(results):
                if part is not None:
                    self._assign(part, self.graph.call_function(operator.getitem, (node, index)))

    def value(self, value: Any) -> Any:
        """A value of the program, with nodes for its slots and sizes."""
        return map_structure(self._leaf, value)

    def _leaf(self, leaf: Any) -> Any:
        if type(leaf) is Slot:
            return self.slots[leaf.index]
        return self._size(leaf) if type(leaf) is Size else leaf

    def _size(self, size: Size) -> Any:
        if size.op == "dim":
            return self.graph.call_method("size", (self.slots[size.left], size.right))
        if size.op == "neg":
            return self.graph.call_function(operator.neg, (self._leaf(size.left),))
        return self.graph.call_function(
            SIZE_FUNCTIONS[size.op], (self._leaf(size.left), self._leaf(size.right))
        )


def _register(root: nn.Module, label: str, instead: str, tensor: torch.Tensor) -> str:
    """Give a module a tensor under the name it has in the state, `a.b.weight`; returns the name it got."""
    *path, last = label.split(".")
    if not all(is_attribute(part) for part in (*path, last)) or not _is_free(root, path, last):
        path, last = [], instead
    at = root
    for part in path:
        if part not in at._modules:
            at.add_module(part, nn.Module())
        at = at.get_submodule(part)
    if isinstance(tensor, nn.Parameter):
        at.register_parameter(last, tensor)
    else:
        at.register_buffer(last, tensor)
    return ".".join([*path, last])


def _is_free(root: nn.Module, path: Sequence[str], last: str) -> bool:
    """Whether nothing stands at a name, nor in the way to it."""
    at: nn.Module | None = root
    for part in path:
        if at is not None and part not in at._modules:
            if hasattr(at, part):
                return False
            at = None
        at = None if at is None else at._modules[part]
    return not hasattr(nn.Module() if at is None else at, last)


# -- TorchScript -----------------------------------------------------------------------------------


def torchscript_of(program: Program, state: State, name: str) -> torch.jit.ScriptModule:
    """A program as TorchScript, traced by torch once and compared with the program for other sizes."""
    fx_of(program, state, name)  # says what is wrong with the state, if anything is
    module = _Exporter(program, state.copy(), flat=True).module(name)
    if not any(type(leaf) is Slot for leaf in leaves(program.outputs)):
        raise PlanError(f"The plan {name!r} returns no tensor, so there is no TorchScript of it.")
    before = {key: value.clone() for key, value in _held(module).items()}
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # torch warns of every size that it may have taken for a constant. Whether it did is seen below.
        warnings.simplefilter("ignore")
        ties, inputs = _fitting(module, program)
        traced: torch.jit.ScriptModule = torch.jit.trace(  # type: ignore[no-untyped-call]
            module, tuple(inputs), check_trace=False, strict=False
        )
        _compare(module, traced, _examples(program, True, ties), before, name)
    _restore(traced, before)
    return traced


def _examples(program: Program, is_second: bool, ties: str) -> list[torch.Tensor]:
    shapes = example_shapes([given.shape for given in program.inputs], is_second, ties)
    return [example(shape, given.dtype) for shape, given in zip(shapes, program.inputs, strict=True)]


def _fitting(module: fx.GraphModule, program: Program) -> tuple[str, list[torch.Tensor]]:
    """Arguments that the program takes; see `syft.execution.build` for why there are several tries."""
    for ties in ("none", "rows", "all"):
        try:
            module(*_examples(program, True, ties))
            return ties, _examples(program, False, ties)
        except (RuntimeError, ValueError, IndexError):
            if ties == "all":
                raise
    raise PlanError(
        "The program takes no arguments that could be made up."
    )  # not reached: the last try raises


def _compare(
    module: fx.GraphModule,
    traced: torch.jit.ScriptModule,
    inputs: list[torch.Tensor],
    before: dict[str, torch.Tensor],
    name: str,
) -> None:
    """Refuse a trace that is right only for the sizes it was made with."""
    results = []
    try:
        for one in (module, traced):
            _restore(one, before)
            torch.manual_seed(0)
            with torch.no_grad():
                results.append([leaf for leaf in leaves(one(*inputs)) if isinstance(leaf, torch.Tensor)])
        torch.testing.assert_close(results[1], results[0], equal_nan=True)
    except (RuntimeError, AssertionError) as error:
        raise PlanError(
            f"The plan {name!r} has no TorchScript: a trace of it is right only for the sizes it was made with "
            f"({str(error).strip().splitlines()[0][:200]}). Use plan.to_fx()."
        ) from error


def _held(module: nn.Module) -> dict[str, torch.Tensor]:
    return dict([*module.named_parameters(), *module.named_buffers()])


def _restore(module: nn.Module, values: dict[str, torch.Tensor]) -> None:
    """Undo what runs wrote into the state."""
    with torch.no_grad():
        for key, tensor in _held(module).items():
            tensor.copy_(values[key])


def _without_dicts(value: Any) -> Any:
    """A structure with the tuple of its values for every dict and list."""
    if isinstance(value, dict):
        return tuple([_without_dicts(part) for part in value.values()])
    if isinstance(value, (tuple, list)):
        return tuple([_without_dicts(part) for part in value])
    return value
