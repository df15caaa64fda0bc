"""`record`: a model on secrets that lie on a CUDA device, as two CUDA graphs. One deals, the other computes.

    fast = record(model, example)      # example: a secret of the shape of later inputs
    fast.provide()                     # the provider's work, ahead of time
    answer = fast(secret)              # the holders' work: a few launches, whatever the model

NOTE [What is recorded]
A model that does not look at values gives the card the same work for every input of one shape. So one forward pass is
recorded with buffers in the place of its input and of everything that the provider deals. Randomness is not recorded: a
call takes correlations that were dealt for it alone, from new places of the streams, and `provide` is called by itself
where nobody did. What is remembered of weights (masked forms, folded norms) is part of the recording: a weight that is
written to makes it void, and a call raises.

The rules that CUDA graphs ask for hold in programs on shares anyway: no value is read, and no shape depends on one. A
public tensor among the arguments is a constant of the recording.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.exceptions import SyftError
from syft.mpc.binding import purpose
from syft.mpc.correlations import Correlation, Kept, Mask, Place
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.placing import keeping_constants
from syft.mpc.provider import Dealing, Provider, taken_of
from syft.mpc.randomness import WIDE_KEY_BYTES
from syft.mpc.reuse import Remembered, remembered
from syft.mpc.sharing import AdditiveSharingTensor, secret_of

_WARM_UPS = 2
"""Passes before the one that is noted: kernels are compiled, weights masked, norms folded."""


_INPUT = object()
"""Stands among the arguments for a secret, which differs from call to call."""


class RecordingVoidError(SyftError, RuntimeError):
    """A recorded model was called after its weights were written to."""


@dataclass(eq=False)
class _Run:
    """What one program of the recorded call takes from the provider."""

    program: bytes
    kinds: list[Correlation]
    places: list[Place]


@dataclass(eq=False)
class _Noting:
    """Put into a driver: notes what the programs of a call take."""

    runs: list[_Run] = field(default_factory=list)

    def run(self, dealing: Dealing, arguments: Any, stepped: Any) -> list[Any]:
        results = list(stepped(arguments, dealing.source))
        self.runs.append(_Run(dealing.program, list(dealing.kinds), list(dealing.places)))
        return results


@dataclass(eq=False)
class _Giving:
    """Put into a driver: gives the programs of the same call buffers for what they take."""

    runs: list[_Run]
    fields: list[list[list[list[torch.Tensor]]]]  # by run, position, holder
    position: int = 0
    #: Operands whose masked form was made before: their memory is part of the recording.
    held: list[Any] = field(default_factory=list)

    def run(self, dealing: Dealing, arguments: Any, stepped: Any) -> list[Any]:
        index, self.position = self.position, self.position + 1
        if index >= len(self.runs):
            raise RuntimeError(
                "The call ran more programs than before: it depends on something that changes."
            )
        run, fields = self.runs[index], self.fields[index]
        leaves = tree_flatten(arguments, is_leaf=lambda value: isinstance(value, Shares))[0]
        self.held += [leaf for leaf in leaves if isinstance(leaf, Shares) and not torch.is_tensor(leaf[0])]
        return list(stepped(arguments, lambda rank: _Buffers(run, [parts[rank] for parts in fields])))


@dataclass(eq=False)
class _Buffers:
    """`party.CorrelationSource` of one holder while a call is recorded."""

    run: _Run
    fields: list[list[torch.Tensor]]
    position: int = 0

    def take(self, kind: Correlation) -> tuple[torch.Tensor, ...]:
        index, self.position = self.position, self.position + 1
        if self.run.kinds[index] != kind:
            raise RuntimeError(
                f"The call took a {type(kind).__name__} where it took another kind before: it depends on something "
                "that changes from call to call, and cannot be recorded."
            )
        return tuple(self.fields[index])

    def mask(self, shape: Sequence[int]) -> tuple[Place, torch.Tensor]:
        place = self.run.places[self.position]
        (share,) = self.take(Mask(tuple(shape)))
        return place, share


class Recorded:
    """A function of secrets, recorded. Made by `record`; one call at a time."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        leaves, self._structure = tree_flatten((args, kwargs))
        self._constants = [_INPUT if _secret(leaf) else leaf for leaf in leaves]
        self._examples = [leaf for leaf in leaves if _secret(leaf)]
        node = self._first_secret()
        self._group = node.group
        driver = self._group.driver
        if not isinstance(driver, Lockstep):
            raise NotImplementedError(
                "record() is for holders in this process; on a network call the model itself."
            )
        self._driver = driver
        self._provider: Provider = self._driver.provider
        self._device = node.device
        self._function = function
        self._dealt = False
        with torch.no_grad():
            self._record()

    def _first_secret(self) -> AdditiveSharingTensor:
        if not self._examples:
            raise TypeError(
                "record() was given no secret. Pass an example of the input, fixed in precision and shared."
            )
        node: AdditiveSharingTensor = secret_of(self._examples[0].child)
        if node.device.type != "cuda":
            raise ValueError(
                f"record() makes CUDA graphs, and the shares of the example lie on {node.device}. Share a tensor that "
                "lies on the GPU: x.cuda().fix_precision().share(...)."
            )
        return node

    # -- recording -------------------------------------------------------------------------------------

    def _record(self) -> None:
        for _ in range(_WARM_UPS):
            self._called(self._copies())
        noting = _Noting()
        with _in_driver(self._driver, noting):
            self._called(self._copies())
        self._runs = noting.runs
        self._record_dealing()
        given = self._copies()
        self._inputs = [share for secret in given for share in self._group.read(secret_of(secret.child))]
        holders = self._group.holders
        #: What the graph reads must not be given back.
        self._alive = [given, [entry.value for holder in holders for entry in holder._entries.values()]]
        giving = _Giving(self._runs, self._fields)
        before = self._driver.cost.rounds, list(self._driver.cost.bytes_sent)
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with (
            keeping_constants() as constants,
            torch.cuda.graph(self._graph, pool=self._pool, capture_error_mode="relaxed"),
            _in_driver(self._driver, giving),
        ):
            result = self._called(given)
            leaves, self._result_structure = tree_flatten(result)
            self._outputs = [
                [share.clone() for share in self._group.read(secret_of(leaf.child))]
                if _secret(leaf)
                else leaf
                for leaf in leaves
            ]
        self._templates = leaves
        self._alive += [giving.held, constants]
        cost = self._driver.cost
        self._rounds = cost.rounds - before[0]
        self._sent = [a - b for a, b in zip(cost.bytes_sent, before[1], strict=True)]
        cost.rounds, cost.bytes_sent[:] = before
        self._watched = [(record, record.version) for record in self._remembered_of_weights()]

    def _copies(self) -> list[Any]:
        """The examples as secrets of which nothing is remembered."""
        return [example.copy() for example in self._examples]

    def _called(self, secrets: Sequence[Any]) -> Any:
        rest = iter(secrets)
        leaves = [next(rest) if constant is _INPUT else constant for constant in self._constants]
        args, kwargs = tree_unflatten(leaves, self._structure)
        return self._function(*args, **kwargs)

    def _remembered_of_weights(self) -> Iterable[Remembered]:
        if isinstance(self._function, torch.nn.Module):
            for tensor in (*self._function.parameters(), *self._function.buffers()):
                if _secret(tensor):
                    yield remembered(secret_of(tensor.child))  # type: ignore[attr-defined]

    def _record_dealing(self) -> None:
        from syft.mpc.cuda import chacha

        provider, device = self._provider, self._device
        kept: dict[Kept, torch.Tensor] = {}
        ours = {place for run in self._runs for place in run.places}
        for run in self._runs:
            for kind in run.kinds:
                for one in kind.kept:
                    if one.place not in ours and one not in kept:
                        kept[one] = provider.mask(one, device)
        self._ranks: list[list[list[int]]] = []

        def dealt(draw: Any) -> list[Any]:
            masks: dict[Place, list[torch.Tensor]] = {}
            made = []
            for run in self._runs:
                fields = []
                for kind, place in zip(run.kinds, run.places, strict=True):
                    values = [
                        kept[one] if one in kept else taken_of(one, masks[one.place]) for one in kind.kept
                    ]
                    parts = provider._fields(kind, values, draw)
                    if isinstance(kind, Mask):
                        masks[place] = [part[0] for part in parts]
                    fields.append(parts)
                made.append(fields)
            return made

        order: list[int] = []
        for run in self._runs:
            ranks = []
            for kind in run.kinds:
                once = [rank for rank in range(provider.holders) for _ in kind.base]
                cut = [rank for one in kind.derived if not one.common for rank in range(provider.holders - 1)]
                ranks.append(once + cut)
                order += once + cut
            self._ranks.append(ranks)
        self._states = torch.zeros((len(order), chacha.STATE_WORDS), dtype=torch.int32, device=device)
        self._kept = kept
        self._pool = torch.cuda.graph_pool_handle()
        self._dealing = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self._dealing, pool=self._pool):
            states = iter(self._states)

            def draw(_rank: int, shape: Sequence[int]) -> torch.Tensor:
                return chacha.fill(torch.empty(tuple(shape), dtype=torch.int64, device=device), next(states))

            self._fields = dealt(draw)

    # -- use -------------------------------------------------------------------------------------------

    def provide(self) -> None:
        """Deal for the next call, ahead of time."""
        with self._lock:
            self._deal()

    def _deal(self) -> None:
        from syft.mpc.cuda import chacha

        if self._dealt:
            return
        keys: list[bytes] = []
        provider = self._provider
        with provider._making:
            for run, ranks in zip(self._runs, self._ranks, strict=True):
                number = next(provider._runs)
                for position, (kind, drawn) in enumerate(zip(run.kinds, ranks, strict=True)):
                    meant = purpose(number, run.program, position, kind, is_wide=True)
                    streams = [stream.at(meant) for stream in provider._streams]
                    keys += [streams[rank].raw(WIDE_KEY_BYTES) for rank in drawn]
                    provider.count(kind)
        self._states.copy_(chacha.states_of(*keys).pin_memory(), non_blocking=True)
        self._dealing.replay()
        self._dealt = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the recorded function gives for other secrets of the same shapes."""
        with self._lock:
            secrets = self._given(args, kwargs)
            self._check_weights()
            given = [secret_of(secret.child) for secret in secrets]
            calls = [
                self._group._permit(rank, [*given, *self._results()]) for rank in range(self._driver.holders)
            ]
            self._deal()
            self._dealt = False  # first: a call that fails half way has used what was dealt
            shares = [share for node in given for share in self._group.read(node)]
            torch._foreach_copy_(self._inputs, shares, non_blocking=True)
            self._graph.replay()
            outputs = [
                [share.clone() for share in found] if isinstance(found, list) else found
                for found in self._outputs
            ]
            self._driver.cost.rounds += self._rounds
            for rank, size in enumerate(self._sent):
                self._driver.cost.bytes_sent[rank] += size
        leaves = [
            new_wrapper(_over(template.child, self._group._stored(Shares(found), calls)))
            if isinstance(found, list)
            else found
            for template, found in zip(self._templates, outputs, strict=True)
        ]
        return tree_unflatten(leaves, self._result_structure)

    def _results(self) -> list[Any]:
        return [secret_of(leaf.child) for leaf in self._templates if _secret(leaf)]

    def _check_weights(self) -> None:
        if any(record.version != version for record, version in self._watched):
            raise RecordingVoidError(
                "The weights of the recorded model were written to since it was recorded. Call record() again."
            )

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        leaves, structure = tree_flatten((args, kwargs))
        if structure != self._structure:
            raise TypeError(
                "A recorded function is called with arguments of the structure that it was recorded with."
            )
        secrets = []
        examples = iter(self._examples)
        for leaf, constant in zip(leaves, self._constants, strict=True):
            if constant is _INPUT and _secret(leaf):
                _check_like(leaf, next(examples))
                secrets.append(leaf)
            elif not _same(leaf, constant):
                raise ValueError(
                    "A public argument differs from that of the recording, of which it is a constant. Record again."
                )
        return secrets


def record(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Recorded:
    """Record what a model (or a function) does to these secrets, for later secrets of the same shapes.

    The secrets lie on a CUDA device, and their holders are in this process. See the top of this file.
    """
    return Recorded(function, args, kwargs)


def _secret(value: Any) -> bool:
    return type(value) is Wrapper and secret_of(value.child) is not None


def _same(value: Any, constant: Any) -> bool:
    if isinstance(value, torch.Tensor) and isinstance(constant, torch.Tensor):
        return type(value) is not Wrapper and value.shape == constant.shape and torch.equal(value, constant)
    return value is constant or (type(value) is type(constant) and bool(value == constant))


def _check_like(secret: Any, example: Any) -> None:
    found, wanted = secret.child, example.child
    while not isinstance(wanted, AdditiveSharingTensor):
        if type(found) is not type(wanted) or found.get_class_attributes() != wanted.get_class_attributes():
            raise ValueError(
                "A secret differs in kind or precision from the example of the recording. Record again."
            )
        found, wanted = found.child, wanted.child
    wanted.check_same_holders(found)
    if found.shape != wanted.shape or found.device != wanted.device:
        raise ValueError(
            f"A secret of shape {tuple(found.shape)} on {found.device} was given where the recording has "
            f"{tuple(wanted.shape)} on {wanted.device}. Record again for another shape."
        )


def _over(node: Any, pointers: Any) -> Any:
    """A chain like this one over other shares."""
    if isinstance(node, AdditiveSharingTensor):
        return node.of(list(pointers))
    made: AbstractTensor = node.like(_over(node.child, pointers))
    return made


class _in_driver:
    """Runs of a driver go through what is put into it."""

    def __init__(self, driver: Lockstep, session: Any) -> None:
        self.driver, self.session = driver, session

    def __enter__(self) -> None:
        self.driver.session = self.session

    def __exit__(self, *_: object) -> None:
        self.driver.session = None
