"""The functions of the SecureNN paper on shared tensors, for two holders and a provider.

Each takes a shared tensor as a node or as a chain and gives its result in the same form; the programs, the
paper and what every party sees stand in `syft.mpc.protocols.securenn`. Integers are exact for
-2^62 <= x < 2^62 unless a function says otherwise. What is larger wraps silently: nobody can look at a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.exceptions import ChainError
from syft.mpc import ring
from syft.mpc.documented.arguments import Secret, check_same_precision, integers, secret
from syft.mpc.documented.odd_shares import OddSharingTensor
from syft.mpc.drivers import Shares
from syft.mpc.node_methods import checked_field
from syft.mpc.protocols import documented
from syft.mpc.protocols import securenn as programs
from syft.mpc.protocols.registry import comparison
from syft.mpc.protocols.select import Pooling
from syft.mpc.sharing import AdditiveSharingTensor, secret_of
from syft.mpc.sharing import no_wrap as no_wrap
from syft.tensors.multi_pointer import MultiPointerTensor

Pair = int | tuple[int, int]

#: The prime of the paper in which bits are compared, and the bits of the field (NOTE [The field]).
p = programs.PRIME
Q_BITS = 62


def _check_holders(function: str, holders: Sequence[Any], cure: str) -> None:
    if len(holders) != programs.HOLDERS:
        raise ValueError(
            f"{function} of SecureNN runs between two holders and a provider, and this secret has {len(holders)} "
            f"holders ({', '.join(str(h.id) for h in holders)}). Share it among two workers, or {cure}."
        )


def _operand(function: str, value: Any, instead: str) -> Secret:
    """A shared argument with two holders."""
    found = secret(function, value)
    _check_holders(function, found.node.locations, f"write {instead}, which any number of holders can run")
    return found


# -- bits ------------------------------------------------------------------------------------------------


def decompose(tensor: torch.Tensor, field: int | None = None) -> torch.Tensor:
    """The 64 bits of public integers (two's complement), lowest first, in a new last dimension.

    With `field`, a power of two, only as many as its elements have. A tensor that is elsewhere is taken apart there.
    """
    count = ring.BITS if field is None else checked_field(field).bit_length() - 1
    node = tensor.child if type(tensor) is Wrapper else tensor
    if secret_of(node) is not None:
        raise ChainError(
            "decompose takes apart public integers, and this tensor is shared. Decompose before sharing, or compare "
            "with relu_deriv, msb, x > y."
        )
    if tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(
            f"decompose takes integers, got {tensor.dtype}. Call fix_precision() or round() first."
        )
    wide = tensor.to(torch.int64)
    if isinstance(node, torch.Tensor):
        return programs.decompose(wide).to(torch.int64)[..., :count]
    return torch.stack([(wide >> place) & 1 for place in range(count)], -1)


def flip(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The elements along a dimension in the opposite order, of a plain tensor or of any chain."""
    return torch.flip(x, (dim,))


def select_share(alpha_sh: Any, x_sh: Any, y_sh: Any) -> Any:
    """x where the shared bit alpha is 0, y where it is 1, element by element (with broadcasting)."""
    (alpha,) = integers("select_share, for its bits alpha,", "alpha > 0", alpha_sh)
    x = _operand("select_share", x_sh, "torch.where(bit, y, x)")
    y = secret("select_share", y_sh)
    check_same_precision(x, y)
    return x.same(alpha.node.run(programs.select_share, x.node, y.node))


def private_compare(x_bit_sh: Any, r: Any, beta: Any) -> Any:
    """beta ^ [x > r], x and r read as unsigned, as a shared bit. The provider learns nothing of it.

    `x_bit_sh` are the bits of x as `decompose(x).share(...)` gives them: lowest first in the last dimension of
    64, shared in Z_2^64; the program carries them over to the paper's Z_67. `r` and `beta` are what both
    holders know and the provider does not: plain tensors, or pointers to one at each holder
    (MultiPointerTensor), of the shape of x; beta is a bit per element. In the paper beta hides the outcome from the
    provider. Here the holders draw a bit of their own for that, whatever beta is. An r that is not the same at both
    holders gives a meaningless result.
    """
    (bits,) = integers("private_compare", "x > r", x_bit_sh)
    node = bits.node
    _check_holders(
        "private_compare", node.locations, "write x > r on the integers, which any number of holders can run"
    )
    if not node.shape or node.shape[-1] != ring.BITS:
        raise ValueError(
            f"private_compare takes the 64 bits of every number in the last dimension, got the shape "
            f"{tuple(node.shape)}. Share decompose(x)."
        )
    held = [_held_by_both(name, value, node) for name, value in (("r", r), ("beta", beta))]
    return bits.bits(node.run(programs.private_compare_shared, *held))


def _held_by_both(name: str, value: Any, node: AdditiveSharingTensor) -> Any:
    """A value that every holder has and the provider has not, spread to the shape of x."""
    head = value.child if type(value) is Wrapper else value
    if isinstance(head, MultiPointerTensor):
        if set(head.child) != set(node.child):
            raise ChainError(
                f"private_compare needs {name} at the holders {', '.join(map(str, node.child))}, and it is at "
                f"{', '.join(map(str, head.child))}. Send it to both: {name}.send(alice, bob)."
            )
        held = SimpleNamespace(pointers=[head.child[who] for who in node.child])
        if not all(pointer.location.is_in_process for pointer in held.pointers):
            return _held_far_away(name, held, tuple(node.shape[:-1]))
        values = node.group.read(held)
    elif type(value) is Wrapper or not isinstance(value, (int, torch.Tensor)):
        raise ChainError(
            f"private_compare takes {name} as a plain tensor or as pointers to it at both holders, got a "
            f"{type(head).__name__}."
        )
    else:
        values = (torch.as_tensor(value),) * programs.HOLDERS
    shape = node.shape[:-1]
    try:
        return Shares(one.to(torch.int64).expand(shape) for one in values)
    except RuntimeError:
        raise ValueError(
            f"private_compare got {name} of the shape {tuple(values[0].shape)} for numbers of the shape "
            f"{tuple(shape)}. Give one value per number."
        ) from None


def _held_far_away(name: str, held: Any, shape: tuple[int, ...]) -> Any:
    """The same for holders on a network: nothing of it is read here, so it has to be what the program takes."""
    spec = held.pointers[0].spec
    if tuple(spec.shape) != shape or spec.dtype != torch.int64:
        raise ValueError(
            f"private_compare got {name} of the shape {tuple(spec.shape)} and {spec.dtype} at workers on a network, for "
            f"numbers of the shape {shape}. Send it as int64, one value per number."
        )
    return held


# -- signs -----------------------------------------------------------------------------------------------


def share_convert(a_sh: Any) -> Any:
    """The same secret with its shares in Z_(2^64 - 1), as `msb` takes it: an OddSharingTensor.

    For every int64 but -1, which is 2^64 - 1 as a residue and hence 0 there.
    """
    a = _operand("share_convert", a_sh, "the comparison you need it for")
    converted = OddSharingTensor.over(a.node.run(programs.share_convert))
    return new_wrapper(converted) if a.is_chain else converted


def msb(a_sh: Any) -> Any:
    """The highest bit as a shared integer: of a residue that share_convert gave, or of a shared tensor ([a < 0])."""
    head = a_sh.child if type(a_sh) is Wrapper else a_sh
    if isinstance(head, OddSharingTensor):
        template = AdditiveSharingTensor(crypto_provider=head.crypto_provider)
        node = template.of(list(head.group.run(programs.msb, head)))
        return new_wrapper(node) if type(a_sh) is Wrapper else node
    a = _operand("msb", a_sh, "x < 0")
    return a.bits(a.node.run(comparison("snn").is_negative))


def relu_deriv(a_sh: Any) -> Any:
    """[a >= 0] as a shared bit."""
    a = _operand("relu_deriv", a_sh, "x >= 0")
    return a.bits(a.node.run(programs.relu_deriv))


def relu(a_sh: Any) -> Any:
    """a where it is positive, 0 elsewhere."""
    a = _operand("relu", a_sh, "x.relu()")
    return a.same(a.node.run(programs.relu))


def division(x_sh: Any, y_sh: Any, bit_len_max: int = 31) -> Any:
    """The integer x / y, rounded towards zero, of a quotient with at most `bit_len_max` binary digits.

    For |x| < 2^62, |y| < 2^(62 - bit_len_max). Of y = 0 the quotient is 2^bit_len_max - 1 in size.
    """
    if not isinstance(bit_len_max, int) or not 0 < bit_len_max < 62:
        raise ValueError(f"A quotient has 1 to 61 binary digits, got bit_len_max={bit_len_max!r}.")
    x, y = integers("division", "x / y", x_sh, y_sh)
    cure = "write torch.div(x, y, rounding_mode='trunc'), which any number of holders can run"
    _check_holders("division", x.node.locations, cure)
    chain = x if x.is_chain or not y.is_chain else y
    return chain.same(x.node.run(programs.signed_division, y.node, bit_len_max))


# -- maxima ----------------------------------------------------------------------------------------------


def _some_operand(function: str, value: Any, instead: str) -> Secret:
    found = _operand(function, value, instead)
    if not found.node.shape.numel():
        raise ValueError(f"{function} looks for the largest element, and this tensor has none.")
    return found


def maxpool(x_sh: Any) -> tuple[Any, Any]:
    """The largest of all elements and its index in the flattened tensor, the first of equals; |x| < 2^61."""
    x = _some_operand("maxpool", x_sh, "x.max() and x.argmax()")
    largest, index = x.node.run(documented.maxpool)
    return x.same(largest), x.integers(index)


def maxpool_deriv(x_sh: Any) -> Any:
    """1 at the largest of all elements (the first of equals), 0 elsewhere, in the shape of x; |x| < 2^61."""
    x = _some_operand("maxpool_deriv", x_sh, "the backward of x.max()")
    return x.bits(x.node.run(documented.maxpool_deriv))


def maxpool2d(a_sh: Any, kernel_size: Pair = 1, stride: Pair = 1, padding: Pair = 0) -> Any:
    """Max-pooling of (N, C, H, W); |a| < 2^61. NB: the documented stride is 1, torch's is the kernel."""
    a = _operand("maxpool2d", a_sh, "torch.nn.functional.max_pool2d")
    pooling = Pooling(_pair(kernel_size), _pair(stride), _pair(padding))
    sides = a.node.shape[2:]
    room = [size + 2 * p - k for size, p, k in zip(sides, pooling.padding, pooling.kernel_size, strict=False)]
    if len(a.node.shape) != 4 or min(room) < 0:
        raise ValueError(
            f"maxpool2d takes pictures (N, C, H, W) at least as large as the kernel {pooling.kernel_size}, got the "
            f"shape {tuple(a.node.shape)}."
        )
    too_wide = any(2 * p > k for p, k in zip(pooling.padding, pooling.kernel_size, strict=True))
    if min(*pooling.kernel_size, *pooling.stride) < 1 or min(pooling.padding) < 0 or too_wide:
        raise ValueError(
            f"A pooling has a kernel and a stride of at least 1 and a padding of at most half the kernel, got "
            f"kernel_size={kernel_size}, stride={stride}, padding={padding}."
        )
    return a.same(a.node.run(programs.maxpool2d, pooling))


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
