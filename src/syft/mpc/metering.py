"""`measure()`: what operations on secrets cost, one by one, and what that is on a network of given speed.

    with sy.mpc.measure() as bill:
        model(x)
    print(bill)

Drivers tell what each program cost (`note`), and the tensor types which operation it belongs to (`operation`). Only
programs of the thread that measures are counted. Imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from syft.core import html


@dataclass(frozen=True)
class Network:
    """Seconds that a message is under way, and bytes that a link carries per second."""

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not self.latency >= 0 or not self.bandwidth > 0:
            raise ValueError(
                f"A network has a latency from 0 on and a bandwidth above 0, not {self.latency} s and "
                f"{self.bandwidth} B/s."
            )


LAN = Network(0.0003, 125e6)
"""1 Gbit/s, 0.3 ms one way."""
WAN = Network(0.04, 12.5e6)
"""100 Mbit/s, 40 ms one way."""


@dataclass
class Spent:
    """What programs cost. Bytes and correlations are those of all parties together; `most_sent` is of the busiest one."""

    rounds: int = 0
    bytes: int = 0
    most_sent: int = 0
    seconds: float = 0.0
    offline_bytes: int = 0
    offline_seconds: float = 0.0
    correlations: int = 0

    def add(self, other: Spent) -> None:
        for name in Spent.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def on(self, network: Network) -> float:
        """Seconds online on a network: computing, rounds one after the other, and sending."""
        return self.seconds + self.rounds * network.latency + self.most_sent / network.bandwidth


@dataclass
class OperationBill(Spent):
    """What all calls of one operation cost."""

    name: str = ""
    calls: int = 0


@dataclass
class Bill:
    """What was spent while `measure()` was open, by operation, in the order of their first calls."""

    operations: list[OperationBill] = field(default_factory=list)

    @property
    def total(self) -> OperationBill:
        whole = OperationBill(name="total", calls=sum(one.calls for one in self.operations))
        for one in self.operations:
            whole.add(one)
        return whole

    def on(
        self, latency: float | None = None, bandwidth: float | None = None, *, network: Network = LAN
    ) -> float:
        """Seconds online on a network: `latency` in seconds, one way, `bandwidth` in bytes per second; those that are
        left out are those of `network`.
        """
        chosen = Network(
            network.latency if latency is None else latency,
            network.bandwidth if bandwidth is None else bandwidth,
        )
        return self.total.on(chosen)

    def _note(self, name: str, is_call: bool, spent: Spent) -> None:
        found = next((one for one in self.operations if one.name == name), None)
        if found is None:
            found = OperationBill(name=name)
            self.operations.append(found)
        found.calls += is_call
        found.add(spent)

    def table(self) -> Any:
        """A `rich.table.Table`: costly operations first."""
        try:
            tables = importlib.import_module("rich.table")
        except ImportError as error:
            raise ImportError("A bill is shown as a table of `rich`: pip install rich.") from error
        made = tables.Table(title="Secrets", title_justify="left")
        for title in _COLUMNS:
            made.add_column(title, justify="left" if title == "operation" else "right")
        for one in sorted(self.operations, key=lambda one: (-one.on(LAN), one.name)):
            made.add_row(*_cells(one))
        made.add_section()
        made.add_row(*_cells(self.total))
        return made

    def __str__(self) -> str:
        console = importlib.import_module("rich.console").Console(file=io.StringIO(), width=110)
        console.print(self.table())
        return str(console.file.getvalue().rstrip())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        costly = sorted(self.operations, key=lambda one: (-one.on(LAN), one.name))
        return html.table("Secrets", _COLUMNS, [_cells(one) for one in [*costly, self.total]])

    def plot(self, axes: Any = None) -> Any:
        """Seconds by operation, as measured and on a LAN and a WAN, with matplotlib; returns its axes."""
        try:
            if axes is None:
                axes = importlib.import_module("matplotlib.pyplot").subplots()[1]
        except ImportError as error:
            raise ImportError("plot() needs matplotlib: pip install 'resyft[plot]'.") from error
        shown = sorted(self.operations, key=lambda one: one.on(LAN))
        places, height = range(len(shown)), 0.27
        bars = {
            "measured": [one.seconds for one in shown],
            "LAN": [one.on(LAN) for one in shown],
            "WAN": [one.on(WAN) for one in shown],
        }
        for number, (label, widths) in enumerate(bars.items()):
            axes.barh([place + (number - 1) * height for place in places], widths, height, label=label)
        axes.set_yticks(list(places), [one.name for one in shown])
        axes.set_xlabel("seconds online")
        axes.set_xscale("symlog", linthresh=1e-3)
        axes.legend()
        return axes


_COLUMNS = ("operation", "calls", "rounds", "sent", "offline", "online s", "offline s", "LAN s", "WAN s")


def _cells(one: OperationBill) -> tuple[str, ...]:
    times = (one.seconds, one.offline_seconds, one.on(LAN), one.on(WAN))
    sizes = (_size(one.bytes), _size(one.offline_bytes))
    return one.name, f"{one.calls:,}", f"{one.rounds:,}", *sizes, *(f"{t:.3f}" for t in times)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{int(count)} B"
        count /= 1000
    return f"{count:.3g} TB"


# -- measuring ---------------------------------------------------------------------------------------------

_BILLS: ContextVar[tuple[Bill, ...]] = ContextVar("bills", default=())
#: The operation at hand, and whether something of it was noted.
_OPERATION: ContextVar[list[Any] | None] = ContextVar("operation", default=None)


@contextlib.contextmanager
def measure() -> Iterator[Bill]:
    """Note what the programs of this thread cost, by operation.

    On a network the parties count. They are asked after every program, so what usually overlaps is waited for.
    """
    bill = Bill()
    mark = _BILLS.set((*_BILLS.get(), bill))
    try:
        yield bill
    finally:
        _BILLS.reset(mark)


def is_measuring() -> bool:
    return bool(_BILLS.get())


@contextlib.contextmanager
def operation(name: str, always: bool = False) -> Iterator[None]:
    """What is spent inside belongs to this operation, unless it is part of another one, or `always`."""
    if not _BILLS.get() or (_OPERATION.get() is not None and not always):
        yield
        return
    mark = _OPERATION.set([name, False])
    try:
        yield
    finally:
        _OPERATION.reset(mark)


def note(program: str, spent: Spent) -> None:
    """A program was run. Without an operation that it belongs to it has a row of its own."""
    bills, current = _BILLS.get(), _OPERATION.get()
    name, was_noted = (program, False) if current is None else current
    for bill in bills:
        bill._note(name, not was_noted, spent)
    if current is not None:
        current[1] = True
