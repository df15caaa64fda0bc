"""Methods of tensors that run where the tensor is: `pointer.fix_precision()` and `pointer.share(alice, bob)`.

As in the documented programs the result is a pointer to the chain that the worker has made, so `worker._objects` holds a
FixedPrecisionTensor or a secret, and one `get()` brings that chain here.

Making a chain looks at values (they have to be in range), and a worker computes on chains without the table of admitted
operations. So this is for workers in this process that serve no strangers, and for values that nobody restricted. For
all others the client keeps the node and the worker the integers.
"""

from __future__ import annotations

from typing import Any

from syft.core.chain import Wrapper, new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.messaging.message import CallMethodMessage
from syft.tensors.pointer import PointerTensor, new_pointer


def is_open_there(tensor: Any) -> bool:
    """Whether a tensor is a pointer to a value on which its worker runs methods of this library."""
    pointer = tensor.child if type(tensor) is Wrapper else None
    if not isinstance(pointer, PointerTensor) or not pointer.location.is_in_process:
        return False
    worker, obj_id = pointer.location, pointer.id_at_location
    if worker.policy.is_guarded or pointer.point_to_attr is not None:
        return False
    return obj_id not in worker._objects or worker.allowed_users(obj_id) is None


def made_there(tensor: Any, method: str, *args: Any, **kwargs: Any) -> Wrapper:
    """A pointer to what the method returns, made and kept at the worker that has the tensor."""
    pointer: PointerTensor = tensor.child
    new_id = ID_PROVIDER.pop()
    spec = pointer.ask(CallMethodMessage(pointer.id_at_location, method, args, kwargs, new_id))
    return new_wrapper(new_pointer(pointer.location, new_id, spec))
