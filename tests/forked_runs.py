"""Running programs in processes that are forked from one which has imported everything. See page_runner.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


class Runner:
    """A process that runs programs, one after the other. After a program that did not end, there is a new one.

    Modules that are named are imported before it forks, beside torch and syft.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._process: subprocess.Popen[str] | None = None

    def run(self, source: Path, output: Path) -> int:
        """How the program ended."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", str(ROOT / "tests/page_runner.py"), *self._modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            print(json.dumps([str(source), str(output)]), file=stdin, flush=True)
            return int(json.loads(stdout.readline()))
        except BaseException:  # a timeout, say: nobody may take the answer of this program for the next one's
            self.end()
            raise

    def end(self) -> None:
        """With the program that runs, and what it started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None


def run(runner: Runner, folder: Path, code: str) -> tuple[int, str]:
    """How the program ended, and what it printed."""
    source, output = folder / "page.py", folder / "output"
    source.write_text(code)
    status = runner.run(source, output)
    return status, output.read_text()
