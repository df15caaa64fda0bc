"""`PlaceHolder`: a tensor of a plan, by name and number instead of by value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.hook_args import default_register_tensor
from syft.execution import protobuf
from syft.execution.inputs import Fit


class PlaceHolder(AbstractTensor):
    """Stands for a tensor of a plan.

    tags      `#3` (its number in the plan, from 1), and `#input-0`, `#output-1`, `#state` or `#constant`
    shape     what is known of the tensor it stands for; -1 is any size
    """

    def __init__(
        self,
        owner: Any = None,
        id: Any = None,
        tags: Iterable[str] | None = None,
        description: str | None = None,
        shape: tuple[int, ...] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(id=id, owner=owner, tags=tags, description=description)
        self.expected_shape = shape
        self.expected_dtype = dtype
        #: what else the tensor may be, for an input of a plan
        self.expected_others: Fit | None = None

    @staticmethod
    def create_from(tensor: Any, owner: Any = None, tags: Iterable[str] | None = None) -> PlaceHolder:
        """A placeholder with this tensor in it and with its id."""
        made = PlaceHolder(owner, tensor.id, tags, None, tuple(tensor.shape), tensor.dtype)
        return made.instantiate(tensor)

    def instantiate(self, tensor: Any) -> PlaceHolder:
        """Put a tensor in; returns self."""
        self.child = tensor
        return self

    def copy(self) -> PlaceHolder:
        """Another placeholder of the same tags, with the same tensor in it if there is one."""
        made = PlaceHolder(
            self._owner, self._id, self.tags, self.description, self.expected_shape, self.expected_dtype
        )
        made.expected_others = self.expected_others
        return made.instantiate(self.child)

    def __str__(self) -> str:
        tags = " ".join(sorted(self.tags, key=_tag_order))
        inside = "" if self.child is None else f">{type(self.child).__name__}{tuple(self.child.shape)}"
        return f"PlaceHolder[{tags}]{inside}"

    __repr__ = __str__

    @staticmethod
    def simplify(worker: Any, tensor: PlaceHolder) -> tuple[Any, ...]:
        """The attributes of a placeholder as a tuple."""
        return (
            tensor._id,
            frozenset(tensor.tags),
            tensor.description,
            tensor.expected_shape,
            tensor.expected_dtype,
            tensor.child,
        )

    @staticmethod
    def detail(worker: Any, tensor_tuple: tuple[Any, ...]) -> PlaceHolder:
        """A placeholder from its attributes."""
        id, tags, description, shape, dtype, child = tensor_tuple
        return PlaceHolder(worker, id, tags, description, shape, dtype).instantiate(child)

    @staticmethod
    def bufferize(worker: Any, tensor: PlaceHolder) -> Any:
        """The placeholder as a Protocol Buffer (`PlaceHolderPB`)."""
        return protobuf.bufferize(worker, tensor)

    @staticmethod
    def unbufferize(worker: Any, protobuf_placeholder: Any) -> PlaceHolder:
        """The placeholder of a `PlaceHolderPB`."""
        made: PlaceHolder = protobuf.unbufferize(worker, protobuf_placeholder, PlaceHolder)
        return made


def tag_sort(keyword: str) -> Callable[[PlaceHolder], int]:
    """A key to sort placeholders by: the number in the tag that begins with `#keyword-`, as in `#input-2`."""

    def number(placeholder: PlaceHolder) -> int:
        found = [t.removeprefix(f"#{keyword}-") for t in placeholder.tags if t.startswith(f"#{keyword}-")]
        if not found or not found[0].isdigit():
            raise ValueError(
                f"tag_sort({keyword!r}) was given {placeholder}, which has no tag #{keyword}-<number>. Sort the "
                f"placeholders that plan.find_placeholders('#{keyword}') returns."
            )
        return int(found[0])

    return number


def _tag_order(tag: str) -> tuple[int, str]:
    number = tag.removeprefix("#")
    return (0, number.zfill(9)) if number.isdigit() else (1, tag)


default_register_tensor(PlaceHolder)
