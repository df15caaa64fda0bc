"""Checks of specs and public values of layers: losses, norms, attention, recurrent layers.

As those in `syft.operations.spec_checks`: what they raise is what the user reads. Imports `core` only.
"""

from __future__ import annotations

import math

from syft.core.spec import TensorSpec
from syft.operations.row import Call
from syft.operations.spec_checks import (
    is_in_order,
    numbers_in,
    require_dims,
    require_integers,
    require_length,
    require_same_shape,
    require_same_type,
    shape_of,
)

# -- losses ----------------------------------------------------------------------------------------------------


def _check_targets(call: Call) -> tuple[list[int], list[int]]:
    scores, target = shape_of(call, "self"), shape_of(call, "target")
    require_dims(call, "self", 4) if "2d" in call.operation else require_dims(call, "self", 1, 2)
    classes = scores[0] if len(scores) == 1 else scores[1]
    wanted = scores[:1] + scores[2:] if len(scores) > 1 else []
    call.require(
        target == wanted or (not wanted and math.prod(target) == 1),
        f"'target' is {target} for scores of {scores}",
    )
    require_length(call, "weight", classes)
    require_same_type(call, "self", "weight")
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
    require_length(call, "total_weight", 1, may_lack=False)
    gradient = shape_of(call, "grad_output")
    alone = int(call["reduction"]) == 0 and len(scores) > 1
    call.require(
        gradient == wanted if alone else math.prod(gradient) == 1 and len(gradient) <= 1,
        f"'grad_output' is {gradient}",
    )
    require_same_type(call, "self", "grad_output", "total_weight")


def check_loss(call: Call) -> None:
    """torch computes in the type of the arguments."""
    require_same_type(call, "grad_output", "self", "target", "weight", "pos_weight")
    call.require(call["self"].dtype.is_floating_point, f"'self' is of {call['self'].dtype}")
    call.require(int(call["reduction"]) in (0, 1, 2), f"'reduction' is {call['reduction']}")


def check_loss_backward(call: Call) -> None:
    check_loss(call)
    require_same_shape(call, "self", "target")
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
        require_length(call, "weight", scores[-1])
        require_same_type(call, "self", "weight")
    return scores


def check_margins(call: Call) -> None:
    _check_margins(call)


def check_margins_backward(call: Call) -> None:
    scores = _check_margins(call)
    alone = int(call["reduction"]) == 0 and len(scores) > 1
    require_length(call, "grad_output", scores[0] if alone else 1, may_lack=False)
    call.require(len(shape_of(call, "grad_output")) <= 1, f"'grad_output' is {shape_of(call, 'grad_output')}")
    require_same_type(call, "self", "grad_output")
    if "is_target" in call:
        require_same_shape(call, "is_target", "self")
        require_same_type(call, "self", "is_target")


def check_ctc(call: Call) -> None:
    require_dims(call, "log_probs", 3)
    require_dims(call, "targets", 1, 2)
    require_integers(call, "targets")
    steps, batch, classes = shape_of(call, "log_probs")
    targets = shape_of(call, "targets")
    call.require(batch > 0, "there are no sequences")
    call.require(0 <= int(call["blank"]) < classes, f"'blank' is no class of {classes}")
    inputs, wanted = numbers_in(call["input_lengths"]), numbers_in(call["target_lengths"])
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
    require_length(call, "grad", batch, may_lack=False)
    require_length(call, "neg_log_likelihood", batch, may_lack=False)
    alpha = shape_of(call, "log_alpha")
    call.require(alpha == [batch, steps, 2 * longest + 1], f"'log_alpha' is {alpha}")
    require_same_type(call, "grad", "log_probs", "neg_log_likelihood", "log_alpha")


# -- norms -----------------------------------------------------------------------------------------------------


def check_batch_norm(call: Call) -> None:
    whole = shape_of(call, "input")
    call.require(len(whole) >= 2 and 0 not in whole, f"'input' is {whole}")
    channels = whole[1]
    statistics = ("running_mean", "running_var")
    for name in ("weight", "bias", *statistics):
        if isinstance(call.get(name), TensorSpec):
            require_length(call, name, channels)
            require_dims(call, name, 1)
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
    require_same_shape(call, "grad_out", "input")
    require_same_type(call, "grad_out", "input")
    for name in ("save_mean", "save_invstd", "save_var"):
        if name in call and (trains or (isinstance(call[name], TensorSpec) and 0 not in call[name].shape)):
            require_length(call, name, channels, may_lack=False)
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
    whole, normal = shape_of(call, "input"), numbers_in(call["normalized_shape"])
    call.require(
        0 < len(normal) <= len(whole) and whole[-len(normal) :] == normal,
        f"'input' is {whole} for a 'normalized_shape' of {normal}",
    )
    for name in ("weight", "bias"):
        if isinstance(call.get(name), TensorSpec):
            call.require(shape_of(call, name) == normal, f"{name!r} is {shape_of(call, name)}, not {normal}")
    if "grad_out" not in call:
        return
    require_same_shape(call, "grad_out", "input")
    require_same_type(call, "grad_out", "input")
    for name in ("mean", "rstd"):
        require_length(call, name, math.prod(whole[: len(whole) - len(normal)]), may_lack=False)
    require_same_type(call, "mean", "rstd")


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
            require_length(call, name, c)
    if "grad_out" in call:
        require_same_shape(call, "grad_out", "input")
        require_same_type(call, "grad_out", "input")
        require_length(call, "mean", n * group, may_lack=False)
        require_length(call, "rstd", n * group, may_lack=False)


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
        require_same_shape(call, "grad_w", v)
        require_same_type(call, "grad_w", v)
        call.require(shape_of(call, "saved_norms") == wanted, f"'saved_norms' is not {wanted}")
        require_same_type(call, "saved_norms", v)
        call.require(is_in_order(call["saved_norms"]), "'saved_norms' is no row in memory")


# -- attention, recurrent layers -------------------------------------------------------------------------------


def check_attention(call: Call) -> None:
    for name in ("query", "key", "value"):
        require_dims(call, name, 4)
    query, key, value = (shape_of(call, name) for name in ("query", "key", "value"))
    call.require(0 not in (*query, *key), f"'query' and 'key' are {query} and {key}")
    # Several heads of the query may share one of key and value (grouped-query attention).
    call.require(
        key == value and query[0] == key[0] and query[3] == key[3] and query[1] % key[1] == 0,
        f"'query', 'key' and 'value' are {query}, {key} and {value}",
    )
    require_same_type(call, "query", "key", "value", "grad_out", "out")
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
    require_dims(call, "input", 3)
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
    require_dims(call, "input", 3)
    shape = shape_of(call, "input")
    batch = shape[0 if call["batch_first"] else 1]
    call.require(all(s.shape[1] == batch for s in states), f"the states are not of {batch} sequences")
    call.require(shape[1 if call["batch_first"] else 0] <= 2**13, "a sequence has more than 8192 steps")
    call.require(0 not in shape, f"'input' is {shape}")
