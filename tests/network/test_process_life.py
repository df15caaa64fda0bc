"""Workers of `start(process=True)`: an interrupt of whoever started them does not end them, and its death does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import forked

pytestmark = pytest.mark.network

#: Stands for the kernel of a notebook: it survives an interrupt, as a kernel does.
KERNEL = """
import signal, sys, time, torch, syft as sy
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
server = sy.NetworkServerWorker(sy.TorchHook(torch), "tcp://127.0.0.1:0", id="held").start(process=True)
try:
    print(server._child.pid, flush=True)  # the interrupt may come as soon as this is read
    while True:
        time.sleep(0.05)
except KeyboardInterrupt:
    pass
with sy.connect(server.address) as worker:
    print(torch.ones(3).send(worker).sum().get().item(), flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_worker_survives_an_interrupt_of_the_cell_and_ends_with_the_kernel(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    with forked.start(script, stdout=forked.PIPE, text=True, start_new_session=True) as kernel:
        try:
            assert kernel.stdout is not None
            worker = int(kernel.stdout.readline())
            os.killpg(kernel.pid, signal.SIGINT)  # what Jupyter and Ctrl-C do
            assert kernel.stdout.readline() == "3.0\n"
            assert is_running(worker)
        finally:
            kernel.kill()  # what a restart of the kernel may come to
    until = time.monotonic() + 90
    while is_running(worker) and time.monotonic() < until:
        time.sleep(0.05)
    ended = not is_running(worker)
    if not ended:
        os.kill(worker, signal.SIGKILL)
    assert ended
