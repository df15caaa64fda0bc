"""The policy file of the owner of a worker, and the rules it makes. docs/owner.md shows a whole one.

    [defaults]      what every user may do who proved a name
    [limits]        how much
    [users.NAME]    what differs for one user
    [[data]]        who may find, use and fetch the owner's data of certain tags

Nobody may do what is not said here; a file that cannot be understood is refused, never half obeyed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from syft.core.interfaces import Id
from syft.core.structs import prepared
from syft.exceptions import ComputeNotPermittedError, ConnectNotPermittedError, SyftError
from syft.identity.names import is_user_name
from syft.policy.permissions import About, Allowed, AuditRecord, Policy, intersect
from syft.policy.quotas import OWNER, UNLIMITED, Quota

MayGet = Literal["own", "none", "all"]


class PolicyFileError(SyftError, ValueError):
    """A policy file that cannot be understood."""


# -- the file --------------------------------------------------------------------------------------

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Size = int | str
_Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much a user may take up. Sizes are in bytes."""

    max_objects: int = 100_000
    max_bytes: int = 4 << 30
    max_frame: int = 256 << 20
    seconds_per_operation: float = 60.0
    connections: int = 8


class UserRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one user may do.

    may_get   "own": what they brought, what was allowed to them by name, and results of that; "all": the
              owner's data, too, where no [[data]] entry names others; "none": nothing, not even what is theirs
    """

    may_connect: bool = True
    may_compute: bool = True
    may_get: MayGet = "own"
    limits: Limits = Limits()


class DataRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may do what with objects that have all these tags; None: whoever the rest of the file lets."""

    tags: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    may_compute: frozenset[str] | None = None
    may_get: frozenset[str] | None = None
    may_find: frozenset[str] | None = None

    def applies_to(self, tags: Collection[str]) -> bool:
        return all(tag in tags for tag in self.tags)


class _Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    may_connect: bool = True
    may_compute: bool = True
    may_get: MayGet = "own"


class _Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_objects: _Count | None = None
    max_bytes: _Size | None = None
    max_frame: _Size | None = None
    seconds_per_operation: _Seconds | None = None
    connections: _Count | None = None


class _User(_Limits, frozen=True, forbid_unknown_fields=True):
    may_connect: bool | None = None
    may_compute: bool | None = None
    may_get: MayGet | None = None


class Rules(msgspec.Struct, frozen=True):
    """A policy file, understood."""

    defaults: UserRules = UserRules()
    users: dict[str, UserRules] = {}
    data: tuple[DataRule, ...] = ()


def read_rules(text: str, name: str = "the policy file") -> Rules:
    """The rules that a text in TOML states. !! PolicyFileError, which names the key"""
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PolicyFileError(f"{name} is not TOML: {error}.") from error
    known = ("defaults", "limits", "users", "data")
    for key in raw:
        if key not in known:
            raise PolicyFileError(
                f"{name}: there is no section {key[:60]!r}. The sections are {_list(known)}."
            )
    limits = _with(
        Limits(), _convert(raw.get("limits", {}), _Limits, f"{name}: [limits]"), f"{name}: [limits]"
    )
    general = _convert(raw.get("defaults", {}), _Defaults, f"{name}: [defaults]")
    defaults = UserRules(general.may_connect, general.may_compute, general.may_get, limits)
    users = {
        user: _user_rules(user, said, defaults, f"{name}: [users.{user[:60]}]")
        for user, said in _table(raw.get("users", {}), f"{name}: [users]").items()
    }
    entries = raw.get("data", [])
    if not isinstance(entries, list):
        raise PolicyFileError(f"{name}: data is written with two brackets, [[data]], once for each rule.")
    data = tuple(
        _convert(entry, DataRule, f"{name}: [[data]] number {number}")
        for number, entry in enumerate(entries, 1)
    )
    for number, rule in enumerate(data, 1):
        for who in (rule.may_compute, rule.may_get, rule.may_find):
            for user in who or ():
                _check_user(user, f"{name}: [[data]] number {number}")
    return Rules(defaults, users, data)


def _user_rules(user: str, said: Any, defaults: UserRules, where: str) -> UserRules:
    _check_user(user, where)
    own = _convert(said, _User, where)
    may_get = defaults.may_get if own.may_get is None else own.may_get
    if defaults.may_get == "all" and may_get == "own":
        # NB: a result is allowed to a list of users. "Everybody but this one" is no list.
        raise PolicyFileError(
            f'{where}: may_get cannot be "own" where it is "all" in [defaults]. Leave the default at "own" and say "all" '
            "for the users who may have everything."
        )
    return UserRules(
        defaults.may_connect if own.may_connect is None else own.may_connect,
        defaults.may_compute if own.may_compute is None else own.may_compute,
        may_get,
        _with(defaults.limits, own, where),
    )


def _check_user(user: str, where: str) -> None:
    if not is_user_name(user):
        raise PolicyFileError(f"{where}: {user[:60]!r} cannot be the name of a user.")


def _with(limits: Limits, said: _Limits, where: str) -> Limits:
    """Limits with what was said in their place."""
    changes: dict[str, Any] = {}
    for key in Limits.__struct_fields__:
        value = getattr(said, key)
        if value is not None:
            changes[key] = as_bytes(value, f"{where} {key}") if key in ("max_bytes", "max_frame") else value
    return msgspec.structs.replace(limits, **changes)


_UNITS = {"": 1, "b": 1} | {
    f"{letter}{unit}": base**power
    for power, letter in enumerate("kmgt", 1)
    for unit, base in (("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]{0,3})\s*")


def as_bytes(value: int | str, where: str) -> int:
    """A size: a number of bytes, or a text such as "4 GiB". !! PolicyFileError"""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    unit = _UNITS.get(found[2].lower()) if found else None
    if found and unit:
        value = int(float(found[1]) * unit)
    if isinstance(value, str) or value < 1:
        raise PolicyFileError(
            f"{where}: {str(value)[:60]!r} is not a size. Write a number of bytes, 1 at least, or a text such as "
            '"256 MiB" or "4 GB".'
        )
    return value


_T = TypeVar("_T")


def _convert(value: Any, into: type[_T], where: str) -> _T:
    _table(value, where)
    try:
        return msgspec.convert(value, prepared(into))
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        key = path.strip("`").lstrip(".")
        keys = _list(f for f in into.__struct_fields__)  # type: ignore[attr-defined]
        cure = f" The keys are {keys}." if "unknown field" in what else ""
        raise PolicyFileError(f"{where}{' ' + key if key else ''}: {what}.{cure}") from None


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PolicyFileError(
            f"{where} is a section with keys of its own, and {str(value)[:60]!r} was found."
        )
    return value


def _list(words: Any) -> str:
    return ", ".join(words)


# -- the policy ------------------------------------------------------------------------------------

_NOTHING = UserRules(may_connect=False, may_compute=False, may_get="none", limits=Limits(0, 0, 0, 0.0, 0))


@lru_cache(maxsize=1024)
def _quota(limits: Limits) -> Quota:
    return Quota(limits.max_objects, limits.max_bytes)


class OwnerPolicy(Policy):
    """What the owner of a worker allows. `VirtualWorker(hook, id, policy=OwnerPolicy.load(path))`

    A result may be fetched by those who may fetch all that it was computed from, and one that was computed from
    nothing of anybody's, by its maker. What one user brought or computed is of no use to others, but for those who may
    fetch it, those whom its owner lets compute with it, and those whom a [[data]] entry with its tags names.
    """

    def __init__(self, rules: Rules | None = None, audit_length: int = 10_000) -> None:
        super().__init__(allows_by_default=False, audit_length=audit_length)
        self.rules = rules or Rules()
        self.path: Path | None = None
        self._stamp: tuple[int, int, int] | None = None

    @classmethod
    def for_network(cls) -> OwnerPolicy:
        """The rules without a file: users have what they bring, and what they compute from it."""
        return cls()

    @classmethod
    def load(cls, path: str | Path) -> OwnerPolicy:
        """The policy that a file states. !! PolicyFileError"""
        policy = cls()
        policy.path = Path(path)
        policy.reload_if_changed()
        return policy

    def reload_if_changed(self) -> bool:
        """Read the file again if it is another than before; whether it was. !! PolicyFileError: the old rules stay

        What users may do now changes at once, and who may fetch the owner's data with `apply_to(worker)`. Results that
        were computed before keep the users they had.
        """
        if self.path is None:
            return False
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._stamp:
                return False
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyFileError(f"The policy file {self.path} cannot be read: {error}.") from error
        # NB: before it is understood, so that a mistake is told once, not at every look.
        self._stamp = stamp
        self.rules = read_rules(text, str(self.path))
        return True

    def apply_to(self, worker: Any) -> None:
        """Restrict the owner's data on a worker as the rules say now."""
        for entry in list(worker._entries.values()):
            if entry.is_owners:
                entry.allowed = self.on_registration(entry.chosen, worker.about(entry.id).tags)

    def user(self, name: str | None) -> UserRules:
        """What a user may do."""
        if not name:
            return _NOTHING
        return self.rules.users.get(name, self.rules.defaults)

    def quota_of(self, user: str | None) -> Quota:
        if user == OWNER:
            return UNLIMITED
        return _quota(self.user(user).limits)

    # -- who may fetch what --------------------------------------------------------------------------

    def on_registration(self, allowed: Allowed, tags: Collection[str] = ()) -> Allowed:
        named: Allowed = None
        for rule in self._rules_for(tags):
            named = intersect(named, rule.may_get)
        if named is not None or allowed is not None:
            return intersect(allowed, named)
        if self.rules.defaults.may_get == "all":
            return None
        return frozenset(name for name, rules in self.rules.users.items() if rules.may_get == "all")

    def on_result(self, allowed: Allowed, user: str | None) -> Allowed:
        return allowed if allowed is not None else self.on_arrival(None, user)

    def may_get(self, user: str | None, allowed: Allowed) -> bool:
        may = self.user(user).may_get
        if may == "none":
            return False
        return may == "all" if allowed is None else user in allowed

    # -- who may do what -----------------------------------------------------------------------------

    def check_connect(self, user: str | None) -> None:
        if not self.user(user).may_connect:
            raise ConnectNotPermittedError(
                f"{_named(user)} may not connect: the owner of this worker does not let them in. Ask the owner."
            )

    def check_compute(self, user: str | None, obj_id: Id, about: About) -> None:
        if not self.may_compute(user, about):
            self.record(AuditRecord("compute", obj_id, user, False))
            with_what = "" if obj_id is None else f" with object {obj_id!r}"
            raise ComputeNotPermittedError(
                f"{_named(user)} may not compute{with_what}: the owner of this worker has not allowed it. Ask the owner, "
                "or work with data of your own."
            )

    def may_compute(self, user: str | None, about: About) -> bool:
        """Whether a user may use an object in computations."""
        if not user or not self.user(user).may_compute:
            return False
        if user == about.holder and not about.is_owners:
            return True
        # Whoever may not find data may not use it either, unless the file says otherwise.
        rules = self._rules_for(about.tags)
        named = [r.may_find if r.may_compute is None else r.may_compute for r in rules]
        lists = [users for users in named if users is not None]
        if lists:
            return all(user in users for users in lists)
        return (
            about.is_owners
            or user in about.computers
            or (about.allowed is not None and user in about.allowed)
        )

    def may_find(self, user: str | None, about: About) -> bool:
        if not user:
            return False
        if user == about.holder and not about.is_owners:
            return True
        lists = [rule.may_find for rule in self._rules_for(about.tags) if rule.may_find is not None]
        if lists:
            return all(user in users for users in lists)
        return (
            about.is_owners
            or user in about.computers
            or (about.allowed is not None and user in about.allowed)
        )

    def _rules_for(self, tags: Collection[str]) -> list[DataRule]:
        return [rule for rule in self.rules.data if rule.applies_to(tags)] if tags else []


def _named(user: str | None) -> str:
    return f"User {user!r}" if user else "Somebody who gave no user name"
