"""A worker in a process of its own, for tests that kill it or measure it. Run as `python served.py SETTINGS`, in JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any


class Served:
    """The process, as the test sees it.

    Options are those of NetworkServerWorker; `settings` those of ServerSettings, `policy` the text of a policy file,
    `authority` the directory of a token authority; `without` are packages that it does not have; `rows` the numbers of
    its data set, `#rows`, and `budgets` the path of a book.
    """

    def __init__(self, addresses: str | list[str] = "tcp://127.0.0.1:0", **options: Any) -> None:
        wanted = [addresses] if isinstance(addresses, str) else addresses
        self._options = {"addresses": wanted, **options}
        self.start()

    def start(self) -> None:
        arguments, pipes = (__file__, json.dumps(self._options)), {"stdin": PIPE, "stdout": PIPE}
        import forked  # not in the process whose program this file is

        self.process: Any = forked.start(*arguments, **pipes)
        self.addresses: list[str] = json.loads(self.process.stdout.readline())

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    @property
    def rss(self) -> int:
        return rss_of(self.process.pid)

    def status(self) -> dict[str, Any]:
        """All numbers, as the owner sees them."""
        self.process.stdin.write(b"status\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def kill(self) -> None:
        """kill -9"""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def restart(self, **options: Any) -> None:
        """At the same addresses, with other options if any are given."""
        self._options |= {"addresses": self.addresses, **options}
        self.start()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()


class Peak:
    """The most memory that a process had since this was made."""

    def __init__(self, pid: int | str = "self") -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")  # the highest mark is what there is now
        self._before = self._read()

    def _read(self) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

    @property
    def extra(self) -> int:
        return self._read() - self._before


def rss_of(pid: int | str = "self") -> int:
    """Bytes that a process has in memory now."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _main(options: dict[str, Any]) -> None:
    for package in options.pop("without", ()):
        for name in [package, *(each for each in sys.modules if each.startswith(f"{package}."))]:
            sys.modules[name] = None  # type: ignore[assignment]  (as if it were not installed)
    import torch

    import syft as sy
    from syft.dp.release import serve_book
    from syft.identity.tokens import TokenVerifier
    from syft.policy.owner_policy import OwnerPolicy, read_rules
    from syft.workers.network.server import ServerSettings
    from syft.workers.network.server_worker import NetworkServerWorker

    torch.set_num_threads(1)
    hook = sy.TorchHook(torch)
    options["settings"] = ServerSettings(**options.pop("settings", {}))
    authority = options.pop("authority", None)
    if authority is not None:
        options["tokens"] = TokenVerifier.open(authority, options["id"])
    policy = options.pop("policy", None)
    if policy is not None:
        options["policy"] = OwnerPolicy(read_rules(policy))
    rows, book = options.pop("rows", None), options.pop("budgets", None)
    if rows is not None:
        options["data"] = [torch.tensor(rows).tag("#rows")]  # type: ignore[attr-defined]
    worker = NetworkServerWorker(hook, **options).start(block=False)
    if book is not None:
        serve_book(worker, book)
    print(json.dumps(worker.addresses), flush=True)
    for _line in sys.stdin:  # ends with the test, whatever happens to it
        print(json.dumps(worker.status()), flush=True)
    os._exit(0)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
