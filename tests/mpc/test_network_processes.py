"""Two holders and a provider, each started as an owner would: `syft worker --peer ...`, in a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import forked
import syft as sy
from syft.mpc.methods import secret_of
from syft.workers.network.client_worker import NetworkClientWorker

pytestmark = pytest.mark.network
NAMES = ("alice", "bob", "carol")


class Process:
    """One worker."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.address = name, f"unix://{folder}/{name}"
        peers = [
            part for peer in NAMES if peer != name for part in ("--peer", f"{peer}=unix://{folder}/{peer}")
        ]
        options = ["--id", name, "--listen", self.address, "--threads", "1", "--log-level", "error", *peers]
        self.process = forked.start("-m", "syft", "worker", *options, stdout=forked.PIPE)

    def wait(self) -> None:
        """Until it serves, and knows its peers."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"worker ")

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(120)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Process]]:
    folder = tmp_path_factory.mktemp("p")
    made = {name: Process(name, folder) for name in NAMES}
    try:
        for one in made.values():
            one.wait()
        yield made
    finally:
        for one in made.values():
            one.end()


@pytest.fixture
def patience() -> float:
    """On a busy machine."""
    return 60.0


@pytest.fixture
def members(
    processes: dict[str, Process], patience: float, hook: Any, me: Any
) -> Iterator[list[NetworkClientWorker]]:
    links = [
        NetworkClientWorker(hook, one.address, one.name, auto_add=False, patience=patience)
        for one in processes.values()
    ]
    yield links
    for link in links:
        link.close()


def test_a_model_on_secrets_in_three_processes(members: Any) -> None:
    alice, bob, carol = members
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    data, target = torch.randn(10, 20), torch.randn(10, 3)
    with torch.no_grad():
        expected = model(data)
    model.fix_precision().share(alice, bob, crypto_provider=carol)
    secret, goal = (t.fix_precision().share(alice, bob, crypto_provider=carol) for t in (data, target))
    with torch.no_grad():
        assert (model(secret).get().float_precision() - expected).abs().max() < 0.05
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((model(secret) - goal) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().get().float_precision().item())
    assert losses[2] < losses[1] < losses[0]
    group = secret_of(secret.child).group
    assert (
        group.online.rounds > 20
        and min(group.online.bytes_sent[:2]) > 1000
        and group.offline.correlations > 10
    )


def test_large_frames_pass(members: Any) -> None:
    alice, bob, carol = members
    x = torch.randint(-(2**40), 2**40, (200_000,))
    secret = x.share(alice, bob, crypto_provider=carol)
    assert torch.equal((secret < 0).get().bool(), x < 0)
    assert torch.equal((secret * secret).get(), x * x)


@pytest.mark.parametrize("patience", [1.0])
def test_a_holder_that_is_killed_is_named(processes: dict[str, Process], members: Any) -> None:
    alice, bob, carol = members
    secret = torch.tensor([3, 4]).share(alice, bob, crypto_provider=carol)
    assert (secret * secret).get().tolist() == [9, 16]
    processes["bob"].process.kill()
    processes["bob"].process.wait(120)
    with pytest.raises(sy.exceptions.NetworkError, match="bob"):
        (secret * secret).get()
    for one in processes.values():
        one.process.kill()  # or they would try to reach it, and the clients wait for them to say goodbye
