"""Messages about objects that are not tensors; adds itself to the table in `handlers`."""

from __future__ import annotations

from typing import Any

from syft.exceptions import CannotRequestObjectAttribute
from syft.messaging.message import CallMethodMessage
from syft.tensors import string  # registers the pointer of strings
from syft.tensors.object_wrapper import POINTERS, ObjectWrapper
from syft.workers import executor, handlers
from syft.workers.caller import user_of
from syft.workers.restricted import refuse_overwriting


def call_method(worker: Any, message: CallMethodMessage) -> Any:
    """Call a method that the class of the object lists in `remote_methods`."""
    obj = worker.get_obj(message.id)
    allowed_methods: frozenset[str] = getattr(type(obj), "remote_methods", frozenset())
    if message.method not in allowed_methods:
        raise CannotRequestObjectAttribute(
            f"A {type(obj).__name__} has no method {str(message.method)[:60]!r} that can be called remotely. "
            f"It has: {', '.join(sorted(allowed_methods)) or 'none'}."
        )
    refuse_overwriting(worker, (message.return_id,), user_of(message))
    args = executor.resolve(worker, message.args)
    kwargs = dict(zip(message.kwargs, executor.resolve(worker, message.kwargs.values()), strict=True))
    allowed = executor.allowed_on_all(
        worker, [message.id, *executor.referenced_ids((message.args, message.kwargs))]
    )
    # The name is one of a fixed list of the class, checked above; an attribute of the object may hide its method.
    method = getattr(type(obj), message.method)
    result = executor.run_discreetly(lambda: method(obj, *args, **kwargs), message.method, allowed is None)
    kept = result if hasattr(result, "id") else ObjectWrapper(result)
    worker.restrict(message.return_id, allowed)
    worker.set_obj(message.return_id, kept)
    return handlers.found_of(worker, message.return_id)


handlers.HANDLERS[CallMethodMessage] = call_method
for _kind in ("object", "callable", string.String.pointer_kind):
    handlers.POINTER_KINDS[_kind] = POINTERS[_kind]
