"""Checks of operations that take shapes for granted: norms, layers, distances. See syft.workers.sound_arguments."""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.workers.bound_arguments import Arguments, Bound, at_end, has_values
from syft.workers.sound_writes import overlaps_itself

# -- norms ---------------------------------------------------------------------------------------------


def check_batch_norm(a: Any) -> None:
    whole = a["input"]
    a.require(whole.dim() >= 2, f"'input' is {list(whole.shape)}")
    channels = whole.shape[1]
    for name in ("weight", "bias", "running_mean", "running_var"):
        if name in a:
            a.length(name, channels)
            a.require(a[name] is None or a[name].dim() == 1, f"{name!r} is no row of numbers")
    for name in ("running_mean", "running_var"):
        a.require(_trains(a) or a.get(name) is not None, "there are no running statistics")
        a.require(a.get(name) is None or not overlaps_itself(a[name]), f"elements of {name!r} share memory")
    if "grad_out" not in a:
        return
    a.same_shape("grad_out", "input")
    for name in ("save_mean", "save_invstd", "save_var"):
        if name in a and (_trains(a) or (a[name] is not None and a[name].numel())):
            a.length(name, channels, may_lack=False)


def _trains(a: Any) -> bool:
    """Whether the statistics are those of the input: what says so has many names, and some operations have none."""
    for name in ("training", "train", "update"):
        if name in a:
            return bool(a[name])
    return a.packet not in ("_batch_norm_no_update", "_native_batch_norm_legit_no_training")


def check_layer_norm(a: Any) -> None:
    whole, normal = a["input"], [int(n) for n in a["normalized_shape"]]
    a.require(
        0 < len(normal) <= whole.dim() and list(whole.shape[-len(normal) :]) == normal,
        f"'input' is {list(whole.shape)} for a 'normalized_shape' of {normal}",
    )
    a.same_shape("grad_out", "input")
    rows = math.prod(whole.shape[: whole.dim() - len(normal)])
    for name in ("mean", "rstd"):
        if name in a:
            a.length(name, rows, may_lack=False)
    for name in ("weight", "bias"):
        if name in a:
            a.length(name, math.prod(normal))


def check_group_norm(a: Any) -> None:
    n, c, plane, group = (int(a[name]) for name in ("N", "C", "HxW", "group"))
    a.require(min(n, c, plane) >= 0 and group > 0 and c % group == 0, f"{c} channels are not {group} groups")
    a.length("input", n * c * plane, may_lack=False)
    a.length("weight", c)
    if "bias" in a:
        a.length("bias", c)
    if "grad_out" in a:
        a.same_shape("grad_out", "input")
        a.length("mean", n * group, may_lack=False)
        a.length("rstd", n * group, may_lack=False)


def check_weight_norm(a: Any) -> None:
    v, g, dim = ("saved_v", "saved_g", a["dim"]) if "saved_v" in a else ("v", "g", a["dim"])
    whole = a[v]
    a.require(
        whole.dim() > 0 and dim in (0, whole.dim() - 1) and whole.numel() > 0, f"{v!r} is {list(whole.shape)}"
    )
    a.length(g, whole.shape[dim], may_lack=False)
    a.require(
        a[g].is_contiguous() and a[g].dtype is whole.dtype, f"{g!r} is no row of {whole.dtype} in memory"
    )
    if "grad_w" in a:
        a.same_shape("grad_w", v)
        a.length("saved_norms", whole.shape[dim], may_lack=False)
        a.require(a["saved_norms"].is_contiguous(), "'saved_norms' is no row in memory")


# -- convolutions, attention, recurrent layers ---------------------------------------------------------------


def check_convolution(a: Any) -> None:
    """The gradient has the shape of the output."""
    whole, weight, transposed = a["input"], a["weight"], bool(a["transposed"])
    groups, dims = int(a["groups"]), weight.dim() - 2
    a.require(dims >= 1 and whole.dim() == dims + 2 and groups > 0, f"'input' is {list(whole.shape)}")

    def each(name: str) -> list[int]:
        values = [int(n) for n in a[name]]
        return values * dims if len(values) == 1 else values

    stride, padding, dilation, extra = (each(n) for n in ("stride", "padding", "dilation", "output_padding"))
    a.require(
        len(stride) == len(padding) == len(dilation) == len(extra) == dims and min(stride) > 0,
        "'stride', 'padding', 'dilation' and 'output_padding' need one number per dimension",
    )
    sizes = []
    for i, (n, kernel) in enumerate(zip(whole.shape[2:], weight.shape[2:], strict=True)):
        reach = dilation[i] * (kernel - 1) + 1
        if transposed:
            sizes.append((n - 1) * stride[i] - 2 * padding[i] + reach + extra[i])
        else:
            sizes.append((n + 2 * padding[i] - reach) // stride[i] + 1)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    wanted = [whole.shape[0], channels, *sizes]
    a.require(
        list(a["grad_output"].shape) == wanted,
        f"'grad_output' is {list(a['grad_output'].shape)}, not {wanted}",
    )
    inner = weight.shape[0] if transposed else weight.shape[1] * groups
    a.require(whole.shape[1] == inner, f"'input' has {whole.shape[1]} channels instead of {inner}")


def check_attention(a: Any) -> None:
    query, key, value = a["query"], a["key"], a["value"]
    for name in ("query", "key", "value"):
        a.dims(name, 4)
    a.require(
        query.shape[:2] == key.shape[:2] == value.shape[:2]
        and query.shape[3] == key.shape[3]
        and key.shape[2] == value.shape[2],
        f"'query', 'key' and 'value' are {list(query.shape)}, {list(key.shape)} and {list(value.shape)}",
    )
    mask = a["attn_mask"]
    whole = [*query.shape[:3], key.shape[2]]
    if mask is not None:
        a.require(
            mask.dim() in (2, 4)
            and all(n in (1, m) for n, m in zip(mask.shape, whole[-mask.dim() :], strict=True)),
            f"'attn_mask' is {list(mask.shape)} for {whole}",
        )
    if "grad_out" in a:
        wanted = [*query.shape[:3], value.shape[3]]
        a.require(
            list(a["grad_out"].shape) == wanted == list(a["out"].shape),
            f"'grad_out' and 'out' are not {wanted}",
        )
        a.require(a["logsumexp"].shape == query.shape[:3], f"'logsumexp' is {list(a['logsumexp'].shape)}")


#: What mkldnn calls a mode -> how many gates it has.
_GATES = {0: 1, 1: 1, 2: 4, 3: 3}


def check_recurrent_layer(a: Any) -> None:
    """torch makes this of `lstm`, and checks nothing there."""
    a.dims("input", 3)
    hidden, rows = int(a["hidden_size"]), _GATES[int(a["mode"])] * int(a["hidden_size"])
    width, batch = a["input"].shape[2], a["input"].shape[1]
    wanted = {
        "weight0": [rows, width],
        "weight1": [rows, hidden],
        "hx_": [batch, hidden],
        "cx_": [batch, hidden],
    }
    for name, shape in wanted.items():
        found = list(a[name].shape)
        a.require(found == shape or found == [1, *shape], f"{name!r} is {found} instead of {shape}")
    for name in ("weight2", "weight3"):
        a.require(not a["has_biases"] or a[name].numel() == rows, f"{name!r} has not {rows} elements")


def check_recurrent(packet: str, args: Any, kwargs: Arguments) -> None:
    """`lstm` and its kin take the counts of layers and sequences as they are told."""
    common = "hx params has_biases num_layers dropout train bidirectional".split()
    names, packed = ["input", *common, "batch_first"], ["data", "batch_sizes", *common]
    is_packed = "batch_sizes" in kwargs or (len(args) > 3 and isinstance(args[3], (list, tuple)))
    a = Bound(packet, (), (), {})
    a.update(zip(packed if is_packed else names, map(at_end, args), strict=False))
    a.update(kwargs)
    states = a["hx"] if isinstance(a["hx"], (list, tuple)) else [a["hx"]]
    a.require(len(states) == (2 if packet == "lstm" else 1), f"there are {len(states)} states")
    states = [at_end(state) for state in states]
    count = int(a["num_layers"]) * (2 if a["bidirectional"] else 1)
    sizes = 4 if a["has_biases"] else 2
    a.require(
        count > 0 and all(t.dim() == 3 and t.shape[0] == count for t in states), f"the states are not {count}"
    )
    a.require(
        len(a["params"]) in (count * sizes, count * (sizes + 1)), f"there are {len(a['params'])} weights"
    )
    if is_packed:
        a.dims("batch_sizes", 1)
        given = a["batch_sizes"]
        a.require(
            given.numel() > 0 and given.dtype is torch.int64, "'batch_sizes' are no numbers of sequences"
        )
        if has_values(given):
            a.within("batch_sizes", 1, a["data"].shape[0] + 1)
            a.require(bool((given.diff() <= 0).all()), "'batch_sizes' grow")
            a.require(int(given.sum()) == a["data"].shape[0], "'batch_sizes' do not add up to the data")
            a.require(
                all(t.shape[1] == int(given[0]) for t in states),
                f"the states are not of {int(given[0])} sequences",
            )
    else:
        a.dims("input", 3)
        batch = a["input"].shape[0 if a["batch_first"] else 1]
        a.require(all(t.shape[1] == batch for t in states), f"the states are not of {batch} sequences")


RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


# -- distances, softmax ------------------------------------------------------------------------------------


def check_rows(a: Any) -> None:
    a.dims("self", 2)


def check_pdist(a: Any) -> None:
    check_rows(a)
    rows = a["self"].shape[0]
    a.require(rows > 0, "'self' is empty")
    a.length("grad", rows * (rows - 1) // 2, may_lack=False)
    a.length("pdist", rows * (rows - 1) // 2, may_lack=False)


def check_cdist(a: Any) -> None:
    one, two = a["x1"], a["x2"]
    a.require(min(one.dim(), two.dim()) >= 2 and one.shape[-1] == two.shape[-1], "'x1' and 'x2' differ")
    batch = torch.broadcast_shapes(one.shape[:-2], two.shape[:-2])  # type: ignore[no-untyped-call]
    wanted = [*batch, one.shape[-2], two.shape[-2]]
    a.require(
        list(a["grad"].shape) == wanted == list(a["cdist"].shape), f"'grad' and 'cdist' are not {wanted}"
    )


def check_of_output(a: Any) -> None:
    a.same_shape("grad_output", "output")
    if "mask" in a:
        a.same_shape("mask", "output")


def check_of_input(a: Any) -> None:
    a.same_shape("grad_output", "self")


# -- Fourier, linear algebra, counting --------------------------------------------------------------------


def check_fourier(a: Any) -> None:
    whole, dims = a["self"], [int(d) for d in a["dim"]]
    a.require(
        len(set(dims)) == len(dims) and all(0 <= d < whole.dim() for d in dims),
        f"'dim' is {dims} for {whole.dim()} dimensions, which are counted from 0 here",
    )
    if "last_dim_size" in a and dims:
        last = int(a["last_dim_size"])
        a.require(
            last >= 1 and whole.shape[dims[-1]] == last // 2 + 1,
            f"a 'last_dim_size' of {last} needs {last // 2 + 1} elements, and there are {whole.shape[dims[-1]]}",
        )


def check_finite(a: Any) -> None:
    whole = a["self"] if "self" in a else a["A"]
    # NB: LAPACK does not end well on others, in some versions not at all.
    if has_values(whole):
        a.require(bool(torch.isfinite(whole.detach()).all()), "the matrix holds infinite values or NaN")


def check_pivots(a: Any) -> None:
    whole, pivots = a["LU_data"], a["LU_pivots"]
    rows, columns = whole.shape[-2:]
    wanted = [*whole.shape[:-2], min(rows, columns)]
    a.require(list(pivots.shape) == wanted, f"'LU_pivots' are {list(pivots.shape)} instead of {wanted}")
    if a["unpack_pivots"]:
        a.within("LU_pivots", 1, rows + 1)


#: No tensor has more elements.
_MOST = 2**62


def check_repeats(a: Any) -> None:
    repeats = a["repeats"]
    if not isinstance(repeats, torch.Tensor) or not has_values(repeats) or not repeats.numel():
        return
    # NB: torch adds them up in 64 bits, and the sum may come round to a small number.
    a.within("repeats", 0, max(1, _MOST // repeats.numel()))
    if a["output_size"] is not None:
        total = int(repeats.sum())
        a.require(
            total == int(a["output_size"]),
            f"'output_size' is {a['output_size']} and the repeats add up to {total}",
        )


def check_chunks(a: Any) -> None:
    dim, tensors = int(a["dim"]), [at_end(tensor) for tensor in a["tensors"]]
    a.require(
        len(tensors) > 0 and int(a["num_chunks"]) > 0, "there is nothing to cut, or no piece to cut into"
    )
    a.require(all(-t.dim() <= dim < t.dim() for t in tensors), f"a tensor has no dimension {dim}")


def check_trace(a: Any) -> None:
    sizes = [int(n) for n in a["sizes"]]
    a.require(len(sizes) == 2 and min(sizes) >= 0, f"'sizes' are {sizes}, not those of a matrix")
    a.length("grad", 1, may_lack=False)


def check_noise(a: Any) -> None:
    """torch writes the noise as if it were as large as the input."""
    if not a["training"]:
        return
    a.same_shape("noise", "self")
    a.require(
        a["noise"].is_contiguous() and a["noise"].dtype is a["self"].dtype,
        f"'noise' does not lie in memory as {a['self'].dtype} in a row",
    )


def check_columns(a: Any) -> None:
    """One column per place of the window."""
    a.dims("self", 2, 3)
    places = 1
    for size, kernel, dilation, padding, stride in zip(
        *(a[name] for name in ("output_size", "kernel_size", "dilation", "padding", "stride")), strict=True
    ):
        a.require(min(size, kernel, dilation, stride) > 0 <= padding, "sizes have to be positive")
        places *= max(0, (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)
    columns = a["self"].shape[-1]
    a.require(columns == places, f"there are {columns} columns for {places} places of the window")


def nothing_to_check(_a: Any) -> None:
    """torch looks itself; what is done about the operation is done afterwards."""
