"""`AbstractObject`: what everything that has an identity in this library shares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syft.core.ids import ID_PROVIDER
from syft.core.session import session


class AbstractObject:
    """Something with an id, an owner, tags and a description.

    The id and the owner are settled on first use: most objects of a computation are never asked.
    """

    def __init__(
        self,
        id: Any = None,
        owner: Any = None,
        tags: Iterable[str] | None = None,
        description: str | None = None,
        child: Any = None,
    ) -> None:
        self._id = id
        self._owner = owner
        self.tags: set[str] = set(tags) if tags else set()
        self.description = description
        self.child = child

    @property
    def id(self) -> Any:
        if self._id is None:
            self._id = ID_PROVIDER.pop()
        return self._id

    @id.setter
    def id(self, value: Any) -> None:
        self._id = value

    @property
    def owner(self) -> Any:
        return self._owner if self._owner is not None else session.local_worker

    @owner.setter
    def owner(self, value: Any) -> None:
        self._owner = value

    # -- what tensor types override ------------------------------------------------------------------

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch what the child points to, and stand on that from now on; returns self."""
        if self.child is None:
            raise AttributeError(f"This {type(self).__name__} has no child, so there is nothing to fetch.")
        self.child = self.child.get(*args, **kwargs)
        return self

    def mid_get(self) -> Any:
        """Let the child fetch what it points to on the other side; returns self."""
        if self.child is None:
            raise AttributeError(f"This {type(self).__name__} has no child, so there is nothing to fetch.")
        self.child.mid_get()
        return self

    def get_class_attributes(self) -> dict[str, Any]:
        """Constructor arguments that a result must share."""
        return {}

    @classmethod
    def on_function_call(cls, *args: Any) -> None:
        """Called before a public function; the default is to do nothing."""

    @classmethod
    def handle_func_command(cls, command: Any) -> Any:
        """Run the public torch function named in `command` on objects of this type, if it is a tensor type."""
        raise TypeError(
            f"{command[0]} was called on a {cls.__name__}, which is no tensor. Call it on the tensors of the object."
        )

    @classmethod
    def rgetattr(cls, obj: Any, attr: str, *args: Any) -> Any:
        """`getattr` for a dotted name: rgetattr(model, "fc1.weight"); a third argument is the default."""
        for name in attr.split("."):
            obj = getattr(obj, name, *args)
        return obj

    # -- identity ------------------------------------------------------------------------------------

    def tag(self, *tags: str) -> Any:
        """Add tags to search by; returns self."""
        self.tags.update(tags)
        return self

    def describe(self, description: str) -> Any:
        """Set the description; returns self."""
        self.description = description
        return self


def initialize_object(
    hook: Any,
    obj: Any,
    owner: Any = None,
    reinitialize: bool = True,
    id: Any = None,
    init_args: Iterable[Any] = (),
    init_kwargs: dict[str, Any] | None = None,
) -> None:
    """Give an object its owner and id; with `reinitialize` its constructor runs again first, if it is given arguments."""
    arguments, options = tuple(init_args), dict(init_kwargs or {})
    if reinitialize and (arguments or options):
        obj.__init__(*arguments, **options)
    _apply_args(hook, obj, owner, id)


def _apply_args(hook: Any, obj_to_register: Any, owner: Any = None, id: Any = None) -> None:
    """The owner (the hook's local worker, if it is left out) and the id (a new one)."""
    obj_to_register.owner = hook.local_worker if owner is None else owner
    obj_to_register.id = ID_PROVIDER.pop() if id is None else id
