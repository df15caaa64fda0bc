"""Which functions a plan may name: public torch functions that a worker would run one by one, too."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from syft.core.commands import KnownCommand, command_named, public_operations
from syft.core.public_names import known_functions, public_name
from syft.exceptions import UnknownCommandError

#: Hands out memory that held somebody else's data. Workers run its aten form and clear it.
_REFUSED = frozenset({"resize", "resize_as"})

#: Reading these of a tensor tells nothing of its values.
METADATA = frozenset(
    """size dim ndimension nelement numel stride storage_offset element_size is_floating_point is_complex is_signed
    is_contiguous is_conj is_neg is_inference is_pinned is_shared is_same_size is_nonzero_size has_names get_device
    __len__ __hash__ __dir__ __repr__ __format__ torch.numel torch.is_tensor torch.is_storage torch.is_floating_point
    torch.is_complex torch.is_conj torch.is_neg torch.is_inference torch.is_same_size torch.result_type
    torch.can_cast torch.promote_types torch.get_device dim_order""".split()
)

#: What user code learns by reading these methods and properties of a tensor. Any other tells everything.
READS: dict[str, frozenset[str]] = {
    name: frozenset(told.split())
    for names, told in (
        ("numel nelement stride storage_offset is_contiguous __len__", "sizes"),
        ("size shape is_same_size dim_order", "sizes rank"),
        ("nbytes", "sizes dtype"),
        ("dim ndimension ndim T", "rank"),
        ("dtype element_size itemsize is_floating_point is_complex is_signed is_conj is_neg", "dtype"),
        ("result_type can_cast promote_types new_tensor", "dtype rank"),
        (
            "is_inference is_pinned is_shared has_names get_device __hash__ is_tensor is_storage device layout",
            "",
        ),
        ("is_cpu is_cuda is_meta is_sparse is_leaf requires_grad grad grad_fn data real imag mT H mH", ""),
    )
    for name in names.split()
}
ALL_READS = frozenset({"sizes", "rank", "dtype"})


@cache
def plan_operations() -> frozenset[str]:
    """The names that operations of a plan may have."""
    return public_operations() - _REFUSED


def plan_command(name: str) -> KnownCommand:
    """The function of a name; anything but a public torch function !! UnknownCommandError naming it."""
    if not isinstance(name, str) or name not in plan_operations():
        raise UnknownCommandError(name if isinstance(name, str) else repr(name))
    return command_named(name)


@cache
def _names() -> dict[Any, str]:
    """Names of functions that torch's own list of names leaves out."""
    names = {function: name for name, function in known_functions().items() if name.startswith("torch.")}
    native = vars(torch).get("native_tensor")
    if native is not None:
        names[native] = "torch.tensor"
    return names


def name_of(func: Any) -> str:
    """The name under which a plan records a function."""
    name = public_name(func)
    if name in plan_operations():
        return name
    return _names().get(func, name)
