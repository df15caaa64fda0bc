"""One forward and one backward pass, and a rule for each layer.

One duty: `ruled`, the fast way to per-sample gradients. Imports `batch_parts`, `gradient_factors`,
`layer_rules`.

NOTE [Whose gradient it is]
Clipping is worth nothing if what is clipped as the gradient of example i was made from other examples too. Code that
mixes the examples of a batch need not look like it, and whether it does cannot be found out by trying. So the model
never sees a batch: it is called with ONE example, a batch of one, under `torch.func.vmap`, which runs the operations
for all examples at once. What a layer is given for example i is a function of example i and of nothing else, whatever
the model does, and so is the gradient of its output, since every loss follows from one example. A rule takes row i of
both. Therefore each row of a factor belongs to one example by construction: nothing about that is checked or tolerated.
`vmap` is here the outer loop of a usual forward pass. It folds the examples into the batch of each kernel, and the
backward pass is autograd's own, of the folded kernels: both take about the time of a usual batch.

NOTE [Whether it is the gradient]
That a factor is the gradient, rather than some other bounded function of the example, matters for learning only, and is
checked:

1. In every pass, from the graph that autograd made and whatever the numbers are: a parameter reaches the loss only
   through the one call of its layer, and has no part in the input of that call. See `_check_graph`; it is the same
   for the same graph, and not repeated.
2. In a pass whose graph was not seen before, and in passes 1, 2, 4, 8, ...: the losses are weighted by 1, 2 or 4, and
   the weighted rows must add up to the usual gradient. See `_check_sums`.

Once anything of this fails, the rules are not used for the model again (`Checked.against`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, nn
from torch._C import _functorch

from syft.dp.batch_parts import arguments, batch_of_one, plain
from syft.dp.gradient_factors import Factor, Full, sum_in_parts
from syft.dp.layer_rules import RULES, takes_batch, trained_parameters

LossFunction = Callable[[Any, Any], Tensor]
Randomness = Literal["different", "same"]

#: Units in the last place by which sums over examples may differ, of their own size and of the largest.
_SUM_ULPS, _ROUNDING_ULPS = 4, 16


class NoRule(Exception):  # a way out, not an error
    """This model did something that the rules do not cover."""


@dataclass
class Checked:
    """What is known about the rules for one model: see NOTE [Whether it is the gradient]."""

    graphs: set[_Graph] = field(default_factory=set)
    """Those on which they were found to be right."""
    passes: int = 0
    against: str = ""
    """Why they are not used any more."""
    randomness: Randomness = "different"
    """Whether each example has random draws of its own: see `per_sample`, NOTE [Draws]."""

    def is_due(self, graph: _Graph) -> bool:
        """Whether to look again."""
        return graph not in self.graphs or self.passes & (self.passes - 1) == 0


@dataclass(frozen=True)
class _Call:
    """What a layer was called with, by example; where its output and its input are in the graph."""

    input: Tensor
    edge: Any
    examples: int
    """Which dimension of the output, as it is in the graph, is the examples."""
    before: Any


@dataclass(frozen=True)
class _Pass:
    """What is left of a pass over the model and back."""

    calls: dict[str, _Call]
    losses: Tensor
    gradients: dict[str, Tensor | None]
    """Of the output of each layer, by example."""
    graph: _Graph
    usual: dict[str, Tensor | None] | None
    """The gradients of the weighted losses by parameter, if a check was due."""

    def is_finite(self) -> bool:
        numbers = (self.losses, *self.gradients.values(), *(self.usual or {}).values())
        return all(bool(n.isfinite().all()) for n in numbers if n is not None)


def alone(loss_fn: LossFunction, output: Any, target: Any) -> Tensor:
    """The loss of a batch that holds one example."""
    loss = loss_fn(output, target)
    return loss.sum() if loss.dim() else loss


# -- the pass --------------------------------------------------------------------------------------------


def ruled(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    loss_fn: LossFunction,
    inputs: Any,
    targets: Any,
    checked: Checked,
) -> tuple[dict[str, Factor], Tensor, bool]:
    """Factors by parameter name, losses, and whether they are known to be right. `layers`: `owners(model)`. !! NoRule

    They are not known to be where a check was due and some gradient is not finite: nothing can be compared.
    """
    trained = trained_parameters(model)
    ran = _mapped_pass(model, layers, loss_fn, inputs, targets, trained, checked)
    if ran.usual is None:  # a graph that was found to be right
        return _factors(layers, trained, ran), ran.losses, True
    is_finite, found = ran.is_finite(), _factors(layers, trained, ran)
    if is_finite:
        _check_sums(found, ran.usual, _powers_of_two(ran.losses))
        checked.graphs.add(ran.graph)
    return found, ran.losses, is_finite


def _mapped_pass(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    loss_fn: LossFunction,
    inputs: Any,
    targets: Any,
    trained: Mapping[str, Tensor],
    checked: Checked,
) -> _Pass:
    """See NOTE [Whose gradient it is]."""
    ran = list[_Pass]()

    def one(x: Any, target: Any) -> Tensor:
        args, named = arguments(batch_of_one(x))
        level, calls = _functorch.maybe_get_level([*args, *named.values()][0]), dict[str, _Call]()
        with torch.enable_grad():
            with _kept_out_of_buffers(model), _watched(layers, level, calls):
                output = model(*args, **named)
            loss = alone(loss_fn, output, batch_of_one(target))
        if not _is_mapped(loss, level) or not _functorch.get_unwrapped(loss).requires_grad:
            raise NoRule("its loss does not depend on what is trained")
        # NB: still within the map, in which a checkpoint computes again what it did not keep.
        ran.append(_backward(calls, _functorch.get_unwrapped(loss), layers, trained, checked))
        return loss.detach()

    torch.func.vmap(one, randomness=checked.randomness)(plain(inputs), plain(targets))
    return ran[0]


def _backward(
    calls: dict[str, _Call],
    losses: Tensor,
    layers: Mapping[str, nn.Module],
    trained: Mapping[str, Tensor],
    checked: Checked,
) -> _Pass:
    graph = _graph_of(calls, losses, layers)
    usual: dict[str, Tensor | None] | None = None
    checked.passes += 1
    is_due = checked.is_due(graph)
    if is_due:
        _check_graph(graph)
    edges = [call.edge for call in calls.values()]
    made = (
        torch.autograd.grad(losses, edges, torch.ones_like(losses), retain_graph=is_due, allow_unused=True)
        if edges
        else ()
    )
    gradients: dict[str, Tensor | None] = {
        name: None if gradient is None else _by_example(gradient, call.examples)
        for (name, call), gradient in zip(calls.items(), made, strict=True)
    }
    if is_due:
        asked = list(trained.values())
        sums = torch.autograd.grad(losses, asked, _powers_of_two(losses), allow_unused=True)
        usual = dict(zip(trained, sums, strict=True))
    return _Pass(calls, losses.detach(), gradients, graph, usual)


@contextmanager
def _watched(layers: Mapping[str, nn.Module], level: int, calls: dict[str, _Call]) -> Iterator[None]:
    def watch(name: str) -> Any:
        def hook(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if name in calls:
                raise NoRule(f"{name!r} is called more than once")
            x = args[0] if len(args) == 1 else None
            if not _is_mapped(x, level) or x.shape[:1] != (1,) or not takes_batch(layer, x):
                raise NoRule(f"{name!r} is not called with one tensor whose dimension 0 is the batch")
            made = _functorch.get_unwrapped(output) if _is_mapped(output, level) else None
            if made is None or not made.requires_grad:
                # NB: also inside a re-entrant checkpoint, whose gradients do not show in the graph.
                raise NoRule(f"{name!r} is called without gradients")
            seen = _functorch.get_unwrapped(x)
            calls[name] = _Call(
                _by_example(seen.detach(), _functorch.maybe_get_bdim(x)),
                # NB: an edge, not the tensor: an in-place ReLU behind the layer would make it another tensor.
                torch.autograd.graph.get_gradient_edge(made),
                _functorch.maybe_get_bdim(output),
                seen.grad_fn,
            )

        return hook

    handles = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _kept_out_of_buffers(model: nn.Module) -> Iterator[None]:
    """!! NoRule where a buffer is made anew from the examples: it would be published without noise"""
    before = [(module, dict(module._buffers)) for module in model.modules() if module._buffers]
    yield
    for module, buffers in before:
        for name, now in module._buffers.items():
            if now is not None and _functorch.is_functorch_wrapped_tensor(now):
                module._buffers[name] = buffers.get(name)
                raise NoRule(f"it keeps in the buffer {name!r} what it computed from the examples")


def _is_mapped(value: Any, level: int) -> TypeGuard[Tensor]:
    """Whether it is a tensor that our map, and no other within or around it, runs over."""
    return (
        isinstance(value, Tensor)
        and _functorch.is_batchedtensor(value)
        and _functorch.maybe_get_level(value) == level
        and not _functorch.is_functorch_wrapped_tensor(_functorch.get_unwrapped(value))
    )


def _by_example(folded: Tensor, examples: int) -> Tensor:
    """Row i is that of example i; without the dimension of the batch, in which each of them was alone."""
    return folded.movedim(examples, 0).squeeze(1)


def _factors(
    layers: Mapping[str, nn.Module],
    trained: Mapping[str, Tensor],
    ran: _Pass,
) -> dict[str, Factor]:
    found: dict[str, Factor] = {}
    # NB: what autocast made of the layers is not what the rules should compute in.
    with torch.no_grad(), torch.autocast(ran.losses.device.type, enabled=False):
        for name in list(ran.calls):
            # What a rule has used is let go before the next one asks for memory.
            layer, x, g = layers[name], ran.calls.pop(name).input, ran.gradients.pop(name)
            if g is None:
                continue
            if x.is_floating_point() and x.dtype != g.dtype:
                wider = torch.promote_types(x.dtype, g.dtype)
                x, g = x.to(wider), g.to(wider)
            made = RULES[type(layer)](layer, x, g)
            for own, parameter in layer.named_parameters(recurse=False):
                if parameter.requires_grad:
                    found[_full(name, own)] = made[own]
        for full, tensor in trained.items():
            if full not in found:  # not used in this pass
                found[full] = Full(tensor.new_zeros(len(ran.losses), *tensor.shape))
    return found


def _full(layer: str, parameter: str) -> str:
    return f"{layer}.{parameter}" if layer else parameter


# -- the graph -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Graph:
    """The graph of the losses: nodes by number, 0 is the losses themselves."""

    kinds: tuple[type, ...]
    after: tuple[tuple[int, ...], ...]
    """From a node to what its gradient is passed on to."""
    calls: tuple[tuple[str, int, bool, int | None, int | None], ...]
    """Of each layer: its name, what its input looks like, where its output and its input are."""
    parameters: tuple[tuple[str, str, int | None], ...]
    """Layer, name, and where it is: None, if the losses do not depend on it."""


def _graph_of(calls: Mapping[str, _Call], losses: Tensor, layers: Mapping[str, nn.Module]) -> _Graph:
    root: Any = losses.grad_fn
    number, nodes, after = {root: 0}, [root], []
    leaves = dict[int, int]()  # tensors that were not computed, by id
    for node in nodes:  # which grows
        following = []
        for n, _ in node.next_functions:
            if n is not None:
                if n not in number:
                    number[n] = len(nodes)
                    nodes.append(n)
                following.append(number[n])
        if not following and hasattr(node, "variable"):
            leaves[id(node.variable)] = number[node]
        after.append(tuple(following))
    called = tuple(
        (name, c.input.dim(), c.input.is_contiguous(), number.get(c.edge.node), number.get(c.before))
        for name, c in calls.items()
    )
    parameters = tuple(
        (name, own, leaves.get(id(parameter)) if parameter.is_leaf else number.get(parameter.grad_fn))
        for name, layer in layers.items()
        for own, parameter in layer.named_parameters(recurse=False)
        if parameter.requires_grad
    )
    return _Graph(tuple(map(type, nodes)), tuple(after), called, parameters)


def _check_graph(graph: _Graph) -> None:
    """!! NoRule where a parameter has another part in the losses than by the one call of its layer

    Nodes are visited after all that use them. On the way to each, `passed` are the layers whose output every path
    from the losses has passed, and `entered` those whose input some path has passed: one bit for each layer.
    """
    size = len(graph.after)
    outputs, entries, bits, users = [0] * size, [0] * size, dict[str, int](), [0] * size
    for place, (name, _dim, _contiguous, output, before) in enumerate(graph.calls):
        bits[name] = bit = 1 << place
        if output is not None:
            outputs[output] |= bit
        if before is not None:
            entries[before] |= bit
    for following in graph.after:
        for n in following:
            users[n] += 1
    passed, entered, ready = [0] + [-1] * (size - 1), [0] * size, [0]
    while ready:
        node = ready.pop()
        passed[node] |= outputs[node]
        entered[node] |= entries[node]
        for n in graph.after[node]:
            passed[n] &= passed[node]
            entered[n] |= entered[node]
            users[n] -= 1
            if not users[n]:
                ready.append(n)
    for name, own, node_of_it in graph.parameters:
        bit = bits.get(name, 0)
        if node_of_it is not None and (not passed[node_of_it] & bit or entered[node_of_it] & bit):
            raise NoRule(f"{_full(name, own)!r} is also used outside of the call of its layer")


# -- the checks ------------------------------------------------------------------------------------------


def _powers_of_two(losses: Tensor) -> Tensor:
    """1, 2, 4, 1, ...: a factor of two changes no bit of a product."""
    places = torch.arange(len(losses), device=losses.device) % 3
    return torch.exp2(places.to(losses.dtype))


def _eps(tensors: Iterable[Tensor | None], device: torch.device) -> float:
    """The coarsest rounding there is in what made these."""
    kinds = {t.dtype for t in tensors if t is not None and t.is_floating_point()}
    if torch.is_autocast_enabled(device.type):
        kinds.add(torch.get_autocast_dtype(device.type))
    return max(torch.finfo(kind).eps for kind in kinds)


def _nothing(kind: torch.dtype) -> float:
    """Numbers so small that kernels round them to zero, or to few bits."""
    return max(1e-30, 64 * torch.finfo(kind).smallest_normal * torch.finfo(kind).eps)


def _check_sums(found: Mapping[str, Factor], usual: Mapping[str, Tensor | None], weights: Tensor) -> None:
    eps = _eps([weights, *usual.values()], weights.device)
    sizes = {name: float(factor.norms() @ weights.double()) for name, factor in found.items()}
    # NB: what has no gradient but rounding (a bias before a norm, or of an attention's keys) is as large as rounding is
    # where gradients are large.
    rounding = _ROUNDING_ULPS * eps * max(sizes.values())
    for name, factor in found.items():
        # NB: in parts, or the sums in double precision would be most of the memory of a pass.
        gradient, size, apart, theirs = usual[name], 0, 0.0, 0.0
        for part in sum_in_parts(factor, weights):
            if gradient is not None:
                own = gradient.reshape(-1)[size : size + len(part)].double()
                theirs = math.hypot(theirs, float(own.norm()))
                part = part - own
            size, apart = size + len(part), math.hypot(apart, float(part.norm()))
        nothing = len(weights) * size**0.5 * _nothing(weights.dtype if gradient is None else gradient.dtype)
        allowed = max(1e-4, _SUM_ULPS * eps) * (sizes[name] + theirs) + rounding + nothing
        if apart > allowed:
            raise NoRule(f"what its rule makes of {name!r} does not add up to the usual gradient")
