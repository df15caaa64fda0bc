"""Classes of msgspec are prepared before threads read them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import syft

SOURCE = Path(syft.__file__).parent

#: Without `prepared` this crashes within a few classes (msgspec 0.22).
READERS = """
import sys, threading
from typing import Optional
import msgspec
from syft.core.structs import prepared

sys.setswitchinterval(1e-6)
for number in range(300):
    inner = msgspec.defstruct(f"Inner{number}", [("a", int), ("b", list[int])])
    fields = [(f"f{k}", Optional[inner] if k % 2 else tuple[int, str]) for k in range(30)]
    kind = msgspec.defstruct(f"Kind{number}", fields)
    value = {f"f{k}": {"a": 1, "b": [1]} if k % 2 else (1, "x") for k in range(30)}
    start, right = threading.Barrier(4), []

    def read():
        start.wait()
        right.append(msgspec.convert(value, prepared(kind)).f1.b == [1])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 4, right
"""


def test_threads_that_read_a_class_for_the_first_time_at_once() -> None:
    found = subprocess.run([sys.executable, "-c", READERS], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]


def test_everything_that_reads_a_class_prepares_it() -> None:
    reading = re.compile(r"msgspec\.convert\(|json\.decode\(|type=|Decoder\(")
    for file in SOURCE.rglob("*.py"):
        if file.name != "structs.py":
            for line in file.read_text().splitlines():
                if "msgspec." in line and reading.search(line):
                    assert "prepared(" in line, f"{file.name}: {line.strip()}: wrap the class in prepared()"
