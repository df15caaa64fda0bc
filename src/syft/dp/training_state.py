"""What was spent on one training, in all of its runs, and how that is written down and read.

One duty: `SpentByRun`. Imports `accounting`, `events`.

NOTE [Runs]
A training that is saved, loaded and gone on with has been run several times, now and then on two machines from one
saved state. What was spent is what all runs spent together. So each run has a random name, and a state says what was
spent by run. Of one run that two states know of, the later one knows more: the maximum counts. What different runs
spent is added up. A process that was forked is a run of its own. Loading then never forgets a step, and counts none
twice, whatever is loaded, where and in which order. (States of format 1 do not name their run: each of them, each time
it is loaded, counts as another.)
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syft.dp.accounting import Accountant
from syft.dp.events import Spent, read, total, written

FORMAT = 2  # of the state of a training


def _new_run() -> str:
    return secrets.token_hex(16)


@dataclass
class SpentByRun:
    """What the runs of a training have spent. See NOTE [Runs]."""

    accountant: Accountant
    """Of all runs together: this one composes to it."""
    run: str = field(default_factory=_new_run)
    others: dict[str, Spent] = field(default_factory=dict)
    """What was spent by other runs, as far as it was loaded here."""
    process: int = field(default_factory=os.getpid)

    def notice_fork(self) -> None:
        """Called before anything is spent: from here on, parent and child know nothing of each other."""
        if self.process != os.getpid():
            self.others = self.by_run()
            self.run, self.process = _new_run(), os.getpid()

    def by_run(self) -> dict[str, Spent]:
        loaded = total(self.others.values())
        own = {e: n - loaded.get(e, 0) for e, n in self.accountant.spent.items() if n > loaded.get(e, 0)}
        return {**self.others, self.run: own}

    def written(self) -> dict[str, list[dict[str, Any]]]:
        """Plain values."""
        return {
            run: [written(event, count) for event, count in spent.items()]
            for run, spent in self.by_run().items()
        }

    def join(self, loaded: Mapping[str, Spent], *, may_be_older: bool = False) -> None:
        """Know of what is known there, too. !! ValueError where all of it is known here, and more, unless it may be"""
        known = self.by_run()
        joint = {run: _most(known.get(run, {}), loaded.get(run, {})) for run in {**known, **loaded}}
        if (
            not may_be_older
            and joint == known
            and any(spent and loaded.get(run, {}) != spent for run, spent in known.items())
        ):
            raise ValueError(
                f"This training has spent more than the state knows of ({_first(known)}), and nothing is unspent by "
                "loading. Load an older model into it if you like, and leave what was spent as it is."
            )
        together = total(joint.values())
        joint.pop(self.run)
        self.others = joint
        self.accountant.spent.clear()
        self.accountant.spent.update(together)


def read_spent(state: Mapping[str, Any]) -> dict[str, Spent]:
    """What a state says was spent, by run. !! KeyError, TypeError, ValueError, AttributeError for what is no state"""
    runs = state["spent"]
    if state["format"] == 1:
        # NB: it does not name its run, and may know of steps that no other state does: a run of its own.
        runs = {_new_run(): runs}
    elif state["format"] != FORMAT:
        raise ValueError(f"its format is {state['format']!r}, not {FORMAT}")
    found: dict[str, Spent] = {}
    for run, entries in runs.items():
        if not isinstance(run, str) or not run:
            raise ValueError(f"a run is named by a text, not by {run!r}")
        accounts = Accountant()
        for entry in entries:
            accounts.compose(*read(entry))
        found[run] = accounts.spent
    return found


def _most(one: Spent, other: Spent) -> Spent:
    return {event: max(one.get(event, 0), other.get(event, 0)) for event in {**one, **other}}


def _first(runs: Mapping[str, Spent]) -> str:
    return next(f"{count} times {event}" for spent in runs.values() for event, count in spent.items())
