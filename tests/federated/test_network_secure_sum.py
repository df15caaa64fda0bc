"""Secure aggregation over a network: the right sum, whoever leaves when, and no update in what the trainer gets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from federated.secure_round import identities
from federated.served_clients import examples
from syft.exceptions import GetNotPermittedError
from syft.federated import FedAdam, MaskedSum, ShareAggregation, Trainer
from syft.federated.aggregation import PlainSum
from syft.federated.layout import Layout, read_state
from syft.federated.local_training import train_locally
from syft.federated.records import FitInstructions, FitResult
from syft.federated.rounds import NotEnoughClientsError
from syft.federated.secure_aggregation import RoundSetting, TooFewClientsError
from syft.federated.secure_aggregation.errors import ProtocolViolationError, SecureAggregationError
from syft.federated.secure_aggregation.kept_updates import KeptUpdates
from syft.federated.secure_aggregation.messages import Delivery
from syft.federated.secure_aggregation.over_network import NetworkMaskedSum
from syft.messaging.message import RoundMessage, SecureStepMessage
from syft.workers import handlers
from syft.workers.network.client_worker import NetworkClientWorker, connect
from syft.workers.network.link import Link
from syft.workers.network.server_worker import NetworkServerWorker
from trainer_parts import net as lively

pytestmark = pytest.mark.network
torch.set_num_threads(1)

NAMES = tuple(f"clinic-{number}" for number in range(6))
PARTS = {name: examples(number, 30 + 2 * number) for number, name in enumerate(NAMES)}
# NB: in order, and without dropout, as the seeds of masked rounds are the workers' own.
SETTINGS: dict[str, Any] = dict(epochs=1, batch_size=16, shuffle=False, seed=9)


def net() -> nn.Module:
    model = lively()
    model.get_submodule("3").p = 0.0  # type: ignore[assignment]
    return model


@pytest.fixture
def servers(hook: Any, me: Any) -> Iterator[dict[str, NetworkServerWorker]]:
    with contextlib.ExitStack() as stack:
        made = {}
        for name in NAMES:
            made[name] = NetworkServerWorker(hook, f"inproc://{name}", id=name)
            made[name].add_dataset(PARTS[name], "train")
            stack.enter_context(made[name])
        yield made


@pytest.fixture
def workers(servers: Any) -> Iterator[list[NetworkClientWorker]]:
    made = [connect(server.address, auto_add=False) for server in servers.values()]
    yield made
    for each in made:
        each.close()


def far(workers: Any, aggregation: Any = None, **options: Any) -> Trainer:
    settings = SETTINGS | {"aggregation": aggregation or MaskedSum(threshold=4)} | options
    return Trainer(net(), nn.CrossEntropyLoss(), workers, dataset_key="train", **settings)


def near(names: Any = NAMES, **options: Any) -> Trainer:
    """The plain sum of the same updates, in this process."""
    made = Trainer(net(), nn.CrossEntropyLoss(), {n: PARTS[n] for n in names}, **SETTINGS | options)
    made.fit(1)
    return made


def assert_close(one: Trainer, other: Trainer) -> None:
    theirs = read_state(other.model)
    for name, tensor in read_state(one.model).items():
        assert torch.allclose(tensor.double(), theirs[name].double(), atol=1e-5), name


def leaving(monkeypatch: pytest.MonkeyPatch, step: str, gone: Any) -> None:
    """Some workers fail at a step."""
    honest = handlers.HANDLERS[SecureStepMessage]

    def take_step(worker: Any, message: SecureStepMessage) -> Any:
        if message.step == step and worker.id in gone:
            raise ConnectionError("the line is dead")
        return honest(worker, message)

    monkeypatch.setitem(handlers.HANDLERS, SecureStepMessage, take_step)


# -- the sum -----------------------------------------------------------------------------------------------


def test_the_sum_is_that_of_the_plain_updates_with_weights_and_statistics(workers: Any, servers: Any) -> None:
    trainer = far(workers)
    assert type(trainer.aggregation) is NetworkMaskedSum
    (report,) = trainer.fit(1).rounds
    assert report.accepted == NAMES and not report.failures
    assert report.examples == sum(len(part) for part in PARTS.values())
    assert_close(trainer, near())
    assert trainer.aggregation.report.weight == report.examples
    assert all(len(server.extension(KeptUpdates)) == 0 for server in servers.values())


def test_strategies_that_need_no_single_update_work_and_others_say_so(workers: Any) -> None:
    trainer = far(workers, strategy=FedAdam(server_lr=0.1))
    trainer.fit(1)
    assert_close(trainer, near(strategy=FedAdam(server_lr=0.1)))
    for strategy in ("median", "scaffold", "krum"):
        with pytest.raises(ValueError, match="needs every client's update"):
            far(workers, strategy=strategy)


@pytest.mark.parametrize("step", ["keys", "shares", "input", "unmasking"])
def test_who_leaves_at_any_step_is_left_out_of_the_sum(
    workers: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    gone = NAMES[1:5:3]  # a third
    leaving(monkeypatch, step, gone)
    trainer = far(workers)
    (report,) = trainer.fit(1).rounds
    if step == "unmasking":  # their inputs had arrived, and the others opened the sum
        assert report.accepted == NAMES
        assert_close(trainer, near())
        return
    stayed = tuple(name for name in NAMES if name not in gone)
    assert report.accepted == stayed
    assert {(f.client, f.kind) for f in report.failures} == {(name, "dropped") for name in gone}
    assert all(f"At the step {step!r}" in f.why and "the line is dead" in f.why for f in report.failures)
    assert_close(trainer, near(stayed))


def test_below_the_threshold_nothing_is_opened_and_the_model_stays(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving(monkeypatch, "unmasking", NAMES[:3])
    trainer = far(workers)
    before = read_state(trainer.model)
    with pytest.raises(TooFewClientsError, match="3 clients helped to unmask") as caught:
        trainer.fit(1)
    assert any("clinic-0: At the step 'unmasking'" in note for note in caught.value.__notes__)
    assert all(torch.equal(before[name], t) for name, t in read_state(trainer.model).items())


def test_a_worker_that_answers_wrongly_is_left_out(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = handlers.HANDLERS[SecureStepMessage]
    seen: dict[Any, Any] = {}

    def take_step(worker: Any, message: SecureStepMessage) -> Any:
        answer = honest(worker, message)
        if message.step == "keys":
            seen[worker.id] = answer
        if worker.id == "clinic-2":  # in the name of another, and of another kind
            return {"keys": seen.get("clinic-0", "no record"), "input": 7}.get(message.step, answer)
        return answer

    monkeypatch.setitem(handlers.HANDLERS, SecureStepMessage, take_step)
    (report,) = far(workers, engine="serial").fit(1).rounds
    assert [f.client for f in report.failures] == ["clinic-2"]
    assert "not its own" in report.failures[0].why


def test_an_update_that_is_not_finite_never_gets_into_a_sum(workers: Any, servers: Any) -> None:
    x, y = PARTS["clinic-3"].tensors
    servers["clinic-3"].remove_dataset("train")
    servers["clinic-3"].add_dataset(torch.utils.data.TensorDataset(x * float("inf"), y), "train")
    trainer = far(workers)
    (report,) = trainer.fit(1).rounds
    assert [(f.client, f.kind) for f in report.failures] == [("clinic-3", "not finite")]
    assert_close(trainer, near(tuple(name for name in NAMES if name != "clinic-3")))


# -- what the trainer gets ---------------------------------------------------------------------------------


def plain_update(trainer: Trainer, name: str) -> torch.Tensor:
    """The update of a client's first round, as its worker makes it."""
    from syft.federated.rounds import instructions_for

    instructions: FitInstructions = instructions_for(
        name, 1, trainer.seed, read_state(net()), trainer._training_of(1), trainer.strategy
    )
    result = train_locally(net(), nn.CrossEntropyLoss(), PARTS[name], instructions)
    return Layout.of(net()).flatten(result.update)


@pytest.mark.parametrize("aggregation", [MaskedSum(threshold=4), PlainSum()])
def test_no_plain_update_is_in_any_byte_that_the_trainer_receives(
    workers: Any, monkeypatch: pytest.MonkeyPatch, aggregation: Any
) -> None:
    received: list[bytes] = []
    honest = Link._take

    def take(self: Any, frame: Any) -> None:
        received.append(bytes(frame))
        honest(self, frame)

    monkeypatch.setattr(Link, "_take", take)
    trainer = far(workers, aggregation)
    trainer.fit(1)
    everything = b"".join(received)
    sizes = [len(PARTS[name]) for name in NAMES]
    for name, size in zip(NAMES, sizes, strict=True):
        update = plain_update(trainer, name)
        runs = [update[start : start + 6] for start in (0, 30, 60)]  # inside of one tensor each
        found = any(run.numpy().tobytes() in everything for run in runs)
        assert found is (type(aggregation) is PlainSum)  # the same look finds them where they are
        if isinstance(aggregation, MaskedSum):
            encoding = aggregation.setting(len(NAMES), update.numel()).encoding
            for weight in (1.0, float(size)):
                words, _ = encoding.encode(update, weight)
                assert words[:4].numpy().tobytes() not in everything


def test_masked_inputs_alone_tell_nothing_and_are_other_ones_each_time(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same update, twice: what the trainer is sent has nothing in common, and is uniform over the ring."""
    inputs: list[torch.Tensor] = []
    honest = NetworkClientWorker._recv_msg

    def recv(self: Any, message: Any) -> Any:
        answer = honest(self, message)
        if isinstance(message, SecureStepMessage) and message.step == "input":
            inputs.append(answer.vector)
        if isinstance(message, RoundMessage):
            assert isinstance(answer, FitResult) and answer.update == {}
        return answer

    monkeypatch.setattr(NetworkClientWorker, "_recv_msg", recv)
    for _ in range(2):
        far(workers).fit(1)
    assert len(inputs) == 2 * len(NAMES)
    words = torch.stack(inputs)
    assert words.unique().numel() == words.numel()
    bits = torch.stack([(words >> place) & 1 for place in range(0, 64, 7)]).double()
    assert bits.mean().item() == pytest.approx(0.5, abs=0.02)
    assert not torch.equal(words[0], words[len(NAMES)])


# -- what a worker does not do -----------------------------------------------------------------------------


def kept(workers: Any, key: str = "train") -> tuple[Any, bytes, bytes]:
    """A worker that keeps an update, its name, and what it is an update of."""
    trainer = Trainer(
        net(), nn.CrossEntropyLoss(), workers, dataset_key=key, aggregation=MaskedSum(), **SETTINGS
    )
    client = trainer.clients[NAMES[0]]
    state = read_state(net())
    assert client.fit(FitInstructions(1, 0, state, optimizer_args={"lr": 0.1})).update == {}
    return client.worker, client._kept, client.context()


def test_an_update_is_in_one_round_and_steps_are_in_order(workers: Any) -> None:
    worker, name, context = kept(workers)
    length = Layout.of(net()).size
    setting = RoundSetting.new(3, length, context=context, weighing="alike")

    def ask(step: str, content: Any, weight: float = 1.0, kept: bytes = name) -> Any:
        return worker._recv_msg(SecureStepMessage(kept, step, content, weight))

    with pytest.raises(ProtocolViolationError, match="in no round yet"):
        ask("input", Delivery(setting.round, NAMES[0], {}))
    with pytest.raises(ProtocolViolationError, match="made by another"):
        ask("keys", RoundSetting.new(3, length))
    with pytest.raises(ProtocolViolationError, match="does not say how updates are weighed"):
        ask("keys", RoundSetting.new(3, length, context=context))
    with pytest.raises(ProtocolViolationError, match="another length"):
        ask("keys", RoundSetting.new(3, length + 1))
    for step, content in (("keys", 7), ("unmasking", (1, 2)), ("__init__", setting), ("unmask", setting)):
        with pytest.raises(ProtocolViolationError, match="was asked for with"):
            ask(step, content)
    assert ask("keys", setting).client == NAMES[0]
    with pytest.raises(ProtocolViolationError, match="in a round already"):
        ask("keys", RoundSetting.new(3, length, context=context))
    for weight in (1e6, float(len(PARTS[NAMES[0]])), float("nan")):
        with pytest.raises(ProtocolViolationError, match="the weight of the round's setting"):
            ask("input", Delivery(setting.round, NAMES[0], {}), weight=weight)
    with pytest.raises(SecureAggregationError, match="No update of that name"):
        ask("keys", setting, kept=b"other")


def test_an_update_is_its_users_alone_and_few_are_kept(workers: Any, servers: Any) -> None:
    _worker, name, _context = kept(workers)
    stranger = connect(servers[NAMES[0]].address, auto_add=False)
    with pytest.raises(SecureAggregationError, match="No update of that name"):
        stranger._recv_msg(SecureStepMessage(name, "keys", RoundSetting.new(3, Layout.of(net()).size)))
    stranger.close()
    for _ in range(6):
        kept(workers)
    assert 0 < len(servers[NAMES[0]].extension(KeptUpdates)) <= 4


def test_a_trainer_cannot_single_out_a_worker_by_telling_the_others_something_else(workers: Any) -> None:
    """Model inconsistency: all but one are told to train with a rate of 0, so that the sum would be one update."""
    trainer = far(workers)
    honest = type(trainer.clients[NAMES[0]])

    class Told(honest):  # type: ignore[valid-type, misc]
        def fit(self, instructions: FitInstructions) -> Any:
            return super().fit(replace(instructions, optimizer_args={"lr": 0.0}))

    for name in NAMES[1:]:
        trainer.clients[name].__class__ = Told
    with pytest.raises(TooFewClientsError) as caught:
        trainer.fit(1)
    assert "made by another" in caught.value.__notes__[0]
    assert caught.value.found == 1


def test_an_owner_can_say_that_updates_leave_only_in_sums(workers: Any, servers: Any) -> None:
    for name, server in servers.items():
        server.add_dataset(PARTS[name], "hidden", least_in_sum=5)
    with pytest.raises(NotEnoughClientsError, match="only in a secure sum of 5 workers or more"):
        Trainer(net(), nn.CrossEntropyLoss(), workers, dataset_key="hidden", **SETTINGS).fit(1)
    with pytest.raises(ValueError, match="2 or more"):
        next(iter(servers.values())).add_dataset(PARTS[NAMES[0]], "alone", least_in_sum=1)
    config = sy.TrainConfig(nn.Linear(6, 2), nn.CrossEntropyLoss()).send(workers[0], dataset_key="hidden")
    for attempt in (workers[0].fit, workers[0].evaluate):
        with pytest.raises(GetNotPermittedError, match="only in a secure sum"):
            attempt("hidden")
    del config
    few = Trainer(
        net(),
        nn.CrossEntropyLoss(),
        workers,
        dataset_key="hidden",
        aggregation=MaskedSum(threshold=4),
        **SETTINGS,
    )
    with pytest.raises(TooFewClientsError) as caught:
        few.fit(1)
    assert "wants 5 or more" in caught.value.__notes__[0]
    enough = Trainer(
        net(),
        nn.CrossEntropyLoss(),
        workers,
        dataset_key="hidden",
        aggregation=MaskedSum(threshold=5),
        **SETTINGS,
    )
    (report,) = enough.fit(1).rounds
    assert report.training == {}  # a loss is a figure of one worker
    assert enough.evaluate_clients().by_client == {}
    assert_close(enough, near())


def test_signed_rounds_with_identities_that_owners_gave_their_workers(workers: Any, servers: Any) -> None:
    signed = MaskedSum(threshold=5, signed=True)
    with pytest.raises(TooFewClientsError) as caught:
        far(workers, signed).fit(1)
    assert "without an identity to sign with" in caught.value.__notes__[0]
    for name, identity in identities(NAMES).items():
        servers[name].extension(KeptUpdates).identity = identity
    trainer = far(workers, signed)
    trainer.fit(1)
    assert_close(trainer, near())
    with pytest.raises(TooFewClientsError) as caught:
        far(workers).fit(1)
    assert "for signed rounds, and this round is not" in caught.value.__notes__[0]


def test_what_would_show_updates_is_refused(workers: Any, alice: Any, bob: Any) -> None:
    class Privacy:
        def clip(self, update: Any) -> Any:
            return update

        def noise(self, total: Any, n_clients: int) -> Any:
            return total

        def round_done(self) -> None: ...

    with pytest.raises(ValueError, match="would have to come here first"):
        far(workers, ShareAggregation([alice, bob]))
    with pytest.raises(ValueError, match="leaves updates with their clients"):
        far(workers, privacy=Privacy())
    with pytest.raises(ValueError, match="for simulations"):
        far(workers, MaskedSum(dropouts=lambda step, present: ()))
