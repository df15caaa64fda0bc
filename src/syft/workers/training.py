"""`TrainingMixin`: the documented way to train on data that a worker's owner offers.

`add_dataset` is the owner's, on their side; `fit` and `evaluate` are anybody's, and travel as messages. What a
worker does with those is the room of federated learning's, whose class is found by the Protocol `TrainingOffers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from syft.core.interfaces import IMPLEMENTATIONS, TrainingOffers
from syft.core.session import session
from syft.exceptions import PermissionDeniedError
from syft.messaging.message import EvaluateMessage, FitMessage, OffersMessage


class TrainingMixin:
    """Methods of workers."""

    id: Any
    is_in_process: bool
    extension: Callable[[type[TrainingOffers]], TrainingOffers]

    def add_dataset(
        self,
        dataset: Any,
        key: str,
        allowed_users: Iterable[str] | None = None,
        least_in_sum: int | None = None,
    ) -> None:
        """Offer a data set for training under a name. For the owner of this worker, where it runs.

        Whoever may train on it gets models and figures computed from it, and never the rows themselves.
        `allowed_users` are those who may; without it everybody whom the worker serves. With `least_in_sum` what was
        trained leaves only in a secure sum of so many workers or more. That hides whose a row is, and not the row:
        models can be written that put rows into the sum, and only noise bounds that.
        """
        self._check_owner("add_dataset")
        self.extension(IMPLEMENTATIONS[TrainingOffers]).add_dataset(dataset, key, allowed_users, least_in_sum)

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
    def datasets(self) -> dict[str, Any]:
        """The data sets that are offered here, by name; over a connection, what the rows of each look like."""
        if self.is_in_process:
            return dict(self.extension(IMPLEMENTATIONS[TrainingOffers]).datasets)
        return dict(session.require_local_worker().send_msg(OffersMessage(None), self))

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
