"""Sums over the rows of several owners: computed where the rows are, shared there, added as secrets.

Whoever runs this holds pointers; neither rows nor an owner's own sums come here, or go to anybody in the clear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.core.session import session
from syft.exceptions import TensorsNotCollocatedException
from syft.mpc.group import Group
from syft.tensors.pointer import PointerTensor


@dataclass(frozen=True)
class Rows:
    """The rows of one owner: pointers to tables with as many rows each, at one worker."""

    tables: tuple[Any, ...]

    @property
    def owner(self) -> Any:
        return self.tables[0].location

    @property
    def count(self) -> int:
        return int(self.tables[0].shape[0])


def rows_of(caller: str, **lists: Sequence[Any]) -> list[Rows]:
    """The owners' rows, one per position in the lists; !! what does not fit together."""
    names = list(lists)
    for name, pointers in lists.items():
        if not isinstance(pointers, (list, tuple)) or not pointers:
            seen = "an empty one" if isinstance(pointers, (list, tuple)) else f"a {type(pointers).__name__}"
            raise TypeError(
                f"{caller} takes {name} as a list of pointers, one per owner of data; {seen} was found."
            )
    counts = {name: len(pointers) for name, pointers in lists.items()}
    if len(set(counts.values())) != 1:
        told = ", ".join(f"{count} in {name}" for name, count in counts.items())
        raise ValueError(f"{caller} takes one pointer per owner in every list; there are {told}.")
    found = [
        _rows(caller, names, [_table(caller, name, p) for name, p in zip(names, parts, strict=True)])
        for parts in zip(*lists.values(), strict=True)
    ]
    for place, name in enumerate(names):
        widths = {rows.tables[place].shape[1] for rows in found}
        if len(widths) != 1:
            raise ValueError(
                f"{caller} was given tables with different numbers of columns in {name}: {sorted(widths)}. All owners "
                "have the same columns, in the same order."
            )
    return found


def _table(caller: str, name: str, pointer: Any) -> Any:
    if type(pointer) is not Wrapper or not isinstance(pointer.child, PointerTensor):
        raise TypeError(
            f"{caller} takes pointers in {name}: data that stays with its owner, as x.send(worker) or a search "
            f"returns it. A {type(getattr(pointer, 'child', pointer)).__name__} was found."
        )
    if pointer.dim() not in (1, 2):
        raise ValueError(
            f"{caller} takes tables (rows, columns) in {name}; a tensor of shape {tuple(pointer.shape)} was found."
        )
    return pointer if pointer.dim() == 2 else pointer.unsqueeze(1)


def _rows(caller: str, names: list[str], tables: list[Any]) -> Rows:
    for name, table in zip(names[1:], tables[1:], strict=True):
        if table.location.id != tables[0].location.id:
            raise TensorsNotCollocatedException(tables[0], table, caller)
        if table.shape[0] != tables[0].shape[0]:
            raise ValueError(
                f"On worker {table.location.id!r}, {names[0]} has {tables[0].shape[0]} rows and {name} has "
                f"{table.shape[0]}. Send the same rows of both."
            )
    return Rows(tuple(table.detach().double() for table in tables))


class Sharing:
    """Who holds the shares of the sums (every owner, and one worker more), and in which precision."""

    def __init__(self, rows: list[Rows], extra: Any, provider: Any, digits: int) -> None:
        me = session.require_local_worker()
        extra, self.provider = (me.get_worker(w, fail_hard=True) for w in (extra, provider))
        self.holders = list({worker.id: worker for worker in (*(r.owner for r in rows), extra)}.values())
        self.digits = digits
        Group.of(self.holders, self.provider)  # refuses impossible groups before anything is computed

    def share(self, pointer: Any) -> Any:
        fixed = pointer.fix_precision(precision_fractional=self.digits)
        # NOTE [The first get] in syft.mpc.sharing: the secret comes here, still shared.
        return fixed.share(*self.holders, crypto_provider=self.provider).get()

    def total(self, rows: list[Rows], part: Callable[[Rows], Any]) -> Any:
        """The sum over owners of what `part` makes of their rows, at the owners."""
        shared = [self.share(part(r)) for r in rows]
        return sum(shared[1:], start=shared[0])


def second_moments(rows: list[Rows], sharing: Sharing, count: int) -> Any:
    """(1 / N) Z^T Z of the joined tables."""
    return sharing.total(rows, lambda r: _gram(_joined(r), count))


def central_moments(rows: list[Rows], sharing: Sharing, count: int) -> tuple[Any, Any]:
    """(covariances, means) of the columns of the joined tables, both secret.

    Every owner takes its own means off before it multiplies, so that large means do not cost digits; what is left is
    the spread of the owners' means around the common one, a product of secrets.
    """

    def around_own_mean(r: Rows) -> Any:
        joined = _joined(r)
        return _gram(joined - joined.mean(0), count)

    inside = sharing.total(rows, around_own_mean)
    means = sharing.total(rows, lambda r: _joined(r).sum(0) / count)
    if len(rows) == 1:
        return inside, means
    own = torch.stack([sharing.share(_joined(r).mean(0)) for r in rows])
    weights = torch.tensor([r.count / count for r in rows], dtype=torch.float64).sqrt()
    apart = (own - means) * weights.unsqueeze(1)
    return inside + apart.t() @ apart, means


def _joined(r: Rows) -> Any:
    return torch.cat(list(r.tables), 1)


def _gram(table: Any, count: int) -> Any:
    return table.t() @ table / count
