"""Checks of specs and public values of matrices, indices, embeddings, random numbers and lists of tensors.

As those in `syft.operations.spec_checks`: what they raise is what the user reads. Imports `core` only.
"""

from __future__ import annotations

from typing import Any

from syft.core.spec import TensorSpec
from syft.operations.row import Call
from syft.operations.spec_checks import (
    LARGEST_SIZE,
    is_in_order,
    numbers_in,
    require_dims,
    require_integers,
    require_length,
    require_same_shape,
    require_same_type,
    shape_of,
)

# -- softmax, distances, matrices ------------------------------------------------------------------------------


def check_output(call: Call) -> None:
    require_same_shape(call, "grad_output", "output")
    require_same_type(call, "grad_output", "output")
    dim, size = int(call["dim"]), max(1, len(shape_of(call, "output")))
    if not -size <= dim < size:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {dim})"
        )


def check_distances(call: Call) -> None:
    one, two = shape_of(call, "x1"), shape_of(call, "x2")
    call.require(min(len(one), len(two)) >= 2 and one[-1] == two[-1], f"'x1' is {one} and 'x2' is {two}")
    call.require(one[:-2] == two[:-2], f"'x1' is {one} and 'x2' is {two}")
    require_same_type(call, "x1", "x2")


def check_gradient_of_distances(call: Call) -> None:
    check_distances(call)
    one, two = shape_of(call, "x1"), shape_of(call, "x2")
    wanted = [*one[:-1], two[-2]]
    for name in ("grad", "cdist"):
        call.require(shape_of(call, name) == wanted, f"{name!r} is {shape_of(call, name)}, not {wanted}")
    require_same_type(call, "x1", "x2", "grad", "cdist")


def check_rows(call: Call) -> None:
    require_dims(call, "self", 2)


def check_pair_gradients(call: Call) -> None:
    check_rows(call)
    count = shape_of(call, "self")[0]
    call.require(count > 0, "'self' is empty")
    require_length(call, "grad", count * (count - 1) // 2, may_lack=False)
    require_length(call, "pdist", count * (count - 1) // 2, may_lack=False)
    require_same_type(call, "self", "grad", "pdist")


def check_pivots(call: Call) -> None:
    whole, name = ("LU_data", "LU_pivots") if "LU_data" in call else ("LU", "pivots")
    shape = shape_of(call, whole)
    call.require(len(shape) >= 2, f"{whole!r} is {shape}")
    wanted = [*shape[:-2], min(shape[-2:])]
    call.require(shape_of(call, name) == wanted, f"{name!r} are {shape_of(call, name)} instead of {wanted}")
    call.require(str(call[name].dtype) == "torch.int32", f"{name!r} are of {call[name].dtype}, not of int32")


def check_fourier(call: Call) -> None:
    whole, dims = shape_of(call, "self"), numbers_in(call["dim"])
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
        require_same_shape(call, "sorter", "sorted_sequence")
        call.require(str(sorter.dtype) == "torch.int64", "'sorter' is not of int64")


def check_embedding(call: Call) -> None:
    gradient, indices = shape_of(call, "grad_output"), shape_of(call, "indices")
    call.require(
        len(gradient) > 0 and gradient[:-1] == indices, f"the gradient is {gradient} for indices of {indices}"
    )
    call.require(0 <= int(call["num_weights"]) < LARGEST_SIZE, f"'num_weights' is {call['num_weights']}")
    require_integers(call, "indices")


def check_bag(call: Call) -> None:
    require_dims(call, "weight", 2)
    require_dims(call, "indices", 1)
    require_dims(call, "offsets", 1)
    require_integers(call, "indices", "offsets")
    require_same_type(call, "indices", "offsets")
    require_length(call, "per_sample_weights", shape_of(call, "indices")[0])
    call.require(int(call["mode"]) in (0, 1, 2), f"'mode' is {call['mode']}")
    call.require(
        not call["include_last_offset"] or shape_of(call, "offsets")[0] > 0, "there is no last offset"
    )
    call.require(
        call["per_sample_weights"] is None or int(call["mode"]) == 0, "only a sum has weights for each sample"
    )
    require_same_type(call, "weight", "per_sample_weights")


def check_bag_backward(call: Call) -> None:
    require_dims(call, "grad", 2)
    require_dims(call, "indices", 1)
    bags, count = shape_of(call, "grad")[0], shape_of(call, "indices")[0]
    require_integers(call, "indices", "offsets", "offset2bag", "bag_size", "maximum_indices")
    require_length(call, "offset2bag", count, may_lack=False)
    call.require(not call.get("sparse"), "its result would be sparse, and workers hold dense tensors")
    if "weight" in call:
        require_dims(call, "weight", 2)
        call.require(
            shape_of(call, "grad")[1] == shape_of(call, "weight")[1],
            "'grad' and 'weight' differ in their last size",
        )
        require_same_type(call, "grad", "weight")
        return
    call.require(0 <= int(call["num_weights"]) < LARGEST_SIZE, f"'num_weights' is {call['num_weights']}")
    require_length(call, "per_sample_weights", count)
    require_same_type(call, "grad", "per_sample_weights")
    mode = int(call["mode"])
    call.require(mode in (0, 1, 2), f"'mode' is {mode}")
    require_length(call, "bag_size", bags, may_lack=False)
    if mode == 2:
        require_same_shape(call, "maximum_indices", "grad")


def check_one_hot(call: Call) -> None:
    classes = int(call["num_classes"])
    call.require(classes > 0, "the shape of its result depends on values; pass num_classes")
    call.require(str(call["self"].dtype) == "torch.int64", f"'self' is of {call['self'].dtype}, not of int64")


def check_repeats(call: Call) -> None:
    require_dims(call, "repeats", 1)
    size = call["output_size"]
    call.require(size is not None, "the shape of its result depends on values; pass output_size")
    call.require(0 <= int(size) < LARGEST_SIZE, f"'output_size' is {size}")
    require_integers(call, "repeats")


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
