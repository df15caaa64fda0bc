"""Whether a model and its loss keep anything of a pass: what they keep, the next batch could be told.

One duty: `unchanged(model=..., loss_fn=...)`, a context in which nothing that can be reached from these objects may
change. Imports `execution`, to know a plan when it sees one.

NOTE [What a pass may leave behind]
Per-sample gradients are bounded one batch at a time. A model that remembers an example (an attribute, an entry of a list,
a variable of a closure) can let it into the gradients of other examples in the next pass, as often as it likes, and no
bound on one batch sees it. So everything that a pass could write to is compared before and after it, and what changed
is refused by its name: attributes of every module and object, elements of containers, buffers and parameters (which
tensor, how often written to, and of buffers the values), variables of closures, defaults and globals that functions use,
positions of iterators. Tensors that only exist while examples are mapped (`torch.func.vmap`) are refused wherever they
are found, before a pass as well. The same holds for counters and for running vectors (spectral norm): they tell how many
passes there were, and are to be frozen (`.eval()`).

What is not seen: files, the memory of C extensions, and attributes of classes and modules of Python.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.weight_norm import WeightNorm

from syft.exceptions import SyftError
from syft.execution.replay import Replay

_VALUES = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    range,
    slice,
)
#: NB: a plan that is replayed remembers shapes, and nothing of values.
_CONSTANT = (Replay, type, types.ModuleType, types.BuiltinFunctionType, property, torch.jit.ScriptFunction)
_EMPTY = frozenset({dict, OrderedDict, list, set})
_PLAIN = frozenset({int, str, bool, type(None)})
_SEQUENCES = (list, tuple, deque)
_MOST_ELEMENTS = 1 << 16
_MOST_OBJECTS = 100_000


class KeptStateError(SyftError, ValueError):
    """A model or a loss keeps something from one pass to the next."""


@contextmanager
def unchanged(**roots: Any) -> Iterator[None]:
    """!! KeptStateError if anything that these objects lead to is another after the block. NOTE [What a pass may leave
    behind]
    """
    _drop_old_gradients(roots.values())
    # NB: the first walk keeps alive what it found, so that nothing new has the id of something old.
    first = _Walk(roots)
    yield
    second = _Walk(roots)
    path = _changed(first, second)
    if path is not None:
        raise KeptStateError(
            f"`{path}` changed while gradients were computed for each example. What a model or a loss keeps from one "
            "batch can show in the gradients of the next, and no bound on one example holds then. Compute it from "
            "the arguments each time, or freeze it: `.eval()` for counters and running vectors."
        )


def _drop_old_gradients(roots: Any) -> None:
    """Gradients of frozen parameters would be read by a model that adds them to what it computes."""
    for root in roots:
        if isinstance(root, nn.Module):
            for parameter in root.parameters():
                if not parameter.requires_grad:
                    parameter.grad = None


def _changed(first: _Walk, second: _Walk) -> str | None:
    """A place at which two walks found something else."""
    if first.notes != second.notes or first.values.keys() != second.values.keys():
        # NB: an attribute that was deleted and set again stands behind the others, and is the same.
        before, after = first.by_name(), second.by_name()
        if before.keys() != after.keys():
            return next(iter(before.keys() ^ after.keys()))
        for name, one in before.items():
            if one != after[name]:
                return name
        if first.values.keys() != second.values.keys():
            return _name(next(iter(first.values.keys() ^ second.values.keys())))
    for path, tensor in first.values.items():
        other = second.values[path]
        if tensor.dtype != other.dtype or not torch.equal(tensor, other):
            return _name(path)
    return None


def _name(path: Any) -> str:
    """A path as the user reads it: a path is a name, or a path and what follows it."""
    parts = list[str]()
    while type(path) is tuple:
        path, form, last = path
        parts.append(form.format(last))
    return "".join([path, *reversed(parts)])


#: How a part of an object is shown behind the object.
_DOT, _ITEM, _ABOUT = ".{}", "[{!r}]", " ({})"


@functools.lru_cache(maxsize=4096)
def _kind(of: Any) -> str:
    """How an object of this type is looked at."""
    if of in _VALUES:  # NB: an object of a class derived from these may have attributes
        # NB: NaN is equal to nothing, its text is.
        return "text" if of in (float, complex) else "value"
    if issubclass(of, Tensor):
        return "tensor"
    if issubclass(of, _CONSTANT):
        return "constant"
    return "table" if of in _EMPTY else "parts"


@functools.lru_cache(maxsize=4096)
def _slots(of: Any) -> tuple[str, ...]:
    """Names of attributes that are not in `__dict__`."""
    found = list[str]()
    for kind in of.__mro__:
        names = kind.__dict__.get("__slots__", ())
        found += (names,) if isinstance(names, str) else names
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))


class _Walk:
    """Notes, for every place that can be reached, what stands there.

    It goes over every attribute of a model twice in a step, so paths are names only when one is to be shown.
    """

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.notes: list[Any] = []
        self.values: dict[Any, Tensor] = {}
        self._paths: list[Any] = []
        self._seen: set[int] = set()
        self._alive: list[Any] = []  # so that an id is not used twice
        for name, root in roots.items():
            self.visit(name, root)

    def by_name(self) -> dict[str, Any]:
        return dict(zip(map(_name, self._paths), self.notes, strict=True))

    def _note(self, path: Any, what: Any) -> None:
        self._paths.append(path)
        self.notes.append(what)

    def visit(self, path: Any, value: Any) -> None:
        kind = _kind(type(value))  # type: ignore[arg-type]  # a class is hashable
        if kind == "value":
            self._note(path, (type(value), value))
            return
        if kind == "text":
            self._note(path, (type(value), repr(value)))
            return
        if kind == "tensor":
            self._visit_tensor(path, value)
            return
        self._alive.append(value)
        if kind == "table" and not value:
            self._note(path, (id(value), 0))
            return
        self._note(path, id(value))
        if kind == "constant" or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if len(self._seen) > _MOST_OBJECTS:
            raise KeptStateError(
                f"`{_name(path).split('.')[0]}` leads to more than {_MOST_OBJECTS} objects, too many to compare. Keep "
                "data sets and caches out of the model and the loss."
            )
        self._visit_parts(path, value)

    def _visit_tensor(self, path: Any, value: Tensor) -> None:
        if torch._C._functorch.is_functorch_wrapped_tensor(value):
            raise KeptStateError(
                f"`{_name(path)}` holds a tensor of an earlier pass, with numbers of its examples. They would show in "
                "the gradients of others. Compute it from the arguments each time."
            )
        self._alive.append(value)
        self._note(path, (id(value), None if value.is_inference() else value._version, tuple(value.shape)))
        if (
            not isinstance(value, nn.Parameter)
            and value.numel() <= _MOST_ELEMENTS
            and value.device.type != "meta"
        ):
            self.values[path] = value.detach().clone()
        if value.grad_fn is None and value.grad is not None:
            self.visit((path, _DOT, "grad"), value.grad)

    def _visit_parts(self, path: Any, value: Any) -> None:
        if isinstance(value, nn.Module):
            self._visit_module(path, value)
        elif isinstance(value, Mapping):
            for key, part in list(value.items()):
                self.visit((path, _ITEM, key) if isinstance(key, _VALUES) else (path, "[...]", None), part)
            self._note((path, _ABOUT, "keys"), [k if isinstance(k, _VALUES) else id(k) for k in value])
        elif isinstance(value, _SEQUENCES):
            self._note((path, _ABOUT, "length"), len(value))
            for index, part in enumerate(value):
                self.visit((path, _ITEM, index), part)
        elif isinstance(value, (set, frozenset)):
            self._note((path, _ABOUT, "elements"), {k if isinstance(k, _VALUES) else id(k) for k in value})
        elif isinstance(value, types.FunctionType):
            self._visit_function(path, value)
        elif isinstance(value, types.MethodType):
            self.visit((path, _DOT, "__self__"), value.__self__)
            self.visit((path, _DOT, "__func__"), value.__func__)
        elif isinstance(value, functools.partial):
            self.visit((path, _DOT, "func"), value.func)
            self.visit((path, _DOT, "args"), value.args)
            self.visit((path, _DOT, "keywords"), value.keywords)
        elif isinstance(value, types.GeneratorType):
            frame = value.gi_frame
            self._note((path, _ABOUT, "position"), None if frame is None else frame.f_lasti)
            for name, part in ({} if frame is None else dict(frame.f_locals)).items():
                self.visit((path, _DOT, name), part)
        elif isinstance(value, torch.Generator):
            self.values[path] = value.get_state()
        elif isinstance(value, (itertools.count, itertools.repeat)):
            self._note((path, _ABOUT, "position"), repr(value))
        elif isinstance(value, bytearray):
            self._note((path, _ABOUT, "values"), bytes(value))
        elif isinstance(value, types.CellType):
            self.visit((path, _DOT, "cell_contents"), _content(value))
        else:
            self._visit_attributes(path, _attributes(value))

    def _visit_module(self, path: Any, module: nn.Module) -> None:
        attributes = _attributes(module)
        # The old weight norm computes the weight from its parts before each use.
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm):
                attributes.pop(hook.name, None)
        # The tables of a module are shown as its attributes.
        for name in ("_parameters", "_buffers", "_modules"):
            table: Any = attributes.pop(name, None)
            if table:
                self._note((path, _DOT + " (keys)", name), list(table))
                for key, one in table.items():
                    self.visit((path, _DOT, key), one)
        self._visit_attributes(path, attributes)

    def _visit_attributes(self, path: Any, attributes: dict[str, Any]) -> None:
        # NB: most are plain values or empty tables, which are noted here to save a call.
        notes, paths, alive = self.notes, self._paths, self._alive
        for name, part in attributes.items():
            of = type(part)
            if of in _PLAIN:
                paths.append((path, _DOT, name))
                notes.append((of, part))
            elif of in _EMPTY and not part:
                alive.append(part)
                paths.append((path, _DOT, name))
                notes.append((id(part), 0))
            else:
                self.visit((path, _DOT, name), part)

    def _visit_function(self, path: Any, function: types.FunctionType) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.visit((path, _DOT, name), _content(cell))
        for index, part in enumerate(function.__defaults__ or ()):
            self.visit((path, ".__defaults__[{}]", index), part)
        for name, part in (function.__kwdefaults__ or {}).items():
            self.visit((path, _DOT, name), part)
        for name, part in function.__dict__.items():
            self.visit((path, _DOT, name), part)
        if _is_of_a_library(function):
            return
        for name in _names_used(function.__code__):
            if name in function.__globals__:
                self.visit((path, _DOT, name), function.__globals__[name])


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", ()))
    for name in _slots(type(value)):  # type: ignore[arg-type]
        if hasattr(value, name):
            found[name] = getattr(value, name)
    return found


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _is_of_a_library(function: types.FunctionType) -> bool:
    """Functions of torch and of Python itself keep nothing of what they are given."""
    return (function.__module__ or "").partition(".")[0] in {
        "torch",
        "functools",
        "contextlib",
        "typing",
        "syft",
    }


@functools.lru_cache(maxsize=4096)
def _names_used(code: types.CodeType) -> tuple[str, ...]:
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(name for one in inner for name in _names_used(one))]))
