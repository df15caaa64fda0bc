"""Running programs in processes that are forked from one which has imported everything. See page_runner.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(runner: subprocess.Popen[str], folder: Path, code: str) -> tuple[int, str]:
    """How the program ended, and what it printed."""
    source, output = folder / "page.py", folder / "output"
    source.write_text(code)
    assert runner.stdin is not None and runner.stdout is not None
    print(json.dumps([str(source), str(output)]), file=runner.stdin, flush=True)
    return int(json.loads(runner.stdout.readline())), output.read_text()
