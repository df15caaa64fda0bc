"""Running programs in processes that are forked from one which has imported everything. See forked.py."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import forked

ROOT = Path(__file__).parent.parent
#: Most use five; the wall time is for what hangs on a busy machine.
CPU_SECONDS, WALL_SECONDS = 120, 900.0


def run(folder: Path, code: str, *imports: str, wall_seconds: float = WALL_SECONDS) -> tuple[int, str]:
    """How the program ended, and what it printed. Warnings are errors; `imports` are there already when it begins."""
    source, output = folder / "page.py", folder / "output"
    source.write_text(code)
    # As `python -c`: a module without a file, which processes that it starts do not run again.
    # NB: compiled by its path, so that torch.jit finds the source of functions.
    path = str(source)
    program = f"exec(compile(__import__('pathlib').Path({path!r}).read_text(), {path!r}, 'exec'))"
    with output.open("w") as file:
        process = forked.start(
            *("-c", program),
            stdin=forked.DEVNULL,
            stdout=file,
            stderr=forked.STDOUT,
            start_new_session=True,
            warnings_are_errors=True,
            forks=True,
            imports=imports,
            cpu_seconds=CPU_SECONDS,
        )
    try:
        return process.wait(wall_seconds), output.read_text()
    except BaseException:  # a timeout, say
        os.killpg(process.pid, signal.SIGKILL)  # with all it started
        process.wait()
        raise
