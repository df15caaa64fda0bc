"""What broker, fork server and executors say to each other: one frozen record each, decoded by its type.

`lane`: a channel that one thread of an executor serves. On the lane of a session the broker sends a frame of commands,
and the executor answers with `FrameDone`; before that it may ask, and the broker answers each question before anything
else. A payload, where there is one, is a frame of `serde`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Id = int | str
Users = list[str] | None
_Text = Annotated[str, msgspec.Meta(max_length=2000)]
_Name = Annotated[str, msgspec.Meta(max_length=500)]


class Record(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """What one of them says."""


# -- fork server ---------------------------------------------------------------------------------------------


class Ready(Record, frozen=True):
    """The fork server has imported everything. `faults`: what it cannot do here, in words."""

    faults: list[str]


class Fork(Record, frozen=True):
    """Make an executor. Descriptors: its end of the control lane, and the memory in which it notes its progress."""

    number: int


class Forked(Record, frozen=True):
    number: int
    pid: int


class Kill(Record, frozen=True):
    number: int


class Exited(Record, frozen=True):
    """`signal`: which one ended it; 0: it ended by itself."""

    number: int
    signal: int
    status: int


# -- broker -> executor --------------------------------------------------------------------------------------


class Hello(Record, frozen=True):
    """The first on a control lane: for whom the executor is. `memory`: bytes that it may take in all."""

    worker: Id
    user: str
    rules: bytes
    memory: int
    descriptors: int
    has_budgets: bool
    threads: int | None
    computes_releases: bool = False


class OpenSession(Record, frozen=True):
    """Descriptor: the lane. `slot`: where progress is noted."""

    slot: int
    max_bytes: int
    max_decompressed: int
    compression: str | None


class OpenRoute(Record, frozen=True):
    """Descriptor: a lane for messages of peers."""


class RunFrame(Record, frozen=True):
    """Run the commands of a frame, from `first` on. `rules`: the policy, if it changed; `forget`: objects that did."""

    number: int
    count: int
    flags: int
    first: int
    peer: str
    rules: bytes | None = None
    forget: list[Id] = []
    has_budgets: bool = False


class Deliver(Record, frozen=True):
    """A message of a peer for a group that is here, or a release to compute; payload."""

    user: str
    peer: str


class Export(Record, frozen=True):
    """Give an object for another user."""

    id: Id


class Remove(Record, frozen=True):
    ids: list[Id]


class EndSession(Record, frozen=True):
    pass


class Answer(Record, frozen=True):
    """What was asked for; payload."""


class Failure(Record, frozen=True):
    """Why not; payload: the error."""


class Value(Record, frozen=True):
    """An object. Descriptor: sealed memory with it, unless it is withheld.

    kind    "tensor": raw elements; "object": a frame of serde; "withheld": its metadata alone; "none": there is no such
    holder  "": the owner of the worker
    names   budgets that it is a data set of; tags   names by which it becomes one
    person_column   the column that names the person a row is of, of the owner's data
    computers   users whom its holder lets compute with it; secret   of which secret it is a share, a frame of serde
    """

    kind: str
    dtype: str = ""
    shape: list[int] = []
    tags: list[_Name] = []
    description: str | None = None
    allowed: Users = None
    holder: str = ""
    is_owners: bool = False
    is_private: bool = False
    failure: str | None = None
    is_shared: bool = False
    datasets: list[str] = []
    dataset_tags: list[str] = []
    computers: list[_Name] = []
    secret: Annotated[bytes, msgspec.Meta(max_length=65_536)] | None = None
    is_released_only: bool = False
    person_column: int | None = None


# -- executor -> broker --------------------------------------------------------------------------------------


class Line(Record, frozen=True):
    """What is to stand in the audit log, as far as an executor may say it."""

    action: Annotated[str, msgspec.Meta(max_length=60)]
    obj_id: int | Annotated[str, msgspec.Meta(max_length=300)] | None
    granted: bool
    reason: Annotated[str, msgspec.Meta(max_length=300)]


class Offer(Record, frozen=True):
    """An object that others than its user may use: fetch it, or compute with it alone."""

    id: Id
    allowed: Users
    computers: list[str] = []


class FrameDone(Record, frozen=True):
    """How far it came; payload: the reply."""

    executed: int
    failed: int
    has_reply: bool
    reply_flags: int
    reply_failed: int
    lines: list[Line] = []
    log: list[_Text] = []
    offers: list[Offer] = []
    dropped: list[Id] = []
    objects: int = 0
    nbytes: int = 0


class Lookup(Record, frozen=True):
    id: Id


class Publish(Record, frozen=True):
    """An object with tags, which others may find and which may be kept. Descriptor: sealed memory."""

    id: Id
    value: Value


class Search(Record, frozen=True):
    """payload: the terms."""


class ListIds(Record, frozen=True):
    pass


class AskPeer(Record, frozen=True):
    """A message to another worker, which is waited for; payload."""

    worker: Id


class TellPeer(Record, frozen=True):
    """A message to another worker, which is not waited for; payload."""

    worker: Id


class FindPeer(Record, frozen=True):
    worker: Id


class PeerCondition(Record, frozen=True):
    """How is another worker? The payload of the answer: whether it is missing, the session with it, patience."""

    worker: Id


class RouteToGroup(Record, frozen=True):
    """A message of a peer for a group that is not here; payload. By its ticket, or by the group's id."""

    ticket: Annotated[bytes, msgspec.Meta(max_length=64)]
    group: Id | None


class OpenGroup(Record, frozen=True):
    group: Id
    tickets: list[Annotated[bytes, msgspec.Meta(max_length=64)]]


class PutPart(Record, frozen=True):
    """Keep a call of a supply on disk; payload: what there is of it here."""

    name: _Name
    lot: int
    call: int
    about: bytes


class TakePart(Record, frozen=True):
    """The answer has the part as its payload, for the only time."""

    name: _Name
    lot: int
    call: int


class ListSupplies(Record, frozen=True):
    pass


class DropSupply(Record, frozen=True):
    name: _Name


class BookRecords(Record, frozen=True):
    datasets: list[_Name]


class BookNames(Record, frozen=True):
    pass


class BookState(Record, frozen=True):
    dataset: _Name


class BookCharge(Record, frozen=True):
    """A release. `event`: what is known of its noise, as a book writes it."""

    datasets: list[_Name]
    records_per_person: int
    mechanism: _Name
    event: dict[_Name, float | int | str | bool | None] | None
    epsilon: float
    delta: float
    count: int
    is_approved: bool = False


class FileRequest(Record, frozen=True):
    """A request of this user's to the owner; payload: what is asked for, and the value that would be handed out."""

    about: Id | None
    token: _Name


class AboutRequests(Record, frozen=True):
    """How far requests of this user's are; or whether there is room for one more with a value of so many bytes."""

    action: _Name
    request: _Name | None
    nbytes: int = 0


class UseApproval(Record, frozen=True):
    """Has the owner approved this? Then it is counted."""

    kind: Literal["get", "release", "train"]
    about: Id | None
    token: _Name
    digest: _Name


class TakeValue(Record, frozen=True):
    """The value that waits with a request, if it was approved. That is counted."""

    request: _Name


class Release(Record, frozen=True):
    """A release of what may only be released; payload: the message."""


class Offered(Record, frozen=True):
    """Which data sets are offered for training; with a key, that one, or what its rows look like."""

    key: _Name | None
    is_described: bool = False


FromForkServer = Ready | Forked | Exited
ToForkServer = Fork | Kill
ToControl = Hello | OpenSession | OpenRoute | Export | Remove
ToLane = RunFrame | Deliver | EndSession | Answer | Failure | Value
FromLane = (
    FrameDone
    | Lookup
    | Publish
    | Search
    | ListIds
    | AskPeer
    | TellPeer
    | FindPeer
    | PeerCondition
    | RouteToGroup
    | OpenGroup
    | BookRecords
    | BookNames
    | BookState
    | BookCharge
    | FileRequest
    | AboutRequests
    | UseApproval
    | TakeValue
    | Release
    | Offered
    | PutPart
    | TakePart
    | ListSupplies
    | DropSupply
    | Answer
    | Failure
    | Value
)
