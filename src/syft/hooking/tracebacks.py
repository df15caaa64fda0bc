"""Errors of this library show the user's lines first: frames inside syft and torch are folded into one line.

`SYFT_TRACEBACK=full` shows all of them. Scripts and IPython are told by `install()`, which `TorchHook` calls; a hook for
exceptions that somebody else installed stays.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from syft.exceptions import SyftError

VARIABLE = "SYFT_TRACEBACK"
#: The folders of this library and of torch.
_INSIDE = (str(Path(__file__).parent.parent) + os.sep, str(Path(torch.__file__).parent) + os.sep)


def folded(error: BaseException, trace: TracebackType | None) -> str:
    """The error as Python prints it, without the frames inside this library and torch; a line says how many."""
    told = traceback.TracebackException(type(error), error, trace)
    _fold(told)
    return "".join(told.format())


def _fold(told: traceback.TracebackException) -> None:
    frames = list(told.stack)
    kept = [frame for frame in frames if not frame.filename.startswith(_INSIDE)]
    if kept and len(kept) < len(frames):
        told.stack = traceback.StackSummary.from_list(kept)
        notes = list(told.__notes__ or ())
        told.__notes__ = [
            *notes,
            f"({len(frames) - len(kept)} frames inside syft and torch; {VARIABLE}=full shows them.)",
        ]
    for other in (told.__cause__, told.__context__):
        if other is not None:
            _fold(other)


def is_folding() -> bool:
    return os.environ.get(VARIABLE, "").lower() != "full"


def _in_scripts(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, SyftError) and is_folding():
        sys.stderr.write(folded(error, trace))
    else:
        sys.__excepthook__(kind, error, trace)


def _in_notebooks(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: Any = None,
) -> list[str]:
    """A handler as IPython's `set_custom_exc` wants it: shows the error, and returns its lines."""
    if not is_folding():
        lines: Iterable[str] = shell.InteractiveTB.structured_traceback(
            kind, error, trace, tb_offset=tb_offset
        )
    else:
        # NB: the first frame is IPython's own, which runs the cell.
        lines = folded(
            error, trace.tb_next if trace is not None and trace.tb_next is not None else trace
        ).splitlines()
    shown = list(lines)
    shell._showtraceback(kind, error, shown)
    return shown


def install() -> None:
    """For this process, once. What others installed is left alone."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _in_scripts
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and not getattr(shell, "custom_exceptions", ()):
        shell.set_custom_exc((SyftError,), _in_notebooks)
