"""One gradient per example, without a loop over examples.

One duty: `factors` of the per-sample gradients of a batch. Two ways: layers with a rule need one forward pass, one
backward pass for the outputs only, and a product per layer (`ruled_pass`); a model with any other layer, or one that
the rules do not fit, goes through `torch.func.vmap(grad(...))` as a whole. Both call the model with one example at a
time, under vmap: example i's loss is `loss_fn` of a batch that holds example i alone, and no other example has a part
in it. Imports `batch_parts`, `gradient_factors`, `kept_state`, `layer_rules`, `recurrent`, `ruled_pass`.

NOTE [Compiled models]
What torch.compile made of a model does not call hooks that were added later, and cannot be mapped over examples. So
for the time of a pass, compiled code runs as it was written.

NOTE [Draws]
Each example has random draws of its own: its dropout is not that of the others. A model that decides by a draw what to
call next (whether a layer is dropped for this batch) cannot be run for many examples with a draw each. It gets the same
draws for all of them. Neither has anything to do with the examples, so the bound of one example's part holds for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from syft.core.place import WITHOUT_VALUES
from syft.dp.batch_parts import arguments, batch_of_one, check_batch, each_tensor, plain
from syft.dp.gradient_factors import Factor, Full
from syft.dp.kept_state import unchanged
from syft.dp.layer_rules import has_rule, has_rules, owners
from syft.dp.recurrent import unrolled
from syft.dp.ruled_pass import Checked, LossFunction, NoRule, Randomness, alone, ruled

WAYS = ("auto", "rules", "vmap")

Made = TypeVar("Made")


def factors(
    model: nn.Module,
    loss_fn: LossFunction,
    inputs: Any,
    targets: Any,
    way: str = "auto",
    checked: Checked | None = None,
) -> tuple[dict[str, Factor], Tensor]:
    """The factors by parameter name, and the losses, of every example of the batch (dimension 0).

    `inputs`: what the model is called with, a tensor, a tuple of tensors or a dict of them by name (`batch_parts`).
    `way`: "rules", "vmap" (the gradient of every example as a whole), or "auto": the rules where they fit. Whether they
    do is checked each time, at the cost of a backward pass; who calls this again and again for one model gives one
    `Checked`, and it is checked now and then (`ruled_pass`, NOTE [Whether it is the gradient]).
    """
    if way not in WAYS:
        raise ValueError(f'Per-sample gradients are computed by "auto", "rules" or "vmap", got {way!r}.')
    check_batch(inputs, targets)
    checked = Checked() if checked is None else checked
    with unchanged(model=model, loss_fn=loss_fn):
        return _factors(model, loss_fn, inputs, targets, way, checked)


def _factors(
    model: nn.Module, loss_fn: LossFunction, inputs: Any, targets: Any, way: str, checked: Checked
) -> tuple[dict[str, Factor], Tensor]:
    layers = owners(model) if way != "vmap" and not checked.against else {}
    has_all = bool(layers) and has_rules(layers)
    if way == "rules" and layers and not has_all:
        missing = sorted({type(m).__name__ for m in layers.values() if not has_rule(m)})
        raise ValueError(f"There is no rule for {', '.join(missing) or 'shared parameters'}: use vmap.")
    against = checked.against
    # See NOTE [Compiled models]. The fused kernels of attention cannot be mapped over examples; what they compute can.
    # Nor can values be looked at under vmap, and libraries that would look are told so.
    with torch.compiler.set_stance("force_eager"), sdpa_kernel(SDPBackend.MATH), WITHOUT_VALUES:
        if has_all:
            try:
                found, losses, known = _drawn(
                    checked, lambda: ruled(model, layers, loss_fn, _own(inputs), _own(targets), checked)
                )
                if known or way == "rules":
                    return found, losses
            except NoRule as reason:
                against = str(reason)
            except torch.OutOfMemoryError:  # the other way needs more
                raise
            except RuntimeError as error:  # if the model is to blame, the other way will say so
                against = f"it cannot be run by the rules ({str(error)[:200]})"
        if way == "rules":
            raise ValueError(f"The rules do not cover this model: {against}. Use vmap.")
        with _explained(model):
            made = _drawn(
                checked, lambda: _by_vmap(model, loss_fn, _own(inputs), _own(targets), checked.randomness)
            )
    checked.against = against
    return made


def _own(examples: Any) -> Any:
    """Copies, for one pass: a model may write into what it is given, and an example may be why there is another pass."""
    return each_tensor(lambda part: part.clone(), examples)


def _drawn(checked: Checked, run: Callable[[], Made]) -> Made:
    """See NOTE [Draws]."""
    try:
        return run()
    except RuntimeError as error:
        if checked.randomness == "same" or not _is_about_mapping(error):
            raise
        checked.randomness = "same"
        try:
            return run()
        except (RuntimeError, NoRule):
            checked.randomness = "different"
            raise


def per_sample_gradients(
    model: nn.Module, loss_fn: LossFunction, inputs: Any, targets: Any, way: str = "auto"
) -> dict[str, Tensor]:
    """The gradients by parameter name, examples x the parameter's shape."""
    found, _losses = factors(model, loss_fn, inputs, targets, way)
    return {name: factor.expand() for name, factor in found.items()}


def mapped_outputs(model: nn.Module, inputs: Any) -> Any:
    """What the model makes of each example alone, without gradients: outputs as of a batch."""

    def one(x: Any) -> Any:
        args, named = arguments(batch_of_one(x))
        return model(*args, **named)

    def joined(value: Any) -> Any:
        return each_tensor(lambda part: part.flatten(0, 1), value)

    with (
        unchanged(model=model),
        torch.no_grad(),
        torch.compiler.set_stance("force_eager"),
        sdpa_kernel(SDPBackend.MATH),
        WITHOUT_VALUES,
        unrolled(model),
        _explained(model),
    ):
        return joined(torch.func.vmap(one, randomness="different")(plain(inputs)))


#: What torch says when something cannot be mapped over examples.
_NOT_MAPPED = ("vmap", "functorch", "atching rule", "During a grad")


def _is_about_mapping(error: RuntimeError) -> bool:
    return any(word in str(error) for word in _NOT_MAPPED)


@contextmanager
def _explained(model: nn.Module) -> Iterator[None]:
    try:
        yield
    except NotImplementedError:
        raise
    except RuntimeError as error:
        if not _is_about_mapping(error):
            raise
        raise NotImplementedError(
            f"The gradients of {type(model).__name__} and its loss cannot be computed for each example: "
            f"{str(error)[:300]} What depends on the numbers of an example is written with torch.where, not with `if`, "
            "`.item()` or changes in place of what was not made from the inputs (x.new_zeros), and a checkpoint with "
            "use_reentrant=False."
        ) from error


def _places(model: nn.Module) -> dict[str, str]:
    """Where a parameter stands in a layer, once for each layer -> its name, which tied ones share."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{at}.{key}" if at else key: names[id(p)]
        for at, layer in model.named_modules()
        for key, p in layer._parameters.items()
        if p is not None
    }


def _by_vmap(
    model: nn.Module, loss_fn: LossFunction, inputs: Any, targets: Any, randomness: Randomness
) -> tuple[dict[str, Factor], Tensor]:
    trained = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    fixed = {n: p.detach() for n, p in model.named_parameters() if not p.requires_grad}
    fixed |= dict(model.named_buffers())
    places = _places(model)

    def loss(parameters: dict[str, Tensor], x: Any, target: Any) -> tuple[Tensor, Tensor]:
        given = {place: (parameters if name in parameters else fixed)[name] for place, name in places.items()}
        # NB: not with `tie_weights`, which leaves a layer that stands twice with what it was called with.
        args, named = arguments(batch_of_one(x))
        output = torch.func.functional_call(model, {**fixed, **given}, args, named, tie_weights=False)
        value = alone(loss_fn, output, batch_of_one(target))
        return value, value

    each = torch.func.vmap(torch.func.grad(loss, has_aux=True), in_dims=(None, 0, 0), randomness=randomness)
    with unrolled(model):  # neither can the fused kernels of recurrence
        gradients, losses = each(trained, plain(inputs), plain(targets))
    return {name: Full(g.detach()) for name, g in gradients.items()}, losses.detach()
