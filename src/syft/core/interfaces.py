"""What lower rooms may assume about objects that upper rooms define (Protocols only)."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

Id = int | str


@runtime_checkable
class Worker(Protocol):
    """A place where tensors live, as the tensors see it."""

    id: Any
    hook: Any
    is_client_worker: bool

    def register_obj(self, obj: Any, obj_id: Any = None) -> None: ...

    def get_obj(self, obj_id: Any) -> Any: ...

    def de_register_obj(self, obj: Any) -> None: ...

    def get_worker(self, id_or_worker: Any, fail_hard: bool = False) -> Any: ...

    def send_msg(self, message: Any, location: Any) -> Any: ...

    def queue_delete(self, obj_id: Any) -> None: ...
