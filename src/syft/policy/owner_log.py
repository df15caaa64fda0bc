"""What a worker's owner reads in the log, and its users are not told."""

from __future__ import annotations

import logging
import traceback

from syft.core.plain_text import printable

logger = logging.getLogger("syft.worker")

#: Longest suffix of a traceback that the log keeps: what a user sends may make an error message long.
LONGEST_TRACEBACK = 8000


def tell_owner(name: str, error: Exception) -> None:
    """Log the traceback of an error whose message is withheld from the user."""
    text = "".join(traceback.format_exception(error))
    if len(text) > LONGEST_TRACEBACK:
        text = "..." + text[-LONGEST_TRACEBACK:]
    # NB: it may quote what a user chose, which must not command a terminal, nor look like a line of the log.
    shown = "\n".join(f"  | {printable(line)}" for line in text.splitlines())
    logger.error(
        "%s failed. The user reads that it was a %s, and nothing else:\n%s", name, type(error).__name__, shown
    )
