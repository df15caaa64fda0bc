"""Rounds over workers in processes of their own: in parallel, with the numbers of this process, and whatever fails."""

from __future__ import annotations

import copy
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from federated.served_clients import SLOW, ServedClient, counted_traffic, examples
from network.waiting import wait_until
from stopwatch import Stopwatch
from syft.dp.federated import ClientPrivacy
from syft.federated import Buffered, MaskedSum, Quantize, RandomK, TopK, Trainer, network_clients
from syft.federated.layout import read_state
from syft.federated.network_clients import NetworkClient
from syft.federated.rounds import NotEnoughClientsError
from syft.messaging.message import ObjectMessage, RoundMessage
from syft.workers.network.client_worker import NetworkClientWorker, connect
from trainer_parts import net, same

pytestmark = pytest.mark.network
torch.set_num_threads(1)

FAULTS = (None, "nan", "shape", "hang", "nothing")
NAMES = tuple(f"h{number}" for number in range(len(FAULTS)))
ROWS = {name: 30 + 3 * number for number, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def served() -> Iterator[dict[str, ServedClient]]:
    made = {
        name: ServedClient(id=name, seed=number, rows=ROWS[name], fault=FAULTS[number])
        for number, name in enumerate(NAMES)
    }
    for each in made.values():
        _ = each.address  # they start side by side
    yield made
    for each in made.values():
        each.end()


@pytest.fixture
def workers(hook: Any, me: Any, served: Any) -> Iterator[dict[str, NetworkClientWorker]]:
    made = {
        name: connect(each.address, auto_add=False, patience=1.0, heartbeat=0.5)
        for name, each in served.items()
    }
    yield made
    for each in made.values():
        each.close()


def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.argmax(1) == target).float().mean()


def trainer(
    workers: Any, key: str = "train", names: Any = NAMES, model: Any = None, **options: Any
) -> Trainer:
    settings: dict[str, Any] = (
        dict(epochs=1, batch_size=1000, seed=4, metrics={"accuracy": accuracy}) | options
    )
    chosen = [workers[name] for name in names]
    return Trainer(model or net(), nn.CrossEntropyLoss(), chosen, dataset_key=key, **settings)


def at_home(names: Any = NAMES, model: Any = None, **options: Any) -> Trainer:
    """The same training, in this process."""
    settings: dict[str, Any] = (
        dict(epochs=1, batch_size=1000, seed=4, metrics={"accuracy": accuracy}) | options
    )
    data = {name: examples(NAMES.index(name), ROWS[name]) for name in names}
    return Trainer(model or net(), nn.CrossEntropyLoss(), data, **settings)


@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "fedprox"])
def test_the_weights_are_those_of_a_training_in_this_process(workers: Any, strategy: str) -> None:
    options: dict[str, Any] = dict(strategy=strategy, epochs=2, batch_size=8, optimizer_args={"lr": 0.05})
    far, near = trainer(workers, **options), at_home(**options)
    far.fit(2), near.fit(2)
    assert same(read_state(far.model), read_state(near.model))
    found, expected = far.evaluate_clients(), near.evaluate_clients()
    assert not found.failures
    assert found.metrics == pytest.approx(expected.metrics)
    assert far.history.rounds[-1].training == pytest.approx(near.history.rounds[-1].training)


def test_a_round_takes_the_slowest_workers_time_and_not_the_sum(workers: Any) -> None:
    slow = trainer(workers, "slow", NAMES[:4])
    slow.fit(1)  # sends the plans
    began = time.monotonic()
    slow.fit(3)
    seconds = (time.monotonic() - began) / 2
    assert len(slow.history.rounds[-1].accepted) == 4
    assert SLOW <= seconds < 1.2, f"a round took {seconds:.2f} s"


def test_plans_are_sent_once_and_a_round_is_one_message(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    honest = NetworkClientWorker._recv_msg

    def spy(self: Any, message: Any) -> Any:
        sent.append(type(message))
        return honest(self, message)

    far = trainer(workers, names=NAMES[:2])
    monkeypatch.setattr(NetworkClientWorker, "_recv_msg", spy)
    far.fit(1)
    assert sent.count(ObjectMessage) == 4 and sent.count(RoundMessage) == 2
    sent.clear()
    far.fit(4)
    assert sent == [RoundMessage] * 6


def test_nan_wrong_shapes_nothing_and_hanging_workers_are_left_out_and_named(workers: Any) -> None:
    trainer(workers).fit(1)  # torch takes a second for the first optimizer of a process
    far = trainer(workers, "mixed", deadline=1.0)
    clock = Stopwatch()
    (report,) = far.fit(1).rounds
    assert clock.seconds < 2.5
    assert report.accepted == ("h0",)
    why = {failure.client: failure for failure in report.failures}
    assert why["h1"].kind == "not finite"
    assert why["h2"].kind == "malformed" and "shape" in why["h2"].why
    assert why["h3"].kind == "timeout"
    assert why["h4"].kind == "nothing"
    assert all(bool(t.isfinite().all()) for t in far.model.parameters())
    # The next round does not wait for the one that hangs, and a later one has it again.
    clock = Stopwatch()
    (_, second) = far.fit(2).rounds
    assert clock.seconds < 1.5
    assert {f.client: f.kind for f in second.failures}["h3"] == "busy"
    assert second.accepted == ("h0",)


def test_a_worker_that_is_killed_fails_and_joins_again_when_it_is_back(workers: Any, served: Any) -> None:
    far = trainer(workers, names=NAMES[:3], deadline=20.0)
    assert far.fit(1).rounds[-1].accepted == ("h0", "h1", "h2")
    served["h2"].kill()
    report = far.fit(2).rounds[-1]
    assert report.accepted == ("h0", "h1")
    (failure,) = report.failures
    assert (failure.client, failure.kind) == ("h2", "died") and "cannot be reached" in failure.why
    served["h2"].restart()
    report = far.fit(3).rounds[-1]
    assert report.accepted == ("h0", "h1", "h2"), [str(f) for f in report.failures]


def test_asynchronous_rounds_over_workers_go_on_without_one_that_was_killed_and_with_it_when_it_is_back(
    workers: Any, served: Any
) -> None:
    far = trainer(workers, names=NAMES[:3], schedule=Buffered(2, concurrency=3))
    far.fit(3)
    served["h2"].kill()
    while not (died := far.history.failures().get("h2")):
        far.fit(far.round + 1)
    assert died[0][1].kind == "died" and all(len(report.accepted) == 2 for report in far.history.rounds)
    served["h2"].restart()
    killed_in = far.round

    def is_back() -> bool:
        return "h2" in far.fit(far.round + 1).rounds[-1].accepted

    wait_until(is_back)
    assert far.round > killed_in


def test_workers_with_the_same_model_and_a_round_of_all_of_them_are_in_step_with_a_training_here(
    workers: Any,
) -> None:
    far = trainer(workers, names=NAMES[:3], schedule=Buffered(3))
    near = at_home(NAMES[:3])
    far.fit(2), near.fit(2)
    assert same(read_state(far.model), read_state(near.model))
    assert far.history.rounds[-1].staleness == {"h0": 0, "h1": 0, "h2": 0}


def test_masked_sums_over_workers_are_refused_in_asynchronous_rounds(workers: Any) -> None:
    with pytest.raises(ValueError, match="only if all of them trained the same model"):
        trainer(workers, names=NAMES[:3], schedule=Buffered(2), aggregation=MaskedSum(threshold=2))


@pytest.mark.parametrize("aggregation", [None, MaskedSum(threshold=2)])
def test_workers_come_and_go_and_are_sent_the_plans_that_there_are(
    workers: Any, aggregation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    linear = nn.Linear(6, 2)
    far = trainer(workers, names=NAMES[:2], model=linear, aggregation=aggregation)
    far.fit(1)
    monkeypatch.setattr(network_clients, "traced_module", None)  # nothing is traced again
    assert far.add_clients([workers["h2"]]) == ("h2",)
    far.fit(2)
    far.remove_clients("h0")
    far.fit(3)
    accepted = [report.accepted for report in far.history.rounds]
    assert accepted == [("h0", "h1"), ("h0", "h1", "h2"), ("h1", "h2")]


def wide() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 500), nn.ReLU(), nn.Linear(500, 2))


@pytest.mark.parametrize(
    ("compression", "part"),
    [
        (Quantize(8), 1 / 4),
        (Quantize(2), 1 / 16),
        (TopK(0.05), 0.1),
        (RandomK(0.05, error_feedback=True), 0.05),
    ],
)
def test_compressed_updates_take_so_many_bytes_and_train_as_they_do_here(
    workers: Any, compression: Any, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = trainer(workers, names=NAMES[:2], model=wide(), compression=compression)
    near = at_home(NAMES[:2], wide(), compression=compression)
    far.fit(1)  # sends the plans
    counted = counted_traffic(monkeypatch)
    far.fit(4), near.fit(4)
    assert same(read_state(far.model), read_state(near.model))  # what is held back, too
    update = 4 * far.layout.size
    assert counted[0] > 6 * update  # the model, to two workers in three rounds
    assert counted[1] < 6 * (part * update + 1000), f"{counted[1] / 6:.0f} of {update} bytes"


@pytest.mark.parametrize("privacy", [None, ClientPrivacy(1.0, 1e-5, clients=3)])
def test_masked_sums_of_random_places_come_from_workers(workers: Any, privacy: Any) -> None:
    options: dict[str, Any] = dict(
        names=NAMES[:3],
        model=wide(),
        compression=RandomK(0.1, error_feedback=True),
        shuffle=False,
        privacy=privacy,
    )
    masks = {"max_weight": 1.0} if privacy is not None else {}
    far = trainer(workers, aggregation=MaskedSum(threshold=2, clip=16.0, **masks), **options)
    if privacy is not None:
        options["privacy"] = ClientPrivacy(1.0, 1e-5, clients=3)
    near = at_home(**options | {"model": wide()})
    far.fit(2), near.fit(2)
    for name, tensor in read_state(near.model).items():
        assert torch.allclose(read_state(far.model)[name], tensor, atol=1e-3), name


def test_workers_refuse_masked_sums_of_what_is_not_the_same_for_all(workers: Any) -> None:
    far = trainer(workers, names=NAMES[:3], compression=RandomK(0.1), aggregation=MaskedSum(threshold=2))
    far._compression = TopK(0.1)  # what the trainer itself refuses
    with pytest.raises(NotEnoughClientsError, match="not the same for all clients"):
        far.fit(1)


def test_a_worker_that_is_killed_while_it_trains(workers: Any, served: Any) -> None:
    far = trainer(workers, "slow", NAMES[:2])
    honest = NetworkClient._send

    class Deadly(NetworkClient):
        def _send(self, message: Any) -> Any:
            if isinstance(message, RoundMessage) and self.name == "h1":
                threading.Timer(SLOW / 2, served["h1"].kill).start()
            return honest(self, message)

    for client in far.clients.values():
        client.__class__ = Deadly
    report = far.fit(1).rounds[-1]
    assert report.accepted == ("h0",)
    assert [(f.client, f.kind) for f in report.failures] == [("h1", "died")]
    served["h1"].restart()


def test_a_worker_that_is_stopped_does_not_block_the_next_round(workers: Any, served: Any) -> None:
    trainer(workers, names=NAMES[:2]).fit(1)  # torch takes a second for the first optimizer of a process
    far = trainer(workers, names=NAMES[:2], deadline=0.7)
    far.fit(1)
    served["h1"].signal(signal.SIGSTOP)
    try:
        clock = Stopwatch()
        late, busy = far.fit(3).rounds[1:]
        assert clock.seconds < 2.0
    finally:
        served["h1"].signal(signal.SIGCONT)
    assert late.accepted == busy.accepted == ("h0",)
    assert (late.failures[0].kind, busy.failures[0].kind) == ("timeout", "busy")

    def is_back() -> bool:
        return len(far.fit(far.round + 1).rounds[-1].accepted) == 2

    wait_until(is_back)


def test_all_dead_is_an_error_that_says_who(hook: Any, me: Any) -> None:
    lonely = ServedClient(id="lonely", seed=0)
    client = connect(lonely.address, auto_add=False, patience=0.3)
    far = Trainer(net(), nn.CrossEntropyLoss(), [client], dataset_key="train")
    lonely.kill()
    before = read_state(far.model)
    with pytest.raises(NotEnoughClientsError, match=r"lonely \(died\)"):
        far.fit(1)
    assert same(before, read_state(far.model))
    client.close()


def test_a_worker_killed_between_the_steps_of_a_secure_sum_is_left_out_of_it(
    workers: Any, served: Any
) -> None:
    # The seeds of masked rounds are the workers' own, so nothing random is trained.
    linear = nn.Linear(6, 2)
    far = trainer(
        workers, model=copy.deepcopy(linear), aggregation=MaskedSum(threshold=3), epochs=1, shuffle=False
    )

    class Deadly(NetworkClient):
        def secure_step(self, step: str, content: Any, weight: float = 1.0) -> Any:
            if step == "input":
                served[self.name].kill()
            return super().secure_step(step, content, weight)

    far.clients["h3"].__class__ = Deadly
    report = far.fit(1).rounds[-1]
    served["h3"].restart()
    stayed = ("h0", "h1", "h2", "h4")
    assert report.accepted == stayed
    (failure,) = report.failures
    assert (failure.client, failure.kind) == ("h3", "dropped")
    assert "At the step 'input'" in failure.why and "cannot be reached" in failure.why
    near = at_home(stayed, linear, shuffle=False)
    near.fit(1)
    for name, tensor in read_state(near.model).items():
        assert torch.allclose(read_state(far.model)[name], tensor, atol=1e-5), name


def test_wrong_settings_are_explained(workers: Any, alice: Any) -> None:
    with pytest.raises(ValueError, match="collate_fn is Python code"):
        trainer(workers, collate_fn=lambda items: items)
    with pytest.raises(ValueError, match="named twice"):
        trainer(workers, names=("h0", "h0"))
    with pytest.raises(NotEnoughClientsError, match=r"h0 \(error\).*shapes cannot be multiplied"):
        trainer(workers, names=("h0",), model=nn.Linear(7, 2)).fit(1)
    offered = "'confidential', 'mixed', 'notes', 'slow', 'train', 'words'"
    with pytest.raises(NotEnoughClientsError, match=f"offers you no data set 'tests'; it offers {offered}"):
        trainer(workers, "tests", names=("h0",)).fit(1)
    alice.add_dataset(examples(0, 30), "train")
    with pytest.raises(ValueError, match="use one kind"):
        Trainer(
            net(), nn.CrossEntropyLoss(), [alice, workers["h0"]], dataset_key="train", aggregation=MaskedSum()
        )
    both = Trainer(net(), nn.CrossEntropyLoss(), [alice, workers["h0"]], dataset_key="train", seed=1)
    assert both.fit(1).rounds[-1].accepted == ("alice", "h0")
