"""`Portion`: one call of a supply on disk, from which the programs of a thread take everything."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from syft.mpc.correlations import Correlation, Mask, Place, placed
from syft.mpc.network.execution import AHEAD
from syft.mpc.supplies import SupplyMismatchError


@dataclass(eq=False)
class Portion:
    """One call of a supply on disk: what its programs take, in their order, and where the holders have it."""

    driver: Any
    name: str
    left: list[tuple[Correlation, tuple[int, int]]]

    def take(self, kinds: Sequence[Correlation]) -> tuple[tuple[int, int], ...]:
        """What one program takes. !! SupplyMismatchError if that is something else"""
        tags: list[tuple[int, int]] = []
        places: dict[Place, Place] = {}
        for position, kind in enumerate(kinds):
            wanted = placed(kind, places)
            found, tag = self.left[position] if position < len(self.left) else (None, (0, 0))
            if found != wanted:
                has = "nothing is left" if found is None else f"it has {found}"
                raise SupplyMismatchError(
                    f"The call takes {wanted}, where {has} in the supply {self.name!r}. It was made for another model, "
                    "for other shapes or settings, or the weights were written to since its lot began."
                )
            tags.append(tag)
            if isinstance(kind, Mask):  # later kinds name it
                places[Place(0, b"", position)] = Place(tag[0], AHEAD, tag[1])
        del self.left[: len(tags)]
        return tuple(tags)


#: From what programs of this thread take, if they may take nothing else.
PORTION: ContextVar[Portion | None] = ContextVar("syft_portion", default=None)
