"""What several commands have in common: `--json`. Imports nothing of ours."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def print_json(value: Any) -> None:
    """NB: in ASCII, so that nothing that a worker or a user said commands a terminal."""
    print(json.dumps(value, ensure_ascii=True, default=str))
