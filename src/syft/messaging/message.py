"""Every message there is: one typed record each.

A tensor argument of a command is a `Ref` to an object that the receiver holds. The sender picks the ids
under which results are stored, so it never has to wait for them. A transport only moves these records.
"""

from __future__ import annotations

from abc import ABC
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

Id = Any


class Ref(Struct, frozen=True, gc=False):
    """Stands for the object that the receiver holds under this id."""

    id: Id


class TrackedRef(Ref, frozen=True, gc=False):
    """A `Ref` to a result whose graph the receiver keeps; `tape` is the sender's record of it. Does not travel."""

    tape: Any


class LeafRef(Ref, frozen=True, gc=False):
    """A `Ref` to a leaf of a graph that the receiver keeps. Does not travel."""

    tape: Any


class MessageRecord(Struct, frozen=True):
    """Base of all records that are sent."""

    @property
    def contents(self) -> Any:
        """The fields of the message; a message of one field is that field."""
        values = tuple(getattr(self, name) for name in self.__struct_fields__)
        return values[0] if len(values) == 1 else values

    def is_asked(self) -> bool:
        """Whether the sender needs the reply. If not, it goes on, and hears of a failure later."""
        return True

    def __str__(self) -> str:
        return f"({type(self).__name__} {self.contents})"


class Message(ABC):  # noqa: B024  (it is made as it is; being an ABC lets the records be Messages)
    """A message of nothing but its contents, as programs of 2020 make one; every record is a `Message`, too.

    It travels, and no worker answers it.
    """

    def __init__(self, contents: Any = None) -> None:
        self._contents = contents

    @property
    def contents(self) -> Any:
        return self._contents

    def is_asked(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.contents == self.contents

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"({type(self).__name__} {self.contents})"

    __repr__ = __str__


Message.register(MessageRecord)


class Operation(MessageRecord, frozen=True):
    """Run a torch operation; store its results under `return_ids`, taken from the end.

    `wants_specs` asks for the metadata of the results in reply; otherwise nothing is replied.
    """

    cmd_name: str
    cmd_owner: Any
    cmd_args: Any
    cmd_kwargs: dict[str, Any]
    return_ids: tuple[Id, ...]
    wants_specs: bool = False
    user: str | None = None

    def is_asked(self) -> bool:
        return self.wants_specs

    @property
    def contents(self) -> Any:
        return (self.cmd_name, self.cmd_owner, self.cmd_args, self.cmd_kwargs), self.return_ids


class BackwardMessage(MessageRecord, frozen=True):
    """Differentiate a result whose graph the receiver keeps (see syft.tensors.kept_graphs), within one process.

    gradients  per leaf the id of the gradient that it has, which is added to, or None

    The reply has a pointer per leaf to its new gradient, or None; it is None if the receiver does not have the graph.
    """

    id: Id
    leaves: tuple[Id, ...]
    gradients: tuple[Id | None, ...]


class LearntMessage(MessageRecord, frozen=True):
    """Run the operations that the receiver knows under a number in this session (see syft.tensors.learnt_graphs).

    inputs      the objects they are about; they are the first slots, the results the next ones
    return_ids  where the results are kept that are in the slots `outputs`
    operations  what the number stands for from now on: (name, args, kwargs, how many results) of each, with a `Ref` for
                a slot; None: the receiver was told before
    """

    number: int
    inputs: tuple[Id, ...]
    return_ids: tuple[Id, ...]
    operations: Any = None
    outputs: tuple[int, ...] = ()

    def is_asked(self) -> bool:
        return False


class CallMessage(MessageRecord, frozen=True):
    """Run a whole function as one node of the caller's autograd graph (see syft.tensors.remote_call)."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    differentiable: tuple[int, ...]
    handle: Id
    return_ids: tuple[Id, ...]

    def is_asked(self) -> bool:
        return False


class CallBackwardMessage(MessageRecord, frozen=True):
    """Differentiate a call that `CallMessage` or `PlanCallMessage` made; the gradients are stored under `return_ids`."""

    handle: Id
    gradients: tuple[Any, ...]
    return_ids: tuple[Id, ...]

    def is_asked(self) -> bool:
        return False


class PlanCallMessage(MessageRecord, frozen=True):
    """Run a plan that the receiver holds, as one node of the caller's autograd graph (see syft.execution).

    `differentiable` are positions among the inputs followed by the state. `rates` are the learning rates of a training
    plan. `wants_specs` asks for the ids, the metadata and the structure of the results in reply.
    """

    plan: Id
    args: tuple[Ref, ...]
    differentiable: tuple[int, ...]
    handle: Id
    return_ids: tuple[Id, ...]
    rates: tuple[float, ...] = ()
    wants_specs: bool = False
    user: str | None = None

    def is_asked(self) -> bool:
        return self.wants_specs


class ObjectMessage(MessageRecord, frozen=True):
    """Here is an object: keep it, under its own id if no other is given.

    `allowed` names the users who may fetch it (None: everybody). `is_public`: it is a constant of a program, and
    restricts no result.
    """

    object: Any
    id: Id = None
    allowed: frozenset[str] | None = None
    user: str | None = None
    is_public: bool = False

    def __post_init__(self) -> None:
        if self.id is None:
            force_setattr(self, "id", getattr(self.object, "id", None))

    @property
    def contents(self) -> Any:
        return self.object

    def is_asked(self) -> bool:
        return False


class ObjectRequestMessage(MessageRecord, frozen=True):
    """Give me the object `(id, user, reason)`; unless `keep` it is removed where it was.

    `is_random` says that it is the share of a secret, so that nobody tries to compress it on its way.
    """

    request: tuple[Id, str | None, str]
    keep: bool = False
    is_random: bool = False

    @property
    def contents(self) -> Any:
        return self.request

    @property
    def user(self) -> str | None:
        return self.request[1]


class ForwardMessage(MessageRecord, frozen=True):
    """Send the object on to another worker, which keeps it under `new_id`."""

    id: Id
    destination: Id
    new_id: Id
    user: str | None = None


class ShareMessage(MessageRecord, frozen=True):
    """Split an object into shares and send one to each holder, to be kept under the ids."""

    id: Id
    holders: tuple[Id, ...]
    ids: tuple[Id, ...]
    user: str | None = None


class RemoteGetMessage(MessageRecord, frozen=True):
    """The object is a pointer: replace it by what it points to."""

    id: Id
    user: str | None = None


class IsNoneMessage(MessageRecord, frozen=True):
    """Is the object None (or gone)?"""

    id: Id


class GetShapeMessage(MessageRecord, frozen=True):
    """The shape of a tensor."""

    id: Id


class AttributeMessage(MessageRecord, frozen=True):
    """Store an attribute of an object under `return_id`, or set it to `value`."""

    id: Id
    name: str
    return_id: Id = None
    value: Any = None
    is_write: bool = False
    user: str | None = None


class CallObjectMessage(MessageRecord, frozen=True):
    """Call a callable that the owner of the data put there; the result is stored under `return_id`."""

    id: Id
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    return_id: Id
    user: str | None = None


class CallMethodMessage(MessageRecord, frozen=True):
    """Call a method that the class of the object allows remotely; the result is stored under `return_id`."""

    id: Id
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    return_id: Id


class BatchMessage(MessageRecord, frozen=True):
    """Make a batch of these rows of a data set that the receiver holds; the reply describes what was stored."""

    id: Id
    rows: tuple[int, ...]
    user: str | None = None


class TrainConfigMessage(MessageRecord, frozen=True):
    """How to train from now on: a model and a loss that the receiver holds, and the settings."""

    model_id: Id
    loss_fn_id: Id
    batch_size: int
    epochs: int
    optimizer: str
    optimizer_args: dict[str, Any]
    max_nr_batches: int
    shuffle: bool
    seed: int | None = None
    user: str | None = None


class FitMessage(MessageRecord, frozen=True):
    """Train on a data set that the owner of the receiver offers; the reply is the last loss."""

    dataset_key: str
    device: str = "cpu"
    user: str | None = None


class EvaluateMessage(MessageRecord, frozen=True):
    """Evaluate on a data set that the owner of the receiver offers; the reply is a dict of figures."""

    dataset_key: str
    return_histograms: bool = False
    nr_bins: int = -1
    return_loss: bool = True
    return_raw_accuracy: bool = True
    device: str = "cpu"
    user: str | None = None


class OffersMessage(MessageRecord, frozen=True):
    """Which data sets does the receiver's owner offer for training? The reply: what their rows look like, by name."""

    user: str | None = None


class DatasetsMessage(MessageRecord, frozen=True):
    """Which data sets does the receiver's owner offer? The reply: what is told of each, by name."""

    user: str | None = None


class RoundMessage(MessageRecord, frozen=True):
    """A client's part of a round: train, or try, a model that the receiver holds on a data set that it offers.

    `instructions` are those of syft.federated.records. `keep` names the update, which then stays there to be summed
    with those of others (see syft.federated.secure_aggregation.over_network).
    """

    model: Id
    loss: Id
    metrics: dict[str, Any]
    dataset_key: str
    instructions: Any
    keep: bytes | None = None
    user: str | None = None


class SecureStepMessage(MessageRecord, frozen=True):
    """One step of a secure aggregation, about an update that the receiver keeps; the reply goes to the server."""

    kept: bytes
    step: str
    content: Any
    weight: float = 1.0
    user: str | None = None


class ForceObjectDeleteMessage(MessageRecord, frozen=True):
    """Remove the object, or all objects of a tuple of ids."""

    id: Any

    def is_asked(self) -> bool:
        return False


class PointersGoneMessage(MessageRecord, frozen=True):
    """The pointers to these objects have gone: one reference to each goes with them."""

    ids: tuple[Id, ...]

    def is_asked(self) -> bool:
        return False


class SyncMessage(MessageRecord, frozen=True):
    """Reply when everything before this has been done."""


class StatusMessage(MessageRecord, frozen=True):
    """How are you? The reply is a dict of numbers and names."""


class ListObjectsMessage(MessageRecord, frozen=True):
    """The ids of the objects that the user may know of."""


class ClearObjectsMessage(MessageRecord, frozen=True):
    """Remove everything that the user brought or computed."""


class SearchMessage(MessageRecord, frozen=True):
    """Which objects match all terms of a list or a tuple? All do if it is empty. The reply is a list of `Found`."""

    query: Any

    def __post_init__(self) -> None:
        if not isinstance(self.query, (list, tuple)):
            raise TypeError(
                f"SearchMessage was given a {type(self.query).__name__}; it takes a list of terms, e.g. "
                'SearchMessage(["#mnist"]).'
            )


class ReleaseMessage(MessageRecord, frozen=True):
    """Release a statistic of a private data set with noise; replies the value (see syft.dp.release)."""

    id: Id
    mechanism: str
    epsilon: float
    delta: float
    options: dict[str, Any]
    user: str | None = None


class PrivateTrainingMessage(MessageRecord, frozen=True):
    """Train a model on private data with noise, paid for from a budget; replies its state (see syft.dp.release_training).

    `model` is a SentModule: a plan of operations of a closed list.
    """

    inputs: Id
    targets: Id
    model: Any
    loss: str
    epsilon: float
    delta: float
    epochs: int
    batch_size: int
    lr: float
    momentum: float
    max_grad_norm: float
    user: str | None = None


class BudgetMessage(MessageRecord, frozen=True):
    """What has the user spent of their budget on a data set, and what is left?"""

    dataset: Any
    user: str | None = None


class AskMessage(MessageRecord, frozen=True):
    """Ask the owner of the receiver to allow a message of this user's; replies what is told of the request.

    `message` is the one that would be sent: an ObjectRequestMessage, a ReleaseMessage, a RoundMessage for so many uses.
    """

    message: Any
    reason: str
    uses: int = 1
    user: str | None = None


class RequestMessage(MessageRecord, frozen=True):
    """About requests of this user's: "tell" and "withdraw" one, "list" all, "take" the value of one that was approved."""

    action: str
    id: str | None = None
    user: str | None = None


class PlanCommandMessage(MessageRecord, frozen=True):
    """A command about plans: its name, and its arguments as a tuple."""

    command_name: str
    message: tuple[Any, ...] = ()
    user: str | None = None

    @property
    def contents(self) -> Any:
        return self.command_name, self.message


class Found(Struct, frozen=True):
    """One search result: what is needed to make a pointer."""

    id: Id
    kind: str
    spec: Any
    tags: tuple[str, ...]
    description: str | None
