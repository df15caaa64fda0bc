"""Non-interference of programs on shares among workers on a network: a user hears the same whatever the secret is.

ben shares a secret that eve may compute with and pat have. In each world the secret has other values. Everything that
the workers tell eve's links is noted: results as their specs (shares are random), errors and refusals by their words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mpc.network_parties import HOLDERS, Parties
from syft.core.spec import spec_of
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import GetShapeMessage, ObjectRequestMessage, SearchMessage
from syft.mpc.offers import DescribeSecret, find_secrets, record_of
from syft.policy.permissions import Policy
from syft.workers.network.link import Link

pytestmark = pytest.mark.network

#: By name. In a first world with zeros the group is made among the holders, which takes messages of its own.
WORLDS = {
    "zeros": torch.zeros(2, 2),
    "negative": torch.tensor([[-1.5, -2.0], [-0.25, -3.0]]),
    "beyond the range": torch.tensor([[1e9, -1e9], [1e9, 1e9]]),
}
PROGRAMS: tuple[Callable[[Any], Any], ...] = (
    lambda s: s + s,
    lambda s: s * 3,
    lambda s: s * s,
    lambda s: s @ s,
    lambda s: s.sum(),
    lambda s: s[0],
    lambda s: s > 0,
    lambda s: torch.relu(s),
    lambda s: s / 2,
    lambda s: s.reciprocal(),
    lambda s: s @ torch.ones(3),
    lambda s: s.get(),
    lambda s: (s * s).get(),
    lambda s: (s > 0).get(),
    lambda s: s.reconstruct().get(),
)


@pytest.fixture
def users(hook: Any, me: Any, tmp_path: Any) -> Iterator[SimpleNamespace]:
    made = Parties(hook, (*HOLDERS, "carol"), TokenAuthority.create(tmp_path / "keys"))
    with made.closing:
        made.introduce()
        clients = {name: made.client(**made.shown(name)) for name in ("ben", "eve")}
        yield SimpleNamespace(parties=made, **clients)


def shown(value: Any) -> Any:
    """What a user can tell of a reply, without ids and the random numbers of shares."""
    if isinstance(value, torch.Tensor):
        return str(spec_of(value))
    if isinstance(value, (list, tuple)):
        return [shown(part) for part in value]
    if isinstance(value, dict):
        return {str(key): shown(part) for key, part in value.items()}
    return re.sub(r"0x[0-9a-f]+|[0-9]{4,}|b'[^']*'|b\"[^\"]*\"", "#", f"{type(value).__name__} {value}")


def heard_in(users: Any, world: str, monkeypatch: pytest.MonkeyPatch, programs: Any = PROGRAMS) -> list[Any]:
    said: list[Any] = []
    links = {holder._link for holder in (*users.eve.holders, users.eve.provider)}
    value_of = Link._value_of

    def noted(link: Any, head: Any, payload: Any) -> Any:
        try:
            value = value_of(link, head, payload)
        except Exception as error:
            if link in links:
                said.append((link.name.split("(")[0], shown(error)))
            raise
        if link in links:
            said.append((re.sub("[0-9]+", "#", link.name), shown(value)))
        return value

    secret = users.ben.share(WORLDS.get(world, torch.zeros(2, 2)), may_compute=["eve"], may_get=["pat"])
    secret.offer(f"#{world.split()[0]}")
    monkeypatch.setattr(Link, "_value_of", noted)
    (scan,) = find_secrets(f"#{world.split()[0]}", *users.eve.holders, crypto_provider=users.eve.provider)
    for program in programs:
        try:
            found = program(scan)
            said.append(str(found.tolist() if type(found) is torch.Tensor else tuple(found.shape)))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is what she hears)
            said.append(shown(error))
        for holder in users.eve.holders:
            try:
                holder.sync()
            except Exception as error:  # noqa: BLE001
                said.append(shown(error))
    for holder, obj_id in zip(users.eve.holders, record_of(scan).ids, strict=True):
        for message in (
            GetShapeMessage(obj_id),
            SearchMessage((obj_id,)),
            DescribeSecret(obj_id),
            ObjectRequestMessage((obj_id, "pat", "")),
        ):
            try:
                said.append(shown(holder._recv_msg(message)))
            except Exception as error:  # noqa: BLE001
                said.append(shown(error))
    monkeypatch.setattr(Link, "_value_of", value_of)
    return [str(line).replace(world.split()[0], "WORLD") for line in said]


def test_programs_on_shares_tell_the_same_whatever_the_secret_is(
    users: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, *others = [heard_in(users, world, monkeypatch) for world in ("first", *WORLDS)]
    assert sum("NotPermittedError" in line for line in one) >= 6
    assert len(one) > 40
    for other in others:
        assert other == one


def test_holders_that_give_shares_away_are_found(users: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Policy, "check_get", lambda *_args, **_options: None)
    programs = [lambda s: (s * s).get().float_precision()]
    _, one, same, other = [
        heard_in(users, world, monkeypatch, programs) for world in ("first", "zeros", "again", "negative")
    ]
    assert one == same and one != other
