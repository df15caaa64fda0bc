"""`PlanModule`: a model, or a loss, as an nn.Module whose code is a plan, so that it can travel.

One duty: from a module to a list of operations and named tensors, and from those to a module again. No Python code
travels: what arrives is checked like every plan, and calls functions of torch's vocabulary. Imports `execution`, `serde`.

NOTE [Names and modes]
Parameters and buffers have the names they have in the module that was traced, so the same state fits both. A module
is traced twice, in training and in evaluation, and `train()` and `eval()` choose between the two: dropout and
BatchNorm behave as they do in the original. Tensors that the code uses and that are no parameters or buffers
(a mask in an attribute) travel along, but are not part of the state.

NOTE [Nothing to hold on to]
Users can set attributes of objects that they brought to a worker. An attribute of a model that training calls would
be a way to hand the data on, so what a worker keeps is a `SentModule`, which has no attributes to set.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import warnings
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from syft.core.ids import ID_PROVIDER
from syft.execution.errors import InvalidProgramError, PlanError
from syft.execution.plan import Plan
from syft.execution.program import Input, Program
from syft.execution.replay import Replay
from syft.federated.torchscript import parameter_names, python_twin
from syft.policy.caller import is_proved
from syft.serde import register, serialize

#: What a tensor of a PlanModule is.
CONSTANT, BUFFER, FROZEN, TRAINED = range(4)

_MAX_NAME = 1_000
#: Rows of the examples with which a loss is traced.
_ROWS = 2


class _Part(nn.Module):
    """Holds tensors under the names that they have in the original. It is not called."""


class PlanModule(nn.Module):
    """A module that replays a plan. Made by `traced_module` and `traced_loss`.

    replays   what to run in training and in evaluation; one serves both
    slots     per replay: which of the tensors its state is, in order
    names, kinds, tensors   all tensors, by the names of the original
    """

    def __init__(
        self,
        replays: Sequence[Replay],
        slots: Sequence[Sequence[int]],
        names: Sequence[str],
        kinds: Sequence[int],
        tensors: Sequence[Tensor],
    ) -> None:
        super().__init__()
        _check(replays, slots, names, kinds, tensors)
        self._replays, self._slots = tuple(replays), tuple(map(tuple, slots))
        self._names, self._kinds = tuple(names), tuple(kinds)
        self._homes = [_settle(self, *entry) for entry in zip(names, kinds, tensors, strict=True)]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Run the plan. Inputs with names come after the others, in the order of their names."""
        inputs = (*inputs, *(named[name] for name in sorted(named)))
        mode = 0 if self.training else len(self._replays) - 1
        replay = self._replays[mode]
        given = replay.program.flatten(inputs, "The model")
        # NB: looked up at every call. `torch.func` and `.to(...)` put other tensors in the same places.
        state = [home[leaf] for home, leaf in (self._homes[slot] for slot in self._slots[mode])]
        replay.check_fit(given, state, "The model")
        return replay.run(given, state)

    def _tensors(self) -> list[Tensor]:
        return [home[leaf] for home, leaf in self._homes]

    def __deepcopy__(self, memo: dict[int, Any]) -> PlanModule:
        # Programs never change; the tensors are the copy's own.
        own = [tensor.detach().clone() for tensor in self._tensors()]
        made = PlanModule(self._replays, self._slots, self._names, self._kinds, own)
        return made.train(self.training)

    def extra_repr(self) -> str:
        return f"{len(self._replays[0].program.operations)} operations"


def _check(
    replays: Sequence[Replay],
    slots: Sequence[Sequence[int]],
    names: Sequence[str],
    kinds: Sequence[int],
    tensors: Sequence[Tensor],
) -> None:
    """What arrives may be anything. !! InvalidProgramError"""
    if not 1 <= len(replays) <= 2 or len(replays) != len(slots):
        raise InvalidProgramError(
            f"A module has {len(replays)} plans and {len(slots)} states; it has 1 or 2."
        )
    if not len(names) == len(kinds) == len(tensors) or len(set(names)) != len(names):
        raise InvalidProgramError("A module has tensors without a name of their own, or without a kind.")
    for replay, own in zip(replays, slots, strict=True):
        if len(own) != replay.program.state or any(not 0 <= slot < len(names) for slot in own):
            raise InvalidProgramError("A plan of a module uses tensors that the module does not have.")
    for name, kind, tensor in zip(names, kinds, tensors, strict=True):
        # A chain would act for whoever runs the module: a pointer sends messages in its name.
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout is not torch.strided:
            raise InvalidProgramError(
                f"A module has a {type(tensor).__name__} as {name[:60]!r}; it has plain, dense tensors."
            )
        is_real = tensor.is_floating_point() or tensor.is_complex()
        if kind not in range(4) or (kind == TRAINED and not is_real) or len(name) > _MAX_NAME:
            raise InvalidProgramError(
                f"A module has {name[:60]!r} of {tensor.dtype} as a tensor of kind {kind}."
            )


def _settle(root: nn.Module, name: str, kind: int, tensor: Tensor) -> tuple[dict[str, Any], str]:
    """Give a tensor its place in the tree of modules that its name describes; where it is, and under what name."""
    *path, leaf = name.split(".")
    part = root
    try:
        for step in path:
            child = part._modules.get(step)
            if child is None:
                child = _Part()
                part.add_module(step, child)
            part = child
        value = tensor.detach()
        if kind >= FROZEN:
            part.register_parameter(leaf, nn.Parameter(value, requires_grad=kind == TRAINED))
            return part._parameters, leaf
        part.register_buffer(leaf, value, persistent=kind == BUFFER)
        return part._buffers, leaf
    except KeyError as error:
        raise InvalidProgramError(f"A module cannot have a tensor called {name[:60]!r}: {error}.") from None


# -- tracing -----------------------------------------------------------------------------------------------


def traced_module(model: Any, inputs: Sequence[Input], names: Sequence[str] = ()) -> PlanModule:
    """A model as it can travel: a module is traced for these inputs, a built plan taken as it is.

    names   of the inputs, in the order of the alphabet, where the module is called with named arguments
    !! PlanError and TraceError name the line of the model that cannot travel.
    """
    if isinstance(model, PlanModule):
        return copy.deepcopy(model)
    if isinstance(model, Plan):
        return _of_plans([model])
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"A model that travels is an nn.Module or a Plan; this is a {type(model).__name__}. No Python code is sent "
            "over a network."
        )
    with torch.inference_mode(False), torch.no_grad():
        copied = python_twin(model)
    if names:
        copied.register_forward_pre_hook(
            lambda _module, given, _named: ((), dict(zip(names, given, strict=True))), with_kwargs=True
        )
    plans = []
    for is_training in (True, False):
        copied.train(is_training)
        plan = Plan(name=type(model).__name__, forward_func=copied)
        plans.append(_quietly(plan.build_from_shapes, [i.shape for i in inputs], [i.dtype for i in inputs]))
    return _of_plans(plans, copied)


def traced_loss(
    loss: Callable[..., Any], model: PlanModule, inputs: Sequence[Input], target: Input
) -> PlanModule:
    """A function of (output, target) as it can travel, for outputs of `model` and batches of any size."""
    if isinstance(loss, PlanModule):
        return copy.deepcopy(loss)
    if isinstance(loss, Plan) and loss.is_built:
        return _of_plans([loss])
    tried = copy.deepcopy(model).eval()
    with torch.no_grad():
        output = tried(*[torch.zeros(_shape(i), dtype=i.dtype) for i in inputs])
    wanted = torch.zeros(_shape(target), dtype=target.dtype)
    function = python_twin(loss) if isinstance(loss, nn.Module) else by_name(loss, python_twin(loss))
    if isinstance(output, dict):
        function = _of_fields(function)
    plan = Plan(name=getattr(loss, "__name__", type(loss).__name__), forward_func=function)
    _quietly(plan.build, output, wanted)
    if any(given.shape and given.shape[0] != -1 for given in plan.program.inputs):
        if isinstance(output, Tensor):  # says which line it is that cannot have another size
            shapes = [(-1, *t.shape[1:]) for t in (output, wanted)]
            _quietly(plan.build_from_shapes, shapes, [output.dtype, wanted.dtype])
        else:
            raise PlanError(
                f"The loss {plan.name!r} could only be traced for a batch of {_ROWS} rows, and batches have any size."
            )
    return _of_plans([plan], function if isinstance(function, nn.Module) else None)


def by_name(
    loss_fn: Callable[..., Any], called: Callable[..., Any] | None = None
) -> Callable[[Any, Any], Any]:
    """The loss as a function of (prediction, target); older programs write (target, pred) and rely on the names.

    `called` is run in the place of `loss_fn`, whose names count.
    """
    run = loss_fn if called is None else called
    try:
        if isinstance(loss_fn, torch.jit.ScriptFunction):
            names = parameter_names(loss_fn)
        elif (
            type(loss_fn) is FunctionType and not loss_fn.__dict__
        ):  # NB: `inspect` takes as long as a small layer
            code = loss_fn.__code__
            names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        else:
            names = list(inspect.signature(loss_fn).parameters)
    except (TypeError, ValueError):
        return run
    if "pred" in names and "target" in names:
        return lambda prediction, target: run(pred=prediction, target=target)
    return run


class _Fields(dict[str, Any]):
    """A model's output by name, which a loss may also read as Hugging Face's outputs are read: `output.logits`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"The model's output has no {name!r}; it has {', '.join(map(repr, self))}.")


def _of_fields(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda output, target: function(_Fields(output), target)


def _shape(given: Input) -> tuple[int, ...]:
    return tuple(_ROWS if n == -1 else n for n in given.shape)


def _quietly(build: Callable[..., Plan], *args: Any) -> Plan:
    """A trace tries sizes that do not fit each other, and torch may warn of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build(*args)


def _of_plans(plans: Sequence[Plan], module: nn.Module | None = None) -> PlanModule:
    """One module of plans that share their tensors; `module` is what they were traced of."""
    kept = None if module is None else module.state_dict(keep_vars=True)
    names: list[str] = []
    kinds: list[int] = []
    tensors: list[Tensor] = []
    slots = []
    for plan in plans:
        if plan._training is not None:
            raise PlanError(
                f"The plan {plan.name!r} takes training steps by itself. Give the model and the loss it was made of."
            )
        state, own = plan.state, []
        for position, (name, tensor) in enumerate(zip(state.names, state.tensors(), strict=True)):
            known = next((slot for slot, other in enumerate(tensors) if other is tensor), None)
            if known is None:
                known = len(tensors)
                if name in names:  # found in both modes, and not the same tensor
                    name = f"{name}-{known}"
                names.append(name)
                kinds.append(_kind(name, tensor, position in state.buffers, kept))
                tensors.append(tensor)
            own.append(known)
        slots.append(own)
    programs = [Replay(plan.program) for plan in plans]
    return PlanModule(programs, slots, names, kinds, [t.detach().clone() for t in tensors])


def _kind(name: str, tensor: Tensor, is_buffer: bool, kept: dict[str, Any] | None) -> int:
    if isinstance(tensor, nn.Parameter) or not is_buffer:
        return TRAINED if tensor.requires_grad else FROZEN
    return BUFFER if kept is None or name in kept else CONSTANT


# -- at a worker -------------------------------------------------------------------------------------------


class SentModule:
    """A PlanModule that somebody brought to a worker. See NOTE [Nothing to hold on to]."""

    __slots__ = ("description", "id", "module", "tags")
    pointer_kind = "object"

    def __init__(self, module: PlanModule, id: Any = None) -> None:
        self.module = module
        self.id = ID_PROVIDER.pop() if id is None else id
        self.tags: frozenset[str] = frozenset()
        self.description: str | None = None

    @property
    def obj(self) -> PlanModule:
        """The module itself, as programs of 2020 ask for it: `train_config.model_ptr.get().obj`.

        Not there while a worker serves a message, which could otherwise reach into the module by this name.
        """
        if is_proved():
            raise AttributeError("A SentModule shows its module to those who fetched it, not to messages.")
        return self.module

    def __call__(self, *inputs: Any) -> Any:
        """Run the module, where it was fetched: `train_config.model_ptr.get()(data)`."""
        return self.obj(*inputs)

    def held_tensors(self) -> list[Tensor]:
        return [*self.module._tensors(), *[c for r in self.module._replays for c in r.program.constants]]

    def __deepcopy__(self, memo: dict[int, Any]) -> SentModule:
        return SentModule(copy.deepcopy(self.module), self.id)

    def __repr__(self) -> str:
        return f"<SentModule id:{self.id}>"


def digest_of(module: PlanModule) -> bytes:
    """Stands for all that a module does, and for its tensors."""
    sent = SentModule(module, id=0)
    return hashlib.sha256(serialize(_encode(None, sent))).digest()


def _encode(_worker: Any, sent: SentModule) -> tuple[Any, ...]:
    module = sent.module
    programs = tuple(replay.program for replay in module._replays)
    tensors = tuple(tensor.detach() for tensor in module._tensors())
    return sent.id, programs, module._slots, module._names, module._kinds, tensors


def _decode(_worker: Any, parts: tuple[Any, ...]) -> SentModule:
    id, programs, slots, names, kinds, tensors = parts
    return SentModule(PlanModule([Replay(p) for p in programs], slots, names, kinds, tensors), id)


register(
    SentModule,
    "SentModule",
    _encode,
    _decode,
    fields=tuple[
        int | str,
        tuple[Program, ...],
        tuple[tuple[int, ...], ...],
        tuple[str, ...],
        tuple[int, ...],
        tuple[Tensor, ...],
    ],
)
