"""The client's side of supplies on disk: have a lot dealt and kept, take one call of it, run programs from that alone.

See `syft.mpc.supplies` for how holders keep them, `syft.mpc.supplied_calls` for what users call. May import `driver`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from syft.core.session import session
from syft.exceptions import SyftError
from syft.mpc.correlations import Correlation, Mask, Place, placed
from syft.mpc.network import messages
from syft.mpc.network.driver import ISSUING, NetworkDriver, first_cause
from syft.mpc.network.execution import AHEAD, placed_anew
from syft.mpc.network.portions import PORTION, Portion
from syft.mpc.supplies import SupplyError, SupplyUsedUpError
from syft.mpc.taken import Taken


def store_lot(
    driver: NetworkDriver, name: str, lot: int, calls: Sequence[Sequence[Taken]], about: bytes
) -> None:
    """Deal for calls one after the other, of which the first masks the weights, to the disks of the holders."""
    with ISSUING, driver.waiting():
        group = driver.joined()
        devices = driver._devices()
        places: dict[Place, Place] = {}
        for call, taken in enumerate(calls):
            driver._run += 1
            kinds = _as_dealt(taken, places, driver._run)
            dealt = messages.DealCorrelations(group, driver._run, kinds, is_wide=bool(devices))
            kept = [
                messages.StorePart(
                    group, driver._run, kinds, name, lot, call, about, devices[rank] if devices else ""
                )
                for rank in range(len(driver.holders))
            ]
            driver._send([(dealt, driver.members[-1]), *zip(kept, driver.holders, strict=True)])
            driver.settle_failures()


def _as_dealt(taken: Sequence[Taken], places: dict[Place, Place], run: int) -> tuple[Correlation, ...]:
    kinds = []
    for position, one in enumerate(taken):
        unknown = [kept.place for kept in one.kind.kept if kept.place not in places]
        if unknown:
            raise SupplyError(
                "The call uses a secret that is neither an argument nor a parameter of the model, and was masked "
                "before. A supply has to say all that a call takes: pass the secret as an argument."
            )
        kinds.append(placed(one.kind, places))
        if isinstance(one.kind, Mask):
            places[one.place] = Place(run, AHEAD, position)
    return tuple(kinds)


def listed(driver: NetworkDriver, name: str) -> tuple[bytes, list[tuple[int, int]], int]:
    """What a supply is for, the (lot, call) that every holder has, and how many at least one of them lacks."""
    me = session.require_local_worker()
    abouts, parts = set(), []
    with driver.waiting():
        for holder in driver.holders:
            mine = {found[0]: found for found in me.send_msg(messages.ListSupplies(), holder)}
            if name not in mine:
                known = ", ".join(sorted(mine)) or "none"
                raise SupplyError(
                    f"Worker {holder.id!r} has no supply {name!r} of yours (it has: {known}). Make one with "
                    f"sy.mpc.provide(model, shape, count=..., store={name!r})."
                )
            abouts.add(bytes(mine[name][1]))
            parts.append({(lot, call) for lot, call in mine[name][2]})
    if len(abouts) != 1:
        raise SupplyError(f"The holders of the supply {name!r} keep different ones under this name. Drop it.")
    everywhere = set.intersection(*parts)
    return abouts.pop(), sorted(everywhere), len(set.union(*parts) - everywhere)


def lots(driver: NetworkDriver, name: str) -> set[int]:
    """The lots of a supply that any holder has something of; none if there is no such supply."""
    me = session.require_local_worker()
    with driver.waiting():
        told = [found for one in driver.holders for found in me.send_msg(messages.ListSupplies(), one)]
    return {lot for found in told if found[0] == name for lot, _ in found[2]}


def drop(driver: NetworkDriver, name: str) -> None:
    me = session.require_local_worker()
    with driver.waiting():
        for holder in driver.holders:
            me.send_msg(messages.DropSupply(name), holder)


def take(driver: NetworkDriver, name: str, lot: int, call: int) -> Portion:
    """Have the holders take one call of a supply from their disks: it is spent, whatever happens then."""
    me = session.require_local_worker()
    with ISSUING, driver.waiting():
        group = driver.joined()
        driver._run += 1
        run = driver._run
        replies, failures = [], []
        for holder in driver.holders:
            try:
                replies.append(me.send_msg(messages.TakePart(group, run, name, lot, call), holder))
            except (
                SyftError
            ) as error:  # the others spend theirs all the same: it is of no use without this one
                failures.append(error)
        if failures:
            raise first_cause(failures)
        identity, before, kinds = replies[0]
        if any(bytes(reply[0]) != bytes(identity) for reply in replies):
            raise SupplyUsedUpError(
                f"The holders have different things as call {call} of lot {lot} of the supply {name!r}. It is not used."
            )
        runs = driver.supply_runs.setdefault((name, lot), {})
        runs[before] = run
        driver.supplied[run] = bytes(identity)
        named = placed_anew(kinds, runs)
        return Portion(driver, name, [(kind, (run, position)) for position, kind in enumerate(named)])


@contextlib.contextmanager
def taking_from(portion: Portion) -> Iterator[Portion]:
    """Inside, programs of this thread take from a portion alone. !! SupplyMismatchError"""
    mark = PORTION.set(portion)
    try:
        yield portion
    finally:
        PORTION.reset(mark)
