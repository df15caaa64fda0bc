"""Updates in fewer bytes: what a user sets, what a client does with its update, and how the server reads it.

One duty: compression of what clients send. Imports `layout`, `packing`, `randomness`, `records`.

    Quantize   every number in a few bits, rounded at random so that its mean is right (Alistarh et al. 2017, "QSGD")
    TopK       the largest numbers and where they are (Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory")
    RandomK    numbers at places that all clients of a round have in common, and nobody has to send

Parameters are compressed. Buffers, the statistics of BatchNorm, travel as they are.

NOTE [What is held back comes later]
With error feedback a client keeps what it did not send, and adds it to its next update (Karimireddy, Rebjock, Stich,
Jaggi 2019, "Error Feedback Fixes SignSGD"). What was sent and did not arrive is lost.

NOTE [What is held back can single a client out]
A trainer that asks for updates of zeros gets the sum of what was held back. If only one client of the round has
something to hold back, that is its own. So data that leaves only in secure sums is not trained on with error feedback.

NOTE [Clipped last]
Rounding at random makes vectors longer, and what was held back is added to what is sent. So privacy clips an update
after it was compressed, as it is added to the sum: its bound holds whatever compression did. The sum is given noise in
all places, or in those that all clients have in common.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from syft.exceptions import GetNotPermittedError
from syft.federated.layout import Layout
from syft.federated.packing import pack, packed_size, unpacked
from syft.federated.randomness import derive_seed, seeded
from syft.federated.records import CompressedUpdate, CompressionRule, FitInstructions, FitResult

#: Bits of a quantised number, from and to.
BITS = (2, 16)
#: Trainings for which a client keeps what was held back: those it was asked for last.
_MOST = 16


# -- what a user sets --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantize:
    """Numbers of `bits` bits each, 2 to 16, rounded at random to multiples of a step of each tensor."""

    bits: int = 8
    error_feedback = False

    def __post_init__(self) -> None:
        is_whole = isinstance(self.bits, int) and not isinstance(self.bits, bool)
        if not is_whole or not BITS[0] <= self.bits <= BITS[1]:
            raise ValueError(
                f"Quantize was given bits={self.bits!r}: it is a whole number from {BITS[0]} to {BITS[1]}."
            )

    def rule(self, trainable: int, seed: int, training: str) -> CompressionRule:
        return CompressionRule("quantize", bits=self.bits)


@dataclass(frozen=True)
class TopK:
    """The part `fraction` of the numbers that are largest. What is left out comes later, with `error_feedback`."""

    fraction: float
    error_feedback: bool = True

    def __post_init__(self) -> None:
        _check_part(self, self.fraction, self.error_feedback)

    def rule(self, trainable: int, seed: int, training: str) -> CompressionRule:
        kept = math.ceil(self.fraction * trainable)
        return CompressionRule("top", kept=kept, feedback=self.error_feedback, training=training)


@dataclass(frozen=True)
class RandomK:
    """The part `fraction` of the numbers, at places drawn anew for each round, the same for all clients.

    error_feedback   what is left out comes later; without it, numbers are scaled up so that their mean is right
    """

    fraction: float
    error_feedback: bool = False

    def __post_init__(self) -> None:
        _check_part(self, self.fraction, self.error_feedback)

    def rule(self, trainable: int, seed: int, training: str) -> CompressionRule:
        kept = math.ceil(self.fraction * trainable)
        return CompressionRule(
            "random",
            kept=kept,
            feedback=self.error_feedback,
            seed=derive_seed(seed, "places"),
            training=training,
        )


Compression = Quantize | TopK | RandomK


def _check_part(of: Any, fraction: Any, feedback: Any) -> None:
    is_number = isinstance(fraction, (int, float)) and not isinstance(fraction, bool)
    if not is_number or not 0 < fraction <= 1:
        raise ValueError(
            f"{type(of).__name__} was given fraction={fraction!r}: it is a number above 0 and at most 1."
        )
    if not isinstance(feedback, bool):
        raise TypeError(f"{type(of).__name__} was given error_feedback={feedback!r}: it is True or False.")


# -- what a client does --------------------------------------------------------------------------------------


class HeldBack:
    """What a client did not send, for each training. See NOTE [What is held back comes later]."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[Any, Tensor]] = OrderedDict()

    def find(self, length: int, source: Any, *key: Hashable) -> Tensor | None:
        """source   the data set, where another one may come under its name"""
        kept_on, kept = self._kept.get(key, (None, None))
        return kept if kept is not None and kept_on is source and kept.numel() == length else None

    def keep(self, tensor: Tensor, source: Any, *key: Hashable) -> None:
        self._kept.pop(key, None)
        self._kept[key] = source, tensor
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)


def compress(
    vector: Tensor,
    layout: Layout,
    instructions: FitInstructions,
    held: HeldBack,
    source: Any = None,
    *whose: Hashable,
) -> CompressedUpdate:
    """What a client sends of an update, as it was told to. !! ValueError for a rule that does not fit"""
    rule = _rule_of(instructions, layout)
    head, rest = vector[: layout.trainable], vector[layout.trainable :]
    key = (*whose, rule.training)
    if rule.feedback and (before := held.find(head.numel(), source, *key)) is not None:
        head = head + before
    empty = torch.zeros(0)
    if rule.kind == "quantize":
        codes, scales = _quantized(head, layout, rule.bits, instructions.seed)
        return CompressedUpdate(codes, empty, scales, rest)
    if rule.kind == "top":
        places = head.abs().topk(rule.kept, sorted=False).indices.sort().values
        made = CompressedUpdate(head[places], places.to(torch.int32), empty, rest)
    else:
        places = common_places(rule, head.numel(), instructions.round)
        made = CompressedUpdate(head[places] * rule_scale(rule, head.numel()), empty, empty, rest)
    if rule.feedback and bool(torch.isfinite(head).all()):
        left = head.clone()
        left[places] = 0.0
        held.keep(left, source, *key)
    return made


def compressed(
    result: FitResult,
    instructions: FitInstructions,
    layout: Layout,
    held: HeldBack,
    source: Any = None,
    *whose: Hashable,
) -> FitResult:
    """A client's result as it is sent: as it is where nothing is to be compressed."""
    if instructions.compression is None:
        return result
    made = compress(layout.flatten(result.update), layout, instructions, held, source, *whose)
    return replace(result, update={}, compressed=made)


def check_feedback(rule: CompressionRule | None, least_in_sum: int | None, worker: Any) -> None:
    """See NOTE [What is held back can single a client out]. !! GetNotPermittedError"""
    if rule is not None and rule.feedback and least_in_sum is not None:
        raise GetNotPermittedError(
            f"The owner of worker {worker!r} lets updates of this data set leave only in a secure sum of {least_in_sum} "
            "or more, and what clients hold back could single one of them out. Train with error_feedback=False."
        )


def _rule_of(instructions: FitInstructions, layout: Layout) -> CompressionRule:
    rule = instructions.compression
    if rule is None:
        raise ValueError("A round was asked for without compression.")
    if rule.kind == "quantize":
        is_sound = BITS[0] <= rule.bits <= BITS[1]
    else:
        is_sound = 1 <= rule.kept <= layout.trainable
    if not is_sound:
        raise ValueError(
            f"A round was asked for with compression of {rule.kept} numbers and {rule.bits} bits, for a model of "
            f"{layout.trainable} parameters."
        )
    return rule


def common_places(rule: CompressionRule, length: int, round: int) -> Tensor:
    """Where the numbers of a round are, in order: of so many places, those with the smallest random words.

    NB: a generator whose words are the same in all versions, because both ends have to agree.
    """
    words = np.random.Philox(key=derive_seed(rule.seed, "round", round)).random_raw(length)
    chosen = np.argpartition(words, rule.kept - 1)[: rule.kept]
    return torch.from_numpy(np.sort(chosen))


def rule_scale(rule: CompressionRule, length: int) -> float:
    """What numbers at random places are multiplied with: their expectation is the update."""
    return 1.0 if rule.feedback else length / rule.kept


def _sizes(layout: Layout) -> list[int]:
    return [entry.numel for entry in layout.entries if entry.is_parameter]


def _quantized(head: Tensor, layout: Layout, bits: int, seed: int) -> tuple[Tensor, Tensor]:
    """Codes of the numbers, packed, and the largest number of each tensor."""
    sizes = _sizes(layout)
    levels = (1 << (bits - 1)) - 1
    scales = torch.stack(
        [part.abs().max() if part.numel() else head.new_zeros(()) for part in head.split(sizes)]
    )
    largest = scales.repeat_interleave(torch.tensor(sizes))
    in_steps = torch.where(largest > 0, head / largest * levels, torch.zeros_like(head)).nan_to_num(0.0)
    # QSGD: up with the probability of what is behind the point, so that the mean is the number.
    drawn = torch.rand(head.numel(), generator=seeded(seed, "rounding"), dtype=head.dtype)
    steps = (in_steps + drawn).floor().clamp(-levels, levels)
    return torch.from_numpy(pack((steps + levels).to(torch.int32).numpy(), bits)), scales


# -- what the server does -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class UpdateForm:
    """How the updates of a training come, and in which form they are summed.

    is_compact   they are summed as the numbers at the places that all have in common, and spread out afterwards
    """

    layout: Layout
    rule: CompressionRule | None = None
    is_compact: bool = False

    @property
    def length(self) -> int:
        """Of a vector that is summed."""
        if not self.is_compact or self.rule is None:
            return self.layout.size
        return self.rule.kept + self.layout.size - self.layout.trainable

    def of_plain(self, vector: Tensor, round: int) -> Tensor:
        """An update that came as it is, from a client of the user's own."""
        if not self.is_compact or self.rule is None:
            return vector
        length = self.layout.trainable
        places = common_places(self.rule, length, round)
        return torch.cat([vector[places] * rule_scale(self.rule, length), vector[length:]])

    def of_compressed(self, update: CompressedUpdate, round: int) -> Tensor:
        """A compressed update as it is summed. !! ValueError for what is not one"""
        rule, length, dtype = self.rule, self.layout.trainable, self.layout.dtype
        if rule is None:
            raise ValueError("it is compressed, and that was not asked for")
        entries = len(_sizes(self.layout))
        expected = {
            "rest": (self.layout.size - length, dtype),
            "values": (rule.kept, dtype),
            "places": (rule.kept, torch.int32) if rule.kind == "top" else (0, torch.float32),
            "scales": (entries, dtype) if rule.kind == "quantize" else (0, torch.float32),
        }
        if rule.kind == "quantize":
            expected["values"] = (packed_size(length, rule.bits), torch.uint8)
        for name, (count, kind) in expected.items():
            tensor = getattr(update, name)
            if type(tensor) is not Tensor or tensor.shape != (count,) or tensor.dtype is not kind:
                raise ValueError(f"its {name} are not {count} numbers of {kind}")
        if rule.kind == "quantize":
            head = self._of_codes(update, rule.bits)
        else:
            if rule.kind == "top":
                places = update.places.to(torch.int64)
                if (
                    bool((places[1:] <= places[:-1]).any())
                    or not 0 <= int(places[0]) <= int(places[-1]) < length
                ):
                    raise ValueError("its places are not in order, or outside of the update")
            elif self.is_compact:
                return torch.cat([update.values, update.rest])
            else:
                places = common_places(rule, length, round)
            head = torch.zeros(length, dtype=dtype)
            head[places] = update.values
        return torch.cat([head, update.rest])

    def _of_codes(self, update: CompressedUpdate, bits: int) -> Tensor:
        length = self.layout.trainable
        levels = (1 << (bits - 1)) - 1
        codes = np.empty(length, dtype=np.int32)
        for start, block in unpacked(update.values.numpy(), length, bits):
            codes[start : start + block.size] = block
        if length and int(codes.max()) > 2 * levels:
            raise ValueError(f"it has numbers beyond {bits} bits")
        scales = update.scales.repeat_interleave(torch.tensor(_sizes(self.layout)))
        return (torch.from_numpy(codes) - levels).to(self.layout.dtype) * (scales / levels)

    def spread(self, vector: Tensor, round: int) -> Tensor:
        """A sum as an update of all numbers."""
        if not self.is_compact or self.rule is None:
            return vector
        head = torch.zeros(self.layout.trainable, dtype=vector.dtype)
        head[common_places(self.rule, head.numel(), round)] = vector[: self.rule.kept]
        return torch.cat([head, vector[self.rule.kept :]])
