"""Workers and the life of processes: an interrupt of whoever started one with `start(process=True)` does not end it, its
death does; and a process ends in good order while its worker computes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import forked
import syft as sy
from syft.core import at_exit

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


SCRIPT = """
import sys, torch, syft as sy
torch.set_num_threads(1)
server = sy.NetworkServerWorker(sy.TorchHook(torch), "tcp://127.0.0.1:0", id="ends").start(block=False)
print(server.address, flush=True)
sys.stdin.readline()
"""


def test_a_script_ends_in_good_order_while_its_worker_computes() -> None:
    """Python ends threads that come back from torch's code: five of six such processes aborted."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdout is not None
        client = sy.connect(script.stdout.readline().strip())
        x, is_over = torch.randn(200, 200).send(client), threading.Event()

        def ask_on_and_on() -> None:
            try:
                while not is_over.is_set():
                    (x @ x).sum()
            except Exception:  # noqa: BLE001  (the worker is gone)
                return

        asking = threading.Thread(target=ask_on_and_on)
        asking.start()
        time.sleep(0.2)
        _, said = script.communicate("\n", timeout=60)
        is_over.set()
        client.close()
        asking.join()
    assert (script.returncode, said) == (0, "")


def test_who_is_gone_or_of_another_process_is_not_stopped_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

        def stop(self) -> None:
            stopped.append(self.name)
            if self.name == "fails":
                raise RuntimeError("it cannot")

    monkeypatch.setattr(at_exit, "_STARTED", type(at_exit._STARTED)())
    stopped: list[str] = []
    held = [Noted(name) for name in ("fails", "here", "of a parent")]
    for each in [*held, Noted("gone")]:
        at_exit.stop_at_exit(each)
    del each
    at_exit._STARTED[held[2]] = os.getpid() + 1
    at_exit._stop_all()
    assert sorted(stopped) == ["fails", "here"]
