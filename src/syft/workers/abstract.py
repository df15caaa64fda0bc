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
    #: A block in which objects that are sent travel together, where a message takes a while: see NetworkClientWorker.
    together: Any = None
    #: Runs a command of this process without a message: see VirtualWorker.
    run_at_once: Any = None
    #: Where it keeps tensors, if not on the CPU: see `syft.core.placing`.
    device: Any = None
    #: Whether it keeps graphs of what its users compute; see syft.tensors.kept_graphs.
    keeps_graphs = False
    #: Whether it is told backward passes that repeat in one message; see syft.tensors.learnt_graphs.
    learns_graphs = False
    #: What was computed there since the last backward pass, where it is followed, and what it was told.
    _stream: Any = None
    _learnt: Any = None

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
