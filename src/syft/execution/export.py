"""Plans as modules of torch: `torch.fx.GraphModule` and TorchScript, so that a plan is not a dead end."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import fx, nn

from syft.core.chain import Wrapper
from syft.execution.build import example
from syft.execution.errors import PlanError
from syft.execution.graph import graph_of
from syft.execution.merge import example_shapes
from syft.execution.naming import identifier, is_attribute
from syft.execution.operation import Slot, leaves
from syft.execution.program import Program
from syft.execution.state import State


def fx_of(program: Program, state: State, name: str) -> fx.GraphModule:
    """A program as a module with the tensors of the state themselves: training it trains them."""
    for label, tensor in zip(state.names, state.tensors(), strict=True):
        if type(tensor) is Wrapper:
            raise PlanError(
                f"The plan {name!r} was to be exported, and {label!r} of its state is elsewhere, shared or of fixed "
                "precision. Bring it back first, with plan.get_() and plan.float_precision_()."
            )
    return _module_of(program, state, name, flat=False)


def _module_of(program: Program, state: State, name: str, flat: bool) -> fx.GraphModule:
    root = nn.Module()
    targets = [
        _register(root, label, f"state_{index}", tensor)
        for index, (label, tensor) in enumerate(zip(state.names, state.tensors(), strict=True))
    ]
    for index, constant in enumerate(program.constants):
        root.register_buffer(f"constant_{index}", constant, persistent=False)
    graph = graph_of(program, state.names, targets=targets, flat=flat)
    graph.lint()
    return fx.GraphModule(root, graph, identifier(name, "Plan"))


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
    module = _module_of(program, state.copy(), name, flat=True)
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
