"""`PrivateTensor`: names the users who may have a tensor; results of operations inherit the list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syft.core.abstract import AbstractTensor
from syft.core.hook_args import default_register_tensor
from syft.core.nested import found_in
from syft.core.overload import Module, overloaded


class PrivateTensor(AbstractTensor):
    """Sent to a worker, its value leaves there only for the allowed users.

    released_only   nobody fetches it nor computes with it there: it is released alone, with noise
    """

    def __init__(
        self,
        allowed_users: Iterable[Any] = (),
        parents: Iterable[Any] = (),
        released_only: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.allowed_users: tuple[Any, ...] = tuple(allowed_users)
        self.parents = tuple(parents)
        if type(released_only) is not bool:
            raise TypeError(f"released_only is True or False, got {released_only!r}.")
        if released_only and self.allowed_users:
            raise ValueError(
                f"A tensor was made private with released_only=True and allowed_users={self.allowed_users}. Nobody may "
                "fetch data that may only be released. Leave one of the two out."
            )
        self.released_only = released_only

    def get_class_attributes(self) -> dict[str, Any]:
        return {"allowed_users": self.allowed_users, "released_only": self.released_only}

    def allow(self, user: Any) -> bool:
        """Whether a user may have it."""
        return user in self.allowed_users

    def register_credentials(self, users: Any = ()) -> PrivateTensor:
        """Replace the list of allowed users, a text being one; returns self."""
        users = (users,) if isinstance(users, str) else tuple(users)
        if self.released_only and users:
            raise ValueError(
                "register_credentials() was called on a tensor that may only be released. It has no allowed users: "
                "nobody may fetch it. Take a release of it, or make it private without released_only."
            )
        self.allowed_users = users
        return self

    def float_precision(self) -> Any:
        """The values below in floating point, private to the same users."""
        return self.wrap().float_precision()  # type: ignore[attr-defined]

    float_prec = float_precision

    @staticmethod
    @overloaded.module
    def torch(module: Module) -> None:
        """No function of torch is different on private tensors."""

    def __str__(self) -> str:
        return f"PrivateTensor[{', '.join(map(str, self.allowed_users))}]>{tuple(self.shape)}"

    __repr__ = __str__

    @classmethod
    def pass_on(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result may be had only by those allowed on all inputs."""
        result = super().pass_on(func, args, kwargs)
        nodes = list(found_in((args, kwargs), PrivateTensor))
        allowed = _common_users(nodes)
        for node in found_in(result, PrivateTensor):
            node.allowed_users = allowed
            node.released_only = any(one.released_only for one in nodes)
        return result


def users_allowed(node: Any) -> frozenset[Any] | None:
    """Those whom every PrivateTensor of a chain allows, wherever it stands; None if the chain has none."""
    allowed: frozenset[Any] | None = None
    while isinstance(node, AbstractTensor):
        if isinstance(node, PrivateTensor):
            own = frozenset(node.allowed_users)
            allowed = own if allowed is None else allowed & own
        node = node.child
    return allowed


def is_released_only(node: Any) -> bool:
    """Whether a PrivateTensor of a chain says that it may only be released."""
    while isinstance(node, AbstractTensor):
        if isinstance(node, PrivateTensor) and node.released_only:
            return True
        node = node.child
    return False


def _common_users(nodes: list[PrivateTensor]) -> tuple[Any, ...]:
    return tuple(u for u in nodes[0].allowed_users if all(u in n.allowed_users for n in nodes))


default_register_tensor(PrivateTensor)
