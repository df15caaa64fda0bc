"""Processes for tests, forked from one that has imported torch and syft: each is spared three seconds of imports.

`start("-m", "syft", "worker", ...)`, `start("-c", code, ...)` and `start("script.py", ...)` stand for `subprocess.Popen`
with a fresh Python, and `run` for `subprocess.run`. A test of what is imported, or of a missing package, needs the
fresh one.

With `warnings_are_errors=True` it is `python -W error`. With `forks=True` the commands `python -m syft ...` that the
program starts itself are forked, too, and so is `python script.py`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
_LARGEST_REQUEST = 1 << 20
_own_filters = len(warnings.filters)  # Python's own, before any package adds others in front of them


class Forked:
    """A process that was forked, with the parts of `subprocess.Popen` that tests use."""

    def __init__(
        self, args: tuple[str | Path, ...], pid: int, exit_code: int, streams: list[IO[Any] | None]
    ) -> None:
        self.args, self.pid, self.returncode = args, pid, None
        self._exit_code: int | None = (
            exit_code  # the end of a pipe: what the parent of the process says of its end
        )
        self.stdin, self.stdout, self.stderr = streams

    returncode: int | None

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._exit_code is not None:
            if select.select([self._exit_code], [], [], timeout)[0]:
                said = os.read(self._exit_code, 32)
                os.close(self._exit_code)
                self._exit_code = None
                # No word: whoever forked it is gone, and killed it.
                self.returncode = int(said) if said else -signal.SIGKILL
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        until = None if timeout is None else time.monotonic() + timeout
        if self.stdin is not None and not self.stdin.closed:
            try:
                if input is not None:
                    self.stdin.write(input)
                self.stdin.close()
            except BrokenPipeError:
                pass
        found: dict[str, Any] = {"stdout": None, "stderr": None}

        def read(name: str, stream: IO[Any]) -> None:
            found[name] = stream.read()
            stream.close()

        readers = [
            threading.Thread(target=read, args=(name, stream), daemon=True)
            for name, stream in (("stdout", self.stdout), ("stderr", self.stderr))
            if stream is not None and not stream.closed
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if until is None else max(0.0, until - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if until is None else max(0.1, until - time.monotonic()))
        return found["stdout"], found["stderr"]

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_exception: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


class _Forker:
    """The end of a connection to a process that forks. It ends with this one, and those that it forked with it."""

    def __init__(self, connected: socket.socket, ended: Callable[[], object]) -> None:
        self._socket, self._ended, self._lock = connected, ended, threading.Lock()
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LARGEST_REQUEST)

    def ask(self, request: dict[str, Any], descriptors: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            return int(self._socket.recv(32))

    def end(self) -> None:
        self._socket.close()
        self._ended()


def _new_forker() -> _Forker:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    return _Forker(ours, process.wait)


_forkers: list[_Forker] = []  # at most one, made for the first test that needs it
_lock = threading.Lock()


def _forker() -> _Forker:
    with _lock:
        if not _forkers:
            _forkers.append(_new_forker())
        return _forkers[0]


def end() -> None:
    """End all that still runs, when the tests have."""
    while _forkers:
        _forkers.pop().end()


def start(
    *program: str | Path,
    stdin: int | None = None,
    stdout: Any = None,
    stderr: Any = None,
    text: bool = False,
    env: dict[str, str] | None = None,
    cwd: str | Path | None = None,
    start_new_session: bool = False,
    warnings_are_errors: bool = False,
    forks: bool = False,
    imports: Sequence[str] = (),
    cpu_seconds: int | None = None,
) -> Forked:
    """Like `subprocess.Popen([sys.executable, "-P", *program], ...)`.

    `imports` are modules that are imported before it is forked, for this process and all later ones; after `cpu_seconds`
    of its processor it is killed by SIGXCPU.
    """
    streams: list[IO[Any] | None] = []
    theirs, owned = [], []
    for number, wanted in enumerate((stdin, stdout, stderr)):
        ours = None
        if wanted == PIPE:
            read, write = os.pipe()
            mine, other = (write, read) if number == 0 else (read, write)
            ours = os.fdopen(mine, "wb" if number == 0 else "rb", buffering=0 if number == 0 else -1)
            owned.append(other)
        elif wanted == DEVNULL:
            other = os.open(os.devnull, os.O_RDWR)
            owned.append(other)
        elif wanted == STDOUT:
            other = theirs[1]
        else:
            other = number if wanted is None else wanted if isinstance(wanted, int) else wanted.fileno()
        streams.append(io.TextIOWrapper(ours, write_through=True) if ours is not None and text else ours)
        theirs.append(other)
    exit_code, told = os.pipe()
    owned.append(told)
    request = {
        "program": [str(part) for part in program],
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or Path.cwd()),
        "session": start_new_session,
        "warnings": warnings_are_errors,
        "forks": forks,
        "imports": list(imports),
        "cpu_seconds": cpu_seconds,
    }
    try:
        pid = _forker().ask(request, [*theirs, told])
    finally:
        for descriptor in owned:
            os.close(descriptor)
    return Forked(program, pid, exit_code, streams)


def run(
    *program: str | Path,
    capture_output: bool = False,
    text: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Like `subprocess.run([sys.executable, "-P", *program], ...)`."""
    if capture_output:
        options |= {"stdout": PIPE, "stderr": PIPE}
    process = start(*program, text=text, **options)
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        raise
    done = subprocess.CompletedProcess(program, process.wait(), out, err)
    if check:
        done.check_returncode()
    return done


# -- in the process that forks ---------------------------------------------------------------------------------------


def _treat_warnings_as_errors() -> None:
    """As `-W error` does: what the packages that are imported have set goes on to come first."""
    added = warnings.filters[: len(warnings.filters) - _own_filters]
    own = warnings.filters[len(added) :]
    warnings.resetwarnings()
    warnings.simplefilter("error")
    warnings.filters[:] = [*added, *warnings.filters, *own]  # type: ignore[index]
    sys.warnoptions[:] = ["error"]


def _fork_what_it_starts() -> bool:
    """Give this process one that forks, and let `subprocess` use it for syft's commands. True in what that one forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (pid := os.fork()) == 0:
        ours.close()
        _serve(theirs)
        return True
    theirs.close()
    _forkers[:] = [_Forker(ours, lambda: os.waitpid(pid, 0))]
    atexit.register(end)
    fresh: Any = subprocess.Popen
    known = {"stdin", "stdout", "stderr", "text", "env", "cwd", "start_new_session"}

    class Popen(fresh):
        """Of a program in Python, a process that was forked."""

        def __new__(cls, args: Any, *more: Any, **options: Any) -> Any:
            words = [args] if isinstance(args, str) else [str(word) for word in args]
            is_known = words[1:3] == ["-m", "syft"] or (len(words) > 1 and words[1].endswith(".py"))
            if words[0] == sys.executable and is_known and not more and options.keys() <= known:
                return start(*words[1:], **options)
            return super().__new__(cls)

    subprocess.Popen = Popen  # type: ignore[misc]
    return False


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """In a process that was forked: run the program as a fresh Python would."""
    if request["session"]:
        os.setsid()
    if request["cpu_seconds"] is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_seconds"], resource.RLIM_INFINITY))
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    os.closerange(3, max(descriptors) + 1)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    # Entries of the path that this process was started without.
    sys.path[:0] = [
        part
        for part in request["env"].get("PYTHONPATH", "").split(os.pathsep)
        if part and part not in sys.path
    ]
    if request["warnings"]:
        _treat_warnings_as_errors()
    if request["forks"] and _fork_what_it_starts():
        return
    first, *rest = request["program"]
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        exec(compile(rest[0], "<string>", "exec"), module.__dict__)  # noqa: S102
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        # NB: as __main__ of `sys.modules` too, so that what it forks or spawns finds its functions.
        module = type(sys)("__main__")
        module.__file__ = first
        sys.modules["__main__"] = module
        exec(compile(Path(first).read_text(), first, "exec"), module.__dict__)  # noqa: S102


def _reap(waiting: dict[int, int], *, block: bool = False) -> None:
    """Tell of those that have ended."""
    while waiting:
        try:
            pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        told = waiting.pop(pid, None)
        if told is not None:
            try:
                os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
            except BrokenPipeError:  # nobody waits for it any more
                pass
            os.close(told)


def _serve(asked: socket.socket) -> None:
    """Returns in the processes that are forked, to run their program."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is for the tests, which end it
    waiting: dict[int, int] = {}
    while True:
        ready = select.select([asked, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
        _reap(waiting)
        if asked not in ready:
            continue
        said, descriptors, _, _ = socket.recv_fds(asked, _LARGEST_REQUEST, 4)
        if not said:
            break
        *streams, told = descriptors
        request = json.loads(said)
        _import(request["imports"])
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for descriptor in (told, woken, waking, *waiting.values()):
                os.close(descriptor)
            asked.close()
            _become(request, streams)
            return
        waiting[pid] = told
        for descriptor in streams:
            os.close(descriptor)
        asked.send(str(pid).encode())
    for pid in waiting:
        os.kill(pid, signal.SIGKILL)
    _reap(waiting, block=True)
    os._exit(0)  # NB: there is nothing to clean up, and to free all that was imported takes a while


def _import(names: Sequence[str]) -> None:
    """What is imported stays: a process that ends need not walk it, nor copy the memory it walks."""
    if missing := [name for name in names if name not in sys.modules]:
        for name in missing:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()


def _main() -> None:
    import torch

    from syft.core import first_use, rooms

    torch.set_num_threads(1)
    rooms.load_rest()
    first_use.prepare()
    sys.path.insert(0, str(Path(__file__).parent))
    _import(["torch._dynamo"])  # optimizers import it
    _serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    _main()
