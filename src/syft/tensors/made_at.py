"""`sy.at(worker)`: tensors that are made inside the block are made at the worker's.

NOTE [What makes a tensor]
Nobody lists the functions that make tensors. The mode sees every operation of the dispatcher (it is a torch mode, so
nobody outside the block pays), and its schema says which they are: an operation that is given no tensor makes one of
numbers, one named `*_like` or `new_*` uses the metadata of its tensor only, and `lift_fresh` is how `torch.tensor` hands
over Python values. Functions that are made of others (`torch.hann_window`) arrive as those.

What syft makes for itself inside the block stays here, and so does what an in-process worker makes while it runs a
message: `_is_for_syft`, and `made_here` in syft.workers.virtual.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Self

import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from syft.core import shapes
from syft.core.chain import Wrapper, new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.nested import found_in
from syft.core.ops import facts_of
from syft.core.place import PLACE, WITHOUT_VALUES
from syft.core.routes import CHAINS, Overload
from syft.core.session import session
from syft.messaging.message import Operation
from syft.operations.table import is_admitted
from syft.tensors.pointer import PointerTensor, new_pointer
from syft.tensors.sending import send_value

_LIFT_FRESH = torch.ops.aten.lift_fresh.default


@cache
def uses_metadata_only(func: OpOverload) -> bool:
    """Whether an operation makes a tensor like another, of whose values it reads none."""
    _, _, name = func._schema.name.partition("::")
    takes_options = any(argument.name == "pin_memory" for argument in func._schema.arguments)
    return takes_options and (name.endswith("_like") or name.startswith("new_"))


@cache
def makes_of_numbers(func: OpOverload) -> bool:
    """Whether an operation takes no tensor and returns one."""
    schema = func._schema
    return not any("Tensor" in str(argument.type) for argument in schema.arguments) and any(
        "Tensor" in str(returned.type) for returned in schema.returns
    )


class MadeAt(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside, tensors are made at a worker; `is_for_anybody`: also those that syft makes."""

    def __init__(self, location: Any, speaker: Any = None, is_for_anybody: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.location, self._speaker, self.is_for_anybody = location, speaker, is_for_anybody

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # NB: torch would wrap the method so that it is not compiled, and import its compiler for that.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if args and type(args[0]) is Wrapper:
            # Most operations by far. NB: the mode is off in here, so that this is what torch would call.
            return Wrapper.__torch_dispatch__(func, types, args, kwargs)
        kwargs = kwargs or {}
        if PLACE.at is not self.location and not self.is_for_anybody:
            return func(*args, **kwargs)
        if makes_of_numbers(func):
            make = self._make
        elif func is _LIFT_FRESH and type(args[0]) is torch.Tensor:
            make = self._lift
        elif uses_metadata_only(func) and type(args[0]) in (torch.Tensor, torch.nn.Parameter):
            make = self._make_like
        else:
            return func(*args, **kwargs)
        if _is_on_meta(args, kwargs) or (not self.is_for_anybody and _is_for_syft()):
            return func(*args, **kwargs)
        return make(func, args, kwargs)

    def _make(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor of numbers alone: the worker is told to make it."""
        given = {key: value for key, value in kwargs.items() if key != "pin_memory" and value is not None}
        facts = facts_of(func)
        if "generator" in given or (self.location.admits_only_table and not is_admitted(facts.name)):
            # A generator is a thing of this process: what it draws is drawn here. Nothing private goes in either way.
            return self._sent(func(*args, **kwargs))
        key = [facts, "made", repr((args, given))]
        answer = shapes.remembered(key)
        if answer is None:
            answer = shapes.infer(key, func, args, dict(given))
        if answer.spec is None:
            return self._sent(func(*args, **kwargs))
        new_id = ID_PROVIDER.pop()
        speaker = self._speaker or session.require_local_worker()
        speaker.send_msg(Operation(facts.name, None, args, given, (new_id,)), self.location)
        return new_wrapper(new_pointer(self.location, new_id, answer.spec))

    def _make_like(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor like one that is here, made like one of the same metadata there."""
        like, *rest = args
        options = {"dtype": like.dtype, "device": like.device}
        blank = self._make(
            torch.ops.aten.empty_strided.default, (list(like.shape), list(like.stride())), options
        )
        return func(blank, *rest, **kwargs)

    def _lift(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Python values that became a tensor."""
        return self._sent(args[0])

    def _sent(self, value: torch.Tensor) -> Any:
        return new_wrapper(send_value(value, self.location, None, True, obj_id=ID_PROVIDER.pop()))


def _is_on_meta(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a tensor is asked for that has no values, as those do who want to know a shape."""
    device = kwargs.get("device")
    if device is None:
        device = next((t.device for t in found_in(args, torch.Tensor)), None)
    return device is not None and torch.device(device).type == "meta"


def _is_for_syft() -> bool:
    """Whether the function that makes a tensor was called by code of syft, for its own use."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        is_torch = module.startswith("torch.") or module in _SPEAK_FOR_TORCH
        if not is_torch or (module == "syft.hooking.torch_hook" and frame.f_code.co_name != "tensor"):
            return module.startswith("syft.")
        frame = frame.f_back
    return False


#: Modules of syft whose frames stand between a user and a function of torch; the hook's one is `torch.tensor`.
_SPEAK_FOR_TORCH = frozenset({"syft.core.chain", "syft.hooking.torch_hook", __name__})


class _PythonInBackward(TorchFunctionMode):
    """Runs the functions that Python code calls in a backward pass (hooks, checkpoints, custom functions) in a mode.

    The formulas of torch are no Python code, and pay nothing.
    """

    def __init__(self, mode: MadeAt) -> None:
        super().__init__()
        self.mode = mode

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if PLACE.at is not self.mode.location:
            return func(*args, **(kwargs or {}))
        with self.mode:
            return func(*args, **(kwargs or {}))


class At:
    """The context of `sy.at(worker)`; see its text.

    is_model         what runs inside is a model that was sent: it is told that it cannot look at values
    takes_constants  small local tensors that meet pointers inside are sent along
    """

    def __init__(
        self,
        worker: Any,
        is_model: bool = False,
        takes_constants: bool = False,
        make_mode: Callable[[Any], Any] = MadeAt,
    ) -> None:
        self.worker, self.is_model, self.takes_constants = worker, is_model, takes_constants
        self.mode = None if worker is session.local_worker else make_mode(worker)
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        if self.mode is not None:
            self.mode.__enter__()
        self._before.append((PLACE.at, PLACE.takes_constants))
        PLACE.at = None if self.mode is None else self.worker
        PLACE.takes_constants = self.takes_constants
        if self.is_model:
            WITHOUT_VALUES.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.is_model:
            WITHOUT_VALUES.__exit__()
        PLACE.at, PLACE.takes_constants = self._before.pop()
        if self.mode is not None:
            self.mode.__exit__(*exception)


def at(worker: Any) -> At:
    """A block in which torch makes its tensors at a worker's: `with sy.at(bob): torch.arange(5)` is a pointer.

    So are random numbers, `torch.tensor` of Python values, and what is made like a local tensor (`torch.zeros_like(x)`).
    `device=` is kept; a `generator=` draws here, and what it draws is sent. Operations on local tensors stay here.
    `sy.at(sy.local_worker)` makes them here again.
    """
    return At(session.require_local_worker().get_worker(worker, fail_hard=True))


#: Workers to which models with code of their own were sent: only such code runs in a backward pass there.
RUNS_CODE_OF_MODELS: weakref.WeakSet[Any] = weakref.WeakSet()


def _walk_graph(walk: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`torch.autograd.backward` and `.grad` of pointers: Python code on the way makes its tensors where they are."""
    chain = next((t for t in found_in((args, kwargs), Wrapper) if isinstance(t.child, PointerTensor)), None)
    with torch._C.DisableTorchFunctionSubclass():
        if (
            chain is None
            or PLACE.is_fixed
            or PLACE.at is not None
            or chain.child.location not in RUNS_CODE_OF_MODELS
        ):
            return walk(*args, **kwargs)
        with At(chain.child.location, False, True, lambda worker: _PythonInBackward(MadeAt(worker))):
            return walk(*args, **kwargs)


# NB: by function, because torch does not list them among those that have a public name.
for _walk in (torch.autograd.backward, torch.autograd.grad):
    PointerTensor.public_routes[_walk] = Overload(partial(_walk_graph, _walk), CHAINS, _walk.__name__)
