"""Who may have a result: those whom the owners of all that went into it named, whatever the program, in both drivers.

The programs and operations come from the tables that the code itself uses.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import opdb
from mpc import test_fixed_opdb as fixed
from mpc.network_parties import HOLDERS, Parties
from mpc.test_shared_opdb import DEPENDS_ON_COINS, ENTRIES, NOT_YET, with_small_samples
from syft.core.chain import Wrapper
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import ObjectMessage, Operation, Ref
from syft.mpc.kernels import Bilinear
from syft.mpc.methods import secret_of
from syft.mpc.network.programs import OPENING, PROGRAMS
from syft.mpc.offers import find_secrets
from syft.mpc.protocols.lookup import packed
from syft.mpc.protocols.polynomials import matrix_of
from syft.mpc.protocols.select import Pooling
from syft.mpc.rules.fixed_exponentials import power_below_one
from syft.mpc.sharing import AdditiveSharingTensor

A, B, BOTH = {"ana", "pat", "quin"}, {"ben", "pat"}, {"pat"}


@pytest.fixture
def near(make_worker: Any) -> Callable[..., Any]:
    """Shares of a tensor among workers of this process, for some receivers."""
    alice, bob, deals = (make_worker(name) for name in ("alice", "bob", "provider"))

    def share(tensor: torch.Tensor, receivers: set[str]) -> Any:
        if tensor.is_floating_point():
            tensor = tensor.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
        return tensor.share(alice, bob, crypto_provider=deals, may_get=sorted(receivers))  # type: ignore[attr-defined]

    return share


def receivers(node: Any) -> list[Any]:
    """Who may fetch the shares of a secret in this process, at each holder."""
    return [p.location.allowed_users(p.id_at_location) for p in node.pointers]


def nodes_in(result: Any) -> Iterator[Any]:
    if isinstance(result, AdditiveSharingTensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from nodes_in(part)


# -- the table of party programs --------------------------------------------------------------------------------

#: What programs take beside secrets, by the names of their parameters.
PUBLIC: dict[str, Any] = {
    "factor": torch.arange(4),
    "op": Bilinear("mul"),
    "dim": 0,
    "size": 4,
    "divisor": 3,
    "pooling": Pooling((2, 2), (2, 2), (0, 0)),
    "shift": 8,
    "bits": 8,
    "low": 0,
    "lowest": 2,
    "highest": 4,
    "edge": 3,
    "coefficients": packed([3, 2, 1]),
    "tables": packed(*[[1, 2, 3, 4], [5, 6, 7, 8]] * 2),
    "table": packed([1, 2, 3, 4], [5, 6, 7, 8]),
    "scale": 16,
    "start": -20,
    "digits": ((1 << 23, 20, 0),),
    "shifts": (9,),
    "by_byte": packed([5] * 8, [6] * 8),
    "by_place": packed([7] * 8, [8] * 8),
    "degree": 2,
    "matrix": matrix_of([1.0, 0.5, 0.25]),
    "inner": 8,
    "width": 12,
    "amplitudes": (1 << 40,),
    "end": 7,
    "power": power_below_one(1 << 16, 1 << 28),
    "segments": 1,
    "tasks": (("quotient", (0,), 2, 3),),
    "factors": (0,),
    "keep": (0,),
}

#: What is not run on two secrets alone, and why.
ELSEWHERE = {
    "documented.take": "it takes no secret",
    "securenn.private_compare_shared": "its operands are bits in a field of their own; test_no_oracle runs it",
    "select.max_pool2d_backward": "its operands belong to a max_pool2d; the operations below run it",
}


@pytest.mark.parametrize(
    "name",
    sorted(set(PROGRAMS) - OPENING - set(ELSEWHERE) - {n for n in PROGRAMS if n.startswith("spdz2k.")}),
)
def test_results_of_a_party_program_are_for_the_receivers_of_all_its_inputs(name: str, near: Any) -> None:
    shape = (1, 1, 4, 4) if "2d" in name or "windows" in name else (4,)
    values = torch.arange(1, 1 + torch.Size(shape).numel()).view(shape)
    mine, theirs = (secret_of(near(values, who).child) for who in (A, B))
    pool, given, used = [mine, theirs], [], []
    for parameter in list(inspect.signature(PROGRAMS[name]).parameters.values())[1:]:
        if "Tensor" in str(parameter.annotation) and parameter.name not in PUBLIC:
            given.append(pool[len(used) % 2])
            used.append((A, B)[len(used) % 2])
        elif (
            parameter.default is inspect.Parameter.empty
        ):  # a new name among them is added to the table above
            given.append(PUBLIC[parameter.name])
    expected = BOTH if len(used) > 1 else A
    found = list(nodes_in(mine.nodes(mine.group.run(PROGRAMS[name], *given))))
    assert found
    for node in found:
        assert receivers(node) == [expected] * 2, name


def test_the_reasons_are_about_programs() -> None:
    assert set(ELSEWHERE) <= set(PROGRAMS)
    assert {"beaver.reveal", "spdz2k.leave"} <= OPENING


# -- the table of operations -------------------------------------------------------------------------------------


def tried(op: Any, near: Any) -> int:
    """Run an operation on secrets of two owners in turn; how many results there were."""
    count = 0
    for sample in list(with_small_samples(op).sample_inputs(torch.device("cpu"), torch.float32))[:1]:
        owners: list[set[str]] = []

        def lifted(value: Any, owners: list[set[str]] = owners) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return value
            owners.append((A, B)[len(owners) % 2])
            return near(value.detach(), owners[-1])

        args, kwargs = tree_map(lifted, (sample.input, *sample.args)), tree_map(lifted, sample.kwargs)
        with torch.no_grad():
            result = op(*args, **kwargs)
        possible = [
            set.intersection(*some)
            for size in (1, 2)
            for some in combinations([A, B], size)
            if len(owners) > 1
        ] or [owners[0]]
        for leaf in tree_leaves(result):
            node = secret_of(leaf.child) if type(leaf) is Wrapper else None
            if node is None:
                continue
            at_first, *others = receivers(node)
            assert at_first in possible, (opdb.op_id(op), at_first)
            assert all(one == at_first for one in others)
            if isinstance(result, torch.Tensor) and len(owners) > 1 and opdb.op_id(op) in JOINS:
                assert at_first == BOTH, opdb.op_id(op)
            count += 1
    return count


#: Of these every result depends on both operands.
JOINS = {
    "add",
    "sub",
    "mul",
    "div",
    "matmul",
    "mm",
    "maximum",
    "minimum",
    "where",
    "cat",
    "stack",
    "lt",
    "eq",
}


def run_table(entries: list[Any], near: Any) -> int:
    done = 0
    for op in entries:
        name = opdb.op_id(op)
        if name in NOT_YET or name in fixed.NOT_YET or name in DEPENDS_ON_COINS:
            continue
        try:
            done += bool(tried(op, near))
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001  (what secrets cannot do is told by test_shared_opdb)
            continue
    return done


@pytest.mark.filterwarnings("ignore")
def test_results_of_operations_are_for_the_receivers_of_all_their_inputs(near: Any) -> None:
    chosen = [op for index, op in enumerate(ENTRIES) if index % 30 == 5 or opdb.op_id(op) in JOINS]
    assert run_table(chosen, near) > 15


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_results_of_all_operations_are_for_the_receivers_of_all_their_inputs(near: Any) -> None:
    assert run_table(ENTRIES, near) > 250


# -- random programs ---------------------------------------------------------------------------------------------

UNARY: list[Callable[[Any], Any]] = [
    lambda x: x + 1,
    lambda x: x * torch.tensor([[0.5, -1.0], [2.0, 1.0]]),
    lambda x: -x.t(),
    lambda x: torch.relu(x),
    lambda x: x[[1, 0]],
    lambda x: (x < 0).float() + x,
    lambda x: x.sum(0, keepdim=True).expand(2, 2),
    lambda x: x.refresh(),
]
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * y * 0.1,
    lambda x, y: x @ y * 0.1,
    lambda x, y: torch.cat([x, y])[1:3],
    lambda x, y: torch.maximum(x, y),
]


def random_program(pool: list[tuple[Any, set[str]]], length: int, seed: int) -> None:
    """Grow the pool by random operations on what is in it, with the receivers that each result has to have."""
    chance = random.Random(seed)
    for _ in range(length):
        (x, first), (y, second) = chance.choice(pool), chance.choice(pool)
        if chance.random() < 0.5:
            pool.append((chance.choice(UNARY)(x), first))
        else:
            pool.append((chance.choice(BINARY)(x, y), first & second))


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_in_one_process(near: Any, seed: int) -> None:
    pool = [(near(torch.randn(2, 2), who), who) for who in (A, B, {"ana", "ben"})]
    random_program(pool, 8, seed)
    for result, expected in pool:
        assert receivers(secret_of(result.child)) == [expected] * 2


@pytest.mark.network
def test_random_programs_on_a_network(hook: Any, me: Any, tmp_path: Any) -> None:
    """ben's and ana's secrets; ana computes, and is a receiver of nothing that ben has a part in."""
    parties = Parties(hook, (*HOLDERS, "carol"), TokenAuthority.create(tmp_path / "keys"))
    with parties.closing:
        parties.introduce()
        ben, ana = (parties.client(**parties.shown(name)) for name in ("ben", "ana"))
        ben.share(torch.randn(2, 2), may_compute=["ana"], may_get=sorted(B)).offer("#bens")
        (bens,) = find_secrets("#bens", *ana.holders, crypto_provider=ana.provider)
        pool = [(bens, B), (ana.share(torch.randn(2, 2), may_get=sorted(A)), A)]
        for seed in range(2):
            random_program(pool, 7, seed)
        for holder in ana.holders:
            holder.sync()
        for result, expected in pool:
            for pointer in secret_of(result.child).pointers:
                found = parties.servers[pointer.location.id].allowed_users(pointer.id_at_location)
                assert found == expected
                entry = parties.servers[pointer.location.id]._entries[pointer.id_at_location]
                assert not entry.is_public


@pytest.mark.network
def test_a_constant_that_a_secret_was_written_into_is_none_any_more(
    hook: Any, me: Any, tmp_path: Any
) -> None:
    """ana calls her own object a constant, copies ben's share into it, and computes with the copy, and with a view."""
    parties = Parties(hook, (*HOLDERS, "carol"), TokenAuthority.create(tmp_path / "keys"))
    with parties.closing:
        parties.introduce()
        ben, ana = (parties.client(**parties.shown(name)) for name in ("ben", "ana"))
        ben.share(torch.arange(4), may_compute=["ana"], may_get=["pat"]).offer("#bens")
        (bens,) = find_secrets("#bens", *ana.holders, crypto_provider=ana.provider)
        share = secret_of(bens.child).pointers[0].id_at_location
        alice, server = ana.alice, parties.servers["alice"]
        alice._recv_msg(ObjectMessage(torch.zeros(4, dtype=torch.int64), 71, is_public=True))
        alice._recv_msg(Operation("aten.view.default", None, [Ref(71), [2, 2]], {}, (72,)))
        alice._recv_msg(Operation("aten.copy_.default", None, [Ref(71), Ref(share)], {}, ()))
        alice._recv_msg(Operation("aten.mul.Tensor", None, [Ref(71), 1], {}, (73,)))
        alice._recv_msg(Operation("aten.mul.Tensor", None, [Ref(72), 1], {}, (74,)))
        alice.sync()
        for obj_id in (71, 73, 74):
            assert server._entries[obj_id].allowed <= {"pat"}, obj_id
        assert not server._entries[71].is_public
