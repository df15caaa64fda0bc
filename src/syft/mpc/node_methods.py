"""What the programs of 2020 call on the bare nodes of fixed precision and of shares (`x.child`, `x.child.child`).

Each is a thin form of what chains have. Mixed into the classes of `precision` and `sharing`, which import this.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.core.levels import on_bare_nodes
from syft.core.session import session
from syft.exceptions import ChainError
from syft.mpc import ring
from syft.mpc.encoding import encode_integers
from syft.mpc.randomness import Stream, new_seed
from syft.mpc.rules import fixed_ring
from syft.mpc.shared_node import split_among

#: NOTE [The field]
#: Shares add up to the secret modulo 2^64, which torch cannot take as a number. Programs write
#: `(sum of the shares) % x.child.field`, so the field that is told is the largest power of two that torch takes, and the
#: one of 2020: 2^62. It divides 2^64, so a sum of shares gives the secret modulo the field however it was added up:
#: the secret itself for 0 <= secret < 2^62, and secret + 2^62 for negative ones, as it was then.
FIELD = 2**62


def checked_field(field: Any) -> int:
    """The field of a secret; !! ValueError for one whose arithmetic the ring does not contain."""
    if field is None or field == 2**64:
        return FIELD
    if not isinstance(field, int) or field < 2 or field > FIELD or field & (field - 1):
        raise ValueError(
            f"field={field}: shares live in the ring of 2**64 elements, which contains the arithmetic of powers of two "
            "up to 2**62 only. Leave field out, or pass such a power (values are checked to fit it; results are not "
            "reduced to it)."
        )
    return field


#: What `share(dtype=...)` names, and the field of each.
DTYPES = {"long": FIELD, "int": 2**32, "custom": None}


def field_of(dtype: Any, field: Any) -> int:
    """The field that `share(dtype=..., field=...)` asks for."""
    name = {torch.int64: "long", torch.int32: "int", None: None}.get(dtype, dtype)
    if name is None:
        return checked_field(field)
    if name not in DTYPES:
        raise ValueError(
            f"share(dtype={dtype!r}): the dtypes of shares are 'long', 'int' and 'custom' with field=. Leave it out: "
            "the ring of 2**64 elements holds them all."
        )
    if name == "custom" and field is None:
        raise ValueError("share(dtype='custom') takes field=, a power of two up to 2**62.")
    return checked_field(field) if DTYPES[name] is None else min(checked_field(field), DTYPES[name] or FIELD)


def check_values(values: torch.Tensor, field: int) -> None:
    """!! ValueError for integers that a smaller field than the default cannot tell apart."""
    half = field // 2
    if field < FIELD and values.numel() and (int(values.min()) < -half or int(values.max()) >= half):
        raise ValueError(
            f"The integers go from {int(values.min())} to {int(values.max())}, and a field of {field} elements holds "
            f"{-half} to {half - 1}. Choose a larger field, or leave it out."
        )


class SharedMethods:
    """Names of 2020 on an AdditiveSharingTensor."""

    child: Any
    crypto_provider: Any
    protocol: Any

    def on(self, tensor: Any, wrap: bool = True) -> Any:
        """This node over a tensor that is here and not split yet: `init_shares` splits integers among workers."""
        if type(tensor) is Wrapper or not isinstance(tensor, torch.Tensor):
            raise ChainError(
                "AdditiveSharingTensor().on(...) takes a plain tensor, and got a "
                f"{type(getattr(tensor, 'child', None) or tensor).__name__}. Write x.share(alice, bob) for a chain."
            )
        self.child = tensor.detach()
        return new_wrapper(self) if wrap else self  # type: ignore[arg-type]

    @property
    def is_split(self) -> bool:
        return isinstance(self.child, dict)

    def init_shares(self, *owners: Any) -> Any:
        """Split the integers that `on` put below this node and send every owner a share; returns self."""
        if self.is_split:
            raise ChainError(
                "init_shares(...) splits integers that are here: AdditiveSharingTensor().on(x).child.init_shares(alice, "
                "bob). This secret is split already."
            )
        if self.protocol == "spdz2k":
            raise ChainError(
                "init_shares(...) makes shares without MACs. Write x.share(alice, bob, protocol='spdz2k')."
            )
        if self.child.is_floating_point() or self.child.is_complex():
            raise TypeError(
                f"init_shares(...) was called on a tensor of {self.child.dtype}, and secrets are integers. Write "
                "x.fix_precision().share(alice, bob)."
            )
        me = session.require_local_worker()
        holders = [me.get_worker(owner, fail_hard=True) for owner in owners]
        provider = me if self.crypto_provider is None else me.get_worker(self.crypto_provider, fail_hard=True)
        self.child = split_among(self.child.to(torch.int64), holders, provider)
        self.crypto_provider = provider
        return self

    @staticmethod
    def generate_shares(
        secret: torch.Tensor, n_workers: int, field: int | None = None, random_type: Any = None
    ) -> list[torch.Tensor]:
        """`n_workers` random int64 tensors that add up to the secret (NOTE [The field]).

        They are uniform over the whole ring, from the operating system's randomness; `random_type` can only name
        int64, which they are.
        """
        if random_type not in (None, int, "long", torch.int64, torch.long, torch.LongTensor):
            raise ValueError(f"generate_shares(random_type={random_type!r}): shares are int64. Leave it out.")
        if not isinstance(n_workers, int) or n_workers < 2:
            raise ValueError(f"generate_shares: a secret is split among two or more, not {n_workers}.")
        if secret.is_floating_point() or secret.is_complex():
            raise TypeError(
                f"generate_shares was given {secret.dtype}, and secrets are integers. Encode them first: "
                "x.fix_precision().child.child."
            )
        check_values(secret, checked_field(field))
        return list(ring.share(secret.to(torch.int64), n_workers, Stream(new_seed())))

    @staticmethod
    def select_worker(args: Any, worker: Any) -> tuple[Any, ...]:
        """Arguments as one worker sees them: of a mapping by worker its own entry, anything else as it is."""
        name = getattr(worker, "id", worker)
        return tuple(value[name] if isinstance(value, dict) else value for value in args)

    def mod(self, *operands: Any, **named: Any) -> Any:
        """x % modulus, from 0 to modulus - 1. An overload of 2020 had the shares as its first operand; they are ours."""
        modulus = named.pop("modulus", None) if "modulus" in named else operands[-1]
        return on_bare_nodes(torch.remainder, (self, modulus), {})

    def dim(self) -> int:
        return len(self.shape)  # type: ignore[attr-defined]

    @property
    def grad(self) -> None:
        """None: the gradient of a secret belongs to the tensor above, `x.grad`."""
        return None


class FixedMethods:
    """Names of 2020 on a FixedPrecisionTensor."""

    base: int
    child: Any
    field: int

    def fix_precision(self, check_range: bool = True) -> Any:
        """Encode the reals that `FixedPrecisionTensor(...).on(x, wrap=False)` stands on; returns self.

        `check_range=False`: the field of the node is not asked, only whether the integers can be held.
        """
        if not isinstance(self.child, torch.Tensor) or not self.child.is_floating_point():
            raise ChainError(
                "fix_precision() was called on a FixedPrecisionTensor whose integers are encoded already. Use it as it "
                "is; float_precision() gives the reals back."
            )
        integers = encode_integers(self.child, self.scale)  # type: ignore[attr-defined]
        if check_range:
            check_values(integers, self.field)
        self.child = integers
        return self

    def float_precision(self) -> Any:
        """The values in floating point, as a plain tensor or a pointer to one."""
        return self.wrap().float_precision()  # type: ignore[attr-defined]

    def truncate(self, precision_fractional: int, check_sign: bool = True) -> Any:
        """A node whose integers have that many digits less, rounded.

        `check_sign` asks for what always holds here: negative numbers are rounded as rightly as positive ones.
        """
        if not isinstance(precision_fractional, int) or precision_fractional < 0:
            raise ValueError(f"truncate takes a number of digits from 0 on, not {precision_fractional!r}.")
        return self.like(fixed_ring.truncate(self.child, self.base**precision_fractional))  # type: ignore[attr-defined]

    def mul_and_div(self, other: Any, cmd: str) -> Any:
        """self * other for cmd="mul", self / other for cmd="div", in fixed precision."""
        commands = {"mul": torch.mul, "div": torch.div}
        if cmd not in commands:
            raise ValueError(f"mul_and_div(cmd={cmd!r}): the commands are 'mul' and 'div'.")
        return on_bare_nodes(commands[cmd], (self, other), {})

    def share(self, *owners: Any, **options: Any) -> Any:
        """This node over shares of its integers: what `x.share(...)` does for the chain."""
        return self.wrap().share(*owners, **{**options, "no_wrap": True})  # type: ignore[attr-defined]

    def share_(self, *owners: Any, **options: Any) -> Any:
        """`share` in place: this node stands on shares from now on; returns self."""
        self.child = self.share(*owners, **options).child
        return self

    @property
    def data(self) -> Any:
        """The same values without their history."""
        below = self.child
        return self.like(below.data if isinstance(below, torch.Tensor) else below)  # type: ignore[attr-defined]

    @data.setter
    def data(self, new_data: Any) -> None:
        node = new_data.child if getattr(new_data, "is_wrapper", False) else new_data
        if type(node) is not type(self):
            raise ChainError(
                f"The data of a FixedPrecisionTensor is one, and a {type(node).__name__} was assigned. Call "
                "fix_precision() on it first."
            )
        self.child = node.child

    @property
    def grad(self) -> Any:
        """The gradient of the integers' own tensor; that of a chain belongs to the tensor above, `x.grad`."""
        found = getattr(self.child, "grad", None)
        return None if found is None else self.like(found)  # type: ignore[attr-defined]

    def attr(self, attr_name: str) -> Any:
        """An attribute of the value at its place, in fixed precision: `x.child.attr("grad")` of a remote chain."""
        if not hasattr(self.child, "attr"):
            raise ChainError(
                f"attr({attr_name!r}) reads an attribute of a value elsewhere, and this one is here. Write "
                f"x.{attr_name}."
            )
        found = self.child.attr(attr_name)
        return self.like(found.child if getattr(found, "is_wrapper", False) else found)  # type: ignore[attr-defined]
