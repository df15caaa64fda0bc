"""`LargePrecisionTensor`: real numbers as integers of any size, `value = integer / base ** precision_fractional`.

The integers do not fit a machine word, so each is a row of limbs of a smaller type: the child has one dimension more than
the tensor, the most significant limb first (`syft.mpc.limbs`). The node presents a floating-point dtype. What an aten
operation means stands in `syft.mpc.rules.large`.

Errors, in units of 1 / base ** precision_fractional, which tests check:

    encoding                            at most 1/2
    + - neg sum, comparison             exact
    * @ / mean, of local values         at most 1/2 (one rounding of the exact result)
    * @ / mean, of shared values        less than 2
    decoding                            the nearest float64, then the nearest of the presented dtype

NOTE [Shared limbs]
Shares live in Z_2^64, so limbs are split again into 16 bits each when they are shared: see NOTE [Redundant limbs].
Holders see how many limbs there are. That is `base ** precision_fractional` and 64 bits more, from public arguments
alone, unless a value is larger: then its number of limbs is seen. A product has the bits of both factors, so
repeated products of secrets grow; nothing wraps.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.core.hook_args import default_register_tensor
from syft.core.overload import overloads_chain
from syft.core.shapes import contiguous_spec
from syft.exceptions import ChainError
from syft.mpc import limbs
from syft.mpc.precision import DEFAULT_BASE, DEFAULT_PRECISION
from syft.mpc.storage import STORAGES, LargePrecisionWarning, StoredNumbers, with_any_integer
from syft.serde import register_chain

#: Bits that a limb of each type holds beside its sign.
type_precision = {torch.uint8: 8, torch.int8: 7, torch.int16: 15, torch.int32: 31, torch.int64: 63}
#: Bits of the integer part that limbs are kept for, whatever the values are.
INTEGER_BITS = 64
#: Bits of one over a unit, and of a number.
MAX_SCALE_BITS, MAX_BITS = 1 << 14, 1 << 16


class LargePrecisionTensor(StoredNumbers):
    """A tensor of reals in a precision of any size.

    base, precision_fractional  how many units make one
    internal_type               the type of the limbs: torch.int8, int16, int32 or int64 (or uint8: two's complement)
    field                       if given: every integer lies in [-field / 2, field / 2), or is refused
    verbose                     whether a LargePrecisionWarning is given
    dtype                       the floating-point dtype to present and to decode to
    bits, magnitude             of shared limbs: NOTE [Redundant limbs]
    """

    def __init__(
        self,
        field: int | None = None,
        base: int = DEFAULT_BASE,
        precision_fractional: int = 0,
        internal_type: torch.dtype = torch.int32,
        verbose: bool = True,
        dtype: torch.dtype | None = None,
        bits: int = 0,
        magnitude: int = 0,
        **kwargs: Any,
    ) -> None:
        self._child: Any = None
        _check_numbers(base, precision_fractional, internal_type, field)
        self.base, self.precision_fractional = int(base), int(precision_fractional)
        self.internal_type, self.field, self.verbose = internal_type, field, bool(verbose)
        self.presented_dtype = dtype or torch.get_default_dtype()
        if not self.presented_dtype.is_floating_point:
            raise ValueError(
                f"dtype={dtype}: a LargePrecisionTensor presents reals. Take a floating-point dtype."
            )
        self.bits, self.magnitude = bits, magnitude
        super().__init__(**kwargs)

    @property
    def child(self) -> Any:
        """The limbs: a tensor of `internal_type`, or a secret of int64."""
        return self._child

    @child.setter
    def child(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and (
            value.dtype != self.internal_type
            or not value.dim()
            or not 0 < value.shape[-1] <= MAX_BITS // self.internal_precision + 1
        ):
            raise ChainError(
                f"A LargePrecisionTensor stands on limbs of {self.internal_type} in the last dimension; a tensor of "
                f"{value.dtype} and shape {tuple(value.shape)} was found. Make it with x.fix_precision(storage='large')."
            )
        has_bounds = 0 < self.bits <= MAX_BITS and 0 < self.magnitude <= limbs.LARGEST
        if isinstance(value, AbstractTensor) and not has_bounds:
            raise ChainError(
                f"A LargePrecisionTensor cannot stand on a {type(value).__name__}. Encode the plain tensor, then send or "
                "share it."
            )
        self._child = value

    @property
    def internal_precision(self) -> int:
        """How many bits a limb holds beside its sign."""
        return type_precision[self.internal_type]

    @property
    def scale(self) -> int:
        """How many units make one."""
        return int(self.base**self.precision_fractional)

    @property
    def is_shared(self) -> bool:
        return isinstance(self.child, AbstractTensor)

    def get_class_attributes(self) -> dict[str, Any]:
        return {
            "field": self.field,
            "base": self.base,
            "precision_fractional": self.precision_fractional,
            "internal_type": self.internal_type,
            "verbose": self.verbose,
            "dtype": self.presented_dtype,
            "bits": self.bits,
            "magnitude": self.magnitude,
        }

    #: Put here by `syft.mpc.rules`: it imports the rules of this class, which stand on it.
    load_rules: ClassVar[Callable[[], None]]

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The rule for the operation. The rules are imported when the first one is asked for."""
        cls.load_rules()
        return super().interpret(func, args, kwargs)

    @property
    def spec(self) -> Any:
        if self.child is None:
            raise ChainError("This LargePrecisionTensor is empty. Put it on a tensor with `.on(x)`.")
        return contiguous_spec(tuple(self.child.shape[:-1]), self.presented_dtype)

    def __str__(self) -> str:
        return f"LargePrecisionTensor>{self.child}"

    __repr__ = __str__

    # -- to and from integers ------------------------------------------------------------------------

    def over(self, integers: Any) -> LargePrecisionTensor:
        """A local node of these attributes over other integers; !! ValueError for what is out of its range."""
        width = self.internal_precision
        found = limbs.widest(integers)
        if found > MAX_BITS - width:
            raise ValueError(
                f"A number of {found} bits was made, and a LargePrecisionTensor holds {MAX_BITS - width}. Take a smaller "
                "precision_fractional, or decode and scale in between."
            )
        if self.field is not None and any(not -self.field <= 2 * v < self.field for v in integers.flat):
            raise ValueError(
                f"A value is out of the range of field={self.field}: with {self.base}**{self.precision_fractional} units "
                f"to the one it is from {-self.field / 2 / self.scale:.6g} to {self.field / 2 / self.scale:.6g}. Take a "
                "larger field, or leave it out."
            )
        least = self.scale.bit_length() + INTEGER_BITS
        count = -(-(max(found, least) + 1) // width)
        attributes = {**self.get_class_attributes(), "bits": 0, "magnitude": 0}
        return LargePrecisionTensor(
            **attributes, child=limbs.split(integers, width, count, self.internal_type)
        )

    def integers(self) -> Any:
        """The values in units, as a numpy array of Python integers; the limbs have to be here."""
        if self.is_shared or self.child is None:
            raise ChainError(
                "The limbs of this LargePrecisionTensor are not here. Fetch them with `.get()` first, then call "
                "float_precision()."
            )
        return limbs.joined(self.child, self.internal_precision)

    def encode(self, value: Any) -> Any:
        """A plain tensor or number in units, as an array of Python integers; !! ValueError for what is not finite."""
        limits = "in large precision: values must be finite, from -1.8e308 to 1.8e308"
        return limbs.in_units(value, self.scale, limits)

    def on(self, tensor: Any, wrap: bool = True) -> Any:
        """Encode a plain tensor into this node; returns the chain."""
        if not isinstance(tensor, torch.Tensor) or type(tensor) is Wrapper:
            raise ChainError(
                f"LargePrecisionTensor().on() was given a {_kind(tensor)}. It encodes plain tensors: encode where the "
                "values are, then send or share."
            )
        if tensor.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                "A tensor that requires grad has no form in large precision, which keeps no gradients. Encode "
                "x.detach()."
            )
        if tensor.is_floating_point():
            self.presented_dtype = tensor.dtype
        self.child = self.over(self.encode(tensor)).child
        return new_wrapper(self) if wrap else self

    def decode(self) -> torch.Tensor:
        """The values as a plain tensor of the presented dtype. What is too large for it is infinite, and warned of."""
        scale, found = self.scale, self.integers()
        made = torch.tensor([_quotient(v, scale) for v in found.flat], dtype=torch.float64)
        made = made.to(self.presented_dtype).view(found.shape)
        if self.verbose and bool(made.isinf().any()):
            warnings.warn(
                f"A value is too large for {self.presented_dtype} and was decoded as infinity. Call `.double()` before "
                "decoding, or read the integers with `.child.integers()`.",
                LargePrecisionWarning,
                stacklevel=3,
            )
        return made

    # -- sharing --------------------------------------------------------------------------------------

    def shared_by(self, share: Any) -> LargePrecisionTensor:
        """This node over secret limbs; `share` makes a secret of an int64 tensor. See NOTE [Shared limbs]."""
        if self.is_shared:
            raise ChainError(
                "This tensor is shared already. Use it as it is, or `.get()` it first to share it anew."
            )
        found = self.integers()
        bits = self.child.shape[-1] * self.internal_precision
        rows = limbs.split(found, limbs.WIDTH, limbs.count_for(bits), torch.int64)
        return self.with_limbs(share(rows), bits, limbs.BASE)

    def with_limbs(self, child: Any, bits: int, magnitude: int) -> LargePrecisionTensor:
        """A node of these attributes over secret limbs; !! ValueError past MAX_BITS."""
        if bits > MAX_BITS:
            raise ValueError(
                f"The result could have {bits} bits, and a LargePrecisionTensor holds {MAX_BITS}. Products of "
                "secrets add "
                "their bits: open and share again in between."
            )
        attributes = {**self.get_class_attributes(), "bits": bits, "magnitude": magnitude}
        return LargePrecisionTensor(**attributes, child=child)

    def share(self, *owners: Any, field: int | None = None, crypto_provider: Any = None) -> Any:
        """The node over limbs that are split among `owners`."""
        from syft.mpc.methods import share

        return share(new_wrapper(self), *owners, field=field, crypto_provider=crypto_provider, no_wrap=True)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch the limbs; they stay in large precision. Then call float_precision()."""
        if not self.is_shared:
            raise ChainError(
                "get() was called on a LargePrecisionTensor whose limbs are here already. Call float_precision()."
            )
        value = self.child.get(*args, **kwargs)
        if type(value) is Wrapper:  # NOTE [The first get] in syft.mpc.sharing
            return new_wrapper(self.like(value.child))
        return new_wrapper(self.over(limbs.joined(value, limbs.WIDTH)))

    def virtual_get(self) -> Any:
        """The value without removing shares; only for workers in this process."""
        return self.over(limbs.joined(self.child.virtual_get(), limbs.WIDTH))

    # -- public names: a Python integer of any size is an operand -----------------------------------------

    add = overloads_chain(with_any_integer("add"))
    sub = overloads_chain(with_any_integer("sub"))
    mul = overloads_chain(with_any_integer("mul"))
    div = overloads_chain(with_any_integer("div"))
    mod = remainder = overloads_chain(with_any_integer("remainder"))
    gt = overloads_chain(with_any_integer("gt"))
    lt = overloads_chain(with_any_integer("lt"))
    ge = overloads_chain(with_any_integer("ge"))
    le = overloads_chain(with_any_integer("le"))
    eq = overloads_chain(with_any_integer("eq"))
    ne = overloads_chain(with_any_integer("ne"))
    __rsub__ = overloads_chain(with_any_integer("__rsub__"))
    __iadd__ = overloads_chain(with_any_integer("add_"))
    __isub__ = overloads_chain(with_any_integer("sub_"))
    __imul__ = overloads_chain(with_any_integer("mul_"))

    # -- the names of 2020 ----------------------------------------------------------------------------

    def fix_large_precision(self) -> LargePrecisionTensor:
        """This node: values are encoded when it is put on them."""
        return self

    def float_precision(self) -> torch.Tensor:
        """`decode`."""
        return self.decode()

    def _create_internal_representation(self) -> torch.Tensor:
        """The limbs of the values."""
        width = self.internal_precision
        return limbs.split(self.integers(), width, self.child.shape[-1], self.internal_type)

    def _internal_representation_to_large_ints(self) -> Any:
        """`integers`."""
        return self.integers()

    @staticmethod
    def create_tensor_from_numpy(ndarray: Any, **kwargs: Any) -> torch.Tensor:
        """The limbs of an array of whole numbers, for a node of these arguments (`internal_type=...`)."""
        node = LargePrecisionTensor(**kwargs)
        array = np.asarray(ndarray, dtype=object)
        if any(v != int(v) for v in array.flat):
            raise ValueError(
                "create_tensor_from_numpy takes whole numbers, in units of base ** -precision_fractional."
            )
        made: torch.Tensor = node.over(limbs.objects([int(v) for v in array.flat], array.shape)).child
        return made

    @staticmethod
    def _split_numbers(numbers: Any, bits: int, internal_type: torch.dtype) -> list[list[int]]:
        """Each number as limbs of so many bits, the most significant first, as many as it needs."""
        if internal_type not in type_precision or not 0 < bits <= type_precision[internal_type]:
            raise ValueError(
                f"Limbs of {bits} bits do not fit {internal_type}, which holds {type_precision.get(internal_type)}."
            )
        found = [limbs.objects([int(n)], (1,)) for n in numbers]
        counts = [max(1, -(-limbs.widest(f) // bits)) for f in found]
        return [limbs.split(f, bits, n, torch.int64)[0].tolist() for f, n in zip(found, counts, strict=True)]

    @staticmethod
    def _restore_large_number(number_parts: Any, bits: int) -> int:
        """The number of limbs of so many bits, the most significant first."""
        total = 0
        for part in number_parts:
            total = (total << bits) + int(part)
        return total

    @staticmethod
    def _expand_item(a_number: Any, max_length: int) -> list[int]:
        """Limbs with zeros before them, `max_length` in all."""
        parts = [int(part) for part in a_number]
        if len(parts) > max_length:
            raise ValueError(f"A number of {len(parts)} limbs does not fit {max_length}.")
        return [0] * (max_length - len(parts)) + parts

    @staticmethod
    def _forward_func(tensor: Any) -> Any:
        """One level down: the limbs."""
        return tensor.child

    @staticmethod
    def _backward_func(tensor: Any, **kwargs: Any) -> LargePrecisionTensor:
        """One level up: a node over limbs."""
        return LargePrecisionTensor(**kwargs, child=tensor)


def _check_numbers(base: Any, precision_fractional: Any, internal_type: Any, field: Any) -> None:
    whole = float(base).is_integer() and float(precision_fractional).is_integer()
    if not whole or base < 2 or precision_fractional < 0:
        raise ValueError(
            f"base={base} and precision_fractional={precision_fractional} do not describe numbers: both are "
            "whole, the base "
            "is at least 2, the number of fractional digits at least 0."
        )
    if math.log2(base) * precision_fractional > MAX_SCALE_BITS:
        raise ValueError(
            f"base={base} and precision_fractional={precision_fractional} are out of range: base ** precision_fractional "
            f"has to be at most 2**{MAX_SCALE_BITS}."
        )
    if internal_type not in type_precision:
        raise ValueError(
            f"internal_type={internal_type}: limbs are torch.int8, int16, int32, int64 or uint8."
        )
    if field is not None and (type(field) is not int or field < 2):
        raise ValueError(
            f"field={field!r} is the size of the ring, in which integers wrap around: a whole number of 2 or more."
        )


def _kind(value: Any) -> str:
    if type(value) is Wrapper:
        return f"chain that begins with {type(value.child).__name__}"
    return type(value).__name__


def _quotient(value: int, scale: int) -> float:
    try:
        return value / scale
    except OverflowError:
        return math.copysign(math.inf, value)


def fixed_large(
    tensor: Any, precision_fractional: int = DEFAULT_PRECISION, base: int = DEFAULT_BASE, **options: Any
) -> Any:
    """`tensor.fix_precision(storage="large", ...)`."""
    return LargePrecisionTensor(base=base, precision_fractional=precision_fractional, **options).on(tensor)


STORAGES["large"] = fixed_large
default_register_tensor(LargePrecisionTensor)
register_chain(
    LargePrecisionTensor,
    {
        "field": int | None,
        "base": int,
        "precision_fractional": int,
        "internal_type": torch.dtype,
        "verbose": bool,
        "dtype": torch.dtype,
        "bits": int,
        "magnitude": int,
    },
)
