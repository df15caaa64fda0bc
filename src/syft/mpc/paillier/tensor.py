"""`PaillierTensor`: the end of a chain whose values are Paillier ciphertexts.

NOTE [Numbers as ciphertexts]
A plaintext is an integer mod n, read as signed. A real x is round(x 2^f); f, the number of fractional bits, is one
public number for the whole tensor and depends on what was done, never on values (an exponent per value, in the clear,
would tell its size). Fresh reals have FRACTION bits; a product with a public real adds
as many. Nothing can be truncated, so numbers grow: `bound` is a public limit of their bits, from dtypes and operations
alone, and an operation whose result might not fit below n / 2 is refused.

NOTE [Blinding]
What an operation returns is a product of its inputs, and so may tell more than its plaintext: whoever has the private key
could find the weights of a sum in it. So results are multiplied by a fresh r^n when they leave (are sent, fetched,
copied or serialised), and not before, because that is the expensive part.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.core.hook_args import (
    get_child,
    one,
    register_backward_func,
    register_forward_func,
    register_type_rule,
)
from syft.core.overload import overloaded, overloads_chain
from syft.core.shapes import contiguous_spec
from syft.exceptions import ChainError, UnsupportedOperationError
from syft.mpc.paillier.keys import MAX_BITS, PaillierPrivateKey, PaillierPublicKey
from syft.serde import SerdeError, register

#: Fractional bits of a fresh real, and of a public real that is multiplied with or added.
FRACTION = 48
#: Bits of a real below 2^80 with that many, and of an integer.
REAL_BITS, INTEGER_BITS = 80 + FRACTION, 64

#: What can be encrypted.
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)


def matrix_product(input: Any, mat2: Any) -> Any:
    """`mm`, where two vectors give their dot product, and a vector and a matrix what `@` gives."""
    return torch.matmul(input, mat2) if 1 in (input.dim(), mat2.dim()) else torch.ops.aten.mm(input, mat2)


class PaillierTensor(AbstractTensor):
    """Numbers that only the holder of the private key can read, and anybody can add and scale.

    public_key  what they are encrypted under
    fraction    fractional bits of the plaintexts
    bound       bits that a plaintext has at most
    dtype       the dtype presented, and of the decrypted tensor
    is_fresh    whether the ciphertexts are blinded, see NOTE [Blinding]

    `.child` is a numpy array of Python integers. Nothing that is printed shows a part of it.
    """

    passes_unknown_ops = False

    def __init__(
        self,
        public_key: PaillierPublicKey | None = None,
        fraction: int = 0,
        bound: int = INTEGER_BITS,
        dtype: torch.dtype = torch.int64,
        is_fresh: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.public_key, self.fraction, self.bound = public_key, fraction, bound
        self.presented_dtype, self.is_fresh = dtype, is_fresh

    def get_class_attributes(self) -> dict[str, Any]:
        return {
            "public_key": self.public_key,
            "fraction": self.fraction,
            "bound": self.bound,
            "dtype": self.presented_dtype,
        }

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = cls.aten_rules.get(func)
        if found is None:
            raise UnsupportedOperationError(
                str(func),
                cls,
                "Ciphertexts can be added, subtracted, summed, rearranged, and multiplied by plain numbers and matrices, "
                "not in place. Decrypt first, or encrypt with protocol='mpc'.",
            )
        return found(cls, func, args, kwargs)

    @property
    def spec(self) -> Any:
        if self.child is None:
            raise ChainError(
                "This PaillierTensor is empty. Make one with tensor.encrypt(protocol='paillier', ...)."
            )
        return contiguous_spec(tuple(self.child.shape), self.presented_dtype)

    def __str__(self) -> str:
        return f"PaillierTensor>{tuple(self.child.shape)} under {self.public_key}"

    __repr__ = __str__

    # -- in and out --------------------------------------------------------------------------------

    def encrypt(self: Any, public_key: PaillierPublicKey) -> PaillierTensor:
        """The values of a plain tensor, or of the one that this node stands on; !! for what has no encoding."""
        if isinstance(self, PaillierTensor):
            self._check_is_plain("encrypt")
            return PaillierTensor.encrypt(self.child, public_key)
        tensor: torch.Tensor = self
        if tensor.dtype not in DTYPES:
            raise TypeError(
                f"A tensor of {tensor.dtype} cannot be encrypted. Take one of reals or integers, e.g. with `.long()`."
            )
        values = encode(tensor, FRACTION if tensor.is_floating_point() else 0)
        node = PaillierTensor(public_key, *kind_of(tensor), tensor.dtype, is_fresh=True)
        node.child = each(public_key.encrypt, values)
        return node

    def _check_is_plain(self, method: str) -> None:
        if not isinstance(self.child, torch.Tensor) or type(self.child) is Wrapper:
            raise ChainError(
                f"{method}() was called on a PaillierTensor that does not stand on a plain tensor: it is empty, or "
                f"encrypted already. Call it once, or use tensor.{method}(public_key)."
            )

    def encrypt_(self, public_key: PaillierPublicKey) -> PaillierTensor:
        """Encrypt the plain tensor that this node stands on: PaillierTensor().on(x, wrap=False).encrypt_(key)."""
        self._check_is_plain("encrypt_")
        made = PaillierTensor.encrypt(self.child, public_key)
        for name, value in made.get_class_attributes().items():
            setattr(self, "presented_dtype" if name == "dtype" else name, value)
        self.child, self.is_fresh = made.child, True
        return self

    def decrypt(self, private_key: PaillierPrivateKey) -> torch.Tensor:
        """The values as a plain tensor."""
        if private_key.public_key != self.public_key:
            raise ValueError(
                f"This tensor is encrypted under {self.public_key}; the private key is that of "
                f"{private_key.public_key}. Use the one that keygen() returned with the public key."
            )
        values = [private_key.decrypt(c) for c in self.child.flat]
        if any(abs(v).bit_length() > self.bound for v in values):
            raise ValueError(
                "This tensor decrypts to numbers larger than it says they can be: it was not made with this library, "
                "or was changed on the way."
            )
        shape = self.child.shape
        if self.presented_dtype.is_floating_point:
            reals = [_quotient(v, self.fraction) for v in values]
            return torch.tensor(reals, dtype=torch.float64).to(self.presented_dtype).view(shape)
        limits = torch.iinfo(self.presented_dtype)
        if any(not limits.min <= v <= limits.max for v in values):
            raise ValueError(
                f"A result does not fit into {self.presented_dtype}. Call `.double()` on it before decrypting."
            )
        return torch.tensor(values, dtype=torch.int64).to(self.presented_dtype).view(shape)

    def blinded(self) -> PaillierTensor:
        """The same values under fresh randomness, see NOTE [Blinding]."""
        made = PaillierTensor(**self.get_class_attributes(), is_fresh=True)
        made.child = each(self.key.blind, self.child)
        return made

    @property
    def key(self) -> PaillierPublicKey:
        if self.public_key is None:
            raise ChainError(
                "This PaillierTensor has no key. Make one with tensor.encrypt(protocol='paillier', ...)."
            )
        return self.public_key

    @staticmethod
    @overloaded.module
    def torch(module: Any) -> None:
        """The matrix product also takes vectors, as numpy's does."""
        # NB: torch.spmm and torch.mm are one function, which torch reports under the first name.
        module.mm = module.spmm = overloads_chain(matrix_product)


def _quotient(value: int, fraction: int) -> float:
    try:
        return value / (1 << fraction)
    except OverflowError:
        return math.copysign(math.inf, value)


def each(function: Any, *arrays: Any) -> Any:
    """The function of the elements of object arrays (that broadcast), as an object array."""
    made = np.frompyfunc(function, len(arrays), 1)(*arrays)
    return made if isinstance(made, np.ndarray) else objects([made], ())


def objects(values: Any, shape: Any) -> Any:
    """Python integers as an object array."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made.reshape(shape)


def kind_of(value: Any) -> tuple[int, int]:
    """(fraction, bound) of a plain operand: told by its kind, not by its value."""
    is_real = value.is_floating_point() if isinstance(value, torch.Tensor) else isinstance(value, float)
    return (FRACTION, REAL_BITS) if is_real else (0, INTEGER_BITS)


def encode(value: Any, fraction: int) -> Any:
    """A plain tensor or number as integers with that many fractional bits."""
    if isinstance(value, torch.Tensor) and value.dtype not in (*DTYPES, torch.bool):
        raise TypeError(
            f"A tensor of {value.dtype} was combined with encrypted numbers. Convert it to a real or integer dtype first."
        )
    tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(value)
    if not tensor.is_floating_point():
        return objects([int(v) << fraction for v in tensor.flatten().tolist()], tensor.shape)
    reals = (
        tensor.double() if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)
    ).flatten()
    if not bool((reals.abs() < 2.0 ** (REAL_BITS - FRACTION)).all()):
        raise ValueError(
            "A real that is not finite, or not below 2^80, cannot be encrypted, nor meet ciphertexts. Scale the data."
        )
    whole = [round(math.ldexp(v, FRACTION)) << (fraction - FRACTION) for v in reals.tolist()]
    return objects(whole, tensor.shape)


register_type_rule({PaillierTensor: one})
register_forward_func({PaillierTensor: get_child})
register_backward_func(
    {PaillierTensor: lambda child, **attributes: PaillierTensor(child=child, **attributes)}
)


def _parts(_me: Any, node: PaillierTensor) -> tuple[Any, ...]:
    sent = node if node.is_fresh else node.blinded()
    width = node.key.cipher_bytes
    data = b"".join(int(c).to_bytes(width, "big") for c in sent.child.flat)
    described = (node.key, node.fraction, node.bound, node.presented_dtype, list(node.child.shape))
    return (node._id, node.tags, node.description, *described, data)


def _again(_me: Any, parts: Any) -> PaillierTensor:
    obj_id, tags, description, key, fraction, bound, dtype, shape, data = parts
    width = key.cipher_bytes
    if any(size < 0 for size in shape) or math.prod(shape) * width != len(data):
        raise SerdeError("The ciphertexts of a PaillierTensor are not as many as its shape says.")
    if dtype not in DTYPES or not 0 <= fraction <= MAX_BITS or not 0 < bound <= key.bits - 2:
        raise SerdeError("The numbers that a PaillierTensor says it holds cannot be what its key encrypts.")
    if not dtype.is_floating_point and fraction:
        raise SerdeError("A PaillierTensor of integers says that they have fractions.")
    ciphers = [int.from_bytes(data[i : i + width], "big") for i in range(0, len(data), width)]
    if any(not 0 < c < key.n_squared for c in ciphers):
        raise SerdeError("A PaillierTensor holds what is not a ciphertext of its key.")
    node = PaillierTensor(
        key, fraction, bound, dtype, is_fresh=True, id=obj_id, tags=tags, description=description
    )
    node.child = objects(ciphers, tuple(shape))
    return node


register(
    PaillierTensor,
    "PaillierTensor",
    _parts,
    _again,
    fields=tuple[
        int | str | None, set[str], str | None, PaillierPublicKey, int, int, torch.dtype, list[int], bytes
    ],
    incompressible=True,
)
