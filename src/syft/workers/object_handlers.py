"""Calls of methods, most of them of objects that are not tensors; adds itself to the table in `handlers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.interfaces import Worker
from syft.exceptions import CannotRequestObjectAttribute
from syft.messaging.message import CallMethodMessage
from syft.tensors import string  # registers the pointer of strings
from syft.tensors.object_wrapper import POINTERS, ObjectWrapper
from syft.tensors.sending import spec_when_sent
from syft.tensors.text_sizes import bytes_of_method
from syft.workers import handlers, pipeline

#: What a method is given beside texts, and lists and slices of these. Nothing that a computation made is among them:
#: a tensor would be taken for a number, and a result of its size would tell which.
_PLAIN = (str, int, type(None), string.String)


#: Methods of tensors that make another tensor of one, where it is: see `syft.mpc.made_there`.
TENSOR_METHODS: dict[str, Callable[..., Any]] = {}


def call_tensor_method(worker: Worker, message: CallMethodMessage, tensor: torch.Tensor) -> Any:
    """Call a method from the table; replies the metadata of the result.

    Such a method looks at values and fails by them, so nobody calls it on what is restricted or serves strangers.
    """
    method = TENSOR_METHODS.get(message.method)
    call = pipeline.permit(worker, message, (message.id,), (message.return_id,), message.method)
    if method is None or not call.is_free:
        raise CannotRequestObjectAttribute(
            f"The method {str(message.method)[:60]!r} of a tensor cannot be called on worker {worker.id!r}. Send the "
            "operations of torch that it consists of."
        )
    made = method(tensor, *message.args, **message.kwargs)
    call.keep(message.return_id, made)
    return spec_when_sent(made)


def call_method(worker: Worker, message: CallMethodMessage) -> Any:
    """Call a method that the class of the object lists in `remote_methods`.

    Whether it fails and how large its result is shows, so it is called only for those who may fetch all that it uses.
    """
    obj = worker.get_obj(message.id)
    if isinstance(obj, torch.Tensor):
        return call_tensor_method(worker, message, obj)
    allowed_methods: frozenset[str] = getattr(type(obj), "remote_methods", frozenset())
    if message.method not in allowed_methods:
        raise CannotRequestObjectAttribute(
            f"A {type(obj).__name__} has no method {str(message.method)[:60]!r} that can be called remotely. "
            f"It has: {', '.join(sorted(allowed_methods)) or 'none'}."
        )
    ids = [message.id, *pipeline.referenced_ids((message.args, message.kwargs))]
    call = pipeline.permit(worker, message, ids, (message.return_id,), message.method)
    args = pipeline.resolve(worker, message.args)
    kwargs = dict(zip(message.kwargs, pipeline.resolve(worker, message.kwargs.values()), strict=True))
    for value in (*args, *kwargs.values()):
        _refuse_unless_plain(value, message.method)
    call.check_get("call a method on")
    if worker._holdings is not None and type(obj) is string.String:
        call.check_fits(bytes_of_method(message.method, obj.child, args, kwargs))
    # The name is one of a fixed list of the class, checked above; an attribute of the object may hide its method.
    method = getattr(type(obj), message.method)
    result = pipeline.run_discreetly(
        lambda: method(obj, *args, **kwargs), message.method, call.allowed is None
    )
    kept = result if hasattr(result, "id") else ObjectWrapper(result)
    call.keep(message.return_id, kept)
    return handlers.found_of(worker, message.return_id)


def _refuse_unless_plain(value: Any, method: str) -> None:
    """!! TypeError for an argument that is no text, whole number, bool, None, nor a list or slice of these."""
    parts: Any = (value,)
    if type(value) in (list, tuple):
        parts = value
    elif type(value) is slice:
        parts = (value.start, value.stop, value.step)
    elif type(value) is dict:  # the table of `translate`
        parts = (*value.keys(), *value.values())
    for part in parts:
        if type(part) is not bool and type(part) not in _PLAIN:
            raise TypeError(
                f"The method {method} was called with a {type(part).__name__}. Methods of a text take texts, whole "
                "numbers and lists of texts: pass a str or an int, or a pointer to a String."
            )


handlers.HANDLERS[CallMethodMessage] = call_method
for _kind in ("object", "callable", string.String.pointer_kind):
    handlers.POINTER_KINDS[_kind] = POINTERS[_kind]
