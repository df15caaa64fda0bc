"""One gradient per example, without a loop over examples.

One duty: `factors` of the per-sample gradients of a batch. Two ways: layers with a rule below need one forward
pass, one backward pass for the outputs only, and a product per layer; a model with any other layer goes
through `torch.func.vmap(grad(...))` as a whole. A rule is one decorated function: layer, input, gradient of
the output -> factors. Example i's loss is `loss_fn` of a batch that holds example i alone. Imports
`recurrent`.

NOTE [Factors]
Clipping needs the norm of every example's gradient and a weighted sum of them, seldom the gradients. For a
Linear layer on vectors the gradient of example i is the outer product g_i a_i^T: its norm is |g_i| |a_i|
(Goodfellow 2015), and the weighted sum is one matrix product. Only `expand` makes the full tensors.

NOTE [In double precision]
What is clipped must be as short as it is said to be, whatever the gradients are. A square of 1e-25 is 0 in single
precision, and a norm of 0 is not clipped. So norms and sums are in double precision. There the square of every
number of single, half or brain precision is exact: it has at most 48 bits, and lies between 2^-298 and 2^256.
The square of a double may be 0 or infinite, so doubles are divided by the largest of them first. A sum of n
squares is then off by a part in 2^53 / n at most, in any order (Higham 2002, section 4.2), and its root by less.
No sum is over more than 2^15 squares; the roots are joined by `hypot`, which is off by a part in 2^52. So a norm
is off by less than a part in 10^10, for up to 10^10 parameters in 10^5 tensors.

NOTE [Blocks]
A double copy of all gradients would be in pages fresh from the operating system, which cost more than the
arithmetic. So a block of examples x columns is made double at a time, small enough to stay in the cache of a
core, and a convolution copies the patches of as many examples. An accelerator gets larger blocks, fewer times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from syft.dp.recurrent import unrolled

LossFunction = Callable[[Tensor, Any], Tensor]


#: Numbers of a block on a CPU and on an accelerator: see NOTE [Blocks].
_BLOCK_CPU, _BLOCK_ACCELERATOR = 1 << 17, 1 << 26
#: Columns of a block at most: see NOTE [In double precision].
_WIDEST = 1 << 15
#: Numbers of two factors that are put into double precision at once for a matrix product, and examples.
_NUMBERS_AT_ONCE, _EXAMPLES_AT_ONCE = 1 << 22, 1 << 10


class Factor(Protocol):
    """The gradients of one parameter, one per example; norms and sums: see NOTE [In double precision]."""

    def norms(self) -> Tensor: ...
    def weighted_sum(self, weights: Tensor) -> Tensor: ...
    def expand(self) -> Tensor: ...


@dataclass(frozen=True)
class Full:
    """The gradients themselves: examples x the parameter's shape, in any order in memory."""

    gradients: Tensor

    def norms(self) -> Tensor:
        return _norms(self.gradients.permute(0, *self._order()))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        order, weights = self._order(), weights.double()
        stored = self.gradients.permute(0, *order)
        flat = _flat(stored)
        total = flat.new_zeros(flat.shape[1], dtype=torch.float64)
        for rows, columns in _blocks(flat):
            total[columns].addmv_(flat[rows, columns].double().T, weights[rows])
        return total.view(stored.shape[1:]).permute([order.index(i) for i in range(1, stored.dim())])

    def _order(self) -> list[int]:
        """The parameter's dimensions as they follow each other in memory: so flattened, nothing is copied."""
        return sorted(range(1, self.gradients.dim()), key=self.gradients.stride, reverse=True)

    def expand(self) -> Tensor:
        return self.gradients


@dataclass(frozen=True)
class Outer:
    """left_i right_i^T: see NOTE [Factors]."""

    left: Tensor
    right: Tensor

    def norms(self) -> Tensor:
        return _norms(self.left) * _norms(self.right)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        total = self.left.new_zeros(self.left.shape[1], self.right.shape[1], dtype=torch.float64)
        for part in _parts(self.left, self.right):
            left, right = self.left[part].double(), self.right[part].double()
            total += (left * weights[part].double()[:, None]).T @ right
        return total

    def expand(self) -> Tensor:
        return self.left[:, :, None] * self.right[:, None, :]


@dataclass(frozen=True)
class Rows:
    """Rows of a table: example i adds `gradients[i, t]` to the row `index[i, t]`."""

    index: Tensor
    gradients: Tensor
    rows: int

    @cached_property
    def _added_up(self) -> tuple[Tensor, Tensor, Tensor]:
        """Example, row and gradient of every row that an example uses.

        A row used twice gets the sum of both. NB: weighted sums add up these, not their terms: terms that
        cancel have no norm, and what is small beside them would still be rounded away from the table.
        """
        batch, _, width = self.gradients.shape
        example = torch.arange(batch, device=self.index.device)[:, None]
        places, inverse = torch.unique(example * self.rows + self.index, return_inverse=True)
        wide = torch.promote_types(self.gradients.dtype, torch.float32)
        sums = self.gradients.new_zeros(places.numel(), width, dtype=wide)
        sums.index_add_(0, inverse.flatten(), self.gradients.flatten(0, 1).to(wide))
        return places // self.rows, places % self.rows, sums

    def norms(self) -> Tensor:
        owner, _row, sums = self._added_up
        each = _norms(sums)
        largest = each.new_zeros(self.index.shape[0]).scatter_reduce(0, owner, each, "amax")
        scale = torch.where(largest > 0, largest, 1.0)
        squares = (each / scale[owner]).square()
        return largest * torch.zeros_like(largest).index_add_(0, owner, squares).sqrt()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        owner, row, sums = self._added_up
        table = sums.new_zeros(self.rows, sums.shape[1], dtype=torch.float64)
        for part in _parts(sums):
            table.index_add_(0, row[part], sums[part].double() * weights.double()[owner[part], None])
        return table

    def expand(self) -> Tensor:
        batch, _, width = self.gradients.shape
        example = torch.arange(batch, device=self.index.device)[:, None]
        flat = self.gradients.new_zeros(batch * self.rows, width)
        flat.index_add_(0, (example * self.rows + self.index).flatten(), self.gradients.flatten(0, 1))
        return flat.view(batch, self.rows, width)


def _parts(*tensors: Tensor) -> Iterator[slice]:
    """The examples, so many at a time as are put into double precision at once."""
    examples = tensors[0].shape[0]
    width = max(sum(tensor[:1].numel() for tensor in tensors), 1)
    size = max(min(_NUMBERS_AT_ONCE // width, _EXAMPLES_AT_ONCE), 1)
    for start in range(0, examples, size):
        yield slice(start, start + size)


def _flat(gradients: Tensor) -> Tensor:
    """Examples x numbers, of a parameter that is a single number too."""
    return gradients.unsqueeze(-1).flatten(1)


def _numbers_at_once(tensor: Tensor) -> int:
    return _BLOCK_CPU if tensor.device.type == "cpu" else _BLOCK_ACCELERATOR


def _blocks(flat: Tensor) -> Iterator[tuple[slice, slice]]:
    """The examples and columns that are put into double precision at once: see NOTE [Blocks]."""
    examples, width = flat.shape
    wide = max(min(width, _WIDEST), 1)
    high = max(_numbers_at_once(flat) // wide, 1)
    for column in range(0, width, wide):
        for row in range(0, examples, high):
            yield slice(row, row + high), slice(column, column + wide)


def _norms(gradients: Tensor) -> Tensor:
    """The L2 norm of each example; not finite where it has a number that is not."""
    flat = _flat(gradients)
    found = flat.new_zeros(flat.shape[0], dtype=torch.float64)
    for rows, columns in _blocks(flat):
        block = flat[rows, columns]
        if block.dtype == torch.float64:
            largest = block.abs().amax(1)
            scaled = block / torch.where(largest > 0, largest, 1.0)[:, None]
            own = largest * torch.linalg.vector_norm(scaled, dim=1)
        else:
            own = torch.linalg.vector_norm(block, dim=1, dtype=torch.float64)
        found[rows] = torch.hypot(found[rows], own)
    return found


# -- rules -----------------------------------------------------------------------------------------------

Rule = Callable[[Any, Tensor, Tensor], dict[str, Factor]]

RULES: dict[type[nn.Module], Rule] = {}


def rule(*layers: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Register how the factors of a layer follow from its input and the gradient of its output."""

    def register(function: Rule) -> Rule:
        for layer in layers:
            RULES[layer] = function
        return function

    return register


@rule(nn.Linear)
def linear(layer: nn.Linear, x: Tensor, g: Tensor) -> dict[str, Factor]:
    if x.dim() == 2:
        return {"weight": Outer(g, x), "bias": Full(g)}
    x, g = x.flatten(1, -2), g.flatten(1, -2)
    return {"weight": Full(g.transpose(1, 2) @ x), "bias": Full(g.sum(1))}


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor, g: Tensor) -> dict[str, Factor]:
    patches = _patches(layer, x)
    spread = g.reshape(patches.shape[0], g.shape[1] // layer.groups, -1)
    weight = g.new_empty(*spread.shape[:2], layer.weight[0].numel())
    at_once = max(_numbers_at_once(x) // max(patches[:1].numel(), 1), 1)
    for start in range(0, patches.shape[0], at_once):
        part = slice(start, start + at_once)
        copied = patches[part].reshape(-1, spread.shape[2], weight.shape[2])
        torch.bmm(spread[part], copied, out=weight[part])
    weight = weight.view(x.shape[0], layer.out_channels, *layer.kernel_size, -1).movedim(-1, 2)
    return {"weight": Full(weight), "bias": Full(g.flatten(2).sum(2))}


def _patches(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    """A view: (examples * groups) x the output's dimensions x the kernel's dimensions x channels of a group.

    With the channels last, what a row of the kernel sees is one run of memory, so copying it is fast.
    """
    padding: Any = layer.padding
    image = x.reshape(x.shape[0] * layer.groups, -1, *x.shape[2:]).movedim(1, -1)
    if any(padding):
        image = F.pad(image, [0, 0, *(pad for pad in reversed(padding) for _side in range(2))])
    view = image.contiguous()
    spans = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for dimension, (size, step, apart) in enumerate(spans, start=1):
        view = view.unfold(dimension, (size - 1) * apart + 1, step)[..., ::apart]
    return view.movedim(x.dim() - 1, -1)


@rule(nn.Embedding)
def embedding(layer: nn.Embedding, x: Tensor, g: Tensor) -> dict[str, Factor]:
    index, g = x.reshape(x.shape[0], -1), g.reshape(x.shape[0], -1, g.shape[-1])
    if layer.padding_idx is not None:
        g = g * (index != layer.padding_idx)[..., None]
    return {"weight": Rows(index, g, layer.num_embeddings)}


@rule(nn.LayerNorm)
def layer_norm(layer: nn.LayerNorm, x: Tensor, g: Tensor) -> dict[str, Factor]:
    shape = tuple(layer.normalized_shape)
    normal = F.layer_norm(x, shape, eps=layer.eps)
    return {
        "weight": Full((g * normal).reshape(x.shape[0], -1, *shape).sum(1)),
        "bias": Full(g.reshape(x.shape[0], -1, *shape).sum(1)),
    }


@rule(nn.GroupNorm)
def group_norm(layer: nn.GroupNorm, x: Tensor, g: Tensor) -> dict[str, Factor]:
    normal = F.group_norm(x, layer.num_groups, eps=layer.eps)
    shape = (*x.shape[:2], -1)
    return {"weight": Full((g * normal).reshape(shape).sum(2)), "bias": Full(g.reshape(shape).sum(2))}


def _has_rule(layer: nn.Module) -> bool:
    if type(layer) not in RULES or not {n for n, _ in layer.named_parameters(recurse=False)} <= {
        "weight",
        "bias",
    }:
        return False
    if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.Embedding):
        return layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
    return True


def _owners(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that own trainable parameters, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if any(p.requires_grad for p in module.parameters(recurse=False))
    }


def has_rules(model: nn.Module) -> bool:
    """Whether every trainable parameter belongs to one layer that has a rule."""
    owned = [p for m in _owners(model).values() for p in m.parameters(recurse=False) if p.requires_grad]
    return all(_has_rule(m) for m in _owners(model).values()) and len({id(p) for p in owned}) == len(owned)


# -- the two ways ----------------------------------------------------------------------------------------


class _NoRule(Exception):  # a way out, not an error
    """This forward pass did something the rules do not cover."""


def factors(
    model: nn.Module,
    loss_fn: LossFunction,
    inputs: Tensor,
    targets: Any,
    way: str = "auto",
    *,
    check: bool = False,
) -> tuple[dict[str, Factor], Tensor]:
    """The factors by parameter name, and the losses, of every example of the batch (dimension 0).

    `way`: "rules", "vmap" (every example by itself: right for any model that runs under vmap), or "auto". The
    rules see only what a layer does when it is called; `check` compares their sum with the ordinary gradient,
    at the cost of one more backward pass, and finds parameters that are also used elsewhere.
    """
    if way not in ("auto", "rules", "vmap"):
        raise ValueError(f'Per-sample gradients are computed by "auto", "rules" or "vmap", got {way!r}.')
    if way == "rules" and not has_rules(model):
        missing = sorted({type(m).__name__ for m in _owners(model).values() if not _has_rule(m)})
        raise ValueError(f"There is no rule for {', '.join(missing) or 'shared parameters'}: use vmap.")
    if way != "vmap" and has_rules(model):
        try:
            return _by_rules(model, loss_fn, inputs, targets, check)
        except _NoRule as found:
            if way == "rules":
                raise ValueError(f"The rules do not cover this model: {found}. Use vmap.") from None
    return _by_vmap(model, loss_fn, inputs, targets)


def per_sample_gradients(
    model: nn.Module, loss_fn: LossFunction, inputs: Tensor, targets: Any, way: str = "auto"
) -> dict[str, Tensor]:
    """The gradients by parameter name, examples x the parameter's shape."""
    found, _losses = factors(model, loss_fn, inputs, targets, way, check=True)
    return {name: factor.expand() for name, factor in found.items()}


def settled_way(model: nn.Module, loss_fn: LossFunction, inputs: Tensor, targets: Any) -> str:
    """ "auto" where the rules pass their check on this batch, else "vmap"."""
    if has_rules(model):
        try:
            _by_rules(model, loss_fn, inputs, targets, check=True)
            return "auto"
        except _NoRule:
            pass
    return "vmap"


def _alone(loss_fn: LossFunction, output: Tensor, target: Any) -> Tensor:
    loss = loss_fn(output, target)
    return loss.sum() if loss.dim() else loss


def _losses(loss_fn: LossFunction, outputs: Tensor, targets: Any) -> Tensor:
    def one(output: Tensor, target: Any) -> Tensor:
        return _alone(loss_fn, output.unsqueeze(0), target.unsqueeze(0))

    return torch.func.vmap(one, randomness="different")(outputs, targets)


@dataclass
class _Seen:
    input: Tensor
    edge: Any


@contextmanager
def _watched(layers: dict[str, nn.Module], batch: int, seen: dict[str, _Seen]) -> Iterator[None]:
    def watch(name: str) -> Any:
        def hook(_layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if name in seen:
                raise _NoRule(f"{name!r} is called more than once")
            if len(args) != 1 or not isinstance(args[0], Tensor) or args[0].shape[:1] != (batch,):
                raise _NoRule(f"{name!r} is not called with one tensor whose dimension 0 is the batch")
            # NB: an edge, not the tensor: an in-place ReLU behind the layer would make it another tensor.
            seen[name] = _Seen(args[0].detach(), torch.autograd.graph.get_gradient_edge(output))

        return hook

    handles = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _by_rules(
    model: nn.Module, loss_fn: LossFunction, inputs: Tensor, targets: Any, check: bool = False
) -> tuple[dict[str, Factor], Tensor]:
    layers, seen = _owners(model), dict[str, _Seen]()
    batch = inputs.shape[0]
    with torch.enable_grad(), _watched(layers, batch, seen):
        outputs = model(inputs)
        if not isinstance(outputs, Tensor) or outputs.shape[:1] != (batch,):
            raise _NoRule("its output is not one tensor whose dimension 0 is the batch")
        losses = _losses(loss_fn, outputs, targets)
    names = list(seen)
    edges = [seen[name].edge for name in names]
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    usual: dict[str, Tensor | None] = {}
    if check:
        made_usual = torch.autograd.grad(
            losses.sum(), list(trained.values()), retain_graph=True, allow_unused=True
        )
        usual = dict(zip(trained, made_usual, strict=True))
    gradients = list(torch.autograd.grad(losses.sum(), edges, allow_unused=True)) if edges else []
    found: dict[str, Factor] = {}
    with torch.no_grad():
        for name in names:
            # What a rule has used is let go before the next one asks for memory.
            layer, x, g = layers[name], seen.pop(name).input, gradients.pop(0)
            if g is None:
                continue
            made = RULES[type(layer)](layer, x, g)
            for own, parameter in layer.named_parameters(recurse=False):
                if parameter.requires_grad:
                    found[f"{name}.{own}" if name else own] = made[own]
        for full, parameter in trained.items():
            if full not in found:  # not used in this pass
                found[full] = Full(parameter.new_zeros(batch, *parameter.shape))
        for full, gradient in usual.items():
            ours = found[full].weighted_sum(losses.new_ones(batch))
            theirs = torch.zeros_like(ours) if gradient is None else gradient.double()
            if not torch.allclose(ours, theirs, rtol=1e-2, atol=1e-4 * float(theirs.abs().max()) + 1e-6):
                raise _NoRule(f"{full!r} is also used outside of the call of its layer")
    return found, losses.detach()


def _by_vmap(
    model: nn.Module, loss_fn: LossFunction, inputs: Tensor, targets: Any
) -> tuple[dict[str, Factor], Tensor]:
    trained = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    fixed = {n: p.detach() for n, p in model.named_parameters() if not p.requires_grad}
    fixed |= dict(model.named_buffers())

    def loss(parameters: dict[str, Tensor], x: Tensor, target: Any) -> tuple[Tensor, Tensor]:
        output = torch.func.functional_call(model, (parameters, fixed), (x.unsqueeze(0),))
        value = _alone(loss_fn, output, target.unsqueeze(0))
        return value, value

    each = torch.func.vmap(torch.func.grad(loss, has_aux=True), in_dims=(None, 0, 0), randomness="different")
    # The fused kernels of recurrence and attention cannot be mapped over examples; what they compute can.
    with unrolled(model), sdpa_kernel(SDPBackend.MATH):
        gradients, losses = each(trained, inputs, targets)
    return {name: Full(g.detach()) for name, g in gradients.items()}, losses.detach()
