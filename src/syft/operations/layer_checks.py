"""Checks of specs and public values of layers: norms, attention, recurrent layers, embeddings, losses, optimizers.

As those in `syft.operations.spec_checks`: what they raise is what the user reads. Imports `core` only.
"""

from __future__ import annotations

import math
from typing import Any

from syft.core.spec import TensorSpec
from syft.operations.row import Call
from syft.operations.spec_checks import (
    LARGEST_SIZE,
    _dims,
    _integers,
    _length,
    _numbers,
    _same_shape,
    _same_type,
    is_in_order,
    shape_of,
)

# -- softmax, distances, matrices ------------------------------------------------------------------------------


def check_output(call: Call) -> None:
    _same_shape(call, "grad_output", "output")
    _same_type(call, "grad_output", "output")
    dim, size = int(call["dim"]), max(1, len(shape_of(call, "output")))
    if not -size <= dim < size:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {dim})"
        )


def check_distances(call: Call) -> None:
    one, two = shape_of(call, "x1"), shape_of(call, "x2")
    call.require(min(len(one), len(two)) >= 2 and one[-1] == two[-1], f"'x1' is {one} and 'x2' is {two}")
    call.require(one[:-2] == two[:-2], f"'x1' is {one} and 'x2' is {two}")
    _same_type(call, "x1", "x2")


def check_gradient_of_distances(call: Call) -> None:
    check_distances(call)
    one, two = shape_of(call, "x1"), shape_of(call, "x2")
    wanted = [*one[:-1], two[-2]]
    for name in ("grad", "cdist"):
        call.require(shape_of(call, name) == wanted, f"{name!r} is {shape_of(call, name)}, not {wanted}")
    _same_type(call, "x1", "x2", "grad", "cdist")


def check_rows(call: Call) -> None:
    _dims(call, "self", 2)


def check_pair_gradients(call: Call) -> None:
    check_rows(call)
    count = shape_of(call, "self")[0]
    call.require(count > 0, "'self' is empty")
    _length(call, "grad", count * (count - 1) // 2, may_lack=False)
    _length(call, "pdist", count * (count - 1) // 2, may_lack=False)
    _same_type(call, "self", "grad", "pdist")


def check_pivots(call: Call) -> None:
    whole, name = ("LU_data", "LU_pivots") if "LU_data" in call else ("LU", "pivots")
    shape = shape_of(call, whole)
    call.require(len(shape) >= 2, f"{whole!r} is {shape}")
    wanted = [*shape[:-2], min(shape[-2:])]
    call.require(shape_of(call, name) == wanted, f"{name!r} are {shape_of(call, name)} instead of {wanted}")
    call.require(str(call[name].dtype) == "torch.int32", f"{name!r} are of {call[name].dtype}, not of int32")


def check_fourier(call: Call) -> None:
    whole, dims = shape_of(call, "self"), _numbers(call["dim"])
    call.require(
        bool(dims) and len(set(dims)) == len(dims) and all(0 <= d < len(whole) for d in dims),
        f"'dim' is {dims} for {len(whole)} dimensions, which are counted from 0 here",
    )
    call.require(0 not in whole, f"'self' is {whole}")
    call.require(int(call["normalization"]) in (0, 1, 2), f"'normalization' is {call['normalization']}")
    is_complex = call["self"].dtype.is_complex
    call.require(is_complex == ("r2c" not in call.operation), f"'self' is of {call['self'].dtype}")
    if "last_dim_size" in call:
        last = int(call["last_dim_size"])
        call.require(
            last >= 1 and whole[dims[-1]] == last // 2 + 1,
            f"a 'last_dim_size' of {last} needs {last // 2 + 1} elements, and there are {whole[dims[-1]]}",
        )


def check_matrix_power(call: Call) -> None:
    call.require(abs(int(call["n"])) < 2**31, f"there is no power {call['n']}")


# -- indices ---------------------------------------------------------------------------------------------------


def check_index(call: Call) -> None:
    indices = call["indices"]
    call.require(
        isinstance(indices, (list, tuple)) and len(indices) <= 64, "'indices' are no list of tensors"
    )
    for index in indices:
        kind = str(index.dtype) if isinstance(index, TensorSpec) else "None"
        # Into what a mask picks something may be written: that is as large as it was.
        masks = "put" in call.operation or kind not in ("torch.bool", "torch.uint8")
        call.require(masks, "a mask picks as many elements as it holds; use torch.where or masked_fill")


def check_search(call: Call) -> None:
    sorter = call.get("sorter")
    if isinstance(sorter, TensorSpec):
        _same_shape(call, "sorter", "sorted_sequence")
        call.require(str(sorter.dtype) == "torch.int64", "'sorter' is not of int64")


def check_embedding(call: Call) -> None:
    gradient, indices = shape_of(call, "grad_output"), shape_of(call, "indices")
    call.require(
        len(gradient) > 0 and gradient[:-1] == indices, f"the gradient is {gradient} for indices of {indices}"
    )
    call.require(0 <= int(call["num_weights"]) < LARGEST_SIZE, f"'num_weights' is {call['num_weights']}")
    _integers(call, "indices")


def check_bag(call: Call) -> None:
    _dims(call, "weight", 2)
    _dims(call, "indices", 1)
    _dims(call, "offsets", 1)
    _integers(call, "indices", "offsets")
    _same_type(call, "indices", "offsets")
    _length(call, "per_sample_weights", shape_of(call, "indices")[0])
    call.require(int(call["mode"]) in (0, 1, 2), f"'mode' is {call['mode']}")
    call.require(
        not call["include_last_offset"] or shape_of(call, "offsets")[0] > 0, "there is no last offset"
    )
    call.require(
        call["per_sample_weights"] is None or int(call["mode"]) == 0, "only a sum has weights for each sample"
    )
    _same_type(call, "weight", "per_sample_weights")


def check_bag_backward(call: Call) -> None:
    _dims(call, "grad", 2)
    _dims(call, "indices", 1)
    bags, count = shape_of(call, "grad")[0], shape_of(call, "indices")[0]
    _integers(call, "indices", "offsets", "offset2bag", "bag_size", "maximum_indices")
    _length(call, "offset2bag", count, may_lack=False)
    call.require(not call.get("sparse"), "its result would be sparse, and workers hold dense tensors")
    if "weight" in call:
        _dims(call, "weight", 2)
        call.require(
            shape_of(call, "grad")[1] == shape_of(call, "weight")[1],
            "'grad' and 'weight' differ in their last size",
        )
        _same_type(call, "grad", "weight")
        return
    call.require(0 <= int(call["num_weights"]) < LARGEST_SIZE, f"'num_weights' is {call['num_weights']}")
    _length(call, "per_sample_weights", count)
    _same_type(call, "grad", "per_sample_weights")
    mode = int(call["mode"])
    call.require(mode in (0, 1, 2), f"'mode' is {mode}")
    _length(call, "bag_size", bags, may_lack=False)
    if mode == 2:
        _same_shape(call, "maximum_indices", "grad")


def check_one_hot(call: Call) -> None:
    classes = int(call["num_classes"])
    call.require(classes > 0, "the shape of its result depends on values; pass num_classes")
    call.require(str(call["self"].dtype) == "torch.int64", f"'self' is of {call['self'].dtype}, not of int64")


def check_repeats(call: Call) -> None:
    _dims(call, "repeats", 1)
    size = call["output_size"]
    call.require(size is not None, "the shape of its result depends on values; pass output_size")
    call.require(0 <= int(size) < LARGEST_SIZE, f"'output_size' is {size}")
    _integers(call, "repeats")


# -- losses ----------------------------------------------------------------------------------------------------


def _check_targets(call: Call) -> tuple[list[int], list[int]]:
    scores, target = shape_of(call, "self"), shape_of(call, "target")
    _dims(call, "self", 4) if "2d" in call.operation else _dims(call, "self", 1, 2)
    classes = scores[0] if len(scores) == 1 else scores[1]
    wanted = scores[:1] + scores[2:] if len(scores) > 1 else []
    call.require(
        target == wanted or (not wanted and math.prod(target) == 1),
        f"'target' is {target} for scores of {scores}",
    )
    _length(call, "weight", classes)
    _same_type(call, "self", "weight")
    # NB: torch takes uint8 as well, and holds it for another type in the backward pass.
    call.require(
        str(call["target"].dtype) == "torch.int64", f"'target' is of {call['target'].dtype}, not of int64"
    )
    call.require(int(call["reduction"]) in (0, 1, 2), f"'reduction' is {call['reduction']}")
    return scores, wanted


def check_nll(call: Call) -> None:
    _check_targets(call)


def check_nll_backward(call: Call) -> None:
    scores, wanted = _check_targets(call)
    _length(call, "total_weight", 1, may_lack=False)
    gradient = shape_of(call, "grad_output")
    alone = int(call["reduction"]) == 0 and len(scores) > 1
    call.require(
        gradient == wanted if alone else math.prod(gradient) == 1 and len(gradient) <= 1,
        f"'grad_output' is {gradient}",
    )
    _same_type(call, "self", "grad_output", "total_weight")


def check_loss(call: Call) -> None:
    """torch computes in the type of the arguments."""
    _same_type(call, "grad_output", "self", "target", "weight", "pos_weight")
    call.require(call["self"].dtype.is_floating_point, f"'self' is of {call['self'].dtype}")
    call.require(int(call["reduction"]) in (0, 1, 2), f"'reduction' is {call['reduction']}")


def check_loss_backward(call: Call) -> None:
    check_loss(call)
    _same_shape(call, "self", "target")
    gradient = shape_of(call, "grad_output")
    call.require(
        gradient == shape_of(call, "self") or gradient == [],
        f"'grad_output' is {gradient} for {shape_of(call, 'self')}",
    )
    weight = call.get("weight")
    if isinstance(weight, TensorSpec):
        wide = [
            n
            for n, m in zip(reversed(weight.shape), reversed(shape_of(call, "self")), strict=False)
            if n not in (1, m)
        ]
        call.require(
            len(weight.shape) <= len(shape_of(call, "self")) and not wide, f"'weight' is {list(weight.shape)}"
        )


def _check_margins(call: Call) -> list[int]:
    scores, target = shape_of(call, "self"), shape_of(call, "target")
    call.require(0 < len(scores) <= 2 and 0 not in scores, f"'self' is {scores}")
    call.require(
        str(call["target"].dtype) == "torch.int64", f"'target' is of {call['target'].dtype}, not of int64"
    )
    call.require(int(call["reduction"]) in (0, 1, 2), f"'reduction' is {call['reduction']}")
    if "multilabel" in call.operation:
        call.require(target == scores, f"'target' is {target} for scores of {scores}")
    else:
        count = scores[0] if len(scores) == 2 else 1
        call.require(
            math.prod(target) == count and len(target) <= 1, f"'target' is {target} for scores of {scores}"
        )
        _length(call, "weight", scores[-1])
        _same_type(call, "self", "weight")
    return scores


def check_margins(call: Call) -> None:
    _check_margins(call)


def check_margins_backward(call: Call) -> None:
    scores = _check_margins(call)
    alone = int(call["reduction"]) == 0 and len(scores) > 1
    _length(call, "grad_output", scores[0] if alone else 1, may_lack=False)
    call.require(len(shape_of(call, "grad_output")) <= 1, f"'grad_output' is {shape_of(call, 'grad_output')}")
    _same_type(call, "self", "grad_output")
    if "is_target" in call:
        _same_shape(call, "is_target", "self")
        _same_type(call, "self", "is_target")


def check_ctc(call: Call) -> None:
    _dims(call, "log_probs", 3)
    _dims(call, "targets", 1, 2)
    _integers(call, "targets")
    steps, batch, classes = shape_of(call, "log_probs")
    targets = shape_of(call, "targets")
    call.require(batch > 0, "there are no sequences")
    call.require(0 <= int(call["blank"]) < classes, f"'blank' is no class of {classes}")
    inputs, wanted = _numbers(call["input_lengths"]), _numbers(call["target_lengths"])
    call.require(len(inputs) == batch and len(wanted) == batch, f"there are not {batch} lengths")
    call.require(all(0 < n <= steps for n in inputs), f"an input length is not in [1, {steps}]")
    call.require(all(n >= 0 for n in wanted), "a target length is negative")
    longest = max(wanted, default=0)
    if len(targets) == 1:
        call.require(sum(wanted) == targets[0], "the target lengths do not add up to the targets")
    else:
        call.require(targets[0] == batch and longest <= targets[1], f"'targets' are {targets}")
    if "log_alpha" not in call:
        return
    _length(call, "grad", batch, may_lack=False)
    _length(call, "neg_log_likelihood", batch, may_lack=False)
    alpha = shape_of(call, "log_alpha")
    call.require(alpha == [batch, steps, 2 * longest + 1], f"'log_alpha' is {alpha}")
    _same_type(call, "grad", "log_probs", "neg_log_likelihood", "log_alpha")


# -- norms -----------------------------------------------------------------------------------------------------


def check_batch_norm(call: Call) -> None:
    whole = shape_of(call, "input")
    call.require(len(whole) >= 2 and 0 not in whole, f"'input' is {whole}")
    channels = whole[1]
    statistics = ("running_mean", "running_var")
    for name in ("weight", "bias", *statistics):
        if isinstance(call.get(name), TensorSpec):
            _length(call, name, channels)
            _dims(call, name, 1)
    trains = _trains(call)
    for name in statistics:
        call.require(
            trains or "no_stats" in call.operation or call.get(name) is not None,
            "there are no running statistics",
        )
    call.require(
        (call.get("running_mean") is None) == (call.get("running_var") is None),
        "one running statistic is missing",
    )
    if "grad_out" not in call:
        return
    _same_shape(call, "grad_out", "input")
    _same_type(call, "grad_out", "input")
    for name in ("save_mean", "save_invstd", "save_var"):
        if name in call and (trains or (isinstance(call[name], TensorSpec) and 0 not in call[name].shape)):
            _length(call, name, channels, may_lack=False)
    mask = call["output_mask"]
    call.require(isinstance(mask, (list, tuple)) and len(mask) == 3, f"'output_mask' is {mask}")
    call.require(
        call["weight"] is not None or (not mask[1] and not mask[2]), "there is no 'weight' to differentiate"
    )
    if isinstance(call.get("reserve"), TensorSpec):
        call.require(shape_of(call, "reserve") == [0], "'reserve' is not empty")


def _trains(call: Call) -> bool:
    """Whether the statistics are those of the input: what says so has many names, and some operations have none."""
    for name in ("training", "train", "update"):
        if name in call:
            return bool(call[name])
    return not any(name in call.operation for name in ("_no_update", "_no_training"))


def check_layer_norm(call: Call) -> None:
    whole, normal = shape_of(call, "input"), _numbers(call["normalized_shape"])
    call.require(
        0 < len(normal) <= len(whole) and whole[-len(normal) :] == normal,
        f"'input' is {whole} for a 'normalized_shape' of {normal}",
    )
    for name in ("weight", "bias"):
        if isinstance(call.get(name), TensorSpec):
            call.require(shape_of(call, name) == normal, f"{name!r} is {shape_of(call, name)}, not {normal}")
    if "grad_out" not in call:
        return
    _same_shape(call, "grad_out", "input")
    _same_type(call, "grad_out", "input")
    for name in ("mean", "rstd"):
        _length(call, name, math.prod(whole[: len(whole) - len(normal)]), may_lack=False)
    _same_type(call, "mean", "rstd")


def check_group_norm(call: Call) -> None:
    n, c, plane, group = (int(call[name]) for name in ("N", "C", "HxW", "group"))
    call.require(
        min(n, c, plane) >= 0 and group > 0 and c % group == 0, f"{c} channels are not {group} groups"
    )
    whole = shape_of(call, "input")
    call.require(
        len(whole) >= 2 and whole[:2] == [n, c] and math.prod(whole[2:]) == plane and 0 not in whole,
        f"'input' is {whole} for {n} of {c} channels of {plane}",
    )
    for name in ("weight", "bias"):
        if name in call:
            _length(call, name, c)
    if "grad_out" in call:
        _same_shape(call, "grad_out", "input")
        _same_type(call, "grad_out", "input")
        _length(call, "mean", n * group, may_lack=False)
        _length(call, "rstd", n * group, may_lack=False)


def check_weight_norm(call: Call) -> None:
    v, g, dim = ("saved_v", "saved_g", call["dim"]) if "saved_v" in call else ("v", "g", call["dim"])
    whole = shape_of(call, v)
    call.require(bool(whole) and dim in (0, len(whole) - 1) and 0 not in whole, f"{v!r} is {whole}")
    wanted = [1] * len(whole)
    wanted[dim] = whole[dim]
    call.require(shape_of(call, g) == wanted, f"{g!r} is {shape_of(call, g)}, not {wanted}")
    call.require(
        is_in_order(call[g]) and call[g].dtype is call[v].dtype,
        f"{g!r} is no row of {call[v].dtype} in memory",
    )
    if "grad_w" in call:
        _same_shape(call, "grad_w", v)
        _same_type(call, "grad_w", v)
        call.require(shape_of(call, "saved_norms") == wanted, f"'saved_norms' is not {wanted}")
        _same_type(call, "saved_norms", v)
        call.require(is_in_order(call["saved_norms"]), "'saved_norms' is no row in memory")


# -- attention, recurrent layers -------------------------------------------------------------------------------


def check_attention(call: Call) -> None:
    for name in ("query", "key", "value"):
        _dims(call, name, 4)
    query, key, value = (shape_of(call, name) for name in ("query", "key", "value"))
    call.require(
        query[:2] == key[:2] == value[:2] and query[3] == key[3] == value[3] and key[2] == value[2],
        f"'query', 'key' and 'value' are {query}, {key} and {value}",
    )
    call.require(0 not in (*query, *key), f"'query' and 'key' are {query} and {key}")
    _same_type(call, "query", "key", "value", "grad_out", "out")
    whole = [*query[:3], key[2]]
    if call["attn_mask"] is not None:
        mask = shape_of(call, "attn_mask")
        call.require(
            len(mask) in (2, 4) and all(n in (1, m) for n, m in zip(mask, whole[-len(mask) :], strict=True)),
            f"'attn_mask' is {mask} for {whole}",
        )
    if "grad_out" in call:
        wanted = [*query[:3], value[3]]
        call.require(
            shape_of(call, "grad_out") == wanted == shape_of(call, "out"),
            f"'grad_out' and 'out' are not {wanted}",
        )
        call.require(
            shape_of(call, "logsumexp") == query[:3], f"'logsumexp' is {shape_of(call, 'logsumexp')}"
        )


def check_heads(call: Call) -> None:
    """torch divides by the number of heads."""
    if not call["enable_gqa"]:
        return
    for name in ("key", "value"):
        shape = shape_of(call, name)
        call.require(len(shape) >= 3 and shape[-3] > 0, f"{name!r} has no heads (its shape is {shape})")


#: What mkldnn calls a mode -> how many gates it has.
_GATES = {0: 1, 1: 1, 2: 4, 3: 3}


def check_recurrent_layer(call: Call) -> None:
    """torch makes this of `lstm`, and checks nothing there."""
    _dims(call, "input", 3)
    hidden, gates = int(call["hidden_size"]), _GATES.get(int(call["mode"]), 0) * int(call["hidden_size"])
    width, batch = shape_of(call, "input")[2], shape_of(call, "input")[1]
    names = (
        ("weight0", "weight1", "hx_", "cx_") if "weight0" in call else ("weight1", "weight2", "hx_", "cx_tmp")
    )
    wanted = dict(
        zip(names, ([gates, width], [gates, hidden], [batch, hidden], [batch, hidden]), strict=True)
    )
    for name, shape in wanted.items():
        found = shape_of(call, name)
        call.require(found in (shape, [1, *shape]), f"{name!r} is {found} instead of {shape}")


def check_recurrent(call: Call) -> None:
    """`lstm` and its kin take the counts of layers and sequences as they are told."""
    call.require("batch_sizes" not in call, "packed sequences have sizes that depend on values; pad them")
    call.require(isinstance(call["hx"], (TensorSpec, list, tuple)), "there are no states")
    call.require(
        isinstance(call["params"], (list, tuple)),
        "packed sequences have sizes that depend on values; pad them",
    )
    states = list(call["hx"]) if isinstance(call["hx"], (list, tuple)) else [call["hx"]]
    call.require(
        len(states) == (2 if "lstm" in call.operation else 1)
        and all(isinstance(s, TensorSpec) for s in states),
        f"there are {len(states)} states",
    )
    count = int(call["num_layers"]) * (2 if call["bidirectional"] else 1)
    sizes = 4 if call["has_biases"] else 2
    call.require(
        0 < count <= 2**10 and all(len(s.shape) == 3 and s.shape[0] == count for s in states),
        f"the states are not {count}",
    )
    call.require(
        len(call["params"]) in (count * sizes, count * (sizes + 1)),
        f"there are {len(call['params'])} weights",
    )
    _dims(call, "input", 3)
    shape = shape_of(call, "input")
    batch = shape[0 if call["batch_first"] else 1]
    call.require(all(s.shape[1] == batch for s in states), f"the states are not of {batch} sequences")
    call.require(shape[1 if call["batch_first"] else 0] <= 2**13, "a sequence has more than 8192 steps")
    call.require(0 not in shape, f"'input' is {shape}")


# -- random numbers, optimizers ------------------------------------------------------------------------------------


def check_range(call: Call) -> None:
    for name in ("from", "to", "low", "high"):
        value = call.get(name)
        call.require(
            value is None or abs(int(value)) < 2**53, f"{name!r} is {value}, beyond what floats tell apart"
        )


def check_same_shapes(call: Call) -> None:
    found = [value for value in call.values() if isinstance(value, TensorSpec)]
    call.require(
        all(
            s.shape == found[0].shape and s.dtype is found[0].dtype and s.dtype.is_floating_point
            for s in found
        ),
        f"its arguments are not floats of one shape: {found}",
    )


def check_dropout(call: Call) -> None:
    """Without training, and of nothing, torch returns something else than a mask."""
    has_some = call["train"] is not False and 0 < call["p"] <= 1 and 0 not in shape_of(call, "input")
    call.require(has_some, "there is nothing to drop")


def check_deviation(call: Call) -> None:
    found = [s.dtype for s in call.values() if isinstance(s, TensorSpec)]
    call.require(all(dtype.is_floating_point for dtype in found), f"its arguments are of {found}")


def check_lists(call: Call) -> None:
    """The lists of `_foreach_` operations go together element by element."""
    lengths = {len(value) for value in call.values() if isinstance(value, (list, tuple))}
    call.require(len(lengths) == 1, f"its lists have {sorted(lengths)} elements")
    for value in call.values():
        if isinstance(value, (list, tuple)) and any(isinstance(item, TensorSpec) for item in value):
            call.require(
                all(isinstance(item, TensorSpec) for item in value), "a list holds tensors and other things"
            )


def check_fused(call: Call) -> None:
    """torch reads all lists as if they were laid out as the first."""
    lists = {name: value for name, value in call.items() if isinstance(value, (list, tuple)) and value}
    call.require(bool(lists), "there are no parameters")
    first: list[Any] = list(call["self"])
    for name, value in lists.items():
        call.require(
            len(value) == len(first) and all(isinstance(item, TensorSpec) for item in value),
            f"{name!r} has {len(value)} elements for {len(first)} parameters",
        )
        for item, of in zip(value, first, strict=True):
            if name == "state_steps":
                call.require(
                    item.shape.numel() == 1 and str(item.dtype) == "torch.float32", "a step is no float32"
                )
                continue
            call.require(
                item.shape == of.shape and item.dtype is of.dtype and is_in_order(item),
                f"{name!r} holds {item}, which is not laid out in order as {of}",
            )
    for name in ("grad_scale", "found_inf", "lr"):
        number = call.get(name)
        call.require(
            not isinstance(number, TensorSpec) or (number.shape.numel() == 1 and name == "lr"),
            f"{name!r} is no number",
        )
