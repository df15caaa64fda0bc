"""Masked sums of workers together with privacy of whole clients: clipped and blurred where the data is, and accounted."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from federated.served_clients import examples
from syft.dp.accounting import Accountant, Gaussian
from syft.dp.federated import AdaptiveClipping, ClientPrivacy, DistributedPrivacy
from syft.federated import MaskedSum, Trainer
from syft.federated.layout import read_state
from syft.federated.network_clients import NetworkClient
from syft.federated.records import FitInstructions, FitResult, PrivateContribution
from syft.federated.secure_aggregation import ProtocolViolationError, SparseGraph, TooFewClientsError
from syft.federated.secure_aggregation.kept_updates import KeptUpdates
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker

pytestmark = pytest.mark.network
torch.set_num_threads(1)

NAMES = tuple(f"clinic-{number}" for number in range(5))
LOSS = nn.CrossEntropyLoss()


@pytest.fixture
def servers(hook: Any, me: Any) -> Iterator[dict[str, NetworkServerWorker]]:
    with contextlib.ExitStack() as stack:
        made = {}
        for number, name in enumerate(NAMES):
            made[name] = NetworkServerWorker(hook, f"inproc://{name}", id=name)
            made[name].add_dataset(examples(number, 12 + number), "rows", least_in_sum=3)
            broken = examples(number, 9).tensors
            if number == 1:
                broken = (broken[0] * float("nan"), broken[1])
            made[name].add_dataset(TensorDataset(*broken), "broken")
            stack.enter_context(made[name])
        yield made


@pytest.fixture
def lines(servers: Any) -> Iterator[list[Any]]:
    made = [connect(server.address, auto_add=False) for server in servers.values()]
    yield made
    for line in made:
        line.close()


def net(width: int = 40) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))


def trainer(lines: Any, key: str = "rows", model: Any = None, **options: Any) -> Trainer:
    settings: dict[str, Any] = {"batch_size": 100, "optimizer_args": {"lr": 0.5}} | options
    return Trainer(model or net(), LOSS, lines, dataset_key=key, **settings)


def moved(trained: Trainer, rounds: int = 1) -> torch.Tensor:
    before = trained.layout.flatten(read_state(trained.model))
    trained.fit(rounds)
    return trained.layout.flatten(read_state(trained.model)) - before


def distributed(**options: Any) -> DistributedPrivacy:
    return DistributedPrivacy(
        **{"clip_norm": 0.5, "noise_multiplier": 1.0, "clients": 5, "threshold": 4, **options}
    )


def test_the_sum_has_the_noise_of_those_who_stayed_and_is_charged_for_the_fewest(lines: Any) -> None:
    privacy = distributed(colluding=1)
    one = trainer(lines, privacy=privacy, aggregation=privacy.aggregation(), optimizer_args={"lr": 0.0})
    step = moved(one)  # nothing is learnt: what moves is the noise, and the mean of five
    expected = privacy.noise_std(5) / 5
    assert step.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * step.numel()))
    assert abs(step.mean().item()) < 5 * expected / math.sqrt(step.numel())
    # NOTE [Drop-outs and noise]: three honest clients are counted on, whoever came.
    assert expected * 5 / 0.5 == pytest.approx(math.sqrt(5 / 3), rel=0.01)
    cost = Accountant()
    cost.compose(Gaussian(privacy.multiplier(one.layout.size)))
    assert privacy.epsilon(1e-3) == pytest.approx(cost.epsilon(1e-3))
    (report,) = one.history.rounds
    assert report.accepted == NAMES and report.examples is None and report.training == {}


def test_workers_clip_and_the_trainer_sees_neither_examples_nor_losses(
    lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = []
    fit = NetworkClient.fit

    def spy(self: Any, instructions: Any) -> Any:
        answers.append(fit(self, instructions))
        return answers[-1]

    monkeypatch.setattr(NetworkClient, "fit", spy)
    # The noise is in the tenths of a thousandth, so that the clipping shows.
    privacy = distributed(noise_multiplier=1e-4, clip_norm=0.01)
    step = moved(trainer(lines, privacy=privacy, aggregation=privacy.aggregation(word_bits="fit")))
    assert 0.002 < step.norm().item() < 0.0101
    assert answers == [FitResult(1, {}, 1, 1)] * 5


def test_the_server_may_add_the_noise_to_a_masked_sum(lines: Any) -> None:
    privacy = ClientPrivacy(clip_norm=0.01, noise_multiplier=1e-4, clients=5)
    step = moved(
        trainer(lines, privacy=privacy, aggregation=MaskedSum(threshold=4, clip=1.0, max_weight=1.0))
    )
    assert 0.002 < step.norm().item() < 0.0101 and privacy.rounds == 1
    loud = ClientPrivacy(clip_norm=0.5, noise_multiplier=1.0, clients=5)
    sum_of = MaskedSum(threshold=4, clip=1.0, max_weight=1.0)
    noisy = moved(trainer(lines, privacy=loud, aggregation=sum_of, optimizer_args={"lr": 0.0}))
    assert noisy.std().item() == pytest.approx(0.5 / 5, rel=0.2)


def test_who_drops_out_takes_noise_along_and_below_the_threshold_nothing_opens(
    lines: Any, servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: set[str] = {NAMES[2]}
    step_of = NetworkClient.secure_step

    def drop(self: Any, step: str, *args: Any) -> Any:
        if step in ("input", "unmasking") and self.name in lost:
            raise ConnectionError("the line is dead")
        return step_of(self, step, *args)

    monkeypatch.setattr(NetworkClient, "secure_step", drop)
    privacy = distributed()
    one = trainer(lines, privacy=privacy, aggregation=privacy.aggregation(), optimizer_args={"lr": 0.0})
    step = moved(one)
    assert one.history.rounds[-1].accepted == tuple(n for n in NAMES if n not in lost)
    assert step.std().item() == pytest.approx(privacy.noise_std(4) / 4, rel=5 / math.sqrt(2 * step.numel()))
    spent = privacy.epsilon(1e-3)
    lost.add(NAMES[3])
    with pytest.raises(TooFewClientsError):
        one.fit(2)
    assert privacy.epsilon(1e-3) > spent and privacy.rounds == 2  # its words had left the workers


def test_a_training_that_comes_to_nan_adds_zeros_and_is_in_no_report(lines: Any) -> None:
    privacy = distributed(noise_multiplier=1e-4)
    one = trainer(lines, "broken", privacy=privacy, aggregation=privacy.aggregation())
    step = moved(one)
    assert bool(step.isfinite().all()) and one.history.rounds[-1].accepted == NAMES
    assert not one.history.rounds[-1].failures


def test_a_worker_sends_no_private_update_in_plain_or_on_another_grid(lines: Any, servers: Any) -> None:
    one = trainer(lines, aggregation=MaskedSum(threshold=4))
    client: Any = one.clients[NAMES[0]]
    model = net()

    def told(**private: Any) -> FitInstructions:
        rule = PrivateContribution(**{"clip_norm": 0.5, "step": 2.0**-10, "variance": 100, **private})
        return FitInstructions(1, 7, read_state(model), private=rule)

    for wrong, said in (
        ({"step": 0.3}, "power of two"),
        ({"variance": -1}, "variance -1"),
        ({"clip_norm": float("nan")}, "clip_norm"),
    ):
        with pytest.raises(ValueError, match=said):
            client.fit(told(**wrong))
    client.fit(told())
    (kept,) = servers[NAMES[0]].extension(KeptUpdates)._kept.values()
    assert kept.vector.norm() <= 0.5 and torch.equal(kept.vector * 1024, (kept.vector * 1024).round())
    length = one.layout.size
    context = client.context()
    sums = {
        "another grid": MaskedSum(threshold=4, clip=1.0, max_weight=1.0, fraction_bits=9, noise_reach=10**4),
        "no room for any": MaskedSum(threshold=4, clip=1.0, max_weight=1.0, fraction_bits=10),
    }
    for said, settings in sums.items():
        with pytest.raises(ProtocolViolationError, match=said):
            client.secure_step("keys", settings.setting(5, length, context, "alike"))
    weighed = MaskedSum(threshold=4, clip=1.0, fraction_bits=10, noise_reach=10**4)
    with pytest.raises(ProtocolViolationError, match="another grid"):
        client.secure_step("keys", weighed.setting(5, length, context, "examples"))
    plain: Any = trainer(lines, "broken").clients[NAMES[0]]
    with pytest.raises(ValueError, match="leaves under masks only"):
        plain.fit(told())


def test_what_does_not_belong_together_is_refused(lines: Any) -> None:
    privacy = distributed()
    with pytest.raises(ValueError, match="do not belong together"):
        trainer(lines, privacy=ClientPrivacy(0.5, 1.0, clients=5), aggregation=privacy.aggregation())
    with pytest.raises(ValueError, match=r"aggregation=privacy\.aggregation\(\)"):
        trainer(lines, privacy=privacy, aggregation=MaskedSum(threshold=4))
    with pytest.raises(ValueError, match="give the Trainer the privacy too"):
        trainer(lines, aggregation=privacy.aggregation())
    with pytest.raises(ValueError, match="AdaptiveClipping counts updates that are here"):
        trainer(
            lines,
            privacy=ClientPrivacy(0.5, 1.0, clients=5, adaptive=AdaptiveClipping(count_noise=2.0)),
            aggregation=MaskedSum(threshold=4, max_weight=1.0),
        )
    with pytest.raises(ValueError, match="mostly below the grid"):
        trainer(
            lines,
            privacy=ClientPrivacy(1e-6, 1.0, clients=5),
            aggregation=MaskedSum(threshold=4, fraction_bits=8),
        )
    assert privacy.aggregation(sparse=SparseGraph(), word_bits="fit").setting(5, 10).word_bits < 32
