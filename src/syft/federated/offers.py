"""What a worker tells of the data sets that it offers: how their rows look, so that a model can be traced for them.

One duty: `Offer`, the question, and the answer. Shapes and dtypes of a row are told, to those who may train on it;
how many rows there are, and what is in them, is not. Imports `execution`, `local_training`, `serde`, `workers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from syft.core.labels import LABELS
from syft.core.session import session
from syft.exceptions import ProtocolError
from syft.execution.program import Input
from syft.federated.local_training import batches
from syft.messaging.message import OffersMessage
from syft.serde import register_record
from syft.workers import pipeline


@dataclass(frozen=True)
class Offer:
    """The rows of a data set: inputs of a model, and a target. The first dimension is the batch, of any size.

    names   of the inputs, where rows are dicts: in the order of the alphabet, which all workers have in common
    """

    inputs: tuple[Input, ...]
    target: Input
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = zip(self.names, self.inputs, strict=True) if self.names else None
        inputs = map(str, self.inputs) if named is None else (f"{name}: {each}" for name, each in named)
        return f"{', '.join(inputs)} -> {self.target}"


register_record(Offer, "DatasetOffer")


def described(worker: Any, dataset: Any) -> Offer | None:
    """The offer of a data set; None if it has no rows, or rows that are no tensors."""

    def look() -> Any:
        return next(batches(dataset, 1), None) if len(dataset) else None

    batch = pipeline.run_discreetly(look, "a look at a row", worker.policy.allows_by_default)
    names: tuple[str, ...] = ()
    if isinstance(batch, Mapping):
        if LABELS not in batch or len(batch) < 2 or not all(isinstance(name, str) for name in batch):
            return None
        names = tuple(sorted(name for name in batch if name != LABELS))
        batch = [*(batch[name] for name in names), batch[LABELS]]
    if not isinstance(batch, (list, tuple)) or len(batch) < 2 or not all(map(_is_column, batch)):
        return None
    *inputs, target = (Input((-1, *t.shape[1:]), t.dtype) for t in batch)
    return Offer(tuple(inputs), target, names)


def _is_column(part: Any) -> bool:
    return isinstance(part, Tensor) and part.ndim > 0


def offer_of(worker: Any, key: str | None, user: str | None) -> Offer:
    """Ask a worker what its data looks like. Without a key: what all its offers look like. !! ValueError"""
    found = session.require_local_worker().send_msg(OffersMessage(user), worker)
    if not isinstance(found, dict) or not all(isinstance(o, Offer | None) for o in found.values()):
        raise ProtocolError(f"Worker {worker.id!r} was asked for its offers and sent something else.")
    known = ", ".join(repr(name) for name in sorted(found)) or "none"
    if key is not None:
        if key not in found:
            raise ValueError(
                f"Worker {worker.id!r} offers you no data set {key!r}; it offers {known}. Its owner offers one with "
                "worker.add_dataset(dataset, key, allowed_users=...)."
            )
        chosen = {found[key]}
    else:
        chosen = set(found.values())
        if len(chosen) != 1:
            raise ValueError(
                f"A model is traced for the rows it is trained on, and worker {worker.id!r} offers data sets whose rows "
                f"differ, or none: {known}. Say which one is meant: send(worker, dataset_key=...)."
            )
    offer = next(iter(chosen))
    if offer is None:
        raise ValueError(
            f"The data set {key or known} of worker {worker.id!r} is empty, or its rows are not tensors with a target "
            "(input, ..., target), nor dicts of tensors with 'labels': no model can be traced for it."
        )
    return offer
