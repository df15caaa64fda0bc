"""Moving data between workers on a network, and between those and workers of this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.identity.tokens import TokenAuthority
from syft.policy.permissions import Policy

pytestmark = pytest.mark.network


@pytest.fixture
def servers(hook: Any, me: Any) -> Iterator[Any]:
    with (
        sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="north", policy=Policy()) as north,
        sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="south", policy=Policy()) as south,
    ):
        yield north, south


@pytest.fixture
def clients(servers: Any) -> Iterator[Any]:
    made = [sy.connect(server.address) for server in servers]
    yield made
    for client in made:
        client.remove_worker_from_local_worker_registry()
        client.close()


def test_a_move_goes_the_direct_way_between_workers_that_know_each_other(servers: Any, clients: Any) -> None:
    (north, south), (to_north, to_south) = servers, clients
    with sy.connect(south.address, auto_add=False) as link:
        north.add_worker(link)
        x = torch.arange(4.0).send(to_north)
        before = x.id_at_location
        y = x.move(to_south)
        to_north.sync()
        assert y is x and y.location is to_south and y.id_at_location == before
        assert before not in north._objects
        assert y.get().tolist() == [0.0, 1.0, 2.0, 3.0]
        del north._known_workers["south"]


def test_it_belongs_to_its_user_there_and_goes_with_its_pointer(hook: Any, me: Any, tmp_path: Any) -> None:
    authority = TokenAuthority.create(tmp_path)
    address = "tcp://127.0.0.1:0"
    with (
        sy.NetworkServerWorker(hook, address, id="here", tokens=authority.verifier("here")) as here,
        sy.NetworkServerWorker(hook, address, id="there", tokens=authority.verifier("there")) as there,
        sy.connect(there.address, token=authority.issue("here", 60), auto_add=False) as link,
        sy.connect(here.address, token=authority.issue("ana", 60)) as one,
        sy.connect(there.address, token=authority.issue("ana", 60)) as two,
    ):
        here.add_worker(link)
        x = torch.arange(3.0).send(one).move(two)
        assert len(there._objects) == 1 and (x + 1).get().tolist() == [1.0, 2.0, 3.0]
        del x
        two.sync()
        assert len(there._objects) == 0
        one.remove_worker_from_local_worker_registry()
        two.remove_worker_from_local_worker_registry()


def test_somebody_without_a_name_moves_through_their_own_hands(hook: Any, me: Any) -> None:
    address = "tcp://127.0.0.1:0"
    with (
        sy.NetworkServerWorker(hook, address, id="here") as here,
        sy.NetworkServerWorker(hook, address, id="there") as there,
        sy.connect(here.address) as one,
        sy.connect(there.address) as two,
    ):
        x = torch.arange(3.0).send(one).move(two)
        assert x.get().tolist() == [0.0, 1.0, 2.0]
        one.remove_worker_from_local_worker_registry()
        two.remove_worker_from_local_worker_registry()


def test_without_an_introduction_it_goes_through_the_one_who_may_have_it(clients: Any, alice: Any) -> None:
    north, south = clients
    x = torch.arange(4.0).send(north)
    assert x.copy().move(south).get().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert x.move(alice).get().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert torch.ones(2).send(alice).move(north).get().tolist() == [1.0, 1.0]


def test_and_is_refused_to_one_who_may_not(hook: Any, me: Any, clients: Any) -> None:
    _, south = clients
    data = torch.ones(3).tag("#private")
    address = "tcp://127.0.0.1:0"
    with (
        sy.NetworkServerWorker(hook, address, id="closed", data=[data]) as server,
        sy.connect(server.address) as closed,
    ):
        (x,) = closed.search("#private")
        with pytest.raises(sy.exceptions.GetNotPermittedError):
            x.move(south)
        closed.remove_worker_from_local_worker_registry()
    assert south.objects_count_remote() == 0


def test_a_model_trains_over_two_workers(clients: Any) -> None:
    """Adam's state follows the model from worker to worker: equal to training here."""
    north, south = clients
    torch.manual_seed(0)
    xs, ys = torch.randn(2, 8, 3), torch.randn(2, 8, 1)

    def train(places: Any) -> torch.nn.Module:
        torch.manual_seed(1)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for step in range(4):
            x: Any = xs[step % 2]
            y: Any = ys[step % 2]
            if places:
                x, y = x.clone().send(places[step % 2]), y.clone().send(places[step % 2])
                model.send(places[step % 2])
            optimizer.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
            if places:
                model.get()
        return model

    there, here = train((north, south)), train(None)
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        assert torch.equal(one, other)
