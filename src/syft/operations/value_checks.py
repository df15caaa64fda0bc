"""Looks at values that kernels of torch trust: indices, pivots, divisors. Each is total: it answers, and never raises.

A check is given the arguments by name, and returns why the kernel must not run, or None. What it says is for those
who may see the values; `run` makes zeros of it for all others. Shapes were checked before
(`syft.operations.spec_checks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.operations.row import Call

#: Why a kernel must not run on these values; None: it may.
ValueCheck = Callable[[Call], str | None]

VALUE_CHECKS: dict[str, ValueCheck] = {}


def check_of(*packets: str) -> Callable[[ValueCheck], ValueCheck]:
    """Register a check for operations, in place or not."""

    def add(check: ValueCheck) -> ValueCheck:
        for packet in " ".join(packets).split():
            VALUE_CHECKS[packet] = VALUE_CHECKS[packet + "_"] = check
        return check

    return add


def outside(values: Any, low: int, high: int, but: int | None = None) -> bool:
    """Whether a tensor of integers holds one that is not in [low, high); `but` stands for no index."""
    if values is None or values.numel() == 0:
        return False
    least, most = torch.aminmax(values.detach())
    if low <= int(least) and int(most) < high:
        return False
    if but is None:
        return True
    return bool((((values < low) | (values >= high)) & (values != but)).any())


# -- division ----------------------------------------------------------------------------------------------

_LEAST = {dtype: torch.iinfo(dtype).min for dtype in (torch.int8, torch.int16, torch.int32, torch.int64)}


def _holds(value: Any, number: int) -> bool:
    if isinstance(value, torch.Tensor):
        return bool((value == number).any())
    return bool(value == number)


def _is_whole(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not (value.dtype.is_floating_point or value.dtype.is_complex)
    return isinstance(value, int)


@check_of("div floor_divide fmod remainder")
def _check_division(call: Call) -> str | None:
    of, by = call["self"], call["other"]
    if call.get("rounding_mode", "") is None or not (_is_whole(of) and _is_whole(by)):
        return None
    if _holds(by, 0):
        return "an integer is divided by zero"
    if _holds(by, -1) and any(_holds(of, least) for least in _LEAST.values()):
        return "the least of all integers is divided by -1, and there is no such integer"
    return None


@check_of("gcd lcm")
def _check_multiples(call: Call) -> str | None:
    for name in ("self", "other"):
        if call[name].dtype in _LEAST and _holds(call[name], _LEAST[call[name].dtype]):
            return f"{name!r} holds the least of all integers, which has no opposite"
    return None


# -- series ------------------------------------------------------------------------------------------------

#: Below it, the series of Hurwitz' zeta function takes a step for every integer up to zero.
_LOWEST = -1000.0


def _is_far_below(values: Any) -> bool:
    if not isinstance(values, torch.Tensor):
        return bool(values < _LOWEST)
    return bool((values < _LOWEST).any())


@check_of("polygamma special_polygamma")
def _check_polygamma(call: Call) -> str | None:
    far = int(call["n"]) > 0 and _is_far_below(call["self"])
    return f"'self' holds values below {_LOWEST:g}, which take too many steps" if far else None


@check_of("special_zeta")
def _check_zeta(call: Call) -> str | None:
    return (
        f"'other' holds values below {_LOWEST:g}, which take too many steps"
        if _is_far_below(call["other"])
        else None
    )


# -- random numbers ----------------------------------------------------------------------------------------


@check_of("_standard_gamma _sample_dirichlet")
def _check_shape_parameter(call: Call) -> str | None:
    values = call["self"]
    holds = bool(((values > 0) & torch.isfinite(values)).all())
    return None if holds else "'self' holds values that are no positive numbers"


#: Integers that a float64 tells from the next one.
_MOST_TRIALS = 2.0**53


@check_of("binomial")
def _check_binomial(call: Call) -> str | None:
    for name, most in (("count", _MOST_TRIALS), ("prob", 1.0)):
        values = call[name]
        if not bool(((values >= 0) & (values <= most)).all()):
            return f"{name!r} holds values that are not in [0, {most:g}]"
    return None


# -- matrices ----------------------------------------------------------------------------------------------


@check_of("_linalg_eigh linalg_eig _linalg_eigvals _linalg_svd linalg_matrix_exp linalg_pinv")
def _check_finite(call: Call) -> str | None:
    for value in call.values():
        if isinstance(value, torch.Tensor) and not bool(torch.isfinite(value).all()):
            return "a matrix holds infinite values or NaN"
    return None


@check_of("lu_unpack linalg_lu_solve")
def _check_pivots(call: Call) -> str | None:
    whole, pivots = (call[n] for n in (("LU_data", "LU_pivots") if "LU_data" in call else ("LU", "pivots")))
    if outside(pivots, 1, whole.shape[-2] + 1):
        return f"pivots are not in [1, {whole.shape[-2]}]"
    return None


# -- pools and grids ---------------------------------------------------------------------------------------


@check_of("max_pool2d_with_indices_backward adaptive_max_pool2d_backward fractional_max_pool2d_backward")
def _check_indices_2d(call: Call) -> str | None:
    return _indices_in_plane(call, call["self"].shape[-2:].numel())


@check_of("max_pool3d_with_indices_backward adaptive_max_pool3d_backward fractional_max_pool3d_backward")
def _check_indices_3d(call: Call) -> str | None:
    return _indices_in_plane(call, call["self"].shape[-3:].numel())


@check_of("max_unpool2d max_unpool3d")
def _check_unpooled(call: Call) -> str | None:
    plane = 1
    for size in call["output_size"]:
        plane *= int(size)
    return _indices_in_plane(call, plane)


def _indices_in_plane(call: Call, plane: int) -> str | None:
    return f"'indices' are not in [0, {plane})" if outside(call["indices"], 0, plane) else None


@check_of("fractional_max_pool2d fractional_max_pool3d")
def _check_fractions(call: Call) -> str | None:
    samples = call["random_samples"]
    holds = bool(((samples >= 0) & (samples < 1)).all())
    return None if holds else "'random_samples' are not in [0, 1)"


@check_of("grid_sampler_2d grid_sampler_3d grid_sampler_2d_backward grid_sampler_3d_backward")
def _check_grid(call: Call) -> str | None:
    # NB: of what lies outside and is moved inside, torch takes it that it got there.
    # Beyond the integers of a float32, places are not told apart.
    grid = call["grid"]
    holds = bool((grid.abs() < 2.0**24).all())
    return None if holds else "'grid' holds values that are no places"


# -- indices -----------------------------------------------------------------------------------------------


@check_of("bucketize searchsorted")
def _check_sorter(call: Call) -> str | None:
    sorter = call.get("sorter")
    if isinstance(sorter, torch.Tensor) and outside(sorter, 0, sorter.shape[-1] if sorter.dim() else 1):
        return "'sorter' holds no places of the sequence"
    return None


@check_of("_unsafe_index _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate")
def _check_unsafe_index(call: Call) -> str | None:
    shape = call["self"].shape
    for dim, index in enumerate(call["indices"]):
        # Where there is a mask, torch clamps what it masks.
        if isinstance(index, torch.Tensor) and outside(index, -shape[dim], shape[dim]) and "mask" not in call:
            return f"an index is not in [{-shape[dim]}, {shape[dim]})"
    return None


@check_of("embedding_dense_backward")
def _check_embedding(call: Call) -> str | None:
    count = int(call["num_weights"])
    # NB: a padding_idx of -1 stands for none, and torch counts how often each index occurs, -1 as well.
    return f"'indices' are not in [0, {count})" if outside(call["indices"], 0, count) else None


def _are_offsets(offsets: torch.Tensor, count: int) -> bool:
    """Whether they begin bags: the first at 0, in order, none beyond the end."""
    if offsets.numel() == 0:
        return count == 0
    return not outside(offsets, 0, count + 1) and int(offsets[0]) == 0 and bool((offsets.diff() >= 0).all())


@check_of("_embedding_bag _embedding_bag_forward_only")
def _check_bag(call: Call) -> str | None:
    rows, count = call["weight"].shape[0], call["indices"].numel()
    if outside(call["indices"], 0, rows):
        return f"'indices' are not in [0, {rows})"
    if not _are_offsets(call["offsets"], count):
        return "'offsets' do not begin bags of the indices"
    if call["include_last_offset"] and int(call["offsets"][-1]) != count:
        return "the last of 'offsets' is not the number of indices"
    return None


@check_of("_embedding_bag_backward _embedding_bag_dense_backward _embedding_bag_per_sample_weights_backward")
def _check_bag_backward(call: Call) -> str | None:
    bags = call["grad"].shape[0]
    rows = call["weight"].shape[0] if "weight" in call else int(call["num_weights"])
    if outside(call["indices"], 0, rows):
        return f"'indices' are not in [0, {rows})"
    if outside(call["offset2bag"], 0, bags):
        return f"'offset2bag' is not in [0, {bags})"
    if (
        int(call["mode"]) == 2
        and "maximum_indices" in call
        and outside(call["maximum_indices"], 0, rows, but=-1)
    ):
        return f"'maximum_indices' are not in [0, {rows})"
    return None


@check_of("repeat_interleave")
def _check_repeats(call: Call) -> str | None:
    repeats, size = call["repeats"], int(call["output_size"])
    # NB: torch adds them up in 64 bits, and the sum may come round to a small number.
    if outside(repeats, 0, size + 1) or int(repeats.sum()) != size:
        return f"the repeats do not add up to {size}"
    return None


# -- losses ------------------------------------------------------------------------------------------------


@check_of("nll_loss_forward nll_loss2d_forward nll_loss_backward nll_loss2d_backward")
def _check_classes(call: Call) -> str | None:
    scores = call["self"]
    classes = scores.shape[0] if scores.dim() == 1 else scores.shape[1]
    if outside(call["target"], 0, classes, but=int(call["ignore_index"])):
        return f"'target' is not in [0, {classes})"
    return None


@check_of("multi_margin_loss multi_margin_loss_backward")
def _check_margin(call: Call) -> str | None:
    classes = call["self"].shape[-1]
    return f"'target' is not in [0, {classes})" if outside(call["target"], 0, classes) else None


@check_of("multilabel_margin_loss_forward multilabel_margin_loss_backward")
def _check_labels(call: Call) -> str | None:
    classes = call["self"].shape[-1]
    return f"'target' is not in [-1, {classes})" if outside(call["target"], -1, classes) else None


@check_of("_ctc_loss _ctc_loss_backward")
def _check_ctc(call: Call) -> str | None:
    targets, classes = call["targets"], call["log_probs"].shape[-1]
    if targets.dim() == 2 and targets.numel():  # beyond its length stands whatever the user filled it up with
        lengths = torch.tensor([int(n) for n in call["target_lengths"]])
        targets = targets.masked_fill(torch.arange(targets.shape[1]) >= lengths[:, None], 0)
    return f"'targets' are not in [0, {classes})" if outside(targets, 0, classes) else None
