"""Public functions of torch on a worker that admits only the table: the client runs them, operation by operation.

`worker.remote.torch.zeros(2, 3)` is a name of Python. A worker that serves strangers takes no such names, because nobody
can say beforehand what is behind each. So the function runs here: what it does with pointers is sent by the pointers, and
the tensors that it makes are made there.
"""

from __future__ import annotations

from typing import Any

from syft.core.commands import command_named
from syft.tensors.made_at import MadeAt


def run_there(name: str, args: Any, kwargs: dict[str, Any], location: Any, speaker: Any) -> Any:
    """The result of a public function at a worker, by operations that it admits. !! OperationNotAdmittedError"""
    function = command_named(name).function
    with MadeAt(location, speaker, is_for_anybody=True):
        return function(*args, **kwargs)
