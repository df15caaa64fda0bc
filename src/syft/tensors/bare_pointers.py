"""`BarePointer`: what programs of 2020 ask of a pointer itself, `x.child`, instead of its chain.

Each is the method of the chain, and returns a bare pointer again.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.abstract import AbstractTensor, Command, run_public_command
from syft.core.chain import new_wrapper
from syft.core.shapes import contiguous_spec
from syft.core.spec import TensorSpec


class BarePointer:
    """Methods of chains for the node of a `PointerTensor`."""

    _spec: TensorSpec

    def _as_chain(self: Any) -> Any:
        return self.chain() or new_wrapper(self)

    def wrap(self: Any, type: Any = None, register: bool = False, **kwargs: Any) -> torch.Tensor:
        """`Wrapper > pointer`; `register` makes its owner keep it."""
        chain = AbstractTensor.wrap(self, type, **kwargs)
        if register:
            self.owner.register_obj(chain, self.id)
        return chain

    @staticmethod
    def create_pointer(
        tensor: Any,
        location: Any = None,
        id_at_location: Any = None,
        register: bool = False,
        owner: Any = None,
        ptr_id: Any = None,
        garbage_collect_data: bool = True,
        shape: Any = None,
    ) -> Any:
        """A bare pointer to a tensor that a worker holds already."""
        made = tensor.create_pointer(
            location, id_at_location, register, owner, ptr_id, garbage_collect_data, shape
        )
        return made.child

    @property
    def shape(self: Any) -> torch.Size:
        return self._spec.shape  # type: ignore[no-any-return]

    @shape.setter
    def shape(self: Any, new_shape: Any) -> None:
        self._spec = contiguous_spec(tuple(new_shape), self._spec.dtype)

    def get_shape(self: Any) -> torch.Size:
        """The shape, asked of the worker."""
        return torch.Size(self.owner.request_remote_tensor_shape(self))

    def dim(self: Any) -> int:
        return len(self.shape)

    @property
    def data(self: Any) -> Any:
        """The same value without its history. A node has no history: that is the wrapper's."""
        return self

    @data.setter
    def data(self: Any, new_data: Any) -> None:
        """Write another value, a pointer to the same worker, into the remote tensor."""
        with torch.no_grad():
            new_wrapper(self).copy_(new_data if isinstance(new_data, torch.Tensor) else new_wrapper(new_data))

    def move(self: Any, location: Any) -> Any:
        """A pointer to the value on another worker."""
        return _bare(self._as_chain().move(location))

    def remote_send(self: Any, destination: Any, change_location: bool = False) -> Any:
        """A pointer to a pointer: the worker sends the value on."""
        return self._as_chain().remote_send(destination, change_location).child

    def remote_get(self: Any) -> Any:
        """This pointer, after the worker has fetched what the pointer there points to."""
        return self._as_chain().remote_get().child

    def fix_prec(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._as_chain().fix_prec(*args, **kwargs).child

    def float_prec(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _bare(self._as_chain().float_prec(*args, **kwargs))

    def share(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._as_chain().share(*args, **kwargs).child

    def share_(self: Any, *args: Any, **kwargs: Any) -> Any:
        """`share`; the chain of this pointer, if there is one, becomes the secret."""
        return self._as_chain().share_(*args, **kwargs).child

    @classmethod
    def handle_func_command(cls, command: Command) -> Any:
        return run_public_command(cls, command)


def _bare(tensor: Any) -> Any:
    return tensor.child if tensor.is_wrapper else tensor
