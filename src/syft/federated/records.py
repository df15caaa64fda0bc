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


@dataclass(frozen=True)
class FitResult:
    """What a client trained: how far each parameter and buffer moved."""

    round: int
    update: State
    num_examples: int
    steps: int
    """How often the optimizer stepped."""
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluateInstructions:
    """A model to be tried on a client's data."""

    round: int
    state: State
    batch_size: int = 256
    deadline: float | None = None


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


for _record in (FitInstructions, FitResult, EvaluateInstructions, EvaluateResult, ClientFailure):
    register_record(_record)
