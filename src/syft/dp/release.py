"""`worker.release` and the budgets behind it: what a worker does when it is asked for a private statistic.

One duty: the order of things. Look up, check that one record changes one row, check the request, charge, and
only then compute. Adds itself to the tables of `workers`. Imports `provenance`, `release_mechanisms`,
`worker_budgets`.

NOTE [What an answer waits for]
Everything that can be refused is refused before the charge, from public facts. After the charge nothing is
refused and nothing is refunded; the answer is computed and sent. So an answer that was seen was paid for. What the owner
or another thread can change in between is looked at again: whether the rows are still records, on a copy that nobody else
has, and for how many records of a person the noise must be, in the transaction that charges.

NOTE [Whose data set]
Noise is for one row, so that who could have a tensor declared a data set whose every row is somebody's record would
read that record. Tags are given by users too. On a guarded worker a data set is what its owner put there. Elsewhere
it is what was brought as private; what was computed only if its rows are known to be records, or the owner says so.
A worker that serves a book takes the owner's data by the tags that they had when it began.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from syft import serde
from syft.core.chain import Wrapper
from syft.core.identity import tags_of
from syft.core.interfaces import IMPLEMENTATIONS, OwnerBudgets, Worker
from syft.dp.asked_release import digest_of_release, text_of_charge
from syft.dp.composition import Charge
from syft.dp.provenance import Provenance, Rows, Source, names_of
from syft.dp.release_mechanisms import Request, answer, settle
from syft.dp.released import Noise, ReleasedFloat, ReleasedInt, ReleasedTensor
from syft.dp.worker_budgets import BudgetBook, BudgetState, Limit, PastRelease
from syft.exceptions import ObjectNotFoundError, ReleaseNotPermittedError
from syft.messaging.message import AskMessage, BudgetMessage, ReleaseMessage
from syft.policy.caller import user_of
from syft.policy.permissions import AuditRecord
from syft.requests import keeper
from syft.requests.approvals import Prepared, use_approval
from syft.requests.records import Ask
from syft.workers import handlers, pipeline, request_handlers

logger = logging.getLogger("syft.worker")


@dataclass
class Desk:
    """What a worker keeps for releases."""

    book: BudgetBook = field(default_factory=BudgetBook)
    provenance: Provenance = field(default_factory=Provenance)
    tagged: dict[str, list[Any]] | None = None
    """Tag -> the owner's data, of a worker that goes by what the book names; None where `set_budget` declares."""
    declared: set[str] = field(default_factory=set)
    """Which of the names in the book were looked for."""


def desk_of(worker: Worker) -> Desk:
    """The desk of a worker; set up when its owner first asks for it."""
    desk: Desk = worker.extension(Desk)
    if not worker.has_budgets:
        worker.add_guard(desk.provenance)
    return desk


# -- the owner -------------------------------------------------------------------------------------------------


def keep_budgets(worker: Worker, book: BudgetBook | str | os.PathLike[str]) -> None:
    """Keep the budgets of a worker in a book; before the first `set_budget`."""
    desk = desk_of(worker)
    if desk.book.path is None and any(source.names for source in _sources(worker, desk)):
        raise ValueError(
            f"Budgets of worker {worker.id!r} were set before and are in memory only: call keep_budgets first, then "
            "set_budget."
        )
    if not isinstance(book, (BudgetBook, str, os.PathLike)):
        raise TypeError(f"keep_budgets takes a BudgetBook or the path of one, not a {type(book).__name__}.")
    desk.book = book if isinstance(book, BudgetBook) else BudgetBook(book)


def serve_book(worker: Worker, book: BudgetBook | str | os.PathLike[str]) -> list[str]:
    """Keep budgets in a book that the owner writes elsewhere (`syft budget set`), and go by the limits in it.

    The owner's data with the tags that it names are data sets, now, and as soon as it names more. Returns the names
    that no data here has as a tag.
    """
    keep_budgets(worker, book)
    desk, tagged = desk_of(worker), dict[str, list[Any]]()
    # NB: as they are now. Later tags may be users'.
    for obj_id, obj in worker._objects.copy().items():
        for tag in getattr(obj, "tags", None) or ():
            if _is_owners(worker, obj_id):
                tagged.setdefault(str(tag), []).append(obj_id)
    desk.tagged, names = tagged, desk.book.datasets()
    for name in names:
        _declare_named(worker, desk, name)
    return [name for name in names if name not in tagged]


def book_to_hand_over(worker: Worker) -> Path | None:
    """The book with which another process can serve this worker's data (`serve_book`), if there are budgets.

    !! ValueError for budgets that could not be found there
    """
    desk: Desk | None = worker.known_extension(Desk)
    if desk is None:
        return None
    if desk.book.path is None and any(source.names for source in _sources(worker, desk)):
        raise ValueError(
            "start(process=True) cannot hand over budgets that are in memory only: keep them in a book, with "
            "keep_budgets(path), before they are set."
        )
    for obj in worker._objects.copy().values():
        rows, tags = desk.provenance.rows_of(obj), tags_of(obj)
        untold = (
            sorted(name for name in names_of(rows.sources) if name not in tags) if rows is not None else []
        )
        if untold:
            raise ValueError(
                f"start(process=True) hands data sets over by their tags, and the budget {untold[0]!r} is for data "
                "without that tag: tag the data so."
            )
    return desk.book.path


def _declare_named(worker: Worker, desk: Desk, name: str) -> None:
    """Declare the owner's data of a tag. !! ValueError for what is no data set"""
    desk.declared.add(name)
    ids = [i for i in (desk.tagged or {}).get(name, ()) if i in worker._objects and _is_owners(worker, i)]
    try:
        tensors = [_private_tensor(worker, obj_id) for obj_id in ids]
    except (TypeError, ValueError) as error:
        raise ValueError(f"There is a budget for {name!r}, which cannot have one. {error}") from error
    _declare(worker, desk, name, ids, tensors)


def _follow_book(worker: Worker, desk: Desk) -> None:
    """Declare what the owner has set a budget for since."""
    if desk.tagged is None:
        return
    for name in desk.book.datasets():
        if name not in desk.declared:
            try:
                _declare_named(worker, desk, name)
            except ValueError as error:  # the owner's mistake, and not for users to be told
                logger.warning("%s", error)


def _declare(worker: Worker, desk: Desk, name: str, ids: list[Any], tensors: list[torch.Tensor]) -> None:
    for obj_id, tensor in zip(ids, tensors, strict=True):
        desk.provenance.declare(tensor, name)
        worker.entry_of(obj_id).is_private = True  # nobody else may write into it or delete it


def set_budget(
    worker: Worker,
    dataset: Any,
    epsilon: float,
    delta: float,
    user: str | None,
    together: bool,
    name: str | None,
    max_records_per_person: int | None,
    computed: bool,
    person_column: int | None = None,
) -> str:
    """See `ReleasingWorker.set_budget`."""
    limit = Limit(epsilon, delta)
    ids = _ids_of(worker, dataset)
    name = _name_of(worker, dataset, ids) if name is None else name
    desk = desk_of(worker)
    tensors = [_private_tensor(worker, obj_id) for obj_id in ids]
    if person_column is not None:
        _check_person_column(person_column, tensors)
    for obj_id, tensor in zip(ids, tensors, strict=True):
        _check_is_data_set(worker, desk, obj_id, tensor, computed)
    desk.book.set_limit(
        name, limit, user=user, together=together, max_records_per_person=max_records_per_person
    )
    _declare(worker, desk, name, ids, tensors)
    if person_column is not None:
        for obj_id in ids:
            worker.entry_of(obj_id).person_column = person_column
    return name


def _check_person_column(column: Any, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        if (
            isinstance(column, bool)
            or not isinstance(column, int)
            or tensor.dim() != 2
            or not 0 <= column < tensor.shape[1]
        ):
            raise ValueError(
                f"person_column={column!r} is the number of the column, from 0, that names the person each record is of: "
                f"the data set is a table of records x columns, and has the shape {tuple(tensor.shape)}."
            )


def _ids_of(worker: Worker, dataset: Any) -> list[Any]:
    """The objects a data set consists of. By a tag: see NOTE [Whose data set]."""
    node = dataset.child if type(dataset) is Wrapper else dataset
    at = getattr(node, "id_at_location", None)
    if at is not None:
        if node.location.id != worker.id:
            raise ValueError(
                f"The data set is on worker {node.location.id!r}; its budget is set there, not on {worker.id!r}."
            )
        return [at]
    if isinstance(dataset, bool) or not isinstance(dataset, (int, str)):
        # NB: without its text: that of a tensor would be private values.
        raise TypeError(
            f"A data set on worker {worker.id!r} is named by a tag, a pointer to it or its id, not by a "
            f"{type(dataset).__name__}. Put it there first, as private: x.private_tensor(allowed_users=...).send(worker)."
        )
    tagged = [
        obj_id
        for obj_id, obj in worker._objects.copy().items()
        if worker.allowed_users(obj_id) is not None and dataset in (getattr(obj, "tags", None) or ())
    ]
    own = [obj_id for obj_id in tagged if _is_owners(worker, obj_id)]
    if tagged and not own:
        raise ValueError(
            f"What has the tag {dataset!r} on worker {worker.id!r} was computed or brought by users, and is no data set. "
            "Name the data set by a pointer or an id."
        )
    if not own and dataset not in worker._objects:
        raise ObjectNotFoundError(dataset, worker)
    return own or [dataset]


def _is_owners(worker: Worker, obj_id: Any) -> bool:
    """See NOTE [Whose data set]."""
    entry = worker._entries.get(obj_id)
    return entry is not None and (entry.is_private if worker._holdings is None else entry.is_owners)


def _check_is_data_set(worker: Worker, desk: Desk, obj_id: Any, tensor: torch.Tensor, computed: bool) -> None:
    """!! ValueError for what is no data set: see NOTE [Whose data set]."""
    if _is_owners(worker, obj_id):
        return
    if worker._holdings is not None:
        raise ValueError(
            f"Object {obj_id!r} on worker {worker.id!r} was not put there by its owner, so it is not "
            "known what its rows are. Set budgets for data that you put there with load_data, register_obj or data=."
        )
    if not computed and desk.provenance.rows_of(tensor) is None:
        raise ValueError(
            f"Object {obj_id!r} on worker {worker.id!r} was computed from private data, and one person may be in all of "
            "its rows: then no noise would be enough. Set the budget of the data set it was computed from. If you know "
            "that each row depends on one record only (votes of teachers), say so: set_budget(..., computed=True)."
        )


def _name_of(worker: Worker, dataset: Any, ids: list[Any]) -> str:
    if isinstance(dataset, str):
        return dataset
    tags = getattr(worker.get_obj(ids[0]), "tags", None) or ()
    if len(tags) != 1:
        raise ValueError(
            "A budget outlives the object it is for, so the data set needs a name: set_budget(..., name=...), or "
            f"one tag. It has {len(tags)} tags."
        )
    return str(next(iter(tags)))


def _private_tensor(worker: Worker, obj_id: Any) -> torch.Tensor:
    obj = worker.get_obj(obj_id)
    if type(obj) is not torch.Tensor or not obj.dim():
        raise TypeError(
            f"Object {obj_id!r} is {'a single number' if type(obj) is torch.Tensor else f'a {type(obj).__name__}'}. "
            "A data set is a tensor whose first dimension is its records."
        )
    if worker.allowed_users(obj_id) is None:
        raise ValueError(
            f"Object {obj_id!r} is not private: anybody may fetch it, and a budget would protect nothing. Put it there "
            'with private_tensor(allowed_users=...); in a policy file, let may_get be "own".'
        )
    return obj


def _sources(worker: Worker, desk: Desk) -> list[Source]:
    found = (desk.provenance.rows_of(obj) for obj in worker._objects.copy().values())
    return [source for rows in found if rows is not None for source in rows.sources]


# -- everybody -------------------------------------------------------------------------------------------------


def release(worker: Worker, message: ReleaseMessage) -> Any:
    """Answer a request for a statistic: see NOTE [What an answer waits for]."""
    user = user_of(message)
    obj = worker.get_obj(message.id)
    try:
        desk, rows, request, charge = _prepared(worker, message, user, obj)
        names = names_of(rows.sources)
        values = copied_rows(desk, obj, message.id, rows)
        approval = use_approval(worker, user, "release", message.id, digest_of_release(message))
        desk.book.charge(names, user, charge, request.records_per_person, is_approved=approval is not None)
    except Exception:
        worker.policy.record(AuditRecord("release", message.id, user, False, str(message.mechanism)[:60]))
        raise
    worker.policy.record(AuditRecord("release", message.id, user, True, message.mechanism))
    return answer(values, request)


def _prepared(
    worker: Worker, message: ReleaseMessage, user: str | None, obj: Any, asked: AskMessage | None = None
) -> tuple[Desk, Rows, Request, Charge]:
    """What a release is of and what it costs. !! whatever is wrong with it, from public facts"""
    pipeline.permit_release(worker, message if asked is None else asked, [message.id])
    desk, rows = released_rows(worker, obj, message.id, user)
    request = Request(
        message.mechanism,
        message.epsilon,
        message.delta,
        message.options,
        tuple(obj.shape),
        desk.book.records_per_person(names_of(rows.sources)),
        # NB: of the data set itself. What was made of it may have its columns elsewhere.
        worker.entry_of(message.id).person_column,
    )
    return desk, rows, request, settle(request, obj.dtype)


def ask_for_release(worker: Any, asked: AskMessage) -> Prepared:
    """Ask the owner for a release: what it is of, and what it costs."""
    message: ReleaseMessage = asked.message
    user, obj = user_of(asked), worker.get_obj(message.id)
    _desk, rows, request, charge = _prepared(worker, message, user, obj, asked)
    details = {
        "shape": str(request.shape),
        **{f"option {name}": repr(value)[:1000] for name, value in sorted(message.options.items())},
    }
    ask = Ask(
        "release",
        digest_of_release(message),
        "a release",
        asked.reason,
        details,
        uses=asked.uses,
        charge=text_of_charge(charge),
        datasets=tuple(sorted(set(names_of(rows.sources)))),
    )
    return Prepared(ask, message.id)


def budgets_of_asker(worker: Any, user: str, datasets: tuple[str, ...]) -> dict[str, str]:
    """For the owner: what one who asks has left of the budgets."""
    desk: Desk | None = worker.known_extension(Desk)
    found = {}
    for name in datasets if desk is not None else ():
        try:
            state = desk.book.state(name, user)  # type: ignore[union-attr]
        except ReleaseNotPermittedError:
            found[f"left of {name}"] = "no budget"
        else:
            found[f"left of {name}"] = f"epsilon {state.left:.4g} of {state.epsilon:g}"
    return found


def sources_of_entry(worker: Any, entry: Any) -> dict[str, str]:
    """For the owner: of which data sets something is made row by row, where that is known."""
    desk: Desk | None = worker.known_extension(Desk)
    rows = None if desk is None else desk.provenance.rows_of(entry.value)
    return {} if rows is None else {"made row by row of": " ".join(sorted(set(names_of(rows.sources))))}


def released_rows(worker: Worker, obj: Any, obj_id: Any, user: str | None) -> tuple[Desk, Rows]:
    """The desk, and what is known of the rows of an object; !! if one record may change more than one row."""
    desk: Desk | None = worker.known_extension(Desk)
    if desk is not None:
        _follow_book(worker, desk)
    rows = None if desk is None else desk.provenance.rows_of(obj)
    if desk is None or rows is None:
        raise ReleaseNotPermittedError(_refusal(obj_id))
    if rows.readers is not None and not worker.policy.may_get(user, rows.readers):
        raise ReleaseNotPermittedError(
            f"Object {obj_id!r} was computed with other data that the user {user!r} may not have, and the noise of a "
            "release would not hide that. Compute it with data of your own, or with public data."
        )
    return desk, rows


def copied_rows(desk: Desk, obj: torch.Tensor, obj_id: Any, rows: Rows) -> torch.Tensor:
    """A copy of a tensor of which that is known of its rows. All that is computed for an answer is computed from it.

    !! if another thread has written into the tensor since it was looked up
    """
    values = obj.detach().clone()
    # NB: after the copy: a tensor loses its mark before it is written into (NOTE [Marks that expire] in `provenance`).
    if desk.provenance.rows_of(obj) is not rows:
        raise ReleaseNotPermittedError(_refusal(obj_id))
    return values


def _refusal(obj_id: Any) -> str:
    return (
        f"Object {obj_id!r} is not released: it is not a data set that its owner set a budget for, nor known to be made "
        "of one row by row (an average, a sorted or shuffled or joined data set, or one that was written into, is "
        "not). Release the data set itself, or rows of it such as data[:, 0] or data @ weights, with a mechanism that "
        'computes what you want: worker.release(data, "mean", bounds=(low, high), epsilon=...).'
    )


def tell_budget(worker: Worker, message: BudgetMessage) -> BudgetState:
    """A user's own budget. Over a network, whoever asks is told about themselves only."""
    user, desk = user_of(message), worker.known_extension(Desk)
    if desk is None:
        raise ReleaseNotPermittedError(f"The owner of worker {worker.id!r} has set no budgets.")
    _follow_book(worker, desk)
    name = message.dataset
    if not isinstance(name, str):
        rows = desk.provenance.rows_of(worker.get_obj(name))
        names = sorted(set(names_of(rows.sources))) if rows is not None else []
        if len(names) != 1:
            raise ReleaseNotPermittedError(
                f"Object {message.dataset!r} is of {len(names)} data sets with budgets: ask by the name of one."
                if names
                else _refusal(message.dataset)
            )
        name = names[0]
    state: BudgetState = desk.book.state(name, user)
    return state


serde.register_record(Noise)
serde.register(
    ReleasedFloat,
    "ReleasedFloat",
    lambda _worker, x: (float(x), x.noise),
    lambda _worker, parts: ReleasedFloat(*parts),
    fields=tuple[float, Noise],
)
serde.register(
    ReleasedInt,
    "ReleasedInt",
    lambda _worker, x: (int(x), x.noise),
    lambda _worker, parts: ReleasedInt(*parts),
    fields=tuple[int, Noise],
)
serde.register(
    ReleasedTensor,
    "ReleasedTensor",
    lambda _worker, x: (x.as_subclass(torch.Tensor), x.noise),
    lambda _worker, parts: ReleasedTensor(*parts),
    fields=tuple[torch.Tensor, Noise],
)
serde.register_record(PastRelease)
serde.register_record(BudgetState)
handlers.HANDLERS[ReleaseMessage] = release
handlers.HANDLERS[BudgetMessage] = tell_budget
request_handlers.ASKS[ReleaseMessage] = ask_for_release
keeper.BUDGET_FACTS.append(budgets_of_asker)
request_handlers.FACTS.append(sources_of_entry)


class _Budgets:
    """What the owner of a worker calls on it."""

    keep_budgets = staticmethod(keep_budgets)
    set_budget = staticmethod(set_budget)
    book_to_hand_over = staticmethod(book_to_hand_over)


IMPLEMENTATIONS[OwnerBudgets] = _Budgets()
