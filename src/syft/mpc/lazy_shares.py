"""`LazyShares`: the shares of a secret that is computed when they are first asked for. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


class LazyShares(dict[Any, Any]):
    """What a secret has as its child until it is computed, and after.

    `workers`: its holders. `recipe`: what it will be, for those who can compute something of it in a shorter way
    (`rules.later`); None once it is made.
    """

    __slots__ = ("__weakref__", "_make", "recipe", "spec", "workers")

    def __init__(
        self, make: Callable[[], dict[Any, Any]], spec: Any, workers: Sequence[Any], recipe: Any = None
    ) -> None:
        super().__init__()
        self._make: Callable[[], dict[Any, Any]] | None = make
        self.spec, self.workers, self.recipe = spec, workers, recipe

    def force(self) -> LazyShares:
        make, self._make = self._make, None
        if make is not None:
            try:
                self.put(make())
            except BaseException:
                self._make = make
                raise
        return self

    def put(self, shares: dict[Any, Any]) -> None:
        """Here they are."""
        self._make = self.recipe = None
        super().update(shares)

    @property
    def is_made(self) -> bool:
        return self._make is None

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __iter__(self) -> Iterator[Any]:
        return super(LazyShares, self.force()).__iter__()

    def __len__(self) -> int:
        return super(LazyShares, self.force()).__len__()

    def __contains__(self, key: object) -> bool:
        return super(LazyShares, self.force()).__contains__(key)

    def __getitem__(self, key: Any) -> Any:
        return super(LazyShares, self.force()).__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        return super(LazyShares, self.force()).get(key, default)

    def keys(self) -> Any:
        return super(LazyShares, self.force()).keys()

    def values(self) -> Any:
        return super(LazyShares, self.force()).values()

    def items(self) -> Any:
        return super(LazyShares, self.force()).items()
