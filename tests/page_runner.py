"""Runs pieces of Python, each in a process of its own that has imported torch and syft already. See test_docs.py.

Modules that are named as arguments are imported beforehand, too.
Reads a line of JSON with the path of the code and of a file for what it prints; writes a line with how it ended.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from pathlib import Path


def main() -> None:
    # Before it forks, so that it is done once.
    import torch

    import syft  # noqa: F401
    from syft.core import first_use, rooms

    rooms.load_rest()
    first_use.prepare()
    torch.set_num_threads(1)  # tests run side by side
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        code, output = json.loads(line)
        if (child := os.fork()) == 0:
            printed = os.open(output, os.O_WRONLY | os.O_CREAT)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (printed, 1), (printed, 2)):
                os.dup2(source, target)
            # As after `python -c`: a module without a file, which processes that it starts do not run again.
            module = sys.modules["__main__"] = types.ModuleType("__main__")
            # NB: by its path, so that torch.jit finds the source of functions.
            exec(compile(Path(code).read_text(), code, "exec"), module.__dict__)  # noqa: S102
            return  # and the interpreter ends as it always does
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


if __name__ == "__main__":
    main()
