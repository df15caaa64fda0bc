"""Programs that only the functions of 2019 and 2020 ask for (`syft.mpc.documented`)."""

from __future__ import annotations

import torch

from syft.mpc.correlations import Correlation, Tensors
from syft.mpc.integrity.sealed import Sealed
from syft.mpc.party import Party, Program, with_provider
from syft.mpc.programs import party_program
from syft.mpc.protocols import securenn


@party_program
def take(party: Party, kind: Correlation) -> Program[Tensors]:
    """Without rounds: this holder's part of a fresh correlation."""
    if isinstance(kind, Sealed):
        raise TypeError("Correlations with MACs are not handed out: whoever has all of one knows the key.")
    return party.take(kind)
    yield  # pragma: no cover  (makes this a party program)


@party_program
@with_provider
def maxpool(party: Party, x: torch.Tensor) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """The largest of all elements, and its place."""
    return (yield from securenn.maxpool(party, x.reshape(-1)))


@party_program
@with_provider
def maxpool_deriv(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """1 at the largest of all elements, 0 elsewhere."""
    hot = yield from securenn.maxpool_deriv(party, x.reshape(-1))
    return hot.view(x.shape)
