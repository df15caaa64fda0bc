"""What passes between a trainer and its clients: frozen records of tensors, numbers and strings.

One duty: the data types of training in rounds. They travel (all are registered with `syft.serde`), so a client
may be in this process, behind a network worker, or a Ray actor. Imports `serde`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from syft.serde import register_record

#: A model's parameters and buffers by name.
State = dict[str, torch.Tensor]
Metrics = dict[str, float]

#: Why a client's work was not used.
FailureKind = Literal[
    "error", "timeout", "busy", "died", "nothing", "malformed", "not finite", "stale", "dropped"
]


@dataclass(frozen=True)
class LocalLayers:
    """Which tensors stay with each client from round to round, and the training that they belong to."""

    training: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class PrivateContribution:
    """What a client that keeps its update does with it before it is masked: see `aggregation.RemotePrivacy`."""

    clip_norm: float
    step: float
    """Of the grid that the update is clipped to, and summed on: a power of two."""
    variance: int = 0
    """Of the client's part of the noise, in steps squared; 0 where the server adds the noise."""


@dataclass(frozen=True)
class CompressionRule:
    """How a client's update is compressed: see `compression`."""

    kind: Literal["quantize", "top", "random"]
    bits: int = 0
    """Of a quantised number."""
    kept: int = 0
    """How many numbers are sent."""
    feedback: bool = False
    """Whether what is not sent is kept, and added to the next update."""
    seed: int = 0
    """Of the places that all clients of a round have in common."""
    training: str = ""
    """What is held back belongs to this training."""


@dataclass(frozen=True)
class CompressedUpdate:
    """An update as a rule made it."""

    values: torch.Tensor
    """Numbers, or their codes, packed."""
    places: torch.Tensor
    """Where the largest numbers are; empty where the places are known."""
    scales: torch.Tensor
    """The largest number of each tensor, where numbers are quantised."""
    rest: torch.Tensor
    """Buffers, as they are."""


@dataclass(frozen=True)
class FitInstructions:
    """One round's work for one client. Whoever gets it reads its tensors and never writes into them."""

    round: int
    seed: int
    """Everything random that the client does follows from this."""
    state: State
    epochs: int = 1
    batch_size: int = 32
    optimizer: str = "SGD"
    optimizer_args: dict[str, Any] = field(default_factory=dict)
    shuffle: bool = True
    drop_last: bool = False
    deadline: float | None = None
    """Seconds. A client that takes longer is not waited for, so it may as well stop."""
    proximal_mu: float = 0.0
    """The strength of a pull back to `state` (FedProx)."""
    correction: State | None = None
    """Added to every gradient (SCAFFOLD: the server's control variate minus the client's)."""
    local: LocalLayers | None = None
    """What is not in `state`, and is not to be in the update: the client has its own."""
    private: PrivateContribution | None = None
    """For an update that stays with the client, to be summed under masks."""
    partial: bool = False
    """Whether a client whose time is nearly up sends what it has trained so far."""
    compression: CompressionRule | None = None
    """How the update is to be sent in fewer bytes."""


@dataclass(frozen=True)
class FitResult:
    """What a client trained: how far each parameter and buffer moved."""

    round: int
    update: State
    num_examples: int
    steps: int
    """How often the optimizer stepped."""
    metrics: Metrics = field(default_factory=dict)
    compressed: CompressedUpdate | None = None
    """The update where compression was asked for; `update` is then empty."""


@dataclass(frozen=True)
class EvaluateInstructions:
    """A model to be tried on a client's data."""

    round: int
    state: State
    batch_size: int = 256
    deadline: float | None = None
    local: LocalLayers | None = None


@dataclass(frozen=True)
class EvaluateResult:
    """Means over a client's examples."""

    round: int
    num_examples: int
    metrics: Metrics


@dataclass(frozen=True)
class ClientFailure:
    """Who did not contribute to a round, and why."""

    client: str
    kind: FailureKind
    why: str

    def __str__(self) -> str:
        return f"{self.client} ({self.kind}): {self.why}"


for _record in (
    LocalLayers,
    PrivateContribution,
    CompressionRule,
    CompressedUpdate,
    FitInstructions,
    FitResult,
    EvaluateInstructions,
    EvaluateResult,
    ClientFailure,
):
    register_record(_record)
