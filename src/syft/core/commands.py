"""The command guard: which operations a worker runs, by name.

The vocabulary is closed. A name is looked up in tables made from torch's own lists; it is never
evaluated, and never reaches `getattr` before it has been found there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from syft.core.public_names import known_functions
from syft.exceptions import UnknownCommandError

#: Namespaces of torch's own operators.
NAMESPACES = ("aten", "torch_nn")

#: aten operations that read files, print, talk to a profiler, hand out raw memory or storages, or trust
#: indices without checking them.
REFUSED_ATEN = frozenset(
    """from_file save _print _assert_scalar _functional_assert_scalar set_ set_data data_ptr record_stream
    _cuda_getCurrentRawStream _local_scalar_dense item is_nonzero _test_check_tensor _pin_memory pin_memory
    is_pinned _version retains_grad retain_grad requires_grad_ _backward output_nr rename rename_ align_as
    _share_memory resize_storage_bytes_ _resize_output_ storage_offset resize_as_sparse_ _nnpack_available
    _unsafe_index_put_ _sparse_coo_tensor_unsafe _sparse_compressed_tensor_unsafe _sparse_csr_tensor_unsafe
    _sparse_csc_tensor_unsafe _sparse_bsr_tensor_unsafe _sparse_bsc_tensor_unsafe""".split()
)

#: Public names that leave the tensor world (Python values, callbacks, storages, autograd, files).
REFUSED_PUBLIC = frozenset(
    """apply_ map_ map2_ numpy tolist item data_ptr storage untyped_storage storage_type share_memory_
    backward register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ module_load set_
    record_stream to_dense_backward pin_memory resize_ resize_as_ torch.from_file torch.save torch.load
    torch.set_printoptions torch.nn.functional.handle_torch_function""".split()
)

_OPERATOR_DUNDERS = frozenset(
    f"__{prefix}{name}__"
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
    for prefix in ("", "r", "i")
) | frozenset(
    "__neg__ __abs__ __invert__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __getitem__ __setitem__".split()
)

#: Operations whose result is uninitialised memory, which may have held somebody else's data.
UNINITIALISED = frozenset(
    """empty empty_like empty_strided empty_permuted new_empty new_empty_strided _empty_affine_quantized
    torch.empty torch.empty_like torch.empty_strided torch.empty_permuted""".split()
)


@cache
def aten_operations() -> frozenset[str]:
    """Names such as 'aten.add.Tensor' of all aten overloads a worker may run."""
    names = set()
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, signature = full.partition("::")
        name, _, overload = signature.partition(".")
        if namespace in NAMESPACES and name not in REFUSED_ATEN:
            names.add(f"{namespace}.{name}.{overload or 'default'}")
    return frozenset(names)


@cache
def public_operations() -> frozenset[str]:
    """Names such as 'torch.add', 'add' and 'torch.nn.functional.relu' that a worker may run."""
    return frozenset(name for name in known_functions() if _is_allowed_public(name))


def _is_allowed_public(name: str) -> bool:
    if name in REFUSED_PUBLIC:
        return False
    last = name.rpartition(".")[2]
    if last.startswith("__"):
        return name in _OPERATOR_DUNDERS
    return not last.startswith("_") and not any(part.startswith("_") for part in name.split("."))


class KnownCommand:
    """A command that passed the guard."""

    __slots__ = ("function", "leaves_memory_uninitialised", "name")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        parts = name.split(".")
        self.leaves_memory_uninitialised = (parts[1] if parts[0] in NAMESPACES else name) in UNINITIALISED


_known: dict[str, KnownCommand] = {}


def command_named(name: str) -> KnownCommand:
    """The torch operation of that name; anything else !! UnknownCommandError naming it."""
    try:
        return _known[name]
    except (KeyError, TypeError):
        pass
    if not isinstance(name, str):
        raise UnknownCommandError(repr(name))
    if name in aten_operations():
        namespace, packet, overload = name.split(".")
        known = KnownCommand(name, getattr(getattr(getattr(torch.ops, namespace), packet), overload))
    elif name in public_operations():
        known = KnownCommand(name, known_functions()[name])
    else:
        raise UnknownCommandError(name)
    _known[name] = known
    return known
