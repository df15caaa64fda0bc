"""What a worker offers about private data: budgets for its owner, releases for everybody else.

The names only. What they do is in the room `dp`, which stands above this one: it is found by the Protocol `OwnerBudgets`,
and its handlers in their table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from syft.core.chain import Wrapper
from syft.core.interfaces import IMPLEMENTATIONS, OwnerBudgets
from syft.core.session import session
from syft.exceptions import ReleaseNotPermittedError
from syft.messaging.message import BudgetMessage, ReleaseMessage

_NOT_GIVEN: Any = object()


def _budgets() -> OwnerBudgets:
    """What the owner of a worker calls on it, in the process of the worker."""
    return IMPLEMENTATIONS[OwnerBudgets]  # type: ignore[no-any-return]


class ReleasingWorker:
    """The part of a worker that is about releases."""

    if TYPE_CHECKING:

        @property
        def has_budgets(self) -> bool: ...

    # -- the owner ---------------------------------------------------------------------------------

    def keep_budgets(self, book: Any) -> None:
        """Keep what is spent in a file: a `BudgetBook`, or the path of one. Without, it ends with the process."""
        _refuse_from_afar(self, "keep_budgets")
        _budgets().keep_budgets(self, book)

    def _book_to_hand_over(self) -> Any:
        """The path of the book, for a process that serves this worker's data; None without budgets. !! ValueError"""
        return _budgets().book_to_hand_over(self) if self.has_budgets else None

    def set_budget(
        self,
        *,
        dataset: Any,
        epsilon: float,
        delta: float = 0.0,
        user: str | None = None,
        together: bool = False,
        name: str | None = None,
        max_records_per_person: int | None = None,
        computed: bool = False,
        person_column: int | None = None,
    ) -> str:
        """Allow releases of a private data set, up to (epsilon, delta); returns the name it is kept under.

        dataset   a pointer to here, an id, or a tag (then every private object with that tag that was brought here;
                  on a worker for several users, that its owner put here)
        user      whose budget; None: of every user who has none of their own, each for themselves
        together  instead, what all users may spend together, who may collude
        name      what the budget is kept under, over restarts; the tag without, or the only tag there is
        max_records_per_person   how many records (of dimension 0) of one tensor one person may have; 1 unless told before

        person_column   which column, from 0, names the person a record is of: for grouped statistics, in which a
                        person may have many records

        computed  the owner vouches for something that was computed here: each of its rows depends on one record

        Called again, it changes the limit. What was spent stays spent.
        """
        _refuse_from_afar(self, "set_budget")
        return _budgets().set_budget(
            self,
            dataset,
            epsilon,
            delta,
            user,
            together,
            name,
            max_records_per_person,
            computed,
            person_column,
        )

    # -- everybody ---------------------------------------------------------------------------------

    def release(
        self,
        pointer: Any,
        mechanism: str,
        epsilon: float | None = None,
        delta: float = 0.0,
        user: str | None = None,
        **options: Any,
    ) -> Any:
        """A statistic of private data here, with noise, paid for from the user's budget.

        The mechanisms and their options are listed in syft.dp.release_mechanisms. !! BudgetExceededError when it
        costs more than is left; nothing was charged then.
        """
        message = ReleaseMessage(
            _id_of(pointer, self), mechanism, 0.0 if epsilon is None else epsilon, delta, options, user
        )
        return session.require_local_worker().send_msg(message, self)

    @overload
    def budget(self, dataset: Any, /) -> Any: ...
    @overload
    def budget(self, user: str | None, dataset: Any) -> Any: ...
    def budget(self, user: Any = None, dataset: Any = _NOT_GIVEN) -> Any:
        """What a user has spent on a data set (a name, a pointer or an id), what is left, and for what.

        `budget(dataset)` asks for whoever speaks: over a network you need not say who you are, and are told about
        yourself whatever you say.
        """
        if dataset is _NOT_GIVEN:
            user, dataset = None, user
        message = BudgetMessage(dataset if isinstance(dataset, str) else _id_of(dataset, self), user)
        return session.require_local_worker().send_msg(message, self)


def _refuse_from_afar(worker: Any, call: str) -> None:
    if not worker.is_in_process:
        raise ReleaseNotPermittedError(
            f"{call} was called on a connection to worker {worker.id!r}. It is for the owner, where the worker runs."
        )


def _id_of(pointer: Any, worker: Any) -> Any:
    node = pointer.child if type(pointer) is Wrapper else pointer
    at = getattr(node, "id_at_location", None)
    if at is None:
        if isinstance(pointer, (int, str)):
            return pointer
        raise TypeError(
            f"A data set is named by a pointer to worker {worker.id!r} or by an id, not by a "
            f"{type(pointer).__name__}. Send it first, as private: x.private_tensor(allowed_users=...).send(worker)."
        )
    if node.location.id != worker.id:
        raise ValueError(
            f"The pointer is to worker {node.location.id!r}, and worker {worker.id!r} was asked. Ask the worker "
            "that has the data: pointer.location."
        )
    return at
