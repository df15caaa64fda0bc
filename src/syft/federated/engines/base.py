"""What an engine is: it runs tasks and yields their outcomes as they finish."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from syft.federated.local_training import OverdueError
from syft.federated.records import ClientFailure, EvaluateInstructions, FitInstructions


@dataclass(frozen=True)
class Task:
    """One client's part of a round."""

    name: str
    client: Any
    """Has `fit(FitInstructions)` and `evaluate(EvaluateInstructions)`."""
    instructions: FitInstructions | EvaluateInstructions

    def run(self) -> Any:
        """Do it here; whatever the client returns."""
        told = self.instructions
        if not getattr(type(self.client), "only_reads", False):
            # Somebody else's code: what it writes into its state is not to be the state of others, nor of the server.
            told = replace(told, state={name: tensor.clone() for name, tensor in told.state.items()})
        return self.client.fit(told) if isinstance(told, FitInstructions) else self.client.evaluate(told)


@dataclass(frozen=True)
class Outcome:
    """What became of a task. `value` is what the client returned, unchecked, or a ClientFailure."""

    name: str
    value: Any


@runtime_checkable
class Engine(Protocol):
    def run(self, tasks: Sequence[Task], deadline: float | None) -> Iterator[Outcome]:
        """One outcome per task, in the order they finish; `deadline` is seconds from a client's own start."""
        ...


class TaskStream(Protocol):
    """Tasks of an asynchronous training, which are handed over one by one while others run."""

    @property
    def clock(self) -> float | None:
        """The simulated time in seconds; None where time is real."""
        ...

    def submit(self, task: Task, until: float = 0.0) -> None:
        """Begin a task; `until` is when it is done where time is simulated. One at a time for each client."""
        ...

    def next(self) -> Outcome:
        """Wait for the next one that is done. Only while there is a task."""
        ...

    def __len__(self) -> int:
        """Of how many tasks nothing was told yet."""
        ...


@runtime_checkable
class StreamingEngine(Engine, Protocol):
    """An engine for asynchronous trainings."""

    def stream(self, deadline: float | None, clock: float = 0.0) -> TaskStream:
        """`deadline` is seconds from a client's own start, `clock` the simulated time that it is, if time is."""
        ...


ENGINES: dict[str, Callable[[], Engine]] = {}


def register_engine(name: str) -> Callable[[Any], Any]:
    """Class decorator: `Trainer(engine=name)` makes one without arguments."""

    def add(factory: Any) -> Any:
        if name in ENGINES:
            raise ValueError(f"There is an engine {name!r} already. Register yours under another name.")
        ENGINES[name] = factory
        return factory

    return add


def make_engine(engine: str | Engine) -> Engine:
    """An engine from its name, or itself. !! ValueError, TypeError"""
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise ValueError(f"The engine {engine!r} is not known. Name one of {', '.join(sorted(ENGINES))}.")
        return ENGINES[engine]()
    if not isinstance(engine, Engine) or isinstance(engine, type):
        raise TypeError(
            f"An engine is an object with run(tasks, deadline), or a name; this is {engine!r}. "
            "Use e.g. engine='threads' or engine=ThreadEngine(8)."
        )
    return engine


def attempt(task: Task) -> Outcome:
    """Run a task here; an error becomes a failure that says what was raised."""
    try:
        return Outcome(task.name, task.run())
    except OverdueError as error:
        return Outcome(task.name, ClientFailure(task.name, "timeout", str(error)))
    except (Exception, SystemExit, CancelledError, GeneratorExit) as error:  # noqa: BLE001  (a client may raise anything)
        return failed(task.name, error)


def failed(name: str, error: BaseException) -> Outcome:
    return Outcome(name, ClientFailure(name, "error", described(error)))


def described(error: BaseException) -> str:
    """An error in one short line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}" if text else type(error).__name__


def overdue(name: str, deadline: float) -> Outcome:
    return Outcome(
        name, ClientFailure(name, "timeout", f"It was not done after {deadline:g} s, its deadline.")
    )
