"""What the log of a worker says about who came and who was turned away. (The audit log has it for good, and in full.)"""

from __future__ import annotations

import logging
from typing import Any

from syft.core.plain_text import printable

logger = logging.getLogger("syft.worker")

_MOST_SHOWN = 300
_NAMES = {"connect": "the connection", "operation": "an operation"}


def log_decision(
    worker_id: Any, action: str, user: str | None, peer: str, granted: bool, reason: str
) -> None:
    """One line for a decision about a connection or a session."""
    if not logger.isEnabledFor(logging.INFO):
        return
    who = _shown("somebody" if user is None else user)
    if granted and action == "connect":
        logger.info("%s: %s connected from %s (%s)", worker_id, who, peer or "here", _shown(reason))
    else:
        logger.info(
            "%s: %s of %s at %s was %s: %s",
            worker_id,
            _NAMES.get(action, action),
            who,
            peer or "an unknown place",
            "granted" if granted else "refused",
            _shown(reason),
        )


def _shown(text: str) -> str:
    """Others chose it: it is one line, of bounded length."""
    return printable(text[:_MOST_SHOWN])
