"""Every row of the table of operations, run by a process without and by one with its system calls filtered.

Run as a script: prints what differs, in JSON. What an executor would have to import late, it cannot.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "gate"))


def outcomes() -> dict[str, str]:
    """For each row: how a call of it ended."""
    import torch
    from calls import recorded_calls, specs_of, tensors_of

    from syft.operations import admit, run

    torch.manual_seed(0)
    found = {}
    for name, calls in recorded_calls().items():
        for call in calls[:1]:
            try:
                admission = admit(name, *specs_of(call))
                outcome = run(admission, *tensors_of(call, "recorded", 1))
                found[name] = "ran" if outcome.failure is None else outcome.failure[:200]
            except Exception as error:  # noqa: BLE001  (compared)
                found[name] = f"{type(error).__name__}: {error}"[:200]
    return found


def in_child(work: Any) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            said = json.dumps(work()).encode()
            while said:
                said = said[os.write(writing, said) :]
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read()
    os.waitpid(pid, 0)
    return json.loads(said)  # type: ignore[no-any-return]


def main() -> None:
    from calls import recorded_calls

    from syft.isolation import executor, limits

    prepared = executor.preload(False)
    recorded_calls()  # the file is read before the filter is on

    def filtered() -> dict[str, str]:
        if prepared.system_calls is not None:
            limits.restrict(1 << 32, 1024)
            limits.filter_system_calls(prepared.system_calls)
        return outcomes()

    free, bound = in_child(outcomes), in_child(filtered)
    differing = {name: (free[name], bound.get(name)) for name in free if free[name] != bound.get(name)}
    print(
        json.dumps(
            {"rows": len(free), "is_filtered": prepared.system_calls is not None, "differing": differing}
        )
    )


if __name__ == "__main__":
    main()
