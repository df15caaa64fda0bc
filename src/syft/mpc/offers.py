"""Secrets that several users compute on: who may, who may have results, and how one user finds the secret of another.

    x.fix_precision().share(alice, bob, crypto_provider=carol, may_compute=["ana"], may_get=["pat"])
    secret.offer("#scan")                       others find it by this tag, if they may use it
    alice.search("#scan")                       gives the secret: shares at all its holders

NOTE [Who may have a result]
The words are those of the policy file. Every holder keeps with each share the users who may fetch it (`may_get`) and
those who may compute with it (`may_compute`), as its owner said. What is computed from several secrets may be fetched by
those whom the owners of all of them named: each holder intersects for its own share (`workers.pipeline`), and gives it to
nobody else. So it takes no trust in the client that computes, and what that client says about users is not asked.
Who computed a result may go on computing with it, and offer it; to name more users takes the right to fetch it, or to
have brought it.

Stands on `sharing` and `precision`; adds its handlers to the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from syft import serde
from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.core.identity import identity_of
from syft.core.session import session
from syft.core.shapes import contiguous_spec
from syft.exceptions import ChainError, ObjectNotFoundError, WorkerNotFoundException
from syft.identity.names import is_user_name
from syft.messaging.message import ForceObjectDeleteMessage, Id, MessageRecord, SearchMessage
from syft.mpc import authenticated
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.sharing import AdditiveSharingTensor, secret_of
from syft.policy.caller import is_proved, user_of
from syft.policy.permissions import AuditRecord
from syft.tensors.pointer import new_pointer
from syft.tensors.transfer import without_autograd_node
from syft.workers import handlers
from syft.workers.entry import changed_copy

_MOST_USERS = 1_000
_MOST_TAGS, _LONGEST_TAG = 32, 200
_MOST_HOLDERS, _MOST_DIMS = 255, 64


class SecretRecord(MessageRecord, frozen=True):
    """What somebody needs to point to a secret: nothing of its value, and no right to anything.

    `base` is 0 for integers; the rest describes fixed precision (see `precision.FixedPrecisionTensor`).
    """

    holders: tuple[Id, ...]
    ids: tuple[Id, ...]
    provider: Id
    shape: tuple[int, ...]
    protocol: str | None
    field: int
    base: int = 0
    precision_fractional: int = 0
    float_fractional: int = 0
    dtype: torch.dtype = torch.int64


class LetUsers(MessageRecord, frozen=True):
    """Holder: let these users compute with a share, and fetch it and what is made of it.

    `is_first`: these and nobody else, the owner said so when they shared; otherwise beside those who may already. With
    `tags` others find it, and are told what `secret` says.
    """

    id: Id
    may_get: frozenset[str] | None
    may_compute: frozenset[str] | None
    is_first: bool = False
    tags: tuple[str, ...] = ()
    secret: SecretRecord | None = None
    user: str | None = None


class DescribeSecret(MessageRecord, frozen=True):
    """Holder: of which secret is this a share? The reply is a `SecretRecord`."""

    id: Id


for _record in (SecretRecord, LetUsers, DescribeSecret):
    serde.register_record(_record, f"mpc.{_record.__name__}")


# -- the owner's side ----------------------------------------------------------------------------------------


def user_names(users: Any, parameter: str) -> frozenset[str] | None:
    """Names of users as a parameter gives them: a text is one, None is none given. !! TypeError, ValueError"""
    if users is None:
        return None
    names = (users,) if isinstance(users, str) else users
    if not isinstance(names, (list, tuple, set, frozenset)):
        raise TypeError(
            f"{parameter}= is a {type(users).__name__}; pass the name of a user, or a list of names, e.g. "
            f'{parameter}=["ana"].'
        )
    for name in names:
        if not is_user_name(name):
            raise ValueError(
                f"{parameter}=: {str(name)[:60]!r} cannot be the name of a user. Names are those of tokens and "
                "certificates."
            )
    return frozenset(names)


def let_users(
    node: Any, may_get: frozenset[str] | None, may_compute: frozenset[str] | None, user: str | None = None
) -> None:
    """Tell the holders of every secret below a node who may use it, as its owner shares it."""
    me = session.require_local_worker()
    for secret in _secrets_below(node):
        _check_has_no_macs(secret)
        with secret.waiting():
            for pointer in secret.pointers:
                message = LetUsers(pointer.id_at_location, may_get, may_compute, is_first=True, user=user)
                me.send_msg(message, pointer.location)


def _check_has_no_macs(secret: AdditiveSharingTensor) -> None:
    if authenticated.is_authenticated(secret):
        raise ChainError(
            "A secret under protocol='spdz2k' cannot be used by others: its MACs are of one group, and a group serves "
            "one user. Share it with another protocol."
        )


def _secrets_below(node: Any) -> Iterator[AdditiveSharingTensor]:
    """The secrets of a chain; numbers of several limbs or residues are several."""
    if isinstance(node, AdditiveSharingTensor):
        yield node
    elif type(node) is Wrapper or isinstance(node, AbstractTensor):
        yield from _secrets_below(node.child)
    elif isinstance(node, (dict, list, tuple)):
        for part in node.values() if isinstance(node, dict) else node:
            yield from _secrets_below(part)


def offer(
    self: Any, *tags: str, may_get: Any = None, may_compute: Any = None, user: str | None = None
) -> Any:
    """Let others find this secret by tags, and name further users who may compute with it or fetch it; returns self.

    Those who may use it find it with `holder.search(tag)`, at each of its holders. It stays there, when it is fetched and
    when you are gone, until `withdraw()`. What was computed from data of others can be offered, and only those who may
    fetch it can let others have it.
    """
    chosen, more = user_names(may_get, "may_get"), user_names(may_compute, "may_compute")
    if not tags or not all(isinstance(tag, str) and 0 < len(tag) <= _LONGEST_TAG for tag in tags):
        raise ValueError(
            f"offer(...) takes tags of 1 to {_LONGEST_TAG} characters by which others find the secret: "
            'secret.offer("#scan").'
        )
    record = record_of(self)
    me = session.require_local_worker()
    secret = secret_of(self.child)
    with secret.waiting():
        for pointer in secret.pointers:
            message = LetUsers(
                pointer.id_at_location, chosen, more, tags=tuple(tags), secret=record, user=user
            )
            me.send_msg(message, pointer.location)
            pointer.garbage_collect_data = False
    secret.is_found = True  # it is not this reference that keeps it there
    return self


def withdraw(self: Any) -> None:
    """Remove a secret that was offered at all its holders; whoever found it has nothing any more."""
    secret = secret_of(self.child) if type(self) is Wrapper else None
    if secret is None:
        raise ChainError("withdraw() is for shared tensors that were offered: secret.offer(...).")
    with secret.waiting():
        for pointer in secret.pointers:
            pointer.ask(ForceObjectDeleteMessage((pointer.id_at_location,)))
        for pointer in secret.pointers:
            if not pointer.location.is_in_process:
                pointer.location.sync()  # !! if it is somebody else's


def record_of(tensor: Any) -> SecretRecord:
    """What others need to point to the secret of a chain. !! ChainError"""
    head = without_autograd_node(tensor).child if type(tensor) is Wrapper else None
    fixed = head if isinstance(head, FixedPrecisionTensor) else None
    secret = fixed.child if fixed is not None else head
    if not isinstance(secret, AdditiveSharingTensor) or not secret.is_split:
        raise ChainError(
            "offer(...) is for one secret of integers or of reals in 64 bits: x.fix_precision().share(alice, bob, ...). "
            f"This is a {type(head).__name__ if head is not None else 'tensor that is here'}."
        )
    _check_has_no_macs(secret)
    about: dict[str, Any] = {}
    if fixed is not None:
        about = {
            "base": fixed.base,
            "precision_fractional": fixed.precision_fractional,
            "float_fractional": fixed.float_fractional,
            "dtype": fixed.presented_dtype,
        }
    return SecretRecord(
        tuple(secret.child),
        tuple(pointer.id_at_location for pointer in secret.pointers),
        secret.crypto_provider.id,
        tuple(secret.shape),
        secret.protocol,
        secret.field,
        **about,
    )


# -- the side of those who find it ---------------------------------------------------------------------------


def secret_at(record: SecretRecord, workers: Mapping[Any, Any]) -> Any:
    """The secret that a record describes, held by these workers, which are given by their names."""
    missing = [str(name) for name in record.holders if workers.get(name) is None]
    if missing:
        raise WorkerNotFoundException(
            f"A secret was found that is held by {', '.join(map(str, record.holders))}, and there is no connection to "
            f"{', '.join(missing)}. Call sy.connect(...) for each of its holders first."
        )
    if not 2 <= len(record.holders) <= _MOST_HOLDERS or len(record.ids) != len(record.holders):
        raise ChainError("A secret was found whose description names no holders, or not one share of each.")
    if len(record.shape) > _MOST_DIMS or any(n < 0 for n in record.shape):
        raise ChainError("A secret was found whose description names no shape.")
    spec = contiguous_spec(record.shape, torch.int64)
    shares = {}
    for name, obj_id in zip(record.holders, record.ids, strict=True):
        shares[name] = new_pointer(workers[name], obj_id, spec)
        shares[name].garbage_collect_data = False
    secret = AdditiveSharingTensor(
        shares, workers.get(record.provider), field=record.field, protocol=record.protocol
    )
    secret.is_found = True
    if not record.base:
        return new_wrapper(secret)
    fixed = FixedPrecisionTensor(
        record.base, record.precision_fractional, record.dtype, record.float_fractional
    )
    fixed.child = secret
    return new_wrapper(fixed)


def find_secrets(query: Any, *holders: Any, crypto_provider: Any = None) -> list[Any]:
    """The secrets that the first of these holders shows for a search, over these very connections.

    `holder.search(query)` gives the same, over the connections that this process has by the holders' names.
    """
    if not holders:
        raise TypeError('find_secrets("#tag", alice, bob, crypto_provider=carol) takes the holders, too.')
    me, workers = session.require_local_worker(), {worker.id: worker for worker in holders}
    if crypto_provider is not None:
        workers[crypto_provider.id] = crypto_provider
    terms = tuple(query) if isinstance(query, (list, tuple, set)) else (query,)
    found = me.send_msg(SearchMessage(terms), holders[0]) if terms else ()
    return [
        secret_at(me.send_msg(DescribeSecret(one.id), holders[0]), workers)
        for one in found
        if one.kind == KIND
    ]


#: What a search says that a share is which its owner offers.
KIND = "secret"


def _found(location: Any, obj_id: Any, _owner: Any = None, **_facts: Any) -> Any:
    me = session.require_local_worker()
    record = me.send_msg(DescribeSecret(obj_id), location)
    names = (*record.holders, record.provider)
    workers = {name: me.get_worker(name, fail_hard=False) for name in names}
    workers = {name: found for name, found in workers.items() if hasattr(found, "id")}
    return secret_at(record, workers | {location.id: location})


handlers.POINTER_KINDS[KIND] = _found


# -- what a holder does ----------------------------------------------------------------------------------------


def take_users(worker: Any, message: LetUsers) -> None:
    """Handle a LetUsers. NOTE [Who may have a result]"""
    entry, user = worker.entry_of(message.id), user_of(message)
    for users in (message.may_get or (), message.may_compute or ()):
        if len(users) > _MOST_USERS or not all(is_user_name(name) for name in users):
            raise ValueError("Users were named that cannot be users, or too many.")
    if len(message.tags) > _MOST_TAGS or not all(0 < len(tag) <= _LONGEST_TAG for tag in message.tags):
        raise ValueError(f"A share has up to {_MOST_TAGS} tags of {_LONGEST_TAG} characters.")
    if type(entry.value) is not torch.Tensor:
        raise TypeError(f"The object {message.id!r} is no share: others are let use tensors of integers.")
    is_mine = worker._holdings is not None and entry.holder == user
    names_users = bool(message.may_get or message.may_compute or message.is_first)
    if not (is_mine and (entry.is_private or not names_users)):
        worker.policy.check_get(user, entry.id, entry.allowed, action="let others use")
    allowed, computers = entry.allowed, entry.computers or frozenset()
    if message.is_first:
        allowed = allowed if message.may_get is None else message.may_get
        computers = message.may_compute or frozenset()
    else:
        allowed = None if allowed is None else allowed | (message.may_get or frozenset())
        computers |= message.may_compute or frozenset()
    changed = changed_copy(
        entry,
        allowed=allowed,
        computers=computers,
        secret=message.secret or entry.secret,
        is_private=entry.is_private or (message.is_first and allowed is not None),
    )
    if message.tags:
        identity_of(entry.value).tags = {*identity_of(entry.value).tags, *message.tags}
    worker.store_entry(changed)
    reason = f"get: {_listed(allowed)}; compute: {_listed(computers)}"
    worker.policy.record(AuditRecord("let others use", entry.id, user, True, reason))


def _listed(users: Iterable[str] | None) -> str:
    return "everybody" if users is None else ", ".join(sorted(users)) or "nobody"


def describe(worker: Any, message: DescribeSecret) -> SecretRecord:
    """Handle a DescribeSecret: for those whom a search would show it."""
    entry = worker.entry_of(message.id)
    asks = worker._holdings is not None and is_proved()
    if asks and not worker.policy.may_find(user_of(message), worker.about(message.id)):
        raise ObjectNotFoundError(message.id, worker)
    if entry.secret is None:
        raise ObjectNotFoundError(message.id, worker)
    found: SecretRecord = entry.secret
    return found


handlers.HANDLERS |= {LetUsers: take_users, DescribeSecret: describe}
