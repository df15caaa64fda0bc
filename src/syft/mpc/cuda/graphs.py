"""CUDA graphs of programs on shares and of what the provider deals: one launch in place of some hundred small ones.

A program takes the same path whatever its secrets are, and so does the making of a correlation. So the work that the
first runs of a program give to the card is the work of every later run with the same shapes: it is recorded once
(`torch.cuda.graph`), on buffers that stay, and replayed. What goes in is copied to the buffers, what comes out is copied
from them, so nobody else holds a buffer. Randomness is not part of a recording: correlations go in, and the states of
ciphers that correlations are drawn from.

Small tensors only: with large ones the card is busy anyway, and the buffers would be large, too.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from syft.mpc.cuda import chacha

MOST_ELEMENTS = 1 << 21
MOST_GRAPHS = 512
_EAGER_RUNS = 2
"""Runs before one is recorded: Triton compiles in the first, and what runs once or twice is not worth it."""

Tensors = Sequence[torch.Tensor]


@dataclass(eq=False)
class Recording:
    """A graph with the buffers it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[torch.Tensor]
    output: torch.Tensor
    shapes: list[tuple[int, ...]]
    structure: Any
    notes: Any = None

    def replay(self, inputs: Tensors) -> Any:
        """What the recorded work gives for these inputs, in memory of its own."""
        if self.inputs:
            torch._foreach_copy_(self.inputs, list(inputs), non_blocking=True)
        self.graph.replay()
        return tree_unflatten(_cut(self.output.clone(), self.shapes), self.structure)


@dataclass(eq=False)
class Recordings:
    """The graphs of one driver or provider by what they are for. One thread at a time."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    #: What was learnt in runs that were not recorded: the kinds of a program's correlations; None: cannot be recorded.
    learnt: dict[Hashable, Any] = field(default_factory=dict)
    _seen: dict[Hashable, int] = field(default_factory=dict)
    _made: OrderedDict[Hashable, Recording] = field(default_factory=OrderedDict)
    _pool: Any = None

    def find(self, key: Hashable) -> Recording | None:
        found = self._made.get(key)
        if found is not None:
            self._made.move_to_end(key)
        return found

    def is_due(self, key: Hashable) -> bool:
        """Whether something was run often enough to be recorded now; counts the run."""
        runs = self._seen.get(key, 0)
        if len(self._seen) > 8 * MOST_GRAPHS:
            self._seen.clear()
            self.learnt.clear()
        self._seen[key] = runs + 1
        return runs >= _EAGER_RUNS

    def record(self, key: Hashable, inputs: Tensors, work: Callable[[list[torch.Tensor]], Any]) -> Recording:
        """Record `work(buffers)` on copies of the inputs. Nothing runs yet: `replay` does it."""
        buffers = [one.clone(memory_format=torch.contiguous_format) for one in inputs]
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self._pool):
            leaves, structure = tree_flatten(work(buffers))
            shapes = [tuple(one.shape) for one in leaves]
            output = torch.empty(sum(map(_room, shapes)), dtype=torch.int64, device=inputs[0].device)
            torch._foreach_copy_(_cut(output, shapes), leaves)
        made = Recording(graph, buffers, output, shapes, structure)
        self._made[key] = made
        while len(self._made) > MOST_GRAPHS:
            self._made.popitem(last=False)
        return made


def _room(shape: tuple[int, ...]) -> int:
    """Words for a tensor among others: a multiple of 16, so that all begin where wide loads may."""
    return -(-math.prod(shape) // 16) * 16


def _cut(flat: torch.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    made, start = [], 0
    for shape in shapes:
        made.append(flat[start : start + math.prod(shape)].view(shape))
        start += _room(shape)
    return made


def is_recordable(result: Any) -> bool:
    """Whether something consists of int64 tensors on the device, none of them empty."""
    return all(
        type(leaf) is torch.Tensor and leaf.dtype == torch.int64 and leaf.is_cuda and leaf.numel()
        for leaf in tree_flatten(result)[0]
    )


# -- programs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slot:
    """Stands for a tensor of the arguments."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(eq=False)
class GivenArguments:
    """The arguments of a run with their tensors apart, or None in `key` if the run cannot be recorded."""

    key: Hashable
    tensors: list[torch.Tensor]
    rebuild: Callable[[Sequence[torch.Tensor]], Any]


def take_apart(arguments: Any, is_shares: Callable[[Any], bool]) -> GivenArguments | None:
    """None where something among the arguments is neither a tensor nor a public constant, or is too large."""
    leaves, structure = tree_flatten(arguments, is_leaf=is_shares)
    tensors: list[torch.Tensor] = []
    marks: list[Hashable] = []
    for leaf in leaves:
        parts = tuple(leaf) if is_shares(leaf) else (leaf,)
        if isinstance(parts[0], torch.Tensor):
            if not all(type(part) is torch.Tensor for part in parts):
                return None
            tensors.extend(parts)
            marks.append((len(parts), *(_Slot(tuple(part.shape), part.dtype) for part in parts)))
            continue
        if is_shares(leaf):
            return None
        try:
            hash(leaf)
        except TypeError:
            return None
        marks.append((type(leaf), leaf))
    if sum(one.numel() for one in tensors) > MOST_ELEMENTS:
        return None

    def rebuild(given: Sequence[torch.Tensor]) -> Any:
        rest = iter(given)
        made = []
        for leaf in leaves:
            if is_shares(leaf):
                made.append(type(leaf)(next(rest) for _ in leaf))
            else:
                made.append(next(rest) if isinstance(leaf, torch.Tensor) else leaf)
        return tree_unflatten(made, structure)

    return GivenArguments((str(structure), tuple(marks)), tensors, rebuild)


@dataclass(eq=False)
class Buffered:
    """A source of correlations for one party of a recorded run: the fields are buffers."""

    fields: list[tuple[Any, Tensors]]
    position: int = 0

    def take(self, kind: Any) -> Any:
        expected, found = self.fields[self.position]
        if expected != kind:
            raise RuntimeError(f"A program took a {type(kind).__name__} where it took another kind before.")
        self.position += 1
        return tuple(found)


def run_program(
    recordings: Recordings,
    key: Hashable,
    arguments: Any,
    is_shares: Callable[[Any], bool],
    dealing: Any,
    holders: int,
    stepped: Callable[[Any, Callable[[int], Any]], list[Any]],
    cost: Any,
) -> list[Any]:
    """The results of all parties. `stepped(arguments, source)` runs the program launch by launch, `cost` counts."""
    given = take_apart(arguments, is_shares)
    if given is None:
        return stepped(arguments, dealing.source)
    whole = (key, given.key)
    with recordings.lock:
        made = recordings.find(whole)
        if made is None:
            if not recordings.is_due(whole) or recordings.learnt.get(whole) is None:
                results = stepped(arguments, dealing.source)
                recordings.learnt[whole] = list(dealing.kinds) if is_recordable(results) else None
                return results
            made = _record_program(recordings, whole, given, dealing, holders, stepped, cost)
        deals = [dealing.at(position, kind, 0) for position, kind in enumerate(recordings.learnt[whole])]
        fields = [one for deal in deals for rank in range(holders) for one in deal.take(rank)]
        rounds, sent = made.notes
        cost.rounds += rounds
        for rank, size in enumerate(sent):
            cost.bytes_sent[rank] += size
        results = made.replay([*given.tensors, *fields])
        return list(results)


def _record_program(
    recordings: Recordings,
    key: Hashable,
    given: GivenArguments,
    dealing: Any,
    holders: int,
    stepped: Callable[[Any, Callable[[int], Any]], list[Any]],
    cost: Any,
) -> Recording:
    kinds = recordings.learnt[key]
    device = given.tensors[0].device
    shapes = [one.shape for kind in kinds for _ in range(holders) for one in (*kind.base, *kind.derived)]
    fields = [torch.zeros(shape, dtype=torch.int64, device=device) for shape in shapes]
    before = cost.rounds, list(cost.bytes_sent)

    def work(buffers: list[torch.Tensor]) -> Any:
        rest = iter(buffers[len(given.tensors) :])
        by_rank: list[list[tuple[Any, Tensors]]] = [[] for _ in range(holders)]
        for kind in kinds:
            count = len(kind.base) + len(kind.derived)
            for rank in range(holders):
                by_rank[rank].append((kind, [next(rest) for _ in range(count)]))
        return stepped(given.rebuild(buffers), lambda rank: Buffered(by_rank[rank]))

    made = recordings.record(key, [*given.tensors, *fields], work)
    made.notes = cost.rounds - before[0], [a - b for a, b in zip(cost.bytes_sent, before[1], strict=True)]
    cost.rounds, cost.bytes_sent[:] = before
    return made


# -- correlations ----------------------------------------------------------------------------------------


def deal_fields(
    recordings: Recordings,
    kind: Any,
    device: torch.device,
    next_key: Callable[[int], bytes],
    fields_by: Callable[[Callable[[int, Sequence[int]], torch.Tensor]], list[list[torch.Tensor]]],
) -> list[list[torch.Tensor]] | None:
    """The fields of a correlation for all holders; None where it is made draw by draw (rarely asked for, large).

    `fields_by(draw)` makes them of `draw(rank, shape)`, in a fixed order; `next_key(rank)` is the key of the next draw.
    """
    size = sum(math.prod(one.shape) for one in (*kind.base, *kind.derived))
    if size > 16 * MOST_ELEMENTS:
        return None
    with recordings.lock:
        made = recordings.find(kind)
        if made is None:
            if not recordings.is_due(kind):
                return None
            ranks: list[int] = []

            def counted(rank: int, shape: Sequence[int]) -> torch.Tensor:
                ranks.append(rank)
                return torch.zeros(tuple(shape), dtype=torch.int64, device=device)

            fields_by(counted)

            def work(buffers: list[torch.Tensor]) -> Any:
                states = iter(buffers[0])
                return fields_by(
                    lambda _rank, shape: chacha.fill(
                        torch.empty(tuple(shape), dtype=torch.int64, device=device), next(states)
                    )
                )

            states = torch.zeros((len(ranks), chacha.STATE_WORDS), dtype=torch.int32, device=device)
            made = recordings.record(kind, [states], work)
            made.notes = ranks
        keys = chacha.states_of(*(next_key(rank) for rank in made.notes))
        found: list[list[torch.Tensor]] = made.replay([keys.to(device, non_blocking=True)])
        return found
