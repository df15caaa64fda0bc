"""`CRTPrecisionTensor`: real numbers as integers of about 100 bits, kept as residues modulo several primes.

`value = integer / base ** precision_fractional`, and the integer is known by its residues (the Chinese remainder
theorem). Sums and products are made residue by residue, on numbers that fit a machine word. The child maps each
modulus to a tensor of residues, or to a secret of them. What an aten operation means stands in `syft.mpc.rules.crt`.

Errors, in units of 1 / base ** precision_fractional, which tests check: encoding at most 1/2; +, -, *, @, sums and
comparisons are exact, here and shared.

NOTE [Products keep their digits]
Residues cannot be rounded, so a product has the fractional digits of both factors together, exactly; the precision
of a node is public and grows. What is added to it is brought to the same precision by a factor. Whatever is made
here has to stay below half the product of the moduli: of values that are here this is checked, of secrets nobody can
look at them, so it is up to who computes, and `float_precision()` decodes to something else if it was exceeded.

NOTE [Shared residues]
Shares live in Z_2^64. A shared residue is any integer of the right remainder; it is brought below its modulus in
size (with either sign) by an exact truncation before it could leave the ring. `magnitude` is a public bound of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.core.hook_args import one, register_backward_func, register_forward_func, register_type_rule
from syft.core.overload import overloaded, overloads_chain
from syft.core.shapes import contiguous_spec
from syft.exceptions import ChainError
from syft.mpc import limbs
from syft.mpc.precision import DEFAULT_BASE, DEFAULT_PRECISION
from syft.mpc.storage import STORAGES, StoredNumbers, with_any_integer
from syft.serde import SerdeError, register

#: The largest primes below 2^21: products of two residues, a million of them added up, fit a machine word.
_moduli_for_fields = {
    "int64": (2097143, 2097133, 2097131, 2097097),
    "int100": (2097143, 2097133, 2097131, 2097097, 2097091),
}
#: How many integers each field has: the product of its moduli.
_sizes_for_fields = {name: math.prod(moduli) for name, moduli in _moduli_for_fields.items()}

DEFAULT_FIELD = "int100"
#: Limits for moduli that somebody else chose.
LARGEST_MODULUS, MOST_MODULI = 1 << 21, 1024


class CRTPrecisionTensor(StoredNumbers):
    """A tensor of reals as residues.

    residues               modulus -> tensor of int64, or a secret of it; the moduli have no common divisors
    base                   the base of the fractional digits
    precision_fractional   how many fractional digits the integers have
    reconstruction_coeffs  modulus -> coefficient of the remainder theorem; made from the moduli, or checked against them
    dtype                  the floating-point dtype to present and to decode to
    magnitude              of shared residues: see NOTE [Shared residues]
    """

    def __init__(
        self,
        residues: Mapping[int, Any] | None = None,
        base: int = DEFAULT_BASE,
        precision_fractional: int = DEFAULT_PRECISION,
        reconstruction_coeffs: Mapping[int, int] | None = None,
        dtype: torch.dtype | None = None,
        magnitude: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (
            type(base) is not int
            or base < 2
            or precision_fractional < 0
            or int(precision_fractional) != precision_fractional
        ):
            raise ValueError(
                f"base={base} and precision_fractional={precision_fractional} do not describe numbers: both "
                "are whole, the "
                "base is at least 2, the number of fractional digits at least 0."
            )
        self.base, self.precision_fractional = base, int(precision_fractional)
        self.presented_dtype, self.magnitude = dtype or torch.get_default_dtype(), magnitude
        self.child: dict[int, Any] = dict(residues or {})
        if self.child:
            _check_residues(self.child)
            self.reconstruction_coeffs = coefficients(tuple(self.child))
            if self.precision_fractional * math.log2(base) > math.log2(self.size):
                raise ValueError(
                    f"base={base} and precision_fractional={precision_fractional} are out of range: a field of "
                    f"2^{math.log2(self.size):.0f} integers holds no number with so many fractional digits."
                )
            if (
                reconstruction_coeffs is not None
                and dict(reconstruction_coeffs) != self.reconstruction_coeffs
            ):
                raise ValueError(
                    "reconstruction_coeffs are not those of the moduli. Leave them out: they follow from the residues."
                )

    @property
    def moduli(self) -> tuple[int, ...]:
        return tuple(self.child)

    @property
    def size(self) -> int:
        """How many integers there are: the product of the moduli."""
        return math.prod(self.child)

    @property
    def scale(self) -> int:
        """How many units make one."""
        return int(self.base**self.precision_fractional)

    @property
    def is_shared(self) -> bool:
        return isinstance(next(iter(self.child.values()), None), AbstractTensor)

    @property
    def is_remote(self) -> bool:
        return self.is_shared

    @property
    def location(self) -> Any:
        return None

    @property
    def id_at_location(self) -> Any:
        return None

    #: Put here by `syft.mpc.rules`: it imports the rules of this class, which stand on it.
    load_rules: ClassVar[Callable[[], None]]

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The rule for the operation. The rules are imported when the first one is asked for."""
        cls.load_rules()
        return super().interpret(func, args, kwargs)

    @property
    def spec(self) -> Any:
        if not self.child:
            raise ChainError(
                "This CRTPrecisionTensor is empty. Make one with x.fix_precision(storage='crt')."
            )
        return contiguous_spec(tuple(next(iter(self.child.values())).shape), self.presented_dtype)

    def get_class_attributes(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "precision_fractional": self.precision_fractional,
            "dtype": self.presented_dtype,
            "magnitude": self.magnitude,
        }

    def with_residues(self, residues: Mapping[int, Any], **changes: Any) -> CRTPrecisionTensor:
        """A node of these attributes, but for `changes`, over other residues."""
        return CRTPrecisionTensor(residues, **{**self.get_class_attributes(), **changes})

    def like(self, child: Any) -> CRTPrecisionTensor:
        return self.with_residues(child)

    def __str__(self) -> str:
        rows = "".join(f"\n\t-> mod {modulus}: {residue}" for modulus, residue in self.child.items())
        return f"CRTPrecisionTensor{rows}"

    __repr__ = __str__

    # -- to and from integers ------------------------------------------------------------------------

    def over(self, integers: Any, **changes: Any) -> CRTPrecisionTensor:
        """A local node over other integers, with the moduli of this one; !! ValueError with the range."""
        made = {m: _remainders(integers, m) for m in self.child}
        node = self.with_residues(made, **{"magnitude": 0, **changes})
        half = self.size // 2
        if any(abs(v) > half for v in integers.flat):
            raise ValueError(
                f"A number is out of the range of this CRTPrecisionTensor: with {node.base}**{node.precision_fractional} "
                f"units to the one, values must be finite and between {-half / node.scale:.6g} and "
                f"{half / node.scale:.6g}. "
                "Products add the fractional digits of their factors: take a smaller precision_fractional, a larger "
                "field_type, or storage='large'."
            )
        return node

    def integers(self) -> Any:
        """The values in units, as a numpy array of Python integers; the residues have to be here."""
        if self.is_shared or not self.child:
            raise ChainError(
                "The residues of this CRTPrecisionTensor are not here. Fetch them with `.get()` first, then call "
                "float_precision()."
            )
        size, half = self.size, self.size // 2
        total = sum(
            residue.numpy().astype(object) * self.reconstruction_coeffs[m]
            for m, residue in self.child.items()
        )
        signed = [(v + half) % size - half for v in (total.flat if hasattr(total, "flat") else [total])]
        return limbs.objects(signed, self.shape)

    def encode(self, value: Any) -> Any:
        """A plain tensor or number in units, as an array of Python integers; !! ValueError for what is not finite."""
        half = self.size // 2 / self.scale
        limits = f"by residues: values must be finite and between {-half:.6g} and {half:.6g}"
        return limbs.in_units(value, self.scale, limits)

    def decode(self) -> torch.Tensor:
        """The values as a plain tensor of the presented dtype."""
        scale, found = self.scale, self.integers()
        made = torch.tensor([v / scale for v in found.flat], dtype=torch.float64)
        return made.to(self.presented_dtype).view(found.shape)

    def float_precision(self) -> torch.Tensor:
        """`decode`."""
        return self.decode()

    def reconstruct(self) -> Any:
        """The values without residues: a LargePrecisionTensor of the same precision."""
        from syft.mpc.large_precision import LargePrecisionTensor

        found = self.integers()
        node = LargePrecisionTensor(
            base=self.base, precision_fractional=self.precision_fractional, dtype=self.presented_dtype
        )
        return new_wrapper(node.over(found))

    # -- sharing --------------------------------------------------------------------------------------

    def shared_by(self, share: Any) -> CRTPrecisionTensor:
        """This node over secret residues; `share` makes a secret of an int64 tensor."""
        if self.is_shared:
            raise ChainError(
                "This tensor is shared already. Use it as it is, or `.get()` it first to share it anew."
            )
        made = {m: share(residue) for m, residue in self.child.items()}
        return self.with_residues(made, magnitude=max(self.child))

    def share(self, *owners: Any, field: int | None = None, crypto_provider: Any = None) -> Any:
        """The node over residues that are split among `owners`."""
        from syft.mpc.methods import share

        return share(new_wrapper(self), *owners, field=field, crypto_provider=crypto_provider, no_wrap=True)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch the residues. Then call float_precision()."""
        if not self.is_shared:
            raise ChainError(
                "get() was called on a CRTPrecisionTensor whose residues are here already. Call float_precision()."
            )
        return new_wrapper(self._opened({m: secret.get() for m, secret in self.child.items()}))

    def virtual_get(self) -> CRTPrecisionTensor:
        """The value without removing shares; only for workers in this process."""
        return self._opened({m: secret.virtual_get() for m, secret in self.child.items()})

    def _opened(self, values: dict[int, torch.Tensor]) -> CRTPrecisionTensor:
        return self.with_residues({m: value % m for m, value in values.items()}, magnitude=0)

    @staticmethod
    @overloaded.module
    def torch(module: Any) -> None:
        """Operators that take a Python integer of any size."""
        for name in "add sub mul div eq ne gt lt ge le __rsub__".split():
            setattr(module, name, overloads_chain(with_any_integer(name)))


def _remainders(integers: Any, modulus: int) -> torch.Tensor:
    return torch.tensor([v % modulus for v in integers.flat], dtype=torch.int64).view(integers.shape)


def coefficients(moduli: tuple[int, ...]) -> dict[int, int]:
    """modulus -> the number that is 1 modulo it and 0 modulo all others."""
    size = math.prod(moduli)
    return {m: size // m * pow(size // m, -1, m) for m in moduli}


def _check_residues(residues: dict[int, Any]) -> None:
    if len(residues) > MOST_MODULI or any(
        type(m) is not int or not 1 < m < LARGEST_MODULUS for m in residues
    ):
        raise ValueError(
            f"The moduli of a CRTPrecisionTensor are up to {MOST_MODULI} whole numbers from 2 to {LARGEST_MODULUS - 1}."
        )
    if math.lcm(*residues) != math.prod(residues):
        raise ValueError(
            f"The moduli {', '.join(map(str, residues))} have common divisors. Take primes, or numbers without any."
        )
    for modulus, residue in residues.items():
        plain = isinstance(residue, torch.Tensor) and type(residue) is not Wrapper
        if not (isinstance(residue, AbstractTensor) or (plain and residue.dtype == torch.int64)):
            raise TypeError(
                f"A residue of a CRTPrecisionTensor is a tensor of int64; a {type(residue).__name__} was found."
            )
        if plain and residue.numel() and not (residue.min() >= 0 and residue.max() < modulus):
            raise ValueError(f"A residue modulo {modulus} is not from 0 to {modulus - 1}.")
    if len({tuple(r.shape) for r in residues.values()}) > 1:
        raise ValueError("The residues of a CRTPrecisionTensor do not have the same shape.")
    if len({type(r) for r in residues.values()}) > 1:
        raise ValueError("Some residues of a CRTPrecisionTensor are shared and others are not.")


def fixed_crt(
    tensor: Any,
    precision_fractional: int = DEFAULT_PRECISION,
    base: int = DEFAULT_BASE,
    field_type: str = DEFAULT_FIELD,
    field: int | None = None,
    verbose: bool = True,
) -> Any:
    """`tensor.fix_precision(storage="crt", field_type=...)`. There is nothing that `verbose` would tell."""
    if field_type not in _moduli_for_fields:
        names = ", ".join(repr(name) for name in _moduli_for_fields)
        raise ValueError(f"fix_precision(field_type={field_type!r}): the fields are {names}.")
    if field is not None:
        raise ValueError(
            f"fix_precision(storage='crt', field={field}): the field is named, by field_type. Leave field out."
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "A tensor that requires grad has no form as residues, which keep no gradients. Encode x.detach()."
        )
    empty = {m: torch.zeros(0, dtype=torch.int64) for m in _moduli_for_fields[field_type]}
    presented = tensor.dtype if tensor.is_floating_point() else None
    template = CRTPrecisionTensor(empty, base, precision_fractional, dtype=presented)
    return new_wrapper(template.over(template.encode(tensor)))


STORAGES["crt"] = fixed_crt

register_type_rule({CRTPrecisionTensor: one})
register_forward_func({CRTPrecisionTensor: lambda node: node.child})
register_backward_func(
    {CRTPrecisionTensor: lambda child, **attributes: CRTPrecisionTensor(child, **attributes)}
)


def _parts(_me: Any, node: CRTPrecisionTensor) -> tuple[Any, ...]:
    identity = (node._id, node.tags, node.description)
    return (*identity, *node.get_class_attributes().values(), list(node.child), list(node.child.values()))


def _again(_me: Any, parts: Any) -> CRTPrecisionTensor:
    obj_id, tags, description, base, precision, dtype, magnitude, moduli, residues = parts
    if len(moduli) != len(residues) or not moduli or len(set(moduli)) != len(moduli):
        raise SerdeError("A CRTPrecisionTensor has one residue for each modulus.")
    if not dtype.is_floating_point or not 0 <= magnitude < 1 << 62:
        raise SerdeError("The numbers that a CRTPrecisionTensor says it holds cannot be its own.")
    if any(not isinstance(r, (torch.Tensor, AbstractTensor)) for r in residues):
        raise SerdeError("A residue of a CRTPrecisionTensor is no tensor.")
    try:
        return CRTPrecisionTensor(
            dict(zip(moduli, residues, strict=True)),
            base,
            precision,
            dtype=dtype,
            magnitude=magnitude,
            id=obj_id,
            tags=tags,
            description=description,
        )
    except (ValueError, TypeError) as error:
        raise SerdeError(f"A CRTPrecisionTensor arrived that cannot be: {error}") from error


register(
    CRTPrecisionTensor,
    "CRTPrecisionTensor",
    _parts,
    _again,
    fields=tuple[int | str | None, set[str], str | None, int, int, torch.dtype, int, list[int], list[Any]],
)
