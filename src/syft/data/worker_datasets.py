"""`TrainingMixin`: the documented way to train on data that a worker's owner offers.

`add_dataset` is the owner's, on their side; `fit` and `evaluate` are anybody's, and travel as messages. What a
worker does with those is the room of federated learning's, whose class is found by the Protocol `TrainingOffers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import TensorDataset

from syft.core.identity import identity_of
from syft.core.interfaces import IMPLEMENTATIONS, TrainingOffers
from syft.core.session import session
from syft.data.schema import DataSetInfo, mock_data
from syft.exceptions import PermissionDeniedError, ProtocolError
from syft.messaging.message import DatasetsMessage, EvaluateMessage, FitMessage, OffersMessage

if TYPE_CHECKING:
    from syft.data.folder import FolderContents
    from syft.data.offers import OfferedData

logger = logging.getLogger("syft.workers")


class DataSets(dict[str, Any]):
    """The data sets of a worker by name. Called, it lists what is told of each."""

    def __init__(self, worker: Any, found: Any) -> None:
        super().__init__(found)
        self._worker = worker

    def __call__(self) -> list[DataSetInfo]:
        found = session.require_local_worker().send_msg(DatasetsMessage(None), self._worker)
        if not isinstance(found, dict) or not all(isinstance(one, DataSetInfo) for one in found.values()):
            raise ProtocolError(
                f"Worker {self._worker.id!r} was asked for its data sets and sent something else."
            )
        return [found[name] for name in sorted(found)]


class TrainingMixin:
    """Methods of workers."""

    id: Any
    is_in_process: bool
    extension: Callable[[type[TrainingOffers]], TrainingOffers]
    load_data: Callable[[Any], Any]
    entry_of: Callable[[Any], Any]

    def add_dataset(
        self,
        dataset: Any,
        key: str,
        allowed_users: Iterable[str] | None = None,
        least_in_sum: int | None = None,
        info: DataSetInfo | None = None,
        on_request: bool = False,
        minimum_noise: float | None = None,
    ) -> None:
        """Offer a data set for training under a name. For the owner of this worker, where it runs.

        Whoever may train on it gets models and figures computed from it, and never the rows themselves.
        `allowed_users` are those who may; without it everybody whom the worker serves. With `least_in_sum` what was
        trained leaves only in a secure sum of so many workers or more. That hides whose a row is, and not the row:
        models can be written that put rows into the sum, and only noise bounds that. `info` is what users are told of
        it; without, the shapes and dtypes of its rows. With `on_request` those who may not train on it are told as much,
        and may ask: `worker.request_training`; without `allowed_users` that is everybody. With `minimum_noise` nothing
        that was computed from it leaves without noise: in clipping bounds, a standard deviation of so much at least that
        workers add before a sum leaves them (`DistributedPrivacy`), and the `noise_multiplier` of `train_privately`.
        """
        self._check_owner("add_dataset")
        offers = self.extension(IMPLEMENTATIONS[TrainingOffers])
        offers.add_dataset(dataset, key, allowed_users, least_in_sum, info, on_request, minimum_noise)

    def serve_folder(
        self, path: str | Path, offers: Sequence[str] = (), persons: Sequence[str] = ()
    ) -> FolderContents:
        """Put the data of a folder here, as `syft worker --data` does, and offer what its .toml files say; for the owner.

        offers    as `--offer`: "scans=images.npy,labels.npy"
        persons   as `--person-column`: "visits.csv=patient"

        What is left out is a line of the log each; the answer has it as well. !! DataFileError if there is no folder
        """
        self._check_owner("serve_folder")
        # NB: what reads files is imported where it is first needed; most workers are given tensors.
        from syft.data.folder import read_folder
        from syft.data.offers import with_offers

        contents, offered = with_offers(read_folder(path, persons=persons), Path(path), offers)
        for problem in contents.problems:
            logger.warning("left out: %s", " ".join(str(problem).split()))
        for note in contents.notes:
            logger.info("data: %s", " ".join(note.split()))
        self.load_data([one.tensor for one in contents.served])
        self.name_persons(contents)
        for one in offered:
            self.offer(one)
        return contents

    def name_persons(self, contents: FolderContents) -> None:
        """Say which columns of the data of a folder name persons."""
        for one in contents.served:
            if one.person_column is not None:
                self.entry_of(identity_of(one.tensor).id).person_column = one.person_column

    def offer(self, offered: OfferedData) -> None:
        """Offer a data set of a folder."""
        name = offered.info.name
        if offered.trains:
            self.add_dataset(
                TensorDataset(*offered.tensors),
                name,
                offered.allowed,
                offered.least_in_sum,
                offered.info,
                offered.on_request,
                offered.info.minimum_noise,
            )
        else:
            self.extension(IMPLEMENTATIONS[TrainingOffers]).infos[name] = offered.info

    def remove_dataset(self, key: str) -> None:
        """Offer it no longer; !! ValueError if it was not offered."""
        self._check_owner("remove_dataset")
        self.extension(IMPLEMENTATIONS[TrainingOffers]).remove_dataset(key)

    def _check_owner(self, method: str) -> None:
        if not self.is_in_process:
            raise PermissionDeniedError(
                f"{method}() was called on a connection to worker {self.id!r}. What a worker offers is for its owner to "
                "say, where the worker runs and the data is: call it there, on the worker that serves."
            )

    @property
    def datasets(self) -> DataSets:
        """The data sets that are offered here, by name; over a connection, what the rows of each look like.

        `worker.datasets()` lists what is told of each: columns, dtypes, rows, and what it is offered for.
        """
        if self.is_in_process:
            return DataSets(self, dict(self.extension(IMPLEMENTATIONS[TrainingOffers]).datasets))
        return DataSets(self, session.require_local_worker().send_msg(OffersMessage(None), self))

    def mock(self, key: str, rows: int = 100) -> TensorDataset:
        """Data of the form of a data set that is offered here, to write a program with. It is made from what
        `worker.datasets()` tells, here, and not from any value. !! ValueError"""
        known = {info.name: info for info in self.datasets()}
        if key not in known:
            names = ", ".join(map(repr, known)) or "none"
            raise ValueError(
                f"Worker {self.id!r} offers you no data set {str(key)[:60]!r}; it offers {names}."
            )
        return mock_data(known[key], rows)

    def fit(
        self,
        dataset_key: str,
        device: str = "cpu",
        user: str | None = None,
        return_ids: Sequence[Any] | None = None,
    ) -> Any:
        """Train there as the TrainConfig sent last says; returns the loss of the last batch.

        The trained model stays there: fetch it with `train_config.get()`. `return_ids` has the id that the loss gets.
        """
        given = list(return_ids or ())
        if len(given) > 1:
            raise ValueError(f"fit() returns one loss; return_ids has {len(given)} ids. Give one.")
        loss = session.require_local_worker().send_msg(FitMessage(dataset_key, device, user), self)
        if given:
            loss.id = given[0]
        return loss

    async def async_fit(
        self,
        dataset_key: str,
        device: str = "cpu",
        user: str | None = None,
        return_ids: Sequence[Any] | None = None,
    ) -> Any:
        """`fit` for `await`: several workers train at the same time."""
        return await asyncio.to_thread(self.fit, dataset_key, device, user, return_ids)

    def evaluate(
        self,
        dataset_key: str,
        return_histograms: bool = False,
        nr_bins: int = -1,
        return_loss: bool = True,
        return_raw_accuracy: bool = True,
        device: str = "cpu",
        user: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate the model of the TrainConfig sent last there; see `FederatedClient.evaluate`."""
        message = EvaluateMessage(
            dataset_key, return_histograms, nr_bins, return_loss, return_raw_accuracy, device, user
        )
        return session.require_local_worker().send_msg(message, self)  # type: ignore[no-any-return]
