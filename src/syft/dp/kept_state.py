"""Whether a model and its loss keep anything of a pass: what they keep, the next batch could be told.

One duty: `unchanged(model=..., loss_fn=...)`, a context in which nothing that can be reached from these objects may
change. Imports `layer_rules`, `own_code`; `execution` and `ruled_pass`, to know what is ours when it sees it.

NOTE [What a pass may leave behind]
Per-sample gradients are bounded one batch at a time. A model that remembers an example (an attribute, an entry of a list,
a variable of a closure) can let it into the gradients of other examples in the next pass, as often as it likes, and no
bound on one batch sees it. So everything that a pass could write to is compared before and after it, and what changed
is refused by its name: attributes of every module and object, elements of containers and arrays, buffers and parameters
(which tensor, how often written to, and the values; of large ones sums of their bits), variables of closures, defaults
and globals that functions use, attributes of the user's own classes and modules with all methods (`own_code`), states of
random generators that are attributes, positions of iterators, what weak references lead to. Tensors that only exist
while examples are mapped (`torch.func.vmap`) are refused wherever they are found, before a pass as well. The same holds
for counters and for running vectors (spectral norm): they tell how many passes there were, and are to be frozen
(`.eval()`).

What is not seen: files, the environment, the memory of C extensions, what is kept in Python's and installed packages' own
modules and classes, and Python's and NumPy's global random generators (a model may draw from them).
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import logging
import operator
import random
import types
import weakref
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module
from torch.nn.utils.weight_norm import WeightNorm

from syft.dp.layer_rules import modules_of
from syft.dp.own_code import class_parts, content_of, is_own, variables_used
from syft.dp.ruled_pass import Checked
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
#: NB: a plan that is replayed, and what is known of the graph of a model, remember shapes and nothing of values.
_CONSTANT = (Replay, Checked, types.ModuleType, torch.jit.ScriptFunction, logging.Logger)
_OF_PYTHON = frozenset({"builtins", "collections", "itertools"})
_EMPTY = frozenset({dict, OrderedDict, list, set})
_PLAIN = frozenset({int, str, bool, type(None)})
_SEQUENCES = (list, tuple, deque)
_BUFFERS = (bytearray, memoryview, array, ctypes._SimpleCData, ctypes.Array, ctypes.Structure)
_PLAIN_TENSORS = frozenset({Tensor, nn.Parameter, nn.Buffer})
_MOST_ELEMENTS = 1 << 16
#: Sums of bits that stand for a tensor with more elements.
_SUMS = 512
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
            for _name, layer in modules_of(root):
                for parameter in layer._parameters.values():
                    if parameter is not None and not parameter.requires_grad:
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
        if not _is_same(tensor, other):
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
    if issubclass(of, type):
        return "class"
    return "table" if of in _EMPTY else "parts"


@functools.lru_cache(maxsize=4096)
def _slots(of: Any) -> tuple[str, ...]:
    """Names of attributes that are not in `__dict__`."""
    found = list[str]()
    for kind in of.__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            is_private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{kind.__name__.lstrip('_')}{name}" if is_private else name)
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
        self._note("torch's random seed", torch.initial_seed())
        self._note("torch's default dtype", torch.get_default_dtype())
        self.visit("global forward hooks", module._global_forward_hooks)
        self.visit("global forward pre-hooks", module._global_forward_pre_hooks)

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
        if kind == "constant" or id(value) in self._seen or (kind == "class" and not is_own(value)):
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
        content = None if value.device.type == "meta" else _evidence(value)
        if content is not None:
            self.values[path] = content
        if value.grad_fn is None and value.grad is not None:
            self.visit((path, _DOT, "grad"), value.grad)
        if value.__dict__:
            self._visit_attributes(path, value.__dict__)

    def _visit_parts(self, path: Any, value: Any) -> None:
        if isinstance(value, type):
            for name, part in class_parts(value):
                self.visit((path, _DOT, name), part)
            return
        of = type(value)
        if is_own(of):
            self.visit((path, _DOT, of.__name__), of)
        self._visit_contents(path, value)
        if isinstance(value, (Mapping, set, frozenset, *_SEQUENCES)) and of.__module__ not in _OF_PYTHON:
            self._visit_attributes(path, _attributes(value))

    def _visit_contents(self, path: Any, value: Any) -> None:
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
        elif isinstance(value, Iterator) and type(value).__module__ in _OF_PYTHON:
            self._note((path, _ABOUT, "position"), operator.length_hint(value, -1))
            for index, part in enumerate(gc.get_referents(value)):
                self.visit((path, _ITEM, index), part)
        elif isinstance(value, _BUFFERS):
            self._note((path, _ABOUT, "values"), blake2b(memoryview(value).tobytes()).digest())
        elif isinstance(value, np.ndarray):
            self._visit_array(path, value)
        elif isinstance(value, np.random.Generator | np.random.RandomState | np.random.BitGenerator):
            self._note((path, _ABOUT, "state"), repr(_state_of(value)))
        elif isinstance(value, random.Random):
            self._note((path, _ABOUT, "state"), value.getstate())
        elif isinstance(value, torch.UntypedStorage):
            self.values[path] = torch.empty(0, dtype=torch.uint8, device=value.device).set_(value).clone()
        elif isinstance(value, weakref.ref):
            self.visit((path, _DOT, "referent"), value())
        elif isinstance(value, ContextVar):
            self.visit((path, _DOT, "value"), value.get(None))
        elif isinstance(value, types.BuiltinFunctionType):
            if not isinstance(value.__self__, types.ModuleType):
                self.visit((path, _DOT, "__self__"), value.__self__)
        elif isinstance(value, property):
            for role in ("fget", "fset", "fdel"):
                self.visit((path, _DOT, role), getattr(value, role))
        elif isinstance(value, functools._lru_cache_wrapper):
            if is_own(value):
                self._note((path, _ABOUT, "misses"), value.cache_info().misses)
            self.visit((path, _DOT, "__wrapped__"), getattr(value, "__wrapped__", None))
        elif isinstance(value, types.CellType):
            self.visit((path, _DOT, "cell_contents"), content_of(value))
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

    def _visit_array(self, path: Any, value: np.ndarray[Any, Any]) -> None:
        self._note((path, _ABOUT, "form"), (value.shape, value.dtype.str))
        if value.dtype.hasobject:
            for index, part in enumerate(value.ravel().tolist()):
                self.visit((path, _ITEM, index), part)
        else:
            self._note((path, _ABOUT, "values"), blake2b(value.tobytes()).digest())

    def _visit_function(self, path: Any, function: types.FunctionType) -> None:
        self._alive.append(function.__code__)
        self._note((path, _ABOUT, "code"), id(function.__code__))
        if not is_own(function) and "<locals>" not in function.__qualname__:
            return  # NB: one that a package made when it was called may hold what it was given
        for name, part in variables_used(function):
            self.visit((path, _DOT, name), part)
        for index, part in enumerate(function.__defaults__ or ()):
            self.visit((path, ".__defaults__[{}]", index), part)
        for name, part in (function.__kwdefaults__ or {}).items():
            self.visit((path, _DOT, name), part)
        for name, part in function.__dict__.items():
            self.visit((path, _DOT, name), part)


def _evidence(value: Tensor) -> Tensor | None:
    """What tells whether numbers changed: a copy, and of many, or of a parameter's, sums of their bits by place."""
    is_plain = type(value) in _PLAIN_TENSORS and value.layout == torch.strided
    size = value.numel()
    if size <= (_SUMS if is_plain and isinstance(value, nn.Parameter) else _MOST_ELEMENTS):
        return value.detach().clone()
    if not is_plain:
        return None
    bits = value.detach().contiguous().view(-1).view(torch.uint8)
    if bits.storage_offset() % 8:
        bits = bits.clone()
    whole = len(bits) // (8 * _SUMS) * (8 * _SUMS)
    words = bits[:whole].view(torch.int64).view(-1, _SUMS)
    # NB: by NumPy where it can, which is twice as fast.
    sums = torch.from_numpy(np.add.reduce(words.numpy(), 0)) if words.device.type == "cpu" else words.sum(0)
    return sums if whole == len(bits) else torch.cat([sums.view(torch.uint8), bits[whole:]])


def _is_same(one: Tensor, other: Tensor) -> bool:
    # NB: NaN is equal to nothing, its bits are.
    return one.dtype == other.dtype and (
        torch.equal(one, other)
        or (one.shape == other.shape and torch.equal(_bytes_of(one), _bytes_of(other)))
    )


def _bytes_of(value: Tensor) -> Tensor:
    if value.layout != torch.strided:
        value = value.to_dense()
    return value.contiguous().view(-1).view(torch.uint8)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, np.random.RandomState):
        return [part.tolist() if isinstance(part, np.ndarray) else part for part in generator.get_state()]
    return (generator.bit_generator if isinstance(generator, np.random.Generator) else generator).state


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", ()))
    for name in _slots(type(value)):  # type: ignore[arg-type]
        if hasattr(value, name):
            found[name] = getattr(value, name)
    return found
