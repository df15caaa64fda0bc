"""`request_triple`: shares of a, b and c = cmd(a, b) that the provider deals once (Beaver 1991)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syft.mpc.correlations import Triple
from syft.mpc.documented import arguments
from syft.mpc.group import Group
from syft.mpc.kernels import Bilinear
from syft.mpc.protocols.documented import take
from syft.mpc.sharing import AdditiveSharingTensor

PREFIXES = ("torch.nn.functional.", "torch.Tensor.", "torch.")
PICTURE = ("stride", "padding", "dilation", "groups")
COMMANDS: dict[str, tuple[str, int | None, tuple[str, ...]]] = {
    "mul": ("mul", None, ()),
    "multiply": ("mul", None, ()),
    "matmul": ("matmul", None, ()),
    "mm": ("matmul", 2, ()),
    "bmm": ("matmul", 3, ()),
    "mv": ("matmul", None, ()),
    "dot": ("matmul", 1, ()),
    "conv1d": ("conv", 3, PICTURE),
    "conv2d": ("conv", 4, PICTURE),
    "conv_transpose1d": ("conv_transpose", 3, (*PICTURE, "output_padding")),
    "conv_transpose2d": ("conv_transpose", 4, (*PICTURE, "output_padding")),
}
"""Public names of bilinear commands: their kernel, the dimensions of both operands, and their parameters."""


def bilinear(cmd: str, x: Sequence[int], y: Sequence[int], params: dict[str, Any]) -> Bilinear:
    """The bilinear map that a public name stands for, checked against the shapes of its operands."""
    text = str(cmd)
    name = next((text.removeprefix(p) for p in PREFIXES if text.startswith(p)), text)
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    if name not in COMMANDS:
        raise ValueError(
            f"The command {cmd!r} is none of the bilinear ones that a triple serves: {', '.join(COMMANDS)} (or with "
            "torch's prefix, 'torch.matmul'). Sums and other linear operations need no triple: write x + y."
        )
    kernel, dims, known = COMMANDS[name]
    unknown = sorted(set(params) - set(known))
    if unknown:
        takes = ", ".join(known) or "none"
        raise ValueError(f"{name} was given {', '.join(unknown)}; the parameters it takes are: {takes}.")
    if dims is not None and (len(x) != dims or len(y) != dims):
        raise ValueError(
            f"{name} takes two tensors of {dims} dimensions, got the shapes {tuple(x)} and {tuple(y)}."
        )
    op = Bilinear.of(kernel, **params)
    try:
        op.output_shape(x, y)
    except RuntimeError as reason:
        raise ValueError(
            f"{name} does not fit the shapes {tuple(x)} and {tuple(y)}: {str(reason).splitlines()[0]}"
        ) from None
    return op


def request_triple(
    crypto_provider: Any,
    cmd: str,
    field: int | None,
    a_size: Sequence[int],
    b_size: Sequence[int],
    locations: Sequence[Any],
    **params: Any,
) -> tuple[AdditiveSharingTensor, AdditiveSharingTensor, AdditiveSharingTensor]:
    """Shares at `locations` of uniform a, b and of c = cmd(a, b); every call deals a triple of its own.

    `params` are those of a convolution. Use a triple for one product only: two values opened under one mask
    reveal their difference. `spdz_mul` asks for its triples itself.
    """
    arguments.check_field("request_triple", field)
    provider, holders = arguments.worker(crypto_provider), [arguments.worker(one) for one in locations]
    group = Group.of(holders, provider)
    a_shape, b_shape = tuple(a_size), tuple(b_size)
    kind = Triple(bilinear(cmd, a_shape, b_shape, params), a_shape, b_shape)
    template = AdditiveSharingTensor(crypto_provider=provider)
    a, b, c = (template.of(list(part)) for part in group.run(take, kind))
    return a, b, c
