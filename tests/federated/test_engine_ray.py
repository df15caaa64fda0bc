"""Clients in Ray actors: the same numbers, and the death of one is the death of one.

`make ray` installs ray and runs these. NB: ray is not imported here before the engine does it, which matters (see
NOTE [Ray listens] in the engine).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

import ray_parts
import syft as sy
from syft.exceptions import DependencyError
from syft.federated.engines import ENGINES, Engine, RayEngine, make_engine
from syft.federated.trainer import Trainer
from trainer_parts import Fixed, classes, line, net, same, weights

CE, MSE = nn.CrossEntropyLoss(), nn.MSELoss()
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed; see `make ray`")


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    with RayEngine(num_cpus=2, client_cpus=0.5, actors=2, threads=torch.get_num_threads()) as made:
        yield made


def trained(engine: Any, parts: Any, rounds: int = 2, **options: Any) -> dict[str, torch.Tensor]:
    model = net()
    Trainer(model, CE, parts, engine=engine, seed=7, batch_size=10, **options).fit(rounds)
    return model.state_dict()


def many(clients: int) -> dict[str, TensorDataset]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(clients, 20, 6, generator=generator)
    return {f"client {i}": TensorDataset(rows, (rows[:, 0] > 0).long()) for i, rows in enumerate(x)}


def failures(report: Any) -> list[tuple[str, str]]:
    return [(failure.client, failure.kind) for failure in report.failures]


# -- without ray ---------------------------------------------------------------------------------------------


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "ray" in ENGINES
    with pytest.raises(DependencyError, match=r"pip install 'resyft\[ray\]'"):
        make_engine("ray")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_cpus": 0}, "num_cpus=0"),
        ({"actors": 1.5}, "actors=1.5"),
        ({"threads": 0}, "threads=0"),
        ({"num_gpus": -1}, "num_gpus=-1"),
        ({"client_cpus": 0}, "client_cpus=0"),
        ({"client_gpus": -0.5}, "client_gpus=-0.5"),
        ({"client_gpus": 1.5}, "above 1 it is a whole number"),
        ({"object_store_memory": 1}, "100 MiB"),
        ({"address": "here:1", "num_cpus": 2}, "Leave them out"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        RayEngine(**options)


# -- the same numbers ----------------------------------------------------------------------------------------


def _answers(ray: Any, actor: Any) -> bool:
    try:
        ray.get(actor.ready.remote())
    except ray.exceptions.RayActorError:
        return False
    return True


@needs_ray
@pytest.mark.network
class TestWithRay:
    def test_it_is_an_engine_and_starts_when_it_is_needed(self, engine: RayEngine) -> None:
        assert isinstance(engine, Engine)
        assert "0.5 CPUs and 0 GPUs per client" in repr(engine)

    @pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "fedprox"])
    def test_the_weights_are_those_of_one_after_the_other_bit_for_bit(
        self, engine: RayEngine, strategy: str
    ) -> None:
        parts = classes(clients=7)
        one = trained("serial", parts, strategy=strategy, epochs=2)
        assert same(trained(engine, parts, strategy=strategy, epochs=2), one)

    def test_so_are_those_of_subsets_and_of_data_sets_that_draw(self, engine: RayEngine) -> None:
        whole = classes(clients=1, rows=120)["client 0"]
        parts: dict[str, Any] = {str(i): Subset(whole, range(i, 120, 4)) for i in range(4)}
        parts["noisy"] = ray_parts.Noisy(whole)
        parts["part of noisy"] = Subset(ray_parts.Noisy(whole), range(5, 40))
        assert same(trained(engine, parts), trained("serial", parts))

    def test_a_hundred_clients(self, engine: RayEngine) -> None:
        parts = many(100)
        model = net()
        history = Trainer(model, CE, parts, engine=engine, seed=7, batch_size=10).fit(2)
        assert len(history.rounds[-1].accepted) == 100
        assert same(model.state_dict(), trained("serial", parts))

    def test_clients_evaluate_too(self, engine: RayEngine) -> None:
        on_ray = Trainer(net(), CE, classes(), engine=engine).evaluate_clients()
        assert on_ray == Trainer(net(), CE, classes(), engine="serial").evaluate_clients()

    def test_a_client_starts_every_task_as_it_was_sent(self, engine: RayEngine) -> None:
        counting = ray_parts.Counts(1.0)
        model = line(0.0)
        Trainer(model, MSE, {"a": counting}, engine=engine).fit(3)
        assert weights(model) == [3.0] and counting.times == 0  # and not 1 + 2 + 3

    # -- clients that fail ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("how", "kind"), [("exit", "died"), ("kill", "died"), ("raise", "error")])
    def test_one_that_dies_costs_one_client(self, engine: RayEngine, how: str, kind: str) -> None:
        clients = {f"c{i}": Fixed(1.0) for i in range(12)} | {"a": ray_parts.Dies(how)}
        model = line(0.0)
        (report,) = Trainer(model, MSE, clients, engine=engine).fit(1).rounds
        assert failures(report) == [("a", kind)] and len(report.accepted) == 12
        assert weights(model) == [1.0]

    def test_an_actor_that_died_between_rounds_costs_nobody(self, engine: RayEngine) -> None:
        import ray

        clients = {f"c{i}": ray_parts.TellsProcess(1.0) for i in range(4)}
        trainer = Trainer(line(0.0), MSE, clients, engine=engine)
        trainer.fit(1)
        pool = engine._pool
        assert pool is not None
        victim = pool.idle[-1].handle
        ray.kill(victim)
        while _answers(ray, victim):  # it takes Ray a moment
            pass
        assert trainer.fit(2).rounds[1].failures == ()

    def test_one_that_hangs_is_ended_and_its_place_taken(self, engine: RayEngine) -> None:
        clients = {"a": ray_parts.Hangs(1.0), "b": Fixed(1.0), "c": Fixed(3.0)}
        model = line(0.0)
        trainer = Trainer(model, MSE, clients, engine=engine, deadline=0.5)
        (report,) = trainer.fit(1).rounds
        assert failures(report) == [("a", "timeout")] and "0.5 s" in report.failures[0].why
        assert weights(model) == [2.0]
        again = Trainer(line(0.0), MSE, {f"c{i}": Fixed(1.0) for i in range(6)}, engine=engine)
        assert len(again.fit(1).rounds[0].accepted) == 6

    def test_a_slow_data_set_stops_by_itself_and_its_process_goes_on(self, engine: RayEngine) -> None:
        asking = Trainer(line(0.0), MSE, {"a": ray_parts.TellsProcess(1.0)}, engine=engine)
        parts = {"slow": ray_parts.Slow(), "a": TensorDataset(torch.ones(4, 1), torch.ones(4, 1))}
        (report,) = Trainer(line(0.0), MSE, parts, engine=engine, deadline=0.4, batch_size=1).fit(1).rounds
        assert failures(report) == [("slow", "timeout")] and report.seconds < 8  # all of it takes 10
        assert asking.evaluate_clients().failures == ()

    def test_one_that_cannot_be_sent_or_read_costs_one_client(
        self, engine: RayEngine, caplog: pytest.LogCaptureFixture
    ) -> None:
        clients: dict[str, Any] = {
            name: ray_parts.Returns(name) for name in ("nothing", "a dict", "an object")
        }
        clients |= {"locked": ray_parts.Locked(), "good": Fixed(2.0)}
        model = line(0.0)
        (report,) = Trainer(model, MSE, clients, engine=engine).fit(1).rounds
        assert failures(report) == [
            ("a dict", "malformed"),
            ("an object", "malformed"),
            ("locked", "error"),
            ("nothing", "nothing"),
        ]
        assert "could not be sent to a Ray actor" in report.failures[2].why
        assert weights(model) == [2.0]

    def test_a_round_that_is_broken_off_leaves_the_engine_usable(self, engine: RayEngine) -> None:
        class Interrupt(sy.federated.Callback):
            def on_client_done(self, *args: Any) -> None:
                raise KeyboardInterrupt

        clients = {"a": Fixed(1.0), "b": ray_parts.Hangs(1.0)}
        with pytest.raises(KeyboardInterrupt):
            Trainer(line(0.0), MSE, clients, engine=engine, callbacks=[Interrupt()]).fit(1)
        assert same(trained(engine, classes()), trained("serial", classes()))

    # -- workers -------------------------------------------------------------------------------------------------

    def test_open_data_of_workers_is_trained_on_and_private_data_is_not_copied_out(
        self, engine: RayEngine, alice: Any, bob: Any
    ) -> None:
        x, y = torch.randn(20, 1), torch.randn(20, 1)
        alice.add_dataset(sy.BaseDataset(x, y), "rows")
        bob.add_dataset(sy.BaseDataset(x, y), "rows", allowed_users={"ann"})
        models = [line(0.0), line(0.0)]
        reports = [
            Trainer(
                model, MSE, [alice, bob], engine=each, dataset_key="rows", user="ann", seed=1, min_clients=1
            )
            .fit(1)
            .rounds[0]
            for model, each in zip(models, (engine, "serial"), strict=True)
        ]
        assert failures(reports[0]) == [("bob", "error")] and reports[1].failures == ()
        assert "private to some users" in reports[0].failures[0].why
        federated = TensorDataset(x, y).federate((alice, bob))  # type: ignore[attr-defined]
        for model, each in zip(models, (engine, "serial"), strict=True):
            model.weight.data.zero_()
            Trainer(model, MSE, federated, engine=each, seed=1).fit(1)
        assert same(models[0].state_dict(), models[1].state_dict())

    # -- Ray itself ----------------------------------------------------------------------------------------------

    @pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads the kernel's table of sockets")
    def test_ray_listens_on_the_loopback_interface_only_and_asks_for_a_token(self, engine: RayEngine) -> None:
        trained(engine, classes())
        # 127.0.0.1, as the kernel writes it: by itself, and within IPv6
        places = _listening(_descendants())
        assert places and places <= {"0100007F", "0000000000000000FFFF00000100007F"}
        assert len(os.environ["RAY_AUTH_TOKEN"]) == 64

    def test_more_actors_than_fit_are_refused_and_others_go_on(self, engine: RayEngine) -> None:
        trained(engine, classes())
        with pytest.raises(
            ValueError, match=r"where 2 clients fit that need 1 CPUs and 0 GPUs each, and not 3"
        ):
            trained(RayEngine(actors=3), classes())
        with pytest.raises(ValueError, match="raise num_cpus or num_gpus"):
            trained(RayEngine(client_gpus=0.5), classes())
        assert same(trained(engine, classes()), trained("serial", classes()))

    def test_closing_ends_what_was_started(self, engine: RayEngine) -> None:
        import ray

        trained(engine, classes())
        assert ray.is_initialized() and _descendants()
        engine.close()
        assert not ray.is_initialized()
        assert not [pid for pid in _descendants() if b"ray" in _command(pid)]
        engine.close()


@needs_ray
@pytest.mark.network
@needs_ray
def test_on_two_nodes_the_weights_are_the_same_and_a_node_that_is_killed_costs_one_client() -> None:
    """The program starts a cluster of two nodes, trains, and takes one of them away."""
    program = Path(ray_parts.__file__).with_name("ray_two_nodes.py")
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=800, env=os.environ, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0 and lines, done.stderr[-2000:]
    found = json.loads(lines[-1])
    assert found["is_same"] and found["nodes"] == 2 and found["accepted"] == 12
    assert found["after"] >= 11 and set(found["failed"]) <= {"died"}


@pytest.mark.slow
def test_a_thousand_clients(engine: RayEngine) -> None:
    parts = many(1000)
    model = net()
    history = Trainer(model, CE, parts, engine=engine, seed=7, batch_size=10).fit(2)
    assert len(history.rounds[-1].accepted) == 1000
    assert same(model.state_dict(), trained("serial", parts))


# -- processes and sockets, as the kernel tells them -----------------------------------------------------------


def _descendants() -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _listening(pids: set[int]) -> set[str]:
    """The addresses, in hexadecimal, that processes listen on."""
    sockets = set()
    for pid in pids:
        try:
            sockets |= {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
        except OSError:
            continue
    places = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            columns = row.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in sockets:
                places.add(columns[1])
    return {place.partition(":")[0] for place in places}
