"""kill -9 of a holder or of the provider at any moment: who is told what, when, and what works afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mpc.deaths import Deaths
from mpc.worker_nursery import Nursery

pytestmark = pytest.mark.network
NAMES = ("alice", "bob", "carol")
#: Seconds after which a client knows.
MOST = 3.0


@pytest.fixture
def deaths(tmp_path_factory: pytest.TempPathFactory, hook: Any, me: Any) -> Iterator[Deaths]:
    nursery = Nursery()
    try:
        made = Deaths(nursery, NAMES, tmp_path_factory.mktemp("p"), hook, seed=7)
        yield made
        for link in made.members:
            link.close()
    finally:
        nursery.close()


def told(deaths: Deaths) -> str:
    detected, recovered = sorted(deaths.detected), sorted(deaths.recovered)
    return (
        f"{len(detected)} deaths: detected after {detected[len(detected) // 2]:.2f} s (median), "
        f"{detected[-1]:.2f} s (most); works again after {recovered[len(recovered) // 2]:.2f} s (median), "
        f"{recovered[-1]:.2f} s (most)"
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_party_that_is_killed_behind_the_walls_of_isolation(
    tmp_path_factory: pytest.TempPathFactory, hook: Any, me: Any
) -> None:
    """Users' commands run in processes of their own, and the one that was killed is the worker's."""
    nursery = Nursery()
    try:
        made = Deaths(nursery, NAMES, tmp_path_factory.mktemp("p"), hook, seed=3, isolation="process")
        for _ in range(3):
            made.one()
        print(told(made))
        assert max(made.detected) < MOST, told(made)
    finally:
        nursery.close()


@pytest.mark.timeout(600)  # on a busy machine
def test_five_deaths(deaths: Deaths) -> None:
    """Who is told what, and what works afterwards. How long it takes is asserted by those that run alone, below."""
    for _ in range(5):
        deaths.one()
    print(told(deaths))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_deaths(deaths: Deaths) -> None:
    for _ in range(50):
        deaths.one()
    print(told(deaths))
    assert max(deaths.detected) < MOST, told(deaths)
