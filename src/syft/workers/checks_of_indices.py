"""Checks of operations that take indices: pools, embeddings, losses, segments. See syft.workers.sound_arguments."""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.workers.bound_arguments import Check, has_values

# -- pools ---------------------------------------------------------------------------------------------


def pooled(dims: int, gradient: str = "grad_output", whole: str = "self", indices: str = "indices") -> Check:
    """The backward pass of a pool: one gradient per place, each of an element of its own plane."""

    def check(a: Any) -> None:
        a.dims(gradient, dims + 1, dims + 2)
        a.require(
            a[gradient].shape[:-dims] == a[whole].shape[:-dims] and a[gradient].dim() == a[whole].dim(),
            f"{gradient!r} is {list(a[gradient].shape)} for {whole!r} of {list(a[whole].shape)}",
        )
        sizes = a.get("output_size")
        a.require(sizes is None or len(sizes) == dims, f"'output_size' is {sizes}, not {dims} sizes")
        plane = math.prod(a[whole].shape[-dims:])
        a.require(plane > 0 or not a[gradient].numel(), f"{whole!r} is empty")
        if indices in a:
            a.same_shape(indices, gradient)
            a.within(indices, 0, plane)

    return check


#: How a grid is interpolated (bilinear, nearest, bicubic) and what lies outside (zeros, the border, a reflection).
_INTERPOLATIONS = {2: (0, 1, 2), 3: (0, 1)}
_PADDINGS = (0, 1, 2)


def grid_of(dims: int) -> Check:
    """NB: for another number in place of a mode, torch returns memory that it never wrote."""

    def check(a: Any) -> None:
        for name, known in (("interpolation_mode", _INTERPOLATIONS[dims]), ("padding_mode", _PADDINGS)):
            a.require(int(a[name]) in known, f"{name!r} is {a[name]}, and there are {known}")
        a.dims("input", dims + 2)
        a.dims("grid", dims + 2)
        a.require(a["grid"].shape[-1] == dims, f"'grid' is {list(a['grid'].shape)}")
        wanted = [*a["input"].shape[:2], *a["grid"].shape[1:-1]]
        a.require(a["input"].shape[0] == a["grid"].shape[0], "'input' and 'grid' differ in their first size")
        if "grad_output" in a:
            a.require(list(a["grad_output"].shape) == wanted, f"'grad_output' is not {wanted}")
        # NB: of what lies outside and is moved inside, torch takes it that it got there. In the forward pass as well, for
        # the backward pass may be one that torch makes itself.
        if int(a["padding_mode"]) != 0 and has_values(a["grid"]):
            a.require(bool(torch.isfinite(a["grid"].detach()).all()), "'grid' holds infinite values or NaN")

    return check


def padded(dims: int) -> Check:
    def check(a: Any) -> None:
        one, whole = a["grad_output"], a["self"]
        a.require(len(a["padding"]) == 2 * dims, f"'padding' is {a['padding']}, not {2 * dims} numbers")
        a.require(
            one.dim() == whole.dim() > dims and one.shape[:-dims] == whole.shape[:-dims],
            f"'grad_output' is {list(one.shape)} for 'self' of {list(whole.shape)}",
        )

    return check


def check_unfolded(a: Any) -> None:
    wanted = [int(n) for n in a["input_sizes"]]
    dim, size, step = int(a["dim"]), int(a["size"]), int(a["step"])
    count = max(len(wanted), 1)
    a.require(
        -count <= dim < count and size >= 0 and step > 0,
        f"'dim', 'size' and 'step' are {dim}, {size}, {step}",
    )
    if wanted:
        a.require(size <= wanted[dim], f"windows of {size} in {wanted[dim]} elements")
        wanted[dim] = (wanted[dim] - size) // step + 1
    wanted.append(size)
    a.require(
        list(a["grad_in"].shape) == wanted, f"'grad_in' is {list(a['grad_in'].shape)} instead of {wanted}"
    )


def check_scaled(a: Any) -> None:
    """Scales have to agree with the sizes: torch finds its places by them."""
    whole = a["self"].shape if "self" in a else a["input_size"]
    sizes = a["output_size"]
    if sizes is None or "scale_factors" in a:  # decomposed, and checked then
        return
    scales = [a[name] for name in ("scales", "scales_d", "scales_h", "scales_w") if name in a]
    for before, after, scale in zip(whole[-len(sizes) :], sizes, scales, strict=True):
        a.require(
            scale is None or abs(before * scale - after) <= 1,
            f"a scale of {scale} does not make {after} elements of {before}",
        )


# -- embeddings ----------------------------------------------------------------------------------------


def check_embedding(a: Any) -> None:
    gradient, indices = a["grad_output"] if "grad_output" in a else a["grad"], a["indices"]
    a.require(
        gradient.dim() > 0 and gradient.shape[:-1] == indices.shape,
        f"the gradient is {list(gradient.shape)} for indices of {list(indices.shape)}",
    )
    a.within("indices", 0, int(a["num_weights"]), but=int(a["padding_idx"]))


def check_bag(a: Any) -> None:
    a.dims("weight", 2)
    a.dims("indices", 1)
    a.dims("offsets", 1)
    a.within("indices", 0, a["weight"].shape[0])
    a.length("per_sample_weights", a["indices"].numel())
    _offsets(a, a["indices"].numel())
    if a["include_last_offset"] and has_values(a["offsets"]):
        a.require(
            a["offsets"].numel() > 0 and int(a["offsets"][-1]) == a["indices"].numel(),
            "the last of 'offsets' is not the number of indices",
        )


def _offsets(a: Any, elements: int) -> None:
    """Where bags begin: in order, and not beyond the end."""
    offsets = a["offsets"]
    a.within("offsets", 0, elements + 1)
    if has_values(offsets) and offsets.numel() > 1:
        a.require(bool((offsets.diff() >= 0).all()), "'offsets' are not in ascending order")


def check_bag_backward(a: Any) -> None:
    gradient, indices, to_bag = a["grad"], a["indices"], a["offset2bag"]
    a.dims("grad", 2)
    a.dims("indices", 1)
    bags = gradient.shape[0]
    if "weight" in a:
        a.dims("weight", 2)
        a.require(gradient.shape[1] == a["weight"].shape[1], "'grad' and 'weight' differ in their last size")
        a.within("indices", 0, a["weight"].shape[0])
    else:
        a.within("indices", 0, int(a["num_weights"]))
        a.length("per_sample_weights", indices.numel())
        if int(a["mode"]) == 1:
            a.require(a["bag_size"].numel() >= bags, f"'bag_size' has fewer than {bags} elements")
        if int(a["mode"]) == 2:
            a.same_shape("maximum_indices", "grad")
            a.length("bag_size", bags)
            a.within("maximum_indices", -1, int(a["num_weights"]))
    if to_bag.numel() or "offsets" not in a:
        a.length("offset2bag", indices.numel())
        a.within("offset2bag", 0, bags)
    elif indices.numel():  # then torch makes it of the offsets
        _offsets(a, indices.numel())
        if has_values(a["offsets"]):
            begun = int((a["offsets"] < indices.numel()).sum())
            a.require(begun <= bags, f"'offsets' begin {begun} bags and 'grad' has {bags}")


# -- losses --------------------------------------------------------------------------------------------


def check_nll(a: Any) -> None:
    scores, target, gradient = a["self"], a["target"], a["grad_output"]
    a.dims("self", 1, 2) if a.packet == "nll_loss_backward" else a.dims("self", 4)
    classes = scores.shape[0] if scores.dim() == 1 else scores.shape[1]
    per_target = list(scores.shape[:1]) + list(scores.shape[2:]) if scores.dim() > 1 else []
    a.require(
        list(target.shape) == per_target or (not per_target and target.numel() == 1),
        f"'target' is {list(target.shape)} for scores of {list(scores.shape)}",
    )
    a.within("target", 0, classes, but=int(a["ignore_index"]))
    a.length("weight", classes)
    a.length("total_weight", 1, may_lack=False)
    alone = int(a["reduction"]) == 0 and scores.dim() > 1
    a.require(
        list(gradient.shape) == per_target if alone else gradient.numel() == 1,
        f"'grad_output' is {list(gradient.shape)}",
    )


def lengths_in(a: Any, name: str) -> list[int] | None:
    lengths = a[name]
    if isinstance(lengths, torch.Tensor):
        a.dims(name, 1)
        if not has_values(lengths):
            return None
        lengths = lengths.tolist()
    return [int(value) for value in lengths]


def check_ctc(a: Any) -> None:
    probabilities, targets = a["log_probs"], a["targets"]
    a.dims("log_probs", 3)
    a.dims("targets", 1, 2)
    steps, batch, classes = probabilities.shape
    a.require(0 <= int(a["blank"]) < classes, f"'blank' is no class of {classes}")
    inputs, wanted = lengths_in(a, "input_lengths"), lengths_in(a, "target_lengths")
    longest = None
    if inputs is not None and wanted is not None:
        a.require(len(inputs) == batch and len(wanted) == batch, f"there are not {batch} lengths")
        a.require(all(0 <= n <= steps for n in inputs), f"an input length is not in [0, {steps}]")
        a.require(all(n >= 0 for n in wanted), "a target length is negative")
        longest = max(wanted, default=0)
        if targets.dim() == 1:
            a.require(sum(wanted) == targets.numel(), "the target lengths do not add up to the targets")
        else:
            a.require(targets.shape[0] == batch, f"there are not {batch} targets")
            a.require(longest <= targets.shape[1], "a target length is beyond the targets")
            if has_values(targets):  # beyond its length stands whatever the user filled it up with
                used = torch.arange(targets.shape[1]) < torch.tensor(wanted)[:, None]
                a["targets"] = targets.masked_fill(~used, 0)
        a.within("targets", 0, classes)
    if "log_alpha" not in a:
        return
    a.length("grad", batch, may_lack=False)
    a.length("neg_log_likelihood", batch, may_lack=False)
    alpha = a["log_alpha"]
    a.require(
        alpha.dim() == 3
        and alpha.shape[:2] == (batch, steps)
        and (longest is None or alpha.shape[2] >= 2 * longest + 1),
        f"'log_alpha' is {list(alpha.shape)}",
    )


def check_margins(a: Any) -> None:
    scores, gradient = a["self"], a["grad_output"]
    alone = int(a["reduction"]) == 0 and scores.dim() > 1
    a.length("grad_output", scores.shape[0] if alone else 1, may_lack=False)
    a.require(gradient.dim() <= 1, f"'grad_output' is {list(gradient.shape)}")


# -- sequences -------------------------------------------------------------------------------------------


def check_packed(a: Any) -> None:
    """Lengths are read as a row of 64-bit numbers, whatever they are."""
    name = "batch_sizes" if "batch_sizes" in a else "lengths"
    counts = a[name]
    a.dims(name, 1)
    a.require(
        counts.dtype is torch.int64 and counts.is_contiguous() and counts.numel() > 0,
        f"{name!r} are no row of int64 numbers",
    )
    if name == "lengths" or not has_values(counts):
        return
    a.within(name, 1, 2**31)
    a.require(bool((counts.diff() <= 0).all()), "'batch_sizes' grow")
    packed = a["data"] if "data" in a else a["grad"]
    a.require(
        packed.dim() > 0 and int(counts.sum()) == packed.shape[0], "'batch_sizes' do not add up to the data"
    )


# -- segments --------------------------------------------------------------------------------------------


def check_segments(a: Any) -> None:
    data, lengths, offsets = a["data"], a["lengths"], a["offsets"]
    axis = int(a["axis"])
    a.require(0 <= axis < data.dim(), f"'data' has no dimension {axis}")
    a.require((lengths is None) != (offsets is None), "one of 'lengths' and 'offsets' is needed")
    given = lengths if offsets is None else offsets
    a.require(
        given.dim() == axis + 1 and given.shape[:-1] == data.shape[:axis],
        f"segments of {list(given.shape)} for data of {list(data.shape)}",
    )
    size = data.shape[axis]
    if offsets is not None:
        a.require(offsets.shape[-1] > 0, "'offsets' are empty")
        a.within("offsets", 0, size + 1)
        if has_values(offsets):
            a.require(bool((offsets.diff(dim=-1) >= 0).all()), "'offsets' are not in ascending order")
    else:
        a.within("lengths", 0, size + 1)
        if has_values(lengths):
            a.require(bool((lengths.sum(-1) <= size).all()), f"the lengths add up to more than {size}")
    if "grad" in a:
        count = given.shape[-1] - (offsets is not None)
        wanted = [*data.shape[:axis], count, *data.shape[axis + 1 :]]
        a.require(
            list(a["grad"].shape) == wanted == list(a["output"].shape),
            f"'grad' and 'output' are not {wanted}",
        )
