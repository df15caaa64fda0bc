"""Every error this library raises on purpose.

    SyftError
    ├── DependencyError (ImportError)              an optional package is missing
    ├── LeftOutError (ImportError)                 a path of 2020 that is not part of this library
    ├── ChainError (ValueError)                    a chain of tensor types cannot do this
    │   ├── PureFrameworkTensorFoundError          a plain torch tensor where a chain was expected
    │   ├── RemoteObjectFoundError                 a pointer where a local chain was expected
    │   ├── MixedChainsError                       two chains of different types met
    │   ├── UnregisteredTypeError                  a tensor type that was not registered with hook_args
    │   └── InvalidTensorForRemoteGet              not a pointer to a pointer
    ├── AlreadyFetchedError (AttributeError)       a second get()
    ├── UnsupportedOperationError (NotImplementedError)  a type has no rule for this operation
    ├── UnknownCommandError (RuntimeError)         not a torch operation a worker will run
    ├── OperationNotAdmittedError (NotImplementedError)  not on the list of operations for private data
    ├── LocalTensorError (RuntimeError)            the tensor is already here
    │   └── NoRemoteValueError (AttributeError)    an attribute that only pointers have
    ├── ValueNotHereError (RuntimeError, ValueError)  the value is on another machine
    ├── TensorsNotCollocatedException (ValueError) two tensors of one call live in two places
    ├── ResponseSignatureError (ValueError)        more results than ids to store them under
    ├── AuthenticationError (PermissionError)      a user did not prove a name
    │   ├── InvalidTokenError                      not a token of this worker's
    │   ├── ExpiredTokenError
    │   └── RevokedTokenError
    ├── PermissionDeniedError (PermissionError)
    │   ├── GetNotPermittedError
    │   ├── SendNotPermittedError
    │   ├── ComputeNotPermittedError
    │   ├── ConnectNotPermittedError
    │   ├── QuotaExceededError                     more objects or bytes than a user may have
    │   ├── RequestNotPermittedError               the owner cannot be asked for this
    │   ├── RequestDeniedError                     the owner was asked, and said no
    │   ├── RequestExpiredError                    nobody answered in time, or an approval is over
    │   └── ReleaseNotPermittedError               no budget, or not made of a data set row by row
    ├── BudgetExceededError (PermissionError)      a release would cost more than the owner allowed
    ├── BudgetFileError (ValueError)               a file of budgets that is damaged or out of date
    ├── RequestNotFoundError (LookupError)         no such request, or somebody else's
    ├── RequestTimeoutError (TimeoutError)         the owner has not answered yet
    ├── RequestFileError (ValueError)              a queue of requests that cannot be read
    ├── RemoteError (RuntimeError)                 a worker failed while serving a request
    ├── NetworkError (ConnectionError)             the connection to a worker failed
    │   ├── WorkerUnreachableError                 nobody answers at its address
    │   ├── WorkerRestartedError                   it was restarted: what it held for us is gone
    │   ├── ConnectionRefusedByWorkerError         it refused the connection, and says why
    │   └── ProtocolError                          a frame was damaged, or not made by this library
    ├── WorkerNotFoundException (LookupError)
    ├── ObjectNotFoundError (RuntimeError)
    ├── IdNotUniqueError (ValueError)
    ├── CannotRequestObjectAttribute (AttributeError)
    ├── CompressionNotFoundException (LookupError)
    ├── EmptyCryptoPrimitiveStoreError (LookupError)  less was dealt ahead of time than was asked for
    └── PlanCommandUnknownError (ValueError)

Each also derives from the builtin exception a torch user would catch. Errors that one room alone raises are defined
there, and can be imported from here as well: `from syft.exceptions import SerdeError`. Imports nothing of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

#: What imports the rooms that define errors of their own; `syft/__init__.py` adds it.
LOAD_ROOMS: list[Callable[[], object]] = []


class SyftError(Exception):
    """Base of all errors of this library."""


class DependencyError(SyftError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, pypi_alias: str | None = None) -> None:
        self.package = package
        self.pypi_alias = pypi_alias or package
        super().__init__(
            f"The package {package!r} is needed for this and is not installed. "
            f"Install it with: pip install {self.pypi_alias}"
        )


class LeftOutError(SyftError, ImportError):
    """A module or name of 2020 that is not part of this library was imported."""

    def __init__(self, path: str, instead: str) -> None:
        self.instead = instead
        # NB: with the name of the module, as Python's own errors have it.
        ImportError.__init__(self, f"{path} was imported and is left out. {instead}", name=path)


class ChainError(SyftError, ValueError):
    """A chain of tensor types cannot do what was asked of it.

    Not a TypeError: torch's operators turn one into `NotImplemented`, and `a == b` would be False.
    """


class PureFrameworkTensorFoundError(ChainError):
    """A plain torch tensor was found where a tensor with a `.child` was expected."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "A plain torch tensor was found where a chain of tensor types was expected. "
            "It has no `.child` to unwrap: wrap it first, e.g. LoggingTensor().on(tensor)."
        )


class RemoteObjectFoundError(ChainError):
    """A pointer was found while unwrapping arguments; `.pointer` says which."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        super().__init__(
            f"The argument {pointer!r} is a pointer and has no local `.child`. "
            "Send the command to its `.location`, or fetch the value with `.get()` first."
        )


class MixedChainsError(ChainError):
    """Two chains of different types met in one operation."""

    def __init__(self, operation: str, one: type, other: type) -> None:
        self.operation, self.types = operation, (one, other)
        super().__init__(
            f"{operation} was called with a {one.__name__} and a {other.__name__}, and neither "
            f"knows how to take the other in. Bring both to the same type first, e.g. with "
            f"{one.__name__}().on(tensor) on the plain value, or strip one with `.child`."
        )


class UnregisteredTypeError(ChainError):
    """A tensor type was used that hook_args does not know."""

    def __init__(self, tensor_type: type) -> None:
        self.tensor_type = tensor_type
        name = tensor_type.__name__
        super().__init__(
            f"The tensor type {name} is not registered, so chains cannot unwrap and rewrap "
            f"it. Call syft.generic.frameworks.hook.hook_args.default_register_tensor({name}) once, "
            f"right after the class is defined."
        )


class InvalidTensorForRemoteGet(ChainError):
    """`remote_get`/`mid_get`/`remote_send` need a pointer to a pointer."""

    def __init__(self, tensor: Any, method: str = "remote_get") -> None:
        super().__init__(
            f"{method}() was called on {tensor!r}, which is not a pointer to a pointer, so there is nothing to "
            "fetch on the other side. It works on x.send(bob).send(alice); for an ordinary pointer call `.get()` or "
            "`.move(worker)`, and use a tensor that is here as it is."
        )


class AlreadyFetchedError(SyftError, AttributeError):
    """A pointer or secret was fetched before and is empty now."""

    def __init__(self) -> None:
        super().__init__(
            "This pointer was fetched already. Use what the first `.get()` returned, or `.copy().get()` to leave the "
            "value where it is."
        )


class UnsupportedOperationError(SyftError, NotImplementedError):
    """A tensor type has no rule for an operation."""

    def __init__(self, operation: str, tensor_type: type, cure: str = "") -> None:
        self.operation, self.tensor_type = operation, tensor_type
        super().__init__(
            f"{tensor_type.__name__} has no rule for {operation}. "
            + (cure or f"Overload it on {tensor_type.__name__}, or write it with operations it has.")
        )


class UnknownCommandError(SyftError, RuntimeError):
    """A worker was asked for something that is not a torch operation it will run."""

    def __init__(self, command: str) -> None:
        self.command = command
        super().__init__(
            f"The command {str(command)[:200]!r} is not a known torch operation, so the worker does not "
            "run it. Use an aten overload such as 'aten.add.Tensor', a torch function such as "
            "'torch.add', or a tensor method such as 'add'."
        )


class OperationNotAdmittedError(SyftError, NotImplementedError):
    """An operation that a worker does not run for those who may not see the data."""

    def __init__(self, operation: str, reason: str = "", cure: str = "") -> None:
        self.operation = operation
        super().__init__(
            f"{str(operation)[:200]} is not among the operations that may run on data which you may not fetch. "
            + (f"{reason} " if reason else "")
            + (cure or "Write it with operations that are: docs/admitted_operations.md lists them.")
        )


class LocalTensorError(SyftError, RuntimeError):
    """A remote-only request was made on a tensor that is here already."""

    def __init__(self, method: str) -> None:
        super().__init__(
            f".{method}() was called on a tensor that is on this machine already. "
            "Use it as it is; only what `.send(worker)` returned has to be fetched."
        )


class NoRemoteValueError(LocalTensorError, AttributeError):
    """An attribute that only pointers have was asked of something else; `hasattr` answers False."""

    def __init__(self, name: str, kind: str) -> None:
        SyftError.__init__(
            self,
            f".{name} says whether a remote value is deleted with its pointer, and was read from {kind}, which has no "
            "remote value. Read it from what `.send(worker)` returned.",
        )


class ValueNotHereError(SyftError, RuntimeError, ValueError):
    """The value of a tensor that lives elsewhere was read as if it were here."""

    def __init__(self, request: str, where: str, asked_by: str = "") -> None:
        super().__init__(
            f"{request} needs the value, and the value is {where}, not here. "
            "Fetch it with `.get()` (or `.copy().get()` to leave it there) if you are permitted to."
            + (f" It was asked for by {asked_by}." if asked_by else "")
        )


class TensorsNotCollocatedException(SyftError, ValueError):
    """Two tensors of one operation live in two places; nothing is sent silently."""

    def __init__(self, tensor_a: Any, tensor_b: Any, attr: str = "an operation", cure: str = "") -> None:
        self.tensor_a, self.tensor_b, self.attr = tensor_a, tensor_b, attr
        self.cure = cure or _cure(tensor_a, tensor_b)
        super().__init__(self._sentence())

    def called(self, attr: str) -> TensorsNotCollocatedException:
        """The same error, naming the call that the user wrote instead of the step of it that failed."""
        self.attr = attr
        self.args = (self._sentence(),)
        return self

    def _sentence(self) -> str:
        a, b = self.tensor_a, self.tensor_b
        return f"{self.attr} was called with a tensor {_place(a)} and a tensor {_place(b)}. {self.cure}"


def _location(tensor: Any) -> Any:
    return getattr(tensor, "location", None)


def _place(tensor: Any) -> str:
    location = _location(tensor)
    return "on this machine" if location is None else f"on worker {location.id!r}"


def route_method_exception(
    exception: Exception, self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """The error to show for one that a method of `self` raised.

    A tensor among the arguments that lives elsewhere than `self` is named as the cause; otherwise it is the error itself.
    """
    for other in (*args, *kwargs.values()):
        if hasattr(other, "shape") and _location(other) is not _location(self):
            return TensorsNotCollocatedException(self, other)
    return exception


def _cure(a: Any, b: Any) -> str:
    at_a, at_b = _location(a), _location(b)
    if at_a is None or at_b is None:
        remote = at_b if at_a is None else at_a
        name = getattr(remote, "id", "the worker")
        return f"Send the local one with `.send({name})`, or fetch the remote one with `.get()`."
    return (
        f"Bring one of them over with `.move({at_b.id})` or `.move({at_a.id})`, or fetch both with `.get()`."
    )


class ResponseSignatureError(SyftError, ValueError):
    """A response holds more tensors than ids were given for; `.ids_generated` are theirs."""

    def __init__(self, ids_generated: Iterable[Any] | None = None) -> None:
        self.ids_generated = list(ids_generated or [])
        super().__init__(
            "A worker's response holds more tensors than it was given ids for. The others are stored under "
            f"{self.ids_generated}."
        )

    def get_attributes(self) -> dict[str, Any]:
        return {"ids_generated": self.ids_generated}


class AuthenticationError(SyftError, PermissionError):
    """Somebody did not prove who they are."""


class InvalidTokenError(AuthenticationError):
    """Not a token, or not one that was made for this worker by somebody it trusts."""


class ExpiredTokenError(AuthenticationError):
    """A genuine token whose time is over."""


class RevokedTokenError(AuthenticationError):
    """A genuine token that its issuer took back."""


class PermissionDeniedError(SyftError, PermissionError):
    """A user requested something that the owner's policy does not allow. Base of the refusals below."""


class GetNotPermittedError(PermissionDeniedError):
    """A user who is not allowed to asked for a value."""


class SendNotPermittedError(PermissionDeniedError):
    """A tensor was sent to a worker by a user who is not allowed to."""


class ReleaseNotPermittedError(PermissionDeniedError):
    """A release of something that has no budget, or for which it is not known how much one record changes it."""


class BudgetExceededError(SyftError, PermissionError):
    """A release would spend more than the data owner allowed. Nothing was charged and nothing may leave.

    `left` is the epsilon that is left, where it is known.
    """

    left: float | None = None


class BudgetFileError(SyftError, ValueError):
    """A file of budgets that is damaged, incomplete or out of date. It never counts as an empty one."""


class ComputeNotPermittedError(PermissionDeniedError):
    """A user who is not allowed to asked for a computation on an object."""


class RequestNotPermittedError(PermissionDeniedError):
    """The owner of a worker cannot be asked for this: there is nothing to ask, or too much was asked before."""


class RequestDeniedError(PermissionDeniedError):
    """The owner of a worker said no to a request; the message has the reason they gave."""


class RequestExpiredError(PermissionDeniedError):
    """A request that nobody answered in time, or an approval whose time is over or that was used up."""


class RequestNotFoundError(SyftError, LookupError):
    """There is no such request, or it is somebody else's."""


class RequestTimeoutError(SyftError, TimeoutError):
    """The owner of a worker has not answered a request yet. It stays in the queue."""


class RequestFileError(SyftError, ValueError):
    """A queue of requests that cannot be read. It never counts as an empty one."""


class ConnectNotPermittedError(PermissionDeniedError):
    """A user whom the owner of a worker does not let in."""


class QuotaExceededError(PermissionDeniedError):
    """A user would hold more objects, or more bytes, than the owner of a worker allows."""


class RemoteError(SyftError, RuntimeError):
    """A worker failed while serving a request; the cause is chained."""


class NetworkError(SyftError, ConnectionError):
    """The connection to a worker failed. Base of the errors below."""


class WorkerUnreachableError(NetworkError):
    """A worker did not answer at its address in time."""


class WorkerRestartedError(NetworkError):
    """A worker was restarted, or ended the session: the objects that it held for us are gone."""


class ConnectionRefusedByWorkerError(NetworkError):
    """A worker answered and refused the connection; the text is its reason."""


class ProtocolError(NetworkError):
    """A frame was damaged on the way, or was not made by this library."""


class WorkerNotFoundException(SyftError, LookupError):
    """No worker of that name is known."""


class ObjectNotFoundError(SyftError, RuntimeError):
    """A worker does not hold an object of that id."""

    def __init__(self, obj_id: Any, worker: Any) -> None:
        self.obj_id, self.worker_id = obj_id, getattr(worker, "id", worker)
        super().__init__(
            f"Object {str(obj_id)[:60]!r} was not found on worker {self.worker_id!r}. It was fetched with "
            "`.get()`, its last pointer was dropped, or it was never there. Keep a pointer to what you "
            "still need, use `.copy().get()` to fetch without removing, or send the data again."
        )


class IdNotUniqueError(SyftError, ValueError):
    """An object of that id exists already."""


class CannotRequestObjectAttribute(SyftError, AttributeError):
    """An attribute of a remote object may not be read or set."""


class EmptyCryptoPrimitiveStoreError(SyftError, LookupError):
    """More correlated randomness was taken from a store than was dealt to it ahead of time."""

    def __init__(
        self, worker: Any = None, op: str = "", available_instances: int = 0, n_instances: int = 1
    ) -> None:
        who = getattr(worker, "id", worker)
        super().__init__(
            f"get_keys({op!r}, n_instances={n_instances}) of worker {who!r} found {available_instances} that were dealt "
            "ahead of time. Call provider.crypto_store.provide_primitives(...) first. Programs on shares do not need "
            "this: the provider deals what they use."
        )


class UndefinedProtocolTypeError(SyftError, LookupError):
    """A type, or the number of one, that has no simple form in `syft.serde.msgpack`."""


class UndefinedProtocolTypePropertyError(SyftError, AttributeError):
    """A type has no number of the kind that was asked for."""


class CompressionNotFoundException(SyftError, LookupError):
    """A compression scheme nobody registered."""


class PlanCommandUnknownError(SyftError, ValueError):
    """A command that plans do not have."""


def _defined_errors() -> dict[str, type[SyftError]]:
    """Every error of the rooms that are imported, by name."""
    found: dict[str, type[SyftError]] = {}
    pending = [SyftError]
    while pending:
        one = pending.pop()
        pending += one.__subclasses__()
        if one.__module__.startswith("syft."):
            found.setdefault(one.__name__, one)
    return found


def __getattr__(name: str) -> Any:
    """An error that another room defines."""
    if not name.startswith("_"):
        for known in (_defined_errors, _after_loading):
            if (found := known().get(name)) is not None:
                return found
        close = difflib.get_close_matches(name, _defined_errors(), n=3)
        advice = f" There is: {', '.join(close)}." if close else ""
        raise AttributeError(f"syft.exceptions has no error {name!r}.{advice}")
    raise AttributeError(f"module 'syft.exceptions' has no attribute {name!r}")


def _after_loading() -> dict[str, type[SyftError]]:
    for load in LOAD_ROOMS:
        load()
    return _defined_errors()
