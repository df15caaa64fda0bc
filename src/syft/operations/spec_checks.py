"""Checks of specs and public values: what torch trusts, or would take for ever with. They raise what the user reads.

None of these sees a value of a tensor. Each takes the arguments by name, `TensorSpec`s in the place of tensors.
Imports `core` only.
"""

from __future__ import annotations

import math
from typing import Any

from syft.core.spec import TensorSpec
from syft.operations.row import Call

#: Sizes and counts beyond are no sizes of tensors.
LARGEST_SIZE = 2**62
#: Results of one operation.
MOST_RESULTS = 2**16
#: Degrees of derivatives and of polynomials: torch takes as many steps for each element.
HIGHEST_DEGREE = 100
#: More digits than a float64 has before and behind its point.
MOST_DIGITS = 400


def shape_of(call: Call, name: str) -> list[int]:
    value = call[name]
    call.require(isinstance(value, TensorSpec), f"{name!r} is a {type(value).__name__}, not a tensor")
    return list(value.shape)


def check_digits(call: Call) -> None:
    call.require(abs(int(call["decimals"])) <= MOST_DIGITS, f"no number has {call['decimals']} digits")


def check_degree(call: Call) -> None:
    degree = int(call["n"])
    call.require(0 <= degree <= HIGHEST_DEGREE, f"a degree of {degree} is not in [0, {HIGHEST_DEGREE}]")


def check_rounding(call: Call) -> None:
    """The one division of integers that has no result: found here where both are public numbers of the call."""
    divisor = call.get("other")
    if isinstance(divisor, (int, float)) and not isinstance(divisor, bool) and divisor == 0:
        of = call.get("self")
        is_whole = not isinstance(of, TensorSpec) or not (of.dtype.is_floating_point or of.dtype.is_complex)
        call.require(not (is_whole and isinstance(divisor, int)), "an integer is divided by zero")


def check_noise(call: Call) -> None:
    """torch reads and writes the noise as if it were as large as the input."""
    if not call["training"]:
        return
    noise = call["noise"]
    call.require(
        shape_of(call, "noise") == shape_of(call, "self") and noise.dtype is call["self"].dtype,
        f"'noise' is {shape_of(call, 'noise')} of {noise.dtype} for 'self' of {shape_of(call, 'self')}",
    )
    call.require(is_in_order(noise), "'noise' does not lie in memory in order")


def is_in_order(spec: TensorSpec) -> bool:
    """Whether elements lie in memory one behind the other, in their order."""
    step = 1
    for size, stride in zip(reversed(spec.shape), reversed(spec.strides), strict=True):
        if size != 1 and stride != step:
            return spec.shape.numel() == 0
        step *= size
    return True


def overlaps_itself(spec: TensorSpec) -> bool:
    """Whether two elements may share memory: of an expanded tensor they do."""
    reach = 0
    for step, size in sorted((s, n) for s, n in zip(spec.strides, spec.shape, strict=True) if n > 1):
        if step <= reach:
            return spec.shape.numel() > 0
        reach += step * (size - 1)
    return False


def pieces(length: int, size: int) -> int:
    return math.ceil(length / size) if size > 0 else 0


# -- sizes ---------------------------------------------------------------------------------------------------


def numbers_in(value: Any) -> list[int]:
    if isinstance(value, (list, tuple)):
        return [n for item in value for n in numbers_in(item)]
    return [value] if isinstance(value, int) else []


def _specs(call: Call, names: str) -> list[TensorSpec]:
    """Arguments that have to be tensors."""
    for name in names.split():
        shape_of(call, name)
    return [call[name] for name in names.split()]


def require_dims(call: Call, name: str, *allowed: int) -> None:
    shape = shape_of(call, name)
    call.require(len(shape) in allowed, f"{name!r} has {len(shape)} dimensions")


def require_same_shape(call: Call, one: str, other: str) -> None:
    call.require(
        shape_of(call, one) == shape_of(call, other),
        f"{one!r} is {shape_of(call, one)} and {other!r} is {shape_of(call, other)}",
    )


def require_same_type(call: Call, *names: str) -> None:
    found = {str(call[name].dtype) for name in names if isinstance(call.get(name), TensorSpec)}
    call.require(len(found) <= 1, f"{', '.join(names)} are of several types: {sorted(found)}")


def require_length(call: Call, name: str, count: int, may_lack: bool = True) -> None:
    """None, or that many elements."""
    if call[name] is None and may_lack:
        return
    found = math.prod(shape_of(call, name))
    call.require(found == count, f"{name!r} has {found} elements instead of {count}")


def require_integers(call: Call, *names: str) -> None:
    for name in names:
        value = call.get(name)
        if isinstance(value, TensorSpec):
            whole = not (value.dtype.is_floating_point or value.dtype.is_complex) and str(value.dtype) in (
                "torch.int32",
                "torch.int64",
            )
            call.require(whole, f"{name!r} is of {value.dtype}, not of int32 or int64")


def check_pieces(call: Call) -> None:
    """A tensor is not cut into more pieces than results may be."""
    first = next((v for v in call.values() if isinstance(v, TensorSpec)), None)
    if first is None:
        return
    shape = list(first.shape) or [1]
    dim = call.get("dim", 0)
    length = shape[dim] if isinstance(dim, int) and -len(shape) <= dim < len(shape) else max(shape)
    size = call.get("split_size", call.get("split_sizes"))
    count = length
    if isinstance(size, int) and size > 0:
        count = pieces(length, size)
    elif isinstance(size, (list, tuple)):
        count = len(size)
    for name in ("chunks", "sections", "indices"):
        value = call.get(name)
        if isinstance(value, int):
            count = value
        elif isinstance(value, (list, tuple)):
            count = len(value) + 1
    call.require(count <= MOST_RESULTS, f"{count} pieces are more than {MOST_RESULTS}")


def check_strides(call: Call) -> None:
    """Only what the tensor itself holds is reached, and a tensor with gaps holds what is in them no more."""
    spec = call["self"]
    sizes, strides = numbers_in(call["size"]), numbers_in(call["stride"])
    call.require(isinstance(spec, TensorSpec), "'self' is no tensor")
    call.require(
        len(sizes) == len(strides) and min(sizes, default=0) >= 0 and min(strides, default=0) >= 0,
        f"sizes {sizes} and strides {strides} do not go together",
    )
    start = call.get("storage_offset")
    start = spec.offset if start is None else int(start)
    reach = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    held = spec.shape.numel()
    is_dense = held == 0 or (
        not overlaps_itself(spec)
        and 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)) == held
    )
    call.require(
        is_dense,
        f"'self' has gaps in memory, or elements that share it (shape {list(spec.shape)}, strides {list(spec.strides)}); "
        "call contiguous() first",
    )
    call.require(
        (start >= spec.offset and start + reach <= spec.offset + held) or (reach == 0 and start >= 0),
        f"elements {start} to {start + reach} are not among the {held} of the tensor, which begin at {spec.offset}",
    )


def check_window(call: Call) -> None:
    for value in numbers_in(list(call.values())):
        call.require(abs(value) < LARGEST_WINDOW, f"{value} is no size of a window")
    for name in ("stride", "kernel_size"):
        given = numbers_in(call.get(name))
        call.require(not given or min(given) > 0, f"{name!r} is {given}, and has to be positive")
    weight = call.get("weight")
    if isinstance(weight, TensorSpec):
        call.require(0 not in weight.shape[2:], f"the kernel is {list(weight.shape)}")
        call.require(int(call.get("groups") or 1) > 0, "there are no groups")
        require_same_type(call, "input", "weight", "bias")


#: Numbers as large are no size of a window, nor of what is pooled.
LARGEST_WINDOW = 2**24


def check_adaptive_pool(call: Call) -> None:
    """torch goes along one side although the other is empty."""
    sizes = numbers_in(call["output_size"])
    call.require(
        min(sizes, default=1) >= 0 and max(sizes, default=1) < LARGEST_WINDOW,
        f"{sizes} are no sizes of an output",
    )
    call.require(math.prod(sizes) > 0 or max(sizes, default=0) < 2**16, f"{sizes} hold nothing")


def _check_pooled(call: Call, dims: int) -> None:
    """One gradient per place, of the planes that were pooled."""
    check_window(call)
    require_dims(call, "grad_output", dims + 1, dims + 2)
    gradient, whole = shape_of(call, "grad_output"), shape_of(call, "self")
    call.require(
        len(gradient) == len(whole) and gradient[:-dims] == whole[:-dims],
        f"'grad_output' is {gradient} for 'self' of {whole}",
    )
    call.require(math.prod(whole[-dims:]) > 0 or 0 in gradient, "'self' is empty")
    require_same_type(call, "grad_output", "self")
    if "indices" in call:
        require_same_shape(call, "indices", "grad_output")
        call.require(str(call["indices"].dtype) == "torch.int64", "'indices' are not of int64")


def check_pooled_2d(call: Call) -> None:
    _check_pooled(call, 2)


def check_pooled_3d(call: Call) -> None:
    _check_pooled(call, 3)


def check_fractions(call: Call) -> None:
    dims = 3 if "3d" in call.operation else 2
    check_window(call)
    for name in ("kernel_size", "output_size"):
        call.require(
            len(numbers_in(call[name])) == dims and min(numbers_in(call[name])) > 0,
            f"{name!r} is {call[name]}, not {dims} positive sizes",
        )
    whole = shape_of(call, "self")
    call.require(len(whole) in (dims + 1, dims + 2), f"'self' is {whole}")
    for size, kernel, wanted in zip(
        whole[-dims:], numbers_in(call["kernel_size"]), numbers_in(call["output_size"]), strict=True
    ):
        call.require(
            wanted + kernel - 1 <= size, f"windows of {kernel} in {size} elements do not make {wanted}"
        )
    if "grad_output" in call:
        require_same_shape(call, "indices", "grad_output")
        gradient = shape_of(call, "grad_output")
        call.require(
            gradient == [*whole[:-dims], *numbers_in(call["output_size"])], f"'grad_output' is {gradient}"
        )
        require_same_type(call, "grad_output", "self")
        call.require(str(call["indices"].dtype) == "torch.int64", "'indices' are not of int64")
    else:
        planes = whole[:-dims] if len(whole) == dims + 2 else [1, whole[0]]
        call.require(
            shape_of(call, "random_samples") == [*planes, dims],
            f"'random_samples' is {shape_of(call, 'random_samples')} instead of {[*planes, dims]}",
        )
        require_same_type(call, "self", "random_samples")


def check_unpooled(call: Call) -> None:
    dims = 3 if "3d" in call.operation else 2
    check_window(call)
    require_same_shape(call, "indices", "self")
    require_dims(call, "self", dims + 1, dims + 2)
    call.require(str(call["indices"].dtype) == "torch.int64", "'indices' are not of int64")
    sizes = numbers_in(call["output_size"])
    call.require(len(sizes) == dims and min(sizes) > 0, f"'output_size' is {sizes}, not {dims} sizes")


def _check_padded(call: Call, dims: int) -> None:
    padding = numbers_in(call["padding"])
    call.require(len(padding) == 2 * dims, f"'padding' is {padding}, not {2 * dims} numbers")
    gradient, whole = shape_of(call, "grad_output"), shape_of(call, "self")
    call.require(
        len(gradient) == len(whole) > dims and gradient[:-dims] == whole[:-dims],
        f"'grad_output' is {gradient} for 'self' of {whole}",
    )
    for i in range(dims):
        wanted = whole[-1 - i] + padding[2 * i] + padding[2 * i + 1]
        call.require(gradient[-1 - i] == wanted, f"'grad_output' is {gradient} for 'self' of {whole}")
        if "reflection" in call.operation:
            call.require(
                max(padding[2 * i : 2 * i + 2]) < whole[-1 - i], f"a padding of {padding} is beyond {whole}"
            )
    call.require(min(whole[-dims:]) > 0, "'self' is empty")
    require_same_type(call, "grad_output", "self")


def check_padded_1d(call: Call) -> None:
    _check_padded(call, 1)


def check_padded_2d(call: Call) -> None:
    _check_padded(call, 2)


def check_padded_3d(call: Call) -> None:
    _check_padded(call, 3)


def check_unfolded(call: Call) -> None:
    wanted = numbers_in(call["input_sizes"])
    dim, size, step = int(call["dim"]), int(call["size"]), int(call["step"])
    count = max(len(wanted), 1)
    call.require(
        -count <= dim < count and size >= 0 and step > 0,
        f"'dim', 'size' and 'step' are {dim}, {size}, {step}",
    )
    if wanted:
        call.require(size <= wanted[dim], f"windows of {size} in {wanted[dim]} elements")
        wanted[dim] = (wanted[dim] - size) // step + 1
    wanted.append(size)
    call.require(
        shape_of(call, "grad_in") == wanted, f"'grad_in' is {shape_of(call, 'grad_in')} instead of {wanted}"
    )


def check_columns(call: Call) -> None:
    """One column per place of the window."""
    check_window(call)
    require_dims(call, "self", 2, 3)
    names = ("output_size", "kernel_size", "dilation", "padding", "stride")
    sides = [numbers_in(call[name]) for name in names]
    call.require(all(len(side) == 2 for side in sides), "sizes are two numbers each")
    places = 1
    for size, kernel, dilation, padding, stride in zip(*sides, strict=True):
        call.require(min(size, kernel, dilation, stride) > 0 <= padding, "sizes have to be positive")
        places *= max(0, (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)
    columns = shape_of(call, "self")[-1]
    call.require(columns == places, f"there are {columns} columns for {places} places of the window")


def check_scales(call: Call) -> None:
    """Scales have to agree with the sizes: torch finds its places by them."""
    whole = shape_of(call, "self") if "self" in call else numbers_in(call["input_size"])
    sizes = numbers_in(call["output_size"])
    dims = len(sizes)
    call.require(len(whole) == dims + 2 and min(sizes, default=1) > 0, f"{sizes} are no sizes for {whole}")
    call.require(min(whole[1:]) > 0, f"the input is {whole}")
    scales = [call[name] for name in ("scales", "scales_d", "scales_h", "scales_w") if name in call]
    for before, after, scale in zip(whole[-dims:], sizes, scales, strict=False):
        call.require(
            scale is None or (math.isfinite(scale) and scale > 0 and abs(before * scale - after) <= 1),
            f"a scale of {scale} does not make {after} elements of {before}",
        )
    if "grad_output" in call:
        wanted = [*whole[:2], *sizes]
        call.require(
            shape_of(call, "grad_output") == wanted,
            f"'grad_output' is {shape_of(call, 'grad_output')}, not {wanted}",
        )


def _check_grid(call: Call, dims: int) -> None:
    """NB: for another number in place of a mode, torch returns memory that it never wrote."""
    for name, known in (
        ("interpolation_mode", (0, 1, 2) if dims == 2 else (0, 1)),
        ("padding_mode", (0, 1, 2)),
    ):
        call.require(int(call[name]) in known, f"{name!r} is {call[name]}, and there are {known}")
    require_dims(call, "input", dims + 2)
    require_dims(call, "grid", dims + 2)
    whole, grid = shape_of(call, "input"), shape_of(call, "grid")
    call.require(grid[-1] == dims and whole[0] == grid[0], f"'grid' is {grid} for 'input' of {whole}")
    call.require(min(whole[2:]) > 0, f"'input' is {whole}")
    require_same_type(call, "input", "grid", "grad_output")
    if "grad_output" in call:
        wanted = [*whole[:2], *grid[1:-1]]
        call.require(shape_of(call, "grad_output") == wanted, f"'grad_output' is not {wanted}")


def check_grid_2d(call: Call) -> None:
    _check_grid(call, 2)


def check_grid_3d(call: Call) -> None:
    _check_grid(call, 3)


def check_convolution(call: Call) -> None:
    """The gradient has the shape of the output."""
    check_window(call)
    whole, weight = shape_of(call, "input"), shape_of(call, "weight")
    groups, dims = int(call["groups"]), len(weight) - 2
    call.require(dims >= 1 and len(whole) == dims + 2 and groups > 0, f"'input' is {whole}")

    def each(name: str) -> list[int]:
        values = numbers_in(call[name])
        return values * dims if len(values) == 1 else values

    stride, padding, dilation, extra = (each(n) for n in ("stride", "padding", "dilation", "output_padding"))
    call.require(
        len(stride) == len(padding) == len(dilation) == len(extra) == dims
        and min(stride) > 0
        and min(dilation) > 0
        and min(padding) >= 0,
        "'stride', 'padding', 'dilation' and 'output_padding' need one number per dimension",
    )
    sizes = []
    for i, (n, kernel) in enumerate(zip(whole[2:], weight[2:], strict=True)):
        reach = dilation[i] * (kernel - 1) + 1
        if call["transposed"]:
            sizes.append((n - 1) * stride[i] - 2 * padding[i] + reach + extra[i])
        else:
            sizes.append((n + 2 * padding[i] - reach) // stride[i] + 1)
    channels = weight[1] * groups if call["transposed"] else weight[0]
    wanted = [whole[0], channels, *sizes]
    found = shape_of(call, "grad_output")
    call.require(found == wanted, f"'grad_output' is {found}, not {wanted}")
    inner = weight[0] if call["transposed"] else weight[1] * groups
    call.require(whole[1] == inner, f"'input' has {whole[1]} channels instead of {inner}")
    call.require(inner % groups == 0 and channels % groups == 0, f"{inner} channels are not {groups} groups")
    sizes_of_bias, mask = numbers_in(call["bias_sizes"]), call["output_mask"]
    call.require(isinstance(mask, (list, tuple)) and len(mask) == 3, f"'output_mask' is {mask}")
    # Of a layer without a bias autograd says [0], and asks for no gradient of it.
    possible = ([channels],) if mask[2] else ([channels], [0], [])
    call.require(sizes_of_bias in possible, f"'bias_sizes' are {sizes_of_bias}")
    require_same_type(call, "grad_output", "input", "weight")


def check_not_empty(call: Call) -> None:
    call.require(0 not in shape_of(call, "self"), f"'self' is {shape_of(call, 'self')}")


def check_floating(call: Call) -> None:
    dtype = call["self"].dtype
    call.require(dtype.is_floating_point or dtype.is_complex, f"a result of floats cannot be cast to {dtype}")


def check_one_type(call: Call) -> None:
    """All tensors are of one type, masks aside."""
    found = {str(s.dtype) for s in call.values() if isinstance(s, TensorSpec)} - {"torch.bool"}
    call.require(len(found) <= 1, f"its arguments are of several types: {sorted(found)}")


def check_one_type_and_shape(call: Call) -> None:
    check_one_type(call)
    shapes = [
        list(call[n].shape) for n in ("grad_output", "grad", "self") if isinstance(call.get(n), TensorSpec)
    ]
    if "glu_backward" in call.operation and "gelu" not in call.operation:
        dim, size = int(call["dim"]), len(shapes[-1])
        call.require(-size <= dim < size, f"there is no dimension {dim}")
        half = list(shapes[-1])
        half[dim] //= 2
        call.require(shapes[0] == half and shapes[-1][dim] % 2 == 0, f"'grad_output' is not {half}")
        return
    call.require(len(shapes) < 2 or shapes[0] == shapes[1], f"its arguments are {shapes}")
    weight = call.get("weight")
    if isinstance(weight, TensorSpec):
        wide = [n for n, m in zip(weight.shape, shapes[-1], strict=False) if n not in (1, m)]
        call.require(len(weight.shape) == len(shapes[-1]) and not wide, f"'weight' is {list(weight.shape)}")


def check_shuffle(call: Call) -> None:
    check_not_empty(call)
    call.require(int(call["groups"]) > 1, f"there are {call['groups']} groups")
    shape = shape_of(call, "self")
    call.require(
        len(shape) > 2 and shape[1] % int(call["groups"]) == 0, f"{shape} are not {call['groups']} groups"
    )
