"""TorchScript as calls of public torch functions, so that a plan can be traced from it.

One duty: a model or a loss that torch.jit compiled runs outside of Python, where a trace hears nothing. Its graph is
known, though, and `python_twin` makes a module or a function that runs it node by node. Only local programs are read
here; no TorchScript travels. Imports `module_copies`.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from syft.exceptions import SyftError
from syft.federated.module_copies import copied

Values = dict[str, Any]

_REDUCTIONS = ("none", "mean", "sum")
#: The numbers by which TorchScript names dtypes.
_DTYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
}
#: What makes a Python number of a tensor.
_READING = frozenset({"Bool", "Int", "Float", "item", "IntImplicit", "FloatImplicit", "ScalarImplicit"})
#: Arguments that say where and how a tensor lies in memory, which is a worker's own affair.
_OF_MEMORY = frozenset(
    {
        "layout",
        "device",
        "pin_memory",
        "memory_format",
        "non_blocking",
        "copy",
        "cudnn_enabled",
        "cudnn_enable",
    }
)


class UnknownScriptError(SyftError, TypeError):
    """A compiled model or loss does something for which there is no plan."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"A model or loss that travels becomes a plan, and this one, compiled by torch.jit, uses {found}, for which "
            "there is none. Pass the nn.Module or the Python function that it was made from."
        )


def parameter_names(function: Any) -> list[str]:
    """The names of the parameters of a compiled function."""
    return [argument.name for argument in function.schema.arguments]


def python_twin(called: Any) -> Any:
    """The same in Python, with tensors of its own; for what nobody compiled a copy, or a function itself."""
    if isinstance(called, torch.jit.ScriptFunction):
        return _function_twin(called)
    if isinstance(called, torch.jit.ScriptModule):
        return ScriptTwin(called)
    if not isinstance(called, nn.Module):
        return called
    twins = {id(part): ScriptTwin(part) for part in _compiled_parts(called)}
    # NB: `memo` puts the twins in the place of the parts, wherever those are.
    return copy.deepcopy(called, memo=dict(twins))


def copy_of(called: Any) -> Any:
    """A copy of a model or loss, compiled or not. A compiled function never changes, and is itself."""
    if isinstance(called, torch.jit.ScriptFunction):
        return called
    if not isinstance(called, nn.Module):
        return copy.deepcopy(called)
    # NB: the copy of a compiled module is computed from the original, and its parameters would be no leaves.
    with torch.inference_mode(False), torch.no_grad():
        made: nn.Module = copied(called)
    if isinstance(called, torch.jit.ScriptModule) or any(True for _ in _compiled_parts(called)):
        for own, original in zip(made.parameters(), called.parameters(), strict=True):
            own.requires_grad_(original.requires_grad)
    return made


def _compiled_parts(module: nn.Module) -> Iterable[torch.jit.ScriptModule]:
    for child in module.children():
        if isinstance(child, torch.jit.ScriptModule):
            yield child
        else:
            yield from _compiled_parts(child)


def _function_twin(function: Any) -> Callable[..., Any]:
    names = parameter_names(function)

    def twin(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        return _run(function.inlined_graph, [given[name] for name in names])

    twin.__name__ = function.name
    return twin


class ScriptTwin(nn.Module):
    """A compiled module in Python: parameters and buffers under the same names, and its graph as `forward`."""

    def __init__(self, script: torch.jit.ScriptModule) -> None:
        super().__init__()
        # NB: in a tuple, so that it does not become a part of this.
        self._script = (script,)
        self.train(script.training)
        kept = script.state_dict()
        # By their memory: TorchScript makes a new Python object of a tensor whenever it is asked for one.
        copies: dict[Any, Any] = {}
        self._copies = copies
        for name, parameter in script.named_parameters(remove_duplicate=False):
            own = nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)
            home, leaf = self._home(name)
            home.register_parameter(leaf, copies.setdefault(_memory(parameter), own))
        for name, buffer in script.named_buffers(remove_duplicate=False):
            home, leaf = self._home(name)
            own = copies.setdefault(_memory(buffer), buffer.detach().clone())
            home.register_buffer(leaf, own, persistent=name in kept)

    def _home(self, name: str) -> tuple[nn.Module, str]:
        *path, leaf = name.split(".")
        home: nn.Module = self
        for step in path:
            if step not in home._modules:
                home.add_module(step, nn.Module())
            home = home._modules[step]  # type: ignore[assignment]
        return home, leaf

    def forward(self, *args: Any) -> Any:
        graph = self._script[0].inlined_graph
        return _run(graph, [_At(self, self._script[0], ()), *args])


def _memory(tensor: Tensor) -> tuple[int, torch.Size]:
    with torch._C.DisableTorchFunction():  # no part of what is traced
        return tensor.data_ptr(), tensor.shape


class _At:
    """A module inside a compiled one, while its graph runs."""

    def __init__(self, root: ScriptTwin, script: Any, path: tuple[str, ...]) -> None:
        self.root, self.script, self.path = root, script, path

    def get(self, name: str) -> Any:
        if name == "training":
            return self.root.training
        found = getattr(self.script, name)
        if isinstance(found, nn.Module):
            return _At(self.root, found, (*self.path, name))
        if isinstance(found, Tensor):
            home: Any = self.root
            for step in self.path:
                home = home._modules[step]
            return home._parameters[name] if name in home._parameters else home._buffers.get(name, found)
        if isinstance(found, list):  # the weights of recurrent layers
            return [
                self.root._copies.get(_memory(item), item) if isinstance(item, Tensor) else item
                for item in found
            ]
        return found


# -- running a graph -----------------------------------------------------------------------------------------


def _run(graph: Any, arguments: list[Any]) -> Any:
    inputs = list(graph.inputs())
    if len(arguments) > len(inputs):
        raise TypeError(
            f"A compiled model or loss was given {len(arguments)} arguments; it has {len(inputs)}."
        )
    values: Values = {value.debugName(): given for value, given in zip(inputs, arguments, strict=False)}
    results = _run_block(graph, values)
    return results[0] if len(results) == 1 else tuple(results)


def _run_block(block: Any, values: Values) -> list[Any]:
    for node in block.nodes():
        _run_node(node, values)
    return [values[value.debugName()] for value in block.outputs()]


def _run_node(node: Any, values: Values) -> None:
    kind = node.kind()
    outputs = [value.debugName() for value in node.outputs()]
    if kind == "prim::Constant":
        values[outputs[0]] = None if node.mustBeNone() else _constant(node)
        return
    given = [values[value.debugName()] for value in node.inputs()]
    if kind == "prim::If":
        chosen = list(node.blocks())[0 if _plain(given[0], node) else 1]
        results: Any = _run_block(chosen, values)
    elif kind == "prim::Loop":
        results = _loop(node, given, values)
    elif kind in ("prim::ListUnpack", "prim::TupleUnpack"):
        results = list(given[0])
    else:
        result = _one(node, kind, given)
        results = [result] if len(outputs) < 2 else list(result)
    values.update(zip(outputs, results, strict=False))


def _constant(node: Any) -> Any:
    if "name" in node.attributeNames():
        return None  # a function, which is in the graph itself where it is called
    return node.output().toIValue()


def _plain(value: Any, node: Any) -> Any:
    if isinstance(value, Tensor):
        raise UnknownScriptError(f"the value of a tensor ({_line(node)})")
    return value


def _loop(node: Any, given: list[Any], values: Values) -> list[Any]:
    most, goes_on, *carried = given
    (body,) = node.blocks()
    names = [value.debugName() for value in body.inputs()]
    for number in range(_plain(most, node)):
        if not _plain(goes_on, node):
            break
        values.update(zip(names, [number, *carried], strict=True))
        goes_on, *carried = _run_block(body, values)
    return carried


def _one(node: Any, kind: str, given: list[Any]) -> Any:
    """The result of a node that has one."""
    space, name = kind.split("::")
    if space == "prim":
        if name == "GetAttr":
            return given[0].get(node.s("name"))
        if name not in _PRIMS:
            raise UnknownScriptError(f"{kind} ({_line(node)})")
        return _PRIMS[name](*given)
    if not any(isinstance(value, Tensor) for value in _leaves(given)) and name in _OF_PLAIN_VALUES:
        return _OF_PLAIN_VALUES[name](*given)
    if space != "aten":
        raise UnknownScriptError(f"{kind} ({_line(node)})")
    return _aten(name, node, given)


def _leaves(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            yield from _leaves(value)
        else:
            yield value


def _line(node: Any) -> str:
    return str(node.sourceRange()).strip().split("\n")[0] or "no line is known"


def _as_tuple(value: Any) -> Any:
    """For comparisons: TorchScript takes a list of numbers for a tuple of them."""
    return tuple(value) if isinstance(value, list) else value


def _raise(message: Any, *_kind: Any) -> Any:
    raise ValueError(str(message))


_PRIMS: dict[str, Callable[..., Any]] = {
    "ListConstruct": lambda *items: list(items),
    "TupleConstruct": lambda *items: items,
    "TupleIndex": operator.getitem,
    "unchecked_cast": lambda value: value,
    "NumToTensor": lambda number: number,
    "Uninitialized": lambda: None,
    "RaiseException": _raise,
    "dtype": lambda tensor: tensor.dtype,
    "device": lambda tensor: tensor.device,
    "min": min,
    "max": max,
}

_OF_PLAIN_VALUES: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, *_alpha: a + b,
    "sub": lambda a, b, *_alpha: a - b,
    "mul": operator.mul,
    "div": lambda a, b, *_mode: a / b,
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": operator.pow,
    "neg": operator.neg,
    "eq": lambda a, b: _as_tuple(a) == _as_tuple(b),
    "ne": lambda a, b: _as_tuple(a) != _as_tuple(b),
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "__is__": operator.is_,
    "__isnot__": operator.is_not,
    "__not__": operator.not_,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__contains__": lambda items, item: item in items,
    "__getitem__": operator.getitem,
    "__range_length": lambda low, high, step: len(range(low, high, step)),
    "__derive_index": lambda index, start, step: start + index * step,
    "len": len,
    "list": list,
    "append": lambda items, item: [*items, item],
    # NB: the size of a batch is a number that a trace follows; `int(size)` would make it that of the example.
    "Int": lambda number: number if isinstance(number, int) else int(number),
    "Float": float,
    "Bool": bool,
    "IntImplicit": lambda number: number,
    "ScalarImplicit": lambda number: number,
    "format": lambda text, *items: text.format(*items),
    "warn": lambda *_words: None,
}


# -- operations on tensors -------------------------------------------------------------------------------------


def _aten(name: str, node: Any, given: list[Any]) -> Any:
    arguments = torch._C.parse_schema(node.schema()).arguments
    named = {argument.name: value for argument, value in zip(arguments, given, strict=False)}
    if named.get("dtype") is not None and not isinstance(named["dtype"], torch.dtype):
        named["dtype"] = _DTYPES[named["dtype"]]
    if name in _READING:
        raise UnknownScriptError(f"the value of a tensor ({_line(node)})")
    if name in _BY_HAND:
        return _BY_HAND[name](**named)
    if "reduction" in named:
        return _loss(name, named)
    positional: list[Any] = []
    keywords: Values = {}
    for argument in arguments:
        value = named.get(argument.name)
        if argument.name in _OF_MEMORY:
            continue
        is_default = argument.has_default_value() and _same(value, argument.default_value)
        if argument.kwarg_only:
            if not is_default and value is not None:
                keywords[argument.name] = value
        elif argument.name == "dtype":
            if value is not None:
                keywords["dtype"] = value
        else:
            positional.append((value, is_default))
    while positional and positional[-1][1]:
        positional.pop()
    values = [value for value, _is_default in positional]
    return _public(name, arguments[0].name == "self", node)(*values, **keywords)


def _same(value: Any, default: Any) -> bool:
    return not isinstance(value, Tensor) and type(value) is type(default) and value == default


def _public(name: str, is_method: bool, node: Any) -> Callable[..., Any]:
    """The function that a person would have called."""
    for place, fits in ((Tensor, is_method), (F, True), (torch, True)):
        found = getattr(place, name, None) if fits and not name.startswith("_") else None
        if callable(found):
            return found
    raise UnknownScriptError(f"aten::{name} ({_line(node)})")


def _loss(name: str, named: Values) -> Any:
    known = {"nll_loss_nd": "nll_loss", "nll_loss2d": "nll_loss", "cross_entropy_loss": "cross_entropy"}
    function = getattr(F, known.get(name, name), None)
    if function is None:
        raise UnknownScriptError(f"aten::{name}")
    first, target, *rest = named
    options = {option: named[option] for option in rest if named[option] is not None}
    options["reduction"] = _REDUCTIONS[named["reduction"]]
    return function(named[first], named[target], **options)


def _convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    **_of_the_machine: Any,
) -> Any:
    dimensions = weight.dim() - 2
    function: Any
    if transposed:
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dimensions - 1]
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    function = (F.conv1d, F.conv2d, F.conv3d)[dimensions - 1]
    return function(input, weight, bias, stride, padding, dilation, groups)


def _batch_norm(input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, **rest: Any) -> Any:
    return F.batch_norm(
        input, running_mean, running_var, weight, bias, rest["training"], rest["momentum"], rest["eps"]
    )


def _to(self: Any, dtype: Any = None, other: Any = None, **_of_memory: Any) -> Any:
    if dtype is not None:
        return self.to(dtype)
    return self if other is None else self.to(other)


def _slice(self: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    last = None if end is None or end >= 2**62 else end
    first = None if start == 0 else start
    whole = (slice(None),) * (dim % self.dim())
    return self[(*whole, slice(first, last, step if step != 1 else None))]


def _index(self: Any, indices: Any) -> Any:
    return self[tuple(slice(None) if index is None else index for index in indices)]


def _pool(function: Callable[..., Any]) -> Callable[..., Any]:
    def pool(self: Any, kernel_size: Any, stride: Any = None, **rest: Any) -> Any:
        return function(self, kernel_size, stride=stride or None, **rest)

    return pool


def _size(self: Any, dim: Any = None) -> Any:
    return list(self.size()) if dim is None else self.size(dim)


_BY_HAND: dict[str, Callable[..., Any]] = {
    "_convolution": _convolution,
    "convolution": _convolution,
    "batch_norm": _batch_norm,
    "layer_norm": lambda input, normalized_shape, weight=None, bias=None, eps=1e-5, **_rest: F.layer_norm(
        input, normalized_shape, weight, bias, eps
    ),
    "group_norm": lambda input, num_groups, weight=None, bias=None, eps=1e-5, **_rest: F.group_norm(
        input, num_groups, weight, bias, eps
    ),
    "embedding": lambda weight, indices, padding_idx=-1, **_rest: F.embedding(
        indices, weight, padding_idx if padding_idx >= 0 else None
    ),
    "dropout": lambda input, p, train: F.dropout(input, p, train),
    "linear": lambda input, weight, bias=None: F.linear(input, weight, bias),
    "log_softmax": lambda self, dim, dtype=None: F.log_softmax(self, dim, dtype=dtype),
    "softmax": lambda self, dim, dtype=None: F.softmax(self, dim, dtype=dtype),
    "max_pool1d": _pool(F.max_pool1d),
    "max_pool2d": _pool(F.max_pool2d),
    "avg_pool2d": _pool(F.avg_pool2d),
    "broadcast_tensors": lambda tensors: torch.broadcast_tensors(*tensors),
    "rsub": lambda self, other, alpha=1: other - self * alpha,
    "size": _size,
    "len": lambda **named: next(iter(named.values())).size(0),
    "dim": lambda self: self.dim(),
    "to": _to,
    "contiguous": lambda self, **_rest: self.contiguous(),
    "slice": _slice,
    "index": _index,
}
