"""`AbstractWorker`: the name by which everything that is a worker can be recognised."""

from __future__ import annotations

import abc
from typing import Any

from syft.serde import register_workers


class AbstractWorker(abc.ABC):
    """A place where objects live."""

    id: Any
    #: Whether it runs nothing but the operations of `syft.operations`, because it serves those who may not see the data.
    admits_only_table = False
    #: Asks several messages together, where an answer takes a while to come: see NetworkClientWorker.
    ask_all: Any = None
    #: Where it keeps tensors, if not on the CPU: see `syft.core.placing`.
    device: Any = None
    #: Whether it keeps graphs of what its users compute; see syft.tensors.kept_graphs.
    keeps_graphs = False

    def is_free(self, *obj_ids: Any) -> bool:
        """Whether these objects are in this process, and everybody may have them. If in doubt, no."""
        return False

    @abc.abstractmethod
    def _send_msg(self, message: Any, location: Any) -> Any:
        """Carry a message to another worker and return its reply."""

    @abc.abstractmethod
    def _recv_msg(self, message: Any) -> Any:
        """Take a message that was carried here."""


register_workers(AbstractWorker)
