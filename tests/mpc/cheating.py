"""A driver in which one holder changes what it sends, and the programs that it is tried on."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.integrity import wide
from syft.mpc.integrity.sealed import Entrance, Sealed
from syft.mpc.kernels import Bilinear
from syft.mpc.party import Round, Tensors
from syft.mpc.protocols import spdz2k
from syft.mpc.protocols.lookup import packed

Tamper = Callable[[random.Random, tuple[torch.Tensor, ...], list[Tensors]], tuple[torch.Tensor, ...]]


# -- what a cheater does to the tensors that it sends ------------------------------------------------------


def _somewhere(rng: random.Random, tensors: Sequence[torch.Tensor]) -> tuple[int, int]:
    index = rng.choice([k for k, t in enumerate(tensors) if t.numel()])
    return index, rng.randrange(tensors[index].numel())


def flip_bit(rng: random.Random, tensors: Any, _seen: Any) -> Any:
    """Any bit of a word. (Of a number: of its lower word. The bits above it mean nothing.)"""
    index, place = _somewhere(rng, tensors)
    made = [t.clone() for t in tensors]
    words = made[index]
    flat = (words[:1] if words.ndim and words.shape[0] == 2 else words).view(-1)
    bit = rng.randrange(64)
    flat[place % flat.numel()] ^= -(1 << 63) if bit == 63 else 1 << bit
    return tuple(made)


def _add(error: int, index: int, place: int, tensors: Any) -> Any:
    """Add to one number, packed in two words where the tensor is of numbers; carries included."""
    made = [t.clone() for t in tensors]
    tensor = made[index]
    if tensor.ndim and tensor.shape[0] == 2:
        lo, hi = tensor[0].view(-1), tensor[1].view(-1)
        place %= lo.numel()
        whole = wide.as_integer(wide.unpacked(lo[place], hi[place])) + error
        lo[place], hi[place] = wide.packed(wide.of_integer(whole))
    else:
        word = (int(tensor.view(-1)[place]) + error + (1 << 63)) % (1 << 64) - (1 << 63)
        tensor.view(-1)[place] = word
    return tuple(made)


def add_error(rng: random.Random, tensors: Any, _seen: Any) -> Any:
    return _add(rng.randrange(1, 1 << 64), *_somewhere(rng, tensors), tensors)


def add_small_order(rng: random.Random, tensors: Any, _seen: Any) -> Any:
    """2^63 and its neighbours: the errors that MACs mod 2^64 miss every second time."""
    return _add(1 << rng.choice((63, 63, 63, 62, 61, 60)), *_somewhere(rng, tensors), tensors)


def swap(rng: random.Random, tensors: Any, seen: Any) -> Any:
    """Two different elements change places."""
    index, place = _somewhere(rng, tensors)
    flat = tensors[index].reshape(-1)
    others = (flat != flat[place]).nonzero().view(-1).tolist()
    if not others:
        return flip_bit(rng, tensors, seen)
    other = rng.choice(others)
    made = [t.clone() for t in tensors]
    words = made[index].view(-1)
    words[place], words[other] = flat[other].clone(), flat[place].clone()
    return tuple(made)


def replay(rng: random.Random, tensors: Any, seen: Any) -> Any:
    """An earlier frame of the same shape in the place of this one."""
    shapes = [t.shape for t in tensors]
    earlier = [old for old in seen if [t.shape for t in old] == shapes]
    earlier = [
        old for old in earlier if any(not torch.equal(a, b) for a, b in zip(old, tensors, strict=True))
    ]
    return rng.choice(earlier) if earlier else flip_bit(rng, tensors, seen)


def all_ones(rng: random.Random, tensors: Any, _seen: Any) -> Any:
    return tuple(torch.full_like(t, -1) for t in tensors)


TAMPERINGS: tuple[Tamper, ...] = (flip_bit, add_error, add_small_order, swap, replay, all_ones)


# -- the driver --------------------------------------------------------------------------------------------


class Cheating(Lockstep):
    """Lockstep in which the holder `cheater` changes its frame of the round number `at`, counted from `arm` on.

    It tells all others the same (`alike`), and goes on as if it had been right; or it tells one of them something else.
    The cheater is stepped last, so an error that comes out is an honest holder's.
    """

    def __init__(self, holders: int, cheater: int = 0) -> None:
        super().__init__(holders)
        self.cheater = cheater
        self.at: int | None = None
        self.rounds_seen = 0
        self.tampered = False
        self.sent: list[Tensors] = []

    def arm(self, at: int, tamper: Tamper, rng: random.Random, alike: bool) -> None:
        self.at, self.tamper, self.rng, self.alike, self.rounds_seen = at, tamper, rng, alike, 0

    def _exchange(self, rounds: Mapping[int, Round], *rest: Any) -> dict[int, Any]:
        mine = rounds[self.cheater]
        honest_first = {rank: one for rank, one in rounds.items() if rank != self.cheater}
        if mine.outgoing:
            honest = next(iter(mine.outgoing.values()))
            if self.at is not None and self.rounds_seen == self.at:
                mine = self._changed(mine, honest)
            self.rounds_seen += 1
            self.sent.append(tuple(t.clone() for t in honest))
        return super()._exchange({**honest_first, self.cheater: mine}, *rest)

    def _changed(self, mine: Round, honest: Tensors) -> Round:
        self.tampered = True
        told = self.tamper(self.rng, honest, self.sent)
        if not self.alike:
            victim = self.rng.choice(list(mine.outgoing))
            return Round({**mine.outgoing, victim: told}, mine.incoming, mine.finish, mine.opened)
        return Round(
            dict.fromkeys(mine.outgoing, told),
            mine.incoming,
            self._consistent(mine, honest, told),
            mine.opened,
        )

    def _consistent(self, mine: Round, honest: Tensors, told: Tensors) -> Callable[..., Any]:
        """The cheater's own view of an opening with the error that the others see."""
        if not mine.opened:
            return mine.finish

        def finish(received: Mapping[int, Tensors]) -> Any:
            peer = next(iter(received))
            shifted = []
            for right, wrong, theirs in zip(honest, told, received[peer], strict=True):
                if right.ndim and right.shape[0] == 2 and not self._is_bits(mine):
                    total = wide.unpacked(*wrong) - wide.unpacked(*right) + wide.unpacked(*theirs)
                    shifted.append(wide.packed(total))
                else:
                    shifted.append(right ^ wrong ^ theirs)
            return mine.finish({**received, peer: tuple(shifted)})

        return finish

    @staticmethod
    def _is_bits(one: Round) -> bool:
        return "open_bits" in getattr(one.finish, "__qualname__", "")


# -- entering, running, leaving without a group --------------------------------------------------------------


def enter(driver: Lockstep, values: torch.Tensor) -> Shares:
    shape = tuple(values.shape)
    masks, mask = driver.run_and_tell(Sealed(Entrance(shape)), spdz2k.entrance, shape)
    made: Shares = driver.run(spdz2k.enter, masks, values - mask)
    return made


def leave(driver: Lockstep, shares: Shares) -> torch.Tensor:
    shape = tuple(shares[0].shape[1:])
    copies, mask = driver.run_and_tell(Sealed(Entrance(shape)), spdz2k.leave, shares)
    assert all(torch.equal(copies[0], copy) for copy in copies)
    return copies[0] + mask  # type: ignore[no-any-return]


def left(driver: Lockstep, result: Any) -> Any:
    """All tensors of a result; what a program gave as None is None."""
    if isinstance(result, Shares):
        return None if result[0] is None else leave(driver, result)
    return tuple(left(driver, part) for part in result)


A = torch.tensor([[3, -70000, 5], [0, 123456789, -1]])
B = torch.tensor([[-7, 11, 13], [17, -(1 << 30), 1]])
SMALL = torch.tensor([0, 5, 7, 2])
MATMUL = Bilinear.of("matmul", transpose_y=True)

#: Every program that runs on authenticated shares, on something: secrets, and public arguments.
EXAMPLES: dict[str, list[tuple[tuple[torch.Tensor, ...], tuple[Any, ...]]]] = {
    "beaver.spdz_mul": [
        ((A, B), ()),
        ((A, B), (MATMUL,)),
        ((A.view(1, 1, 2, 3), B.view(1, 1, 2, 3)[..., :2]), (Bilinear.of("conv", padding=1),)),
    ],
    "beaver.square": [((A,), ())],
    "truncate.truncate": [((A * 1000,), (1000,)), ((A << 16,), (1 << 16,))],
    "local.add": [((A, B), ())],
    "local.zeros": [((A,), ())],
    "local.negate": [((A,), ())],
    "select.is_negative": [((A,), ()), ((A,), (2,))],
    "select.is_zero": [((A,), ())],
    "select.sign": [((A,), ())],
    "select.relu": [((A,), ())],
    "select.relu_with_bit": [((A,), ())],
    "select.absolute": [((A,), ())],
    "select.clamp": [((A,), (-5, 1000)), ((A,), (None, 7)), ((A,), (5, 3))],
    "select.maximum": [((A,), (1,)), ((A,), ())],
    "select.minimum": [((A,), (0, True))],
    "select.argmax": [((A,), (1,))],
    "select.argmin": [((A,), ())],
    "select.max_with_indices": [((A,), (1, True))],
    "derived.positive_part": [((A,), ())],
    "derived.maximum_and_place": [((A,), (1,))],
    "derived.one_hot": [((SMALL,), (8,))],
    "derived.leading_bit": [((SMALL,), (5,))],
    "derived.largest": [((A,), (1,)), ((A,), (0,)), ((torch.stack([B, A, B, A - B]),), (0,))],
    # whole digits, so that no coin decides how they are rounded
    "lookup.split_digit": [((SMALL << 4,), (4, 8, packed(list(range(10, 18)), list(range(8)))))],
    "lookup.polynomial": [((SMALL << 4,), (packed([16, -32, 48, 16]), 4, 4))],
    "lookup.piecewise": [((SMALL << 4,), (4, 8, packed(list(range(8)), [16] * 8, [3] * 8)))],
    # beyond the ends, where no rounding depends on a mask
    "exponential.exponential": [
        ((A,), (10, -40, 5, 8, ((1 << 23, 5, 0),) * 4, (4,), 0, -1, 77, 4)),
        ((A - (1 << 41),), (10, -40, 5, 8, ((1 << 23, 5, 0), (1 << 23, 2, 1)), (4, 0), 0, None, 0, 4)),
    ],
    "truncate.rescale": [((A,), (3000, 1000))],
    "select.cut_magnitude": [((A,), (1000,))],
    "divide.divide_bounded": [
        ((SMALL << 9, SMALL + 16), (4, 5, packed([64, 0]), 6, 6, 64)),
        ((SMALL << 9, SMALL + 8), (3, 3, packed([64, 0]), 6, 6, 64)),
    ],
    "divide.divide_public": [((A,), (7,)), ((A,), (-3, "trunc"))],
    "divide.divide_shared": [((SMALL, SMALL + 2), (3, "floor"))],
}


def ran(driver: Lockstep, program: str, secrets: Sequence[torch.Tensor], public: Sequence[Any]) -> Any:
    given = [enter(driver, value) for value in secrets]
    return driver.run(spdz2k.apply, program, *given, *public)
