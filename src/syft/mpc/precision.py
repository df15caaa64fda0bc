"""`FixedPrecisionTensor`: real numbers as integers, `value = integer / base ** precision_fractional`.

The child holds the integers: an int64 tensor here, a pointer to one, or an AdditiveSharingTensor. The node
presents a floating-point dtype, so torch's own autograd, modules and optimizers work on it; what an aten
operation means on the integers stands in `syft.mpc.rules`.

Error of encoding: at most half a unit (1 / scale). Every product is followed by one exact truncation, which
errs by less than one unit.

NOTE [Reals and integers]
A node that presents a floating-point dtype holds reals in units of 1 / scale. A node that presents `bool`
or an integer dtype (an argmax, what `.long()` and `.bool()` return) holds its values as they are:
`precision_fractional` is 0 and `float_fractional` remembers the precision that reals computed from it will
have. So a bit times a real needs no truncation, an index is an index, and both mix freely with the reals
they came from.

NOTE [Range]
Integers live in Z_2^64 and wrap, as shares do. Encoding refuses what reaches 2^62 units. A product needs
|x * y| < 2^63 / scale^2, a product with a public real |x| < 2^41 units. What is larger wraps silently,
because nobody can look at a secret: choose the precision for the values you have.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, map_tensors, new_wrapper
from syft.core.hook_args import default_register_tensor
from syft.core.overload import overloaded, overloads_chain
from syft.core.public_names import spoken_name
from syft.core.spec import TensorSpec, make_spec
from syft.exceptions import ChainError, MixedChainsError
from syft.mpc import fixed_layers, watching
from syft.mpc.encoding import ENCODE_LIMIT as ENCODE_LIMIT
from syft.mpc.encoding import encode_integers as encode_integers
from syft.mpc.encoding import encode_number as encode_number
from syft.mpc.node_methods import FIELD, FixedMethods, checked_field
from syft.mpc.rules.registry import Interpret
from syft.serde import register_chain, register_exception
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.tensors.pointer import PointerTensor

DEFAULT_BASE, DEFAULT_PRECISION = 10, 3


class MixedPrecisionError(ChainError):
    """Two fixed-precision tensors of different precision met in one operation."""

    def __init__(self, one: FixedPrecisionTensor, other: FixedPrecisionTensor) -> None:
        super().__init__(
            f"A tensor with base={one.base} and precision_fractional={one.float_fractional} met one with "
            f"base={other.base} and precision_fractional={other.float_fractional}. Bring both to the "
            "same precision: "
            f"x.float_precision().fix_precision(base={one.base}, "
            f"precision_fractional={one.float_fractional})."
        )


#: What a node knows together with its views: NOTE [Known bits] in `rules.fixed_bits`.
SHARED_WITH_VIEWS = frozenset({"bits", "constant"})


class FixedPrecisionTensor(FixedMethods, AbstractTensor):
    """A tensor of reals in fixed precision.

    `field`: integers of `fix_precision(field=...)` are checked to fit it. `kappa` is a parameter of 2020 that no protocol
    here has: it can only be None.
    """

    passes_unknown_ops = False
    #: Put here by `syft.mpc.rules`, which stands on this class: for fine tensors, and for operations without a rule.
    interpret_fine: ClassVar[Interpret]
    interpret_unknown: ClassVar[Interpret]

    def __init__(
        self,
        base: int = DEFAULT_BASE,
        precision_fractional: int = DEFAULT_PRECISION,
        dtype: torch.dtype | None = None,
        float_fractional: int | None = None,
        field: int | None = None,
        kappa: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if kappa is not None:
            raise ValueError(
                f"kappa={kappa}: the statistical security of a truncation of 2020; truncation is exact here and has "
                "none. Leave it out."
            )
        whole = float(base).is_integer() and float(precision_fractional).is_integer()
        if (
            not whole
            or base < 2
            or precision_fractional < 0
            or int(base) ** int(precision_fractional) >= ENCODE_LIMIT
        ):
            raise ValueError(
                f"base={base} and precision_fractional={precision_fractional} do not describe numbers: both are whole, "
                "the base is at least 2, the number of fractional digits at least 0, and base ** precision_fractional is "
                "below 2**62."
            )
        self.base, self.precision_fractional = int(base), int(precision_fractional)
        #: See NOTE [The field] in syft.mpc.node_methods.
        self.field = FIELD if field is None else checked_field(field)
        self.presented_dtype = dtype or torch.get_default_dtype()
        #: The precision of reals made from this tensor; its own unless it holds integers.
        self.float_fractional = self.precision_fractional if float_fractional is None else float_fractional
        #: See NOTE [Fine tensors] in syft.mpc.rules.fixed_fine.
        self.is_fine = self.is_real and self.precision_fractional != self.float_fractional
        #: What a nonlinear operation found out on the way and its backward can use again.
        self.known: dict[str, Any] = {}

    @property
    def scale(self) -> int:
        """How many units make one."""
        return self.base**self.precision_fractional

    @property
    def float_scale(self) -> int:
        """The scale of reals made from this tensor."""
        return self.base**self.float_fractional

    @property
    def number_format(self) -> tuple[int, int]:
        return self.base, self.float_fractional

    @property
    def is_real(self) -> bool:
        """False for bits, counts and indices, see NOTE [Reals and integers]."""
        return self.presented_dtype.is_floating_point

    def forget(self) -> None:
        """After a write: what was known of the values before, here and in views, no longer holds."""
        for name in SHARED_WITH_VIEWS & self.known.keys():
            self.known[name].mark.written = True
        self.known.clear()

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The rule for the operation if it has one, else what `syft.mpc.rules.fixed_fallback` finds."""
        if watching.is_on():
            return watching.interpreted(cls, func, args, kwargs)
        return cls._interpreted(func, args, kwargs)

    @classmethod
    def _interpreted(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for value in args:
            if type(value) is cls:
                if value.is_fine:
                    return cls.interpret_fine(cls, func, args, kwargs)
            elif isinstance(value, (AbstractTensor, list)):
                args = _with_integers(cls, func, args)
                break
        rule = cls.aten_rules.get(func)
        if rule is not None:
            return rule(cls, func, args, kwargs)
        return cls.interpret_unknown(cls, func, args, kwargs)

    @classmethod
    def takes_in(cls, other: type) -> bool:
        """Shared integers (labels, indices) meet shared reals as integers; an index may be a multi-pointer. Fixed
        precision above a pointer meets a pointer to fixed precision.
        """
        return issubclass(other, (MultiPointerTensor, PointerTensor)) or (
            hasattr(other, "truncate") and issubclass(other, AbstractTensor)
        )

    def get_class_attributes(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "precision_fractional": self.precision_fractional,
            "dtype": self.presented_dtype,
            "float_fractional": self.float_fractional,
        }

    @property
    def spec(self) -> TensorSpec:
        child = self.child.spec if isinstance(self.child, AbstractTensor) else self.child
        strides, offset = (
            (child.strides, child.offset)
            if isinstance(child, TensorSpec)
            else (child.stride(), child.storage_offset())
        )
        return make_spec(child.shape, strides, offset, self.presented_dtype)

    # -- to and from reals -------------------------------------------------------------------------

    @classmethod
    def encode(
        cls,
        tensor: torch.Tensor,
        base: int = DEFAULT_BASE,
        precision_fractional: int = DEFAULT_PRECISION,
        dtype: torch.dtype | None = None,
    ) -> FixedPrecisionTensor:
        """A node for the values of a plain tensor; !! ValueError with the range for what does not fit."""
        presented = dtype or (tensor.dtype if tensor.is_floating_point() else torch.get_default_dtype())
        node = cls(base=base, precision_fractional=precision_fractional, dtype=presented)
        node.child = encode_integers(tensor, node.scale)
        return node

    def decode(self) -> torch.Tensor:
        """The values as a plain tensor of the presented dtype; the child has to be here."""
        child = self.child
        if not isinstance(child, torch.Tensor):
            raise ChainError(
                f"The integers of this fixed-precision tensor are a {type(child).__name__}, not here. "
                "Fetch them "
                "with `.get()` first, then call float_precision()."
            )
        if not self.is_real:
            return child.to(self.presented_dtype)
        return (child.to(torch.float64) / self.scale).to(self.presented_dtype)

    def encode_number(self, value: float) -> int:
        """A Python number in units of the reals of this tensor."""
        return encode_number(value, self.float_scale)

    def same_precision(self, other: FixedPrecisionTensor) -> bool:
        return self.base == other.base and self.precision_fractional == other.precision_fractional

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch the integers; they stay in fixed precision. Then call float_precision()."""
        value = self.child.get(*args, **kwargs)
        return new_wrapper(self.like(value.child if type(value) is Wrapper else value))

    def __str__(self) -> str:
        return f"FixedPrecisionTensor>{self.child}"

    __repr__ = __str__

    # -- public names ------------------------------------------------------------------------------

    @overloads_chain
    def __invert__(self) -> torch.Tensor:
        """1 where a number is 0, else 0. torch refuses `~` of floats before it asks anybody."""
        return torch.logical_not(self)  # type: ignore[arg-type]

    @overloads_chain
    def __rtruediv__(self, other: Any) -> torch.Tensor:
        """number / x. torch would multiply the number with 1 / x, and so the error of that."""
        number = other if isinstance(other, torch.Tensor) else torch.tensor(other, dtype=self.dtype)
        return torch.div(number, self)  # type: ignore[arg-type]

    @staticmethod
    @overloaded.module
    def torch(module: Any) -> None:
        """Functions that torch would run as one operation on floats.

        Of `torch.nn.functional.dropout` the mask is public, so no product of secrets is spent on it.
        """

        @overloaded.module
        def nn(module: Any) -> None:
            @overloaded.module
            def functional(module: Any) -> None:
                module.dropout = overloads_chain(fixed_layers.dropout)
                module.scaled_dot_product_attention = overloads_chain(
                    fixed_layers.scaled_dot_product_attention
                )
                module.rms_norm = overloads_chain(fixed_layers.rms_norm)
                module.cross_entropy = overloads_chain(fixed_layers.cross_entropy)
                module.embedding_bag = overloads_chain(fixed_layers.embedding_bag)
                module.multi_head_attention_forward = overloads_chain(
                    fixed_layers.multi_head_attention_forward
                )

            module.functional = functional

        module.nn = nn
        module.lstm = overloads_chain(fixed_layers.lstm)
        module.gru = overloads_chain(fixed_layers.gru)
        module.rnn_tanh = overloads_chain(fixed_layers.rnn_tanh)
        module.rnn_relu = overloads_chain(fixed_layers.rnn_relu)
        module.cov = overloads_chain(fixed_layers.cov)
        module._nested_tensor_from_mask_left_aligned = overloads_chain(fixed_layers.can_be_nested)


def node_above(pointer: PointerTensor) -> FixedPrecisionTensor:
    """A pointer to a remote fixed-precision chain as fixed precision above a pointer to a copy of its integers."""
    found = pointer.attr("integers").child
    found.garbage_collect_data = True
    made = FixedPrecisionTensor(*pointer.spec.number_format, dtype=pointer.spec.dtype)  # type: ignore[misc]
    made.child = found
    return made


def _with_integers(cls: Any, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments in which nodes of integers are nodes of `cls`: NOTE [Reals and integers]."""
    found: list[FixedPrecisionTensor] = []
    map_tensors(lambda t: found.append(t) if isinstance(t, cls) else None, args)

    def up(value: Any) -> Any:
        if isinstance(value, (cls, MultiPointerTensor)) or not isinstance(value, AbstractTensor):
            return value
        if isinstance(value, PointerTensor):
            if value.spec.number_format is None:
                raise MixedChainsError(spoken_name(func), cls, PointerTensor)
            return node_above(value)
        made = cls(found[0].base, 0, torch.int64, found[0].float_fractional)
        made.child = value
        return made

    lifted: tuple[Any, ...] = map_tensors(up, tuple(args))
    return lifted


default_register_tensor(FixedPrecisionTensor)
register_chain(
    FixedPrecisionTensor,
    {"base": int, "precision_fractional": int, "dtype": torch.dtype, "float_fractional": int},
)
register_exception(MixedPrecisionError)
