"""A play in two terminals, of an owner and a scientist.

The owner has three workers with tables and pictures. The scientist finds them, trains over the three, and asks for a
release beyond the budget; the owner approves it on the page; the answer arrives; budget and audit log agree with it.
"""

from __future__ import annotations

import http.client
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch
from rich.console import Console
from torch import nn

import forked
import syft as sy
from chromium import COMMAND, Chromium
from syft.cli import main
from syft.cli.desk.server import Desk, DeskServer
from syft.cli.desk.sources import files_in
from syft.exceptions import BudgetExceededError, RequestNotFoundError, SyftError
from syft.federated import MaskedSum, ProgressBar, Trainer
from syft.policy.audit import read_audit_log

NAMES = ("hospital", "clinic", "practice")
ROWS = 400


class Shades(nn.Module):
    """Bytes of pictures as numbers from 0 to 1."""

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return pictures.float() / 255


@dataclass
class Stage:
    """What the owner started: a folder and an address per worker, and the page."""

    folder: Path
    addresses: dict[str, str]
    server: Any = None
    processes: list[int] = field(default_factory=list)

    def token(self, user: str, days: str = "1") -> Path:
        """The owner hands out a token."""
        path = self.folder / f"{user}{days}.token"
        saved = sys.stdout
        sys.stdout = io.StringIO()
        try:
            assert main(["token", "new", user, "--days", days, "--dir", str(self.folder / "tokens")]) == 0
            path.write_text(sys.stdout.getvalue())
        finally:
            sys.stdout = saved
        return path


def begin(command: list[str], log: Path) -> forked.Forked:
    with log.open("w") as errors:
        return forked.start(
            *command,
            cwd=log.parent,
            stdin=forked.PIPE,
            stdout=forked.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def write_data(folder: Path, seed: int) -> None:
    """A table whose labels follow from its columns, and pictures of two kinds."""
    image = pytest.importorskip("PIL.Image")
    generator = torch.Generator().manual_seed(seed)
    ages = torch.randint(20, 80, (ROWS,), generator=generator).tolist()
    lines = [f"{age},{age / 10 + row % 3:.1f},{'yes' if age > 50 else 'no'}" for row, age in enumerate(ages)]
    data = folder / "data"
    data.mkdir(parents=True)
    (data / "patients.csv").write_text("age,dose,ill\n" + "\n".join(lines) + "\n")
    (data / "patients.toml").write_text(
        'description = "a trial"\n[offer]\nname = "trial"\ntarget = "ill"\non_request = true\n'
        '[columns.ill]\nkind = "category"\ncategories = ["no", "yes"]\nshow_categories = "names"\n'
    )
    for kind, shade in (("dark", 40), ("light", 200)):
        (data / "photos" / kind).mkdir(parents=True)
        for number in range(6):
            image.new("L", (4, 4), shade + number).save(data / "photos" / kind / f"{number}.png")


@contextmanager
def started(home: Path, is_typed: bool) -> Iterator[Stage]:
    """The first terminal: the owner types these. `is_typed`: with all their defaults."""
    stage, commands = Stage(home, {}), list[list[str]]()
    stage.token("nobody")  # makes the keys that the workers verify with
    for number, name in enumerate(NAMES):
        write_data(home / name, number)
        book = str(home / name / "budgets")
        assert main(["budget", "create", book]) == 0
        assert main(["budget", "set", book, "--dataset", "#patients", "--epsilon", "0.5"]) == 0
        options = ["--id", name, "--listen", "tcp://127.0.0.1:0", "--tokens", "tokens"]
        options += [] if is_typed else ["--isolation", "none"]
        options += ["--data", f"{name}/data", "--offer", "photos=photos", "--control", f"{name}/worker.sock"]
        options += ["--budgets", f"{name}/budgets", "--requests", f"{name}/requests.db"]
        commands.append(["worker", *options, "--audit", f"{name}/audit.jsonl"])
    processes = [begin(["-m", "syft", *one], home / f"log {one[2]}") for one in commands]
    try:
        for process in processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, [log.read_text() for log in home.glob("log*")]
            name, address, pid = re.findall(r"worker (\S+) at (\S+?), process (\d+)", line)[0]
            stage.addresses[name] = address
            stage.processes.append(int(pid))
        assert len(set(stage.processes)) == len(NAMES)
        # NB: as `syft desk hospital clinic practice --approve` does, without another process.
        with DeskServer(Desk([files_in(home / name) for name in NAMES], may_approve=True)) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            stage.server = server
            yield stage
            server.shutdown()
        # In good order, as Ctrl-C ends them.
        for process in processes:
            process.terminate()
            process.communicate(timeout=800)
        assert [process.returncode for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with started(tmp_path_factory.mktemp("play"), is_typed=False) as stage:
        yield stage


def approve_by_http(stage: Stage) -> Callable[[str, int], str]:
    """What the buttons of the page send."""
    host, cookie = stage.server.address.removeprefix("http://"), ""

    def ask(path: str, form: dict[str, str] | None = None) -> tuple[int, str]:
        nonlocal cookie
        connection = http.client.HTTPConnection(host, timeout=800)
        headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request("GET" if form is None else "POST", path, urlencode(form or {}), headers)
        reply = connection.getresponse()
        cookie = reply.headers.get("Set-Cookie", cookie).partition(";")[0]
        text = reply.read().decode()
        connection.close()
        return reply.status, text

    assert ask(stage.server.link.removeprefix(stage.server.address))[0] == 303

    def approve(request: str, worker: int) -> str:
        _, page = ask(f"/w/{worker}")
        (secret, *_) = re.findall(r'name="csrf" value="([^"]+)"', page)
        form = {"csrf": secret, "times": "", "for": "1h"}
        assert ask(f"/w/{worker}/requests/{request}/approve", form)[0] == 303
        return ask(f"/w/{worker}")[1]

    return approve


def test_the_play(hook: Any, me: Any, stage: Stage) -> None:
    """With the forms of the page; a real browser presses its buttons in the slow test below."""
    play(stage, "ana", approve_by_http(stage))
    bad_input(stage)


def play(stage: Stage, user: str, approve: Callable[[str, int], str]) -> None:
    token = stage.token(user)
    workers = [
        sy.connect(address, token_file=token, auto_add=False) for address in map(stage.addresses.get, NAMES)
    ]
    try:
        # The second terminal: the scientist looks around,
        for worker in workers:
            assert {info.name for info in worker.datasets()} == {"trial", "photos"}
            assert {"#patients"} <= {tag for pointer in worker.search() for tag in pointer.tags}
        # trains over the three on what is offered, with bars,
        screen = Console(file=io.StringIO(), width=100, force_terminal=True)
        model = nn.Sequential(Shades(), nn.Flatten(), nn.Linear(16, 2))
        trainer = Trainer(
            model,
            nn.CrossEntropyLoss(),
            workers,
            dataset_key="photos",
            engine="threads",
            optimizer_args={"lr": 0.05},
            aggregation=MaskedSum(),  # the scientist sees the sum of three updates and none of them
            callbacks=[ProgressBar(console=screen)],
        )
        history = trainer.fit(3)
        assert len(history) == 3 and all(len(one.accepted) == 3 for one in history.rounds)
        assert "3/3" in screen.file.getvalue()  # type: ignore[attr-defined]
        # asks to train on what is offered on request,
        asked = Trainer(
            nn.Linear(2, 2), nn.CrossEntropyLoss(), workers[:1], dataset_key="trial", engine="serial"
        )
        with pytest.raises(SyftError, match="may not train on"):
            asked.fit(1)
        training = workers[0].request_training(asked, rounds=1, reason="does age tell?")
        # and for a statistic that costs more than the budget has.
        (patients,) = (p for p in workers[0].search("#patients") if p.shape == (ROWS, 2))
        options: dict[str, Any] = {"epsilon": 1.0, "bounds": (0, 100)}
        with pytest.raises(BudgetExceededError):
            workers[0].release(patients[:, 0], "mean", **options)
        ages = patients[:, 0]
        request = workers[0].request_release(ages, "mean", reason="table 1", **options)
        assert (training.status, request.status) == ("waiting", "waiting")
        # The owner reads and decides on the page,
        approve(training.id, 0)
        page = approve(request.id, 0)
        assert "epsilon 0.5 of 0.5" in page or "epsilon 1" in page
        # and the scientist goes on.
        assert training.wait(timeout=800) is training and len(asked.fit(1)) == 1
        value = request.wait(timeout=800)
        true = float(sum(age_of(stage.folder / "hospital")) / ROWS)
        low, high = value.interval(1 - 1e-6)  # it misses once in a million times
        assert low <= true <= high and low < value < high
        assert high - low < 10  # and it tells something: the bounds alone say 0 to 100
        # Budget, audit log and page agree.
        state = workers[0].budget("#patients")
        assert (state.spent, len(state.releases), state.releases[0].mechanism) == (1.0, 1, "mean")
        lines = [
            line for line in read_audit_log(stage.folder / "hospital" / "audit.jsonl") if line.user == user
        ]
        granted = [line.action for line in lines if line.granted]
        assert granted.count("request") == granted.count("approve") == granted.count("use approval") == 2
        (released,) = (line for line in lines if line.action == "release" and line.granted)
        uses = [line for line in lines if line.action == "use approval"]
        assert f"request {request.id}" in {line.object for line in uses} and released.reason == "mean"
    finally:
        for worker in workers:
            worker.close()


def age_of(folder: Path) -> list[float]:
    lines = (folder / "data" / "patients.csv").read_text().split("\n")[1:-1]
    return [float(line.split(",")[0]) for line in lines]


def bad_input(stage: Stage) -> None:
    """What is wrong is a sentence with a cure, and the workers go on."""
    address = stage.addresses["clinic"]
    with sy.connect(address, token_file=stage.token("bob"), auto_add=False) as worker:
        for request in ("nowhere", "'; DROP TABLE requests; --", "x" * 1000):
            with pytest.raises(RequestNotFoundError, match=r"pointer\.request\(reason"):
                worker.request(request)
        model = Trainer(nn.Linear(2, 2), nn.CrossEntropyLoss(), [worker], dataset_key="nowhere")
        with pytest.raises(ValueError, match="offers you no data set 'nowhere'"):
            worker.request_training(model)
        assert worker.requests == []


@pytest.mark.slow
@pytest.mark.skipif(COMMAND is None, reason="there is no chromium on this machine")
def test_the_play_in_a_real_browser(hook: Any, me: Any, tmp_path: Path) -> None:
    """With three commands `syft worker`, each with a process for its user."""
    with started(tmp_path, is_typed=True) as stage, Chromium() as browser:
        address = stage.server.address
        browser.go(stage.server.link)

        def approve(request: str, worker: int) -> str:
            browser.go(f"{address}/w/{worker}")
            browser.until(f"!!document.querySelector('form[action$=\"{request}/approve\"] button')")
            browser.run(f"document.querySelector('form[action$=\"{request}/approve\"] button').click()")
            browser.until(
                f"!document.querySelector('form[action$=\"{request}/approve\"]') && document.readyState === 'complete'"
            )
            return str(browser.run("document.body.innerHTML"))

        play(stage, "carla", approve)
        assert browser.messages == []
