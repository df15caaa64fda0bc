"""One forward and one backward pass, and a rule for each layer; and whether every example got what is its own.

One duty: `ruled`, the fast way to per-sample gradients, which checks itself. Imports `gradient_factors`, `layer_rules`.

NOTE [Whose gradient it is]
The rules cut what a layer saw along dimension 0, and give slice i to example i. Clipping is worth nothing if that is
wrong: a layer that is called time first, or on positions, has a dimension 0 of another meaning, and now and then
of the same length. That the slices add up to the usual gradient says nothing about how it was cut. So:

1. In every pass, from the graph that autograd made and whatever the numbers are: a parameter reaches the loss only
   through the one call of its layer, and has no part in the input of that call. See `_check_graph`; it is the same
   for the same graph, and not repeated.
2. In every pass, that dimension 0 of each layer's input, and of the output, is as long as the batch.
3. In a pass whose graph was not seen before, and in passes 1, 2, 4, 8, ...: some examples are given to the model
   alone. With a batch of one, every dimension 0 must be one long: it FOLLOWS the batch. What each layer is given, the
   loss and the gradients must be those of the example's row. See `_check_alone`.
   Two draws of a dropout cannot be compared: a random model is compared in evaluation mode, and as it is with the
   same draws for a batch in which half of the examples are others. See `_check_random`.
4. With 3: the losses are weighted by 1, 2 or 4. Slice i of every gradient must then be weighted like loss i, which it
   is not where other losses have a part in it; and the weighted slices must add up to the usual gradient. See
   `_check_slices`, `_check_sums`. A factor of two changes no bit of a product, so tolerances are small.

Once anything of this fails, the rules are not used for the model again (`Checked.against`). With a batch of one there
is nothing to cut: such a pass is right, and proves nothing. What a model does to the examples without leaving
another graph, depending on numbers, is found by 3 and 4 only, when they next look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from syft.dp.gradient_factors import Factor, Full
from syft.dp.layer_rules import RULES, owners, takes_batch

LossFunction = Callable[[Any, Any], Tensor]

#: Units in the last place by which weighted slices may differ, and sums over examples.
_SLICE_ULPS, _SUM_ULPS = 16, 4
#: By how much of its size anything may differ for an example alone: other kernels, other roundings, a ReLU that flips.
_ALONE, _ALONE_ULPS = 1e-2, 16


class NoRule(Exception):  # a way out, not an error
    """This model did something that the rules do not cover."""


@dataclass
class Checked:
    """What is known about the rules for one model: see NOTE [Whose gradient it is]."""

    graphs: set[_Graph] = field(default_factory=set)
    """Those on which they were found to be right."""
    passes: int = 0
    against: str = ""
    """Why they are not used any more."""

    def is_due(self, graph: _Graph) -> bool:
        """Whether to look again."""
        return graph not in self.graphs or self.passes & (self.passes - 1) == 0


@dataclass(frozen=True)
class _Call:
    """What a layer was called with; where its output and its input are in the graph."""

    input: Tensor
    edge: Any
    before: Any


@dataclass(frozen=True)
class _Forward:
    calls: dict[str, _Call]
    outputs: Tensor
    losses: Tensor

    def rows(self, rows: list[int] | Tensor) -> dict[str, Tensor]:
        """What each layer was called with for some examples, and what came out."""
        kept = {name: call.input[rows] for name, call in self.calls.items()}
        return {**kept, "the output": self.outputs.detach()[rows]}


def alone(loss_fn: LossFunction, output: Any, target: Any) -> Tensor:
    """The loss of a batch that holds one example."""
    loss = loss_fn(output, target)
    return loss.sum() if loss.dim() else loss


def _losses(loss_fn: LossFunction, outputs: Tensor, targets: Tensor) -> Tensor:
    def one(output: Tensor, target: Tensor) -> Tensor:
        return alone(loss_fn, output.unsqueeze(0), target.unsqueeze(0))

    return torch.func.vmap(one, randomness="different")(outputs, targets)


# -- the pass --------------------------------------------------------------------------------------------


def ruled(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    loss_fn: LossFunction,
    inputs: Tensor,
    targets: Tensor,
    checked: Checked,
) -> tuple[dict[str, Factor], Tensor, bool]:
    """Factors by parameter name, losses, and whether they are known to be right. `layers`: `owners(model)`. !! NoRule

    They are not known to be where a check was due and some gradient is not finite: nothing can be compared.
    """
    batch = inputs.shape[0]
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    ran = _forward(model, layers, loss_fn, inputs, targets)
    graph = _graph_of(ran, layers)
    checked.passes += 1
    due, losses = checked.is_due(graph), ran.losses.detach()
    if due:
        _check_graph(graph)
    gradients = _slices(ran, due)
    if not due:  # a graph that was found to be right
        return _factors(layers, trained, ran, gradients), losses, True
    weights = _powers_of_two(losses)
    asked = [*(call.edge for call in ran.calls.values()), *trained.values()]
    again = torch.autograd.grad(ran.losses, asked, weights, allow_unused=True)
    numbers = (losses, *gradients.values(), *again)
    if not all(bool(g.isfinite().all()) for g in numbers if g is not None):
        return _factors(layers, trained, ran, gradients), losses, False
    _check_slices(gradients, again, weights)
    rows = sorted({0, batch // 2, batch - 1}) if batch > 1 else []
    kept = ran.rows(rows)
    found = _factors(layers, trained, ran, gradients)
    _check_sums(found, dict(zip(trained, again[-len(trained) :], strict=True)), weights)
    if rows:
        with _left_as_it_was(model):
            _check_alone(model, loss_fn, inputs, targets, _Rows(rows, kept, found))
        checked.graphs.add(graph)
    return found, losses, True


def _forward(
    model: nn.Module, layers: Mapping[str, nn.Module], loss_fn: LossFunction, inputs: Tensor, targets: Tensor
) -> _Forward:
    calls, batch = dict[str, _Call](), inputs.shape[0]
    with torch.enable_grad(), _watched(layers, batch, calls):
        outputs = model(inputs)
        if not isinstance(outputs, Tensor) or outputs.shape[:1] != (batch,):
            raise NoRule("its output is not one tensor whose dimension 0 is the batch")
        losses = _losses(loss_fn, outputs, targets)
    if not losses.requires_grad:
        raise NoRule("its loss does not depend on what is trained")
    return _Forward(calls, outputs, losses)


@contextmanager
def _watched(layers: Mapping[str, nn.Module], batch: int, calls: dict[str, _Call]) -> Iterator[None]:
    def watch(name: str) -> Any:
        def hook(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if name in calls:
                raise NoRule(f"{name!r} is called more than once")
            x = args[0] if len(args) == 1 else None
            if not isinstance(x, Tensor) or x.shape[:1] != (batch,) or not takes_batch(layer, x):
                raise NoRule(f"{name!r} is not called with one tensor whose dimension 0 is the batch")
            if not (isinstance(output, Tensor) and output.requires_grad):
                # NB: also inside a re-entrant checkpoint, whose gradients do not show in the graph.
                raise NoRule(f"{name!r} is called without gradients")
            # NB: an edge, not the tensor: an in-place ReLU behind the layer would make it another tensor.
            edge = torch.autograd.graph.get_gradient_edge(output)
            calls[name] = _Call(x.detach(), edge, x.grad_fn)

        return hook

    handles = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _slices(ran: _Forward, again: bool = False) -> dict[str, Tensor | None]:
    """The gradient of each layer's output; with `again` there will be another backward pass."""
    edges = [call.edge for call in ran.calls.values()]
    ones = torch.ones_like(ran.losses)
    made = (
        torch.autograd.grad(ran.losses, edges, ones, retain_graph=again, allow_unused=True) if edges else ()
    )
    return dict(zip(ran.calls, made, strict=True))


def _factors(
    layers: Mapping[str, nn.Module],
    trained: Mapping[str, Tensor],
    ran: _Forward,
    gradients: dict[str, Tensor | None],
) -> dict[str, Factor]:
    found: dict[str, Factor] = {}
    # NB: what autocast made of the layers is not what the rules should compute in.
    with torch.no_grad(), torch.autocast(ran.losses.device.type, enabled=False):
        for name in list(ran.calls):
            # What a rule has used is let go before the next one asks for memory.
            layer, x, g = layers[name], ran.calls.pop(name).input, gradients.pop(name)
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


def _graph_of(ran: _Forward, layers: Mapping[str, nn.Module]) -> _Graph:
    root: Any = ran.losses.grad_fn
    number, nodes, after = {root: 0}, [root], []
    for node in nodes:  # which grows
        following = []
        for n, _ in node.next_functions:
            if n is not None:
                if n not in number:
                    number[n] = len(nodes)
                    nodes.append(n)
                following.append(number[n])
        after.append(tuple(following))
    calls = tuple(
        (name, c.input.dim(), c.input.is_contiguous(), number.get(c.edge.node), number.get(c.before))
        for name, c in ran.calls.items()
    )
    parameters = tuple(
        (name, own, number.get(torch.autograd.graph.get_gradient_edge(parameter).node))
        for name, layer in layers.items()
        for own, parameter in layer.named_parameters(recurse=False)
        if parameter.requires_grad
    )
    return _Graph(tuple(map(type, nodes)), tuple(after), calls, parameters)


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
    """1, 2 and 4 in random order, at least two of them where there are two losses."""
    each = torch.tensor([1.0, 2.0, 4.0], dtype=losses.dtype, device=losses.device)
    return each[torch.randperm(len(losses), device=losses.device) % 3]


def _eps(tensors: Iterable[Tensor | None], device: torch.device) -> float:
    """The coarsest rounding there is in what made these."""
    kinds = {t.dtype for t in tensors if t is not None and t.is_floating_point()}
    if torch.is_autocast_enabled(device.type):
        kinds.add(torch.get_autocast_dtype(device.type))
    return max(torch.finfo(kind).eps for kind in kinds)


def _nothing(kind: torch.dtype) -> float:
    """Numbers so small that kernels round them to zero, or to few bits."""
    return max(1e-30, 64 * torch.finfo(kind).smallest_normal * torch.finfo(kind).eps)


def _check_slices(
    gradients: Mapping[str, Tensor | None], again: Sequence[Tensor | None], weights: Tensor
) -> None:
    for (name, gradient), weighted in zip(gradients.items(), again, strict=False):
        if gradient is None or weighted is None or not gradient.numel():
            continue
        info = torch.finfo(gradient.dtype)
        expected = gradient * weights.to(gradient.dtype).view(-1, *[1] * (gradient.dim() - 1))
        allowed = _SLICE_ULPS * info.eps * float(gradient.abs().max()) + _nothing(gradient.dtype)
        if float((weighted - expected).abs().max()) > allowed:
            raise NoRule(f"the gradients of {name!r} are not those of one example each")


def _check_sums(found: Mapping[str, Factor], usual: Mapping[str, Tensor | None], weights: Tensor) -> None:
    eps = _eps([weights, *usual.values()], weights.device)
    sizes = {name: float(factor.norms() @ weights.double()) for name, factor in found.items()}
    # NB: what has no gradient but rounding (a bias before a norm, or of an attention's keys) is as large as rounding is
    # where gradients are large.
    rounding = _ALONE_ULPS * eps * max(sizes.values())
    for name, factor in found.items():
        ours, gradient = factor.weighted_sum(weights), usual[name]
        theirs = torch.zeros_like(ours) if gradient is None else gradient.double()
        nothing = (
            len(weights)
            * ours.numel() ** 0.5
            * _nothing(weights.dtype if gradient is None else gradient.dtype)
        )
        allowed = max(1e-4, _SUM_ULPS * eps) * (sizes[name] + float(theirs.norm())) + rounding + nothing
        if float((ours - theirs).norm()) > allowed:
            raise NoRule(f"what its rule makes of {name!r} does not add up to the usual gradient")


@dataclass(frozen=True)
class _Rows:
    """Some examples, and what a pass of the whole batch made of them."""

    rows: list[int]
    kept: dict[str, Tensor]
    found: Mapping[str, Factor]


def _check_alone(
    model: nn.Module,
    loss_fn: LossFunction,
    inputs: Tensor,
    targets: Tensor,
    many: _Rows,
    *,
    quiet: bool = False,
) -> None:
    layers = owners(model)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    for place, row in enumerate(many.rows):
        part, state = slice(row, row + 1), _random_state(inputs)
        try:
            ran = _forward(model, layers, loss_fn, inputs[part], targets[part])
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise NoRule(f"it does not run on one example alone ({str(error)[:200]})") from error
        if not all(map(torch.equal, state, _random_state(inputs))):
            if quiet:
                raise NoRule("it is random in evaluation mode, too, so that nothing can be compared")
            unseen = many.kept.keys() - ran.calls.keys()
            _check_random(model, loss_fn, inputs, targets, many.rows, unseen)
            return
        given = torch.autograd.grad(
            ran.losses, list(trained.values()), torch.ones_like(ran.losses), allow_unused=True
        )
        kept, eps = ran.rows([0]), _eps([ran.losses, *given], inputs.device)
        if kept.keys() != many.kept.keys():
            raise NoRule("it calls other layers for one example than for many")
        for name, value in kept.items():
            if not _is_close(value[0], many.kept[name][place], eps):
                raise NoRule(f"what {name!r} is for an example depends on the others of its batch")
        _check_gradients(dict(zip(trained, given, strict=True)), many.found, row, len(inputs), eps)


def _check_random(
    model: nn.Module,
    loss_fn: LossFunction,
    inputs: Tensor,
    targets: Tensor,
    rows: list[int],
    unseen: set[str],
) -> None:
    """A model that draws random numbers; `unseen` are layers that no example alone has been through yet."""
    layers = owners(model)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    # As it is. The same draws, and other neighbours: who stays must not notice.
    order = torch.randperm(len(inputs), device=inputs.device)
    stay, go = order[::2], order[1::2]
    others = inputs.clone()
    others[go] = inputs[stay[: len(go)]]
    state = _random_state(inputs)
    usual = _forward(model, layers, loss_fn, inputs, targets).rows(stay)
    _set_random_state(inputs, state)
    kept, eps = (
        _forward(model, layers, loss_fn, others, targets).rows(stay),
        _eps(trained.values(), inputs.device),
    )
    if kept.keys() != usual.keys() or not all(_is_close(kept[name], usual[name], eps) for name in kept):
        raise NoRule("what it computes for an example depends on the others of its batch")
    # Without dropout.
    for module in model.modules():
        module.training = False
    ran = _forward(model, layers, loss_fn, inputs, targets)
    if unseen - ran.calls.keys() - {"the output"}:
        raise NoRule(
            "it calls some layers at random, and not in evaluation mode, so that nothing can be compared"
        )
    _check_graph(_graph_of(ran, layers))
    kept, gradients = ran.rows(rows), _slices(ran)
    many = _Rows(rows, kept, _factors(layers, trained, ran, gradients))
    _check_alone(model, loss_fn, inputs, targets, many, quiet=True)


def _check_gradients(
    given: Mapping[str, Tensor | None], found: Mapping[str, Factor], row: int, batch: int, eps: float
) -> None:
    pairs = {}
    for name, gradient in given.items():
        only = torch.zeros(batch, device=found[name].norms().device)
        only[row] = 1.0
        ours = found[name].weighted_sum(only)
        pairs[name] = ours, torch.zeros_like(ours) if gradient is None else gradient.double()
    total = float(torch.stack([theirs.norm() for _ours, theirs in pairs.values()]).norm())
    for name, (ours, theirs) in pairs.items():
        allowed = max(_ALONE, _ALONE_ULPS * eps) * float(theirs.norm()) + _ALONE_ULPS * eps * total
        if float((ours - theirs).norm()) > allowed:
            raise NoRule(f"the gradient of {name!r} for an example alone is another than in a batch")


def _is_close(one: Tensor, other: Tensor, eps: float) -> bool:
    if one.shape != other.shape or not one.is_floating_point():
        return torch.equal(one, other)
    one, other = one.double(), other.double()
    near = _ALONE_ULPS * eps
    return float((one - other).norm()) <= max(_ALONE, near) * float(other.norm()) + near * one.numel() ** 0.5


def _random_state(inputs: Tensor) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(inputs.device)] if inputs.is_cuda else states


def _set_random_state(inputs: Tensor, states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if inputs.is_cuda:
        torch.cuda.set_rng_state(states[1], inputs.device)


@contextmanager
def _left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Buffers and modes are put back: a check is no part of the training."""
    modes = {module: module.training for module in model.modules()}
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for module, mode in modes.items():
                module.training = mode
            for buffer, value in buffers.items():
                buffer.copy_(value)
