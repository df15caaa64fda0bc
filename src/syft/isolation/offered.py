"""Data sets that the owner offers for training, as an executor sees them: asked of the broker when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import TensorDataset

from syft import serde
from syft.exceptions import RemoteError
from syft.federated.federated_client import FederatedClient
from syft.isolation import records
from syft.isolation.broker_lane import ask, ask_value
from syft.isolation.channel import close_all
from syft.isolation.sealed import mapped_object

#: By name: a number that changes with the data set (None: it is for noise alone), who may train on it, of how many a
#: sum is at least, what is told of it, whether it may be asked for, and the least noise.
Terms = dict[str, tuple[int | None, frozenset[str] | None, int | None, Any, bool | None, float | None]]


def taken_apart(dataset: Any) -> Any:
    """A data set as it travels."""
    return tuple(dataset.tensors) if type(dataset) is TensorDataset else dataset


def put_together(found: Any) -> Any:
    return TensorDataset(*found) if type(found) is tuple else found


def _terms() -> Terms:
    told = ask_value(records.Offered(None))
    return {
        key: (
            version,
            None if allowed is None else frozenset(allowed),
            least,
            info,
            on_request or None,
            noise,
        )
        for key, (version, allowed, least, info, on_request, noise) in told.items()
    }


class OfferedSets(Mapping[str, Any]):
    """The data sets by name; each is fetched when it is first used."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int | None, Any]] = {}

    def __getitem__(self, key: str) -> Any:
        version = _terms()[key][0]
        known = self._kept.get(key)
        if known is None or known[0] != version:
            answer, _, descriptors = ask(records.Offered(key))
            try:
                if type(answer) is not records.Value or len(descriptors) != 1:
                    raise RemoteError(f"The data set {key!r} could not be handed to the process of the user.")
                found = mapped_object(descriptors[0], None, serde.Limits())
                known = self._kept[key] = version, put_together(found)
            finally:
                close_all(descriptors)
        return known[1]

    def described(self, key: str) -> Any:
        """What the rows of one look like that may be asked for."""
        return ask_value(records.Offered(key, True))

    def __contains__(self, key: object) -> bool:
        terms = _terms().get(str(key))
        return terms is not None and terms[0] is not None

    def __iter__(self) -> Iterator[str]:
        """Those that this user may train on, or ask for."""
        return (
            key
            for key, (version, allowed, _, _, on_request, _) in _terms().items()
            if version is not None and (allowed is None or allowed or on_request)
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)


class OfferedTerms(Mapping[str, Any]):
    """One of the terms by the name of its data set, for those that have it."""

    def __init__(self, pick: Callable[[tuple[int | None, Any, Any, Any, Any, Any]], Any]) -> None:
        self._pick = pick

    def _all(self) -> dict[str, Any]:
        found = {key: self._pick(terms) for key, terms in _terms().items()}
        return {key: value for key, value in found.items() if value is not None}

    def __getitem__(self, key: str) -> Any:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


def use_offers_of_broker(worker: Any) -> None:
    """Let a worker train on the data sets that the broker offers."""
    client: Any = worker.extension(FederatedClient)
    client.datasets = OfferedSets()
    client.allowed = OfferedTerms(lambda terms: terms[1])
    client.least_in_sum = OfferedTerms(lambda terms: terms[2])
    client.infos = OfferedTerms(lambda terms: terms[3])
    client.on_request = OfferedTerms(lambda terms: terms[4])
    client.minimum_noise = OfferedTerms(lambda terms: terms[5])
