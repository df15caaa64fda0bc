"""`spdz_mul`: the product of two secrets, for any bilinear command and any number of holders."""

from __future__ import annotations

from typing import Any

from syft.exceptions import ChainError
from syft.mpc.documented import arguments
from syft.mpc.documented.beaver import bilinear
from syft.mpc.protocols import beaver
from syft.mpc.sharing import no_wrap as no_wrap


def spdz_mul(
    cmd: str, x_sh: Any, y_sh: Any, crypto_provider: Any = None, field: int | None = None, **params: Any
) -> Any:
    """cmd(x, y) of two shared integer tensors, exact modulo 2^64. One round.

    `cmd` is a bilinear command by its public name: "mul", "matmul", "torch.nn.functional.conv2d"; `params` are
    those of a convolution. `crypto_provider` and `field` are those of the operands and are checked; None
    takes them from there.
    """
    x, y = arguments.integers("spdz_mul", "x * y or x @ y", x_sh, y_sh)
    arguments.check_field("spdz_mul", field)
    theirs = x.node.crypto_provider
    if crypto_provider is not None and arguments.worker(crypto_provider) is not theirs:
        who = getattr(crypto_provider, "id", crypto_provider)
        raise ChainError(
            f"spdz_mul was called with the crypto provider {who}, and the operands were shared with "
            f"{theirs.id}. Pass crypto_provider=x_sh.crypto_provider."
        )
    op = bilinear(cmd, x.node.shape, y.node.shape, params)
    chain = x if x.is_chain or not y.is_chain else y
    return chain.same(x.node.run(beaver.spdz_mul, y.node, op))
