"""Logs of a worker, for people or for machines."""

from __future__ import annotations

import datetime
import enum
import json
import logging
import sys


class LogFormat(enum.StrEnum):
    text = "text"
    json = "json"


class _Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


class _Text(logging.Formatter):
    """One line an event, dated, in local time; the lines of a traceback are joined."""

    def format(self, record: logging.LogRecord) -> str:
        return " | ".join(line.strip() for line in super().format(record).splitlines() if line.strip())


def set_up(kind: LogFormat, level: str) -> None:
    """Log to the standard error."""
    chosen = logging.getLevelName(level.upper())
    if not isinstance(chosen, int):
        raise ValueError(f"--log-level {level!r}: use debug, info, warning or error.")
    if kind is LogFormat.json:
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Json())
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Text("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S"))
    root = logging.getLogger("syft")
    root.handlers[:] = [handler]
    root.setLevel(chosen)
