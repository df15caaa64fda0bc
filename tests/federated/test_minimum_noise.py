"""An owner's minimum of noise: who asks for less is refused before anything is computed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from federated.served_clients import examples
from syft.dp.federated import ClientPrivacy, DistributedPrivacy
from syft.exceptions import GetNotPermittedError
from syft.federated import MaskedSum, Trainer
from syft.federated.fit_handlers import check_enough_noise
from syft.federated.records import PrivateContribution
from syft.federated.secure_aggregation.kept_updates import KeptUpdates
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker

pytestmark = pytest.mark.network
torch.set_num_threads(1)

NAMES = ("north", "south", "west")
LOSS = nn.CrossEntropyLoss()


@pytest.fixture
def servers(hook: Any, me: Any) -> Iterator[list[NetworkServerWorker]]:
    with contextlib.ExitStack() as stack:
        made = [NetworkServerWorker(hook, f"inproc://{name}", id=name) for name in NAMES]
        for number, one in enumerate(made):
            one.add_dataset(examples(number, 12), "noisy", least_in_sum=3, minimum_noise=1.0)
            one.add_dataset(examples(number, 12), "alone", minimum_noise=1.0)
            stack.enter_context(one)
        yield made


@pytest.fixture
def lines(servers: Any) -> Iterator[list[Any]]:
    made = [connect(server.address, auto_add=False) for server in servers]
    yield made
    for line in made:
        line.close()


def trainer(lines: Any, key: str = "noisy", **options: Any) -> Trainer:
    torch.manual_seed(0)
    return Trainer(nn.Linear(6, 2), LOSS, lines, dataset_key=key, batch_size=12, **options)


def distributed(noise: float, **options: Any) -> dict[str, Any]:
    made = DistributedPrivacy(
        **{"clip_norm": 0.5, "clients": 3, "threshold": 3, **options, "noise_multiplier": noise}
    )
    return {"privacy": made, "aggregation": made.aggregation()}


def test_rounds_with_as_much_noise_as_the_owner_asks_for_are_trained(lines: Any) -> None:
    one = trainer(lines, **distributed(1.0))
    one.fit(1)
    assert one.history.rounds[0].accepted == NAMES


@pytest.mark.parametrize(
    "options",
    [
        lambda: distributed(0.99),
        lambda: {"privacy": ClientPrivacy(0.5, 5.0, clients=3), "aggregation": MaskedSum()},
        lambda: {"aggregation": MaskedSum()},
        dict,
    ],
    ids=["less", "the server's noise", "no noise", "plain"],
)
def test_rounds_with_less_noise_are_refused_and_nothing_is_kept(
    servers: Any, lines: Any, options: Any
) -> None:
    one = trainer(lines, **options())
    with pytest.raises(Exception, match=r"noise of 1 clipping bounds or more|secure sum of 3"):
        one.fit(1)
    assert all(not server.extension(KeptUpdates)._kept for server in servers)


def test_what_a_sum_is_sure_of_is_what_counts() -> None:
    """Without `least_in_sum` the others may not be there: a worker counts on its own noise alone."""
    from syft.federated.federated_client import FederatedClient

    client, each = FederatedClient(), PrivateContribution(0.5, 2.0**-10, 512 * 512)  # one clipping bound
    client.add_dataset(examples(0, 4), "alone", minimum_noise=1.0)
    client.add_dataset(examples(0, 4), "four", minimum_noise=2.0, least_in_sum=4)
    check_enough_noise(client, "alone", each)
    check_enough_noise(client, "four", each)
    less = PrivateContribution(0.5, 2.0**-10, 512 * 512 - 600)
    for key in ("alone", "four"):
        for found in (less, None, PrivateContribution(0.5, 2.0**-10, 0)):
            with pytest.raises(GetNotPermittedError, match="as its owner said"):
                check_enough_noise(client, key, found)
    client.remove_dataset("alone")
    assert "alone" not in client.minimum_noise


def test_fit_and_evaluate_are_refused_and_the_least_noise_is_told(lines: Any) -> None:
    told = {info.name: info for info in lines[0].datasets()}
    assert told["alone"].minimum_noise == 1.0 and "noise: 1 clipping bounds or more" in str(told["alone"])
    config = sy.TrainConfig(model=nn.Linear(6, 2), loss_fn=LOSS, batch_size=4).send(
        lines[0], dataset_key="alone"
    )
    with pytest.raises(GetNotPermittedError, match="DistributedPrivacy"):
        lines[0].fit("alone")
    with pytest.raises(GetNotPermittedError, match="DistributedPrivacy"):
        lines[0].evaluate("alone")
    del config


def test_a_worker_of_the_trainer_s_own_process_adds_no_noise_and_is_refused(make_worker: Any) -> None:
    worker = make_worker("here")
    worker.add_dataset(examples(0, 12), "rows", minimum_noise=0.5)
    with pytest.raises(Exception, match="adds none"):
        trainer([worker], "rows").fit(1)


@pytest.mark.parametrize("wrong", [0, -1.0, math.inf, math.nan, True, "1"])
def test_a_minimum_is_a_number_above_zero(make_worker: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="number of clipping bounds above 0"):
        make_worker("here").add_dataset(examples(0, 4), "rows", minimum_noise=wrong)
