"""Layers that stay with their clients: which they are, and where a client keeps its own.

One duty: personalisation. The names in an option become names of tensors (`local_names`), and `PersonalLayers` is what a
client keeps of them from round to round. They are in no update and in no state that travels. Imports `layout`, `records`.

NOTE [Personal layers are no longer the same for all]
A layer that stays can count the rounds of its client, and a model can train only where the count is high: a trainer that
asks one client more often than others then has that client's update as the sum of all. So data that leaves only in
secure sums is not trained on with layers that stay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from syft.exceptions import GetNotPermittedError
from syft.federated.layout import Layout, named_state
from syft.federated.records import LocalLayers, State

#: Trainings whose layers a client keeps: those it was asked for last, by each user and by all.
_MOST, _MOST_IN_ALL = 16, 256


def local_names(model: nn.Module, chosen: Sequence[str | type[nn.Module]]) -> tuple[str, ...]:
    """The tensors that stay with clients: all of an update's that a name, a pattern or a class of layers means.

    !! TypeError, ValueError for what means nothing, and where nothing is left to be trained together
    """
    if isinstance(chosen, str) or not isinstance(chosen, Sequence):
        raise TypeError(
            f"Trainer was given local={chosen!r}: it is a list of names of layers or parameters ('classifier'), patterns "
            "('*.lora_B.*') and classes of layers (nn.BatchNorm1d)."
        )
    moving = [entry.name for entry in Layout.of(model).entries]
    found: set[str] = set()
    for each in chosen:
        named = _named_by(model, moving, each)
        if not named:
            raise ValueError(
                f"Trainer was given local=[{each!r}], and no trainable parameter or buffer of the model is meant by it. "
                f"There are {', '.join(map(repr, moving[:5]))}{' and more' if len(moving) > 5 else ''}."
            )
        found.update(named)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    if trained <= found:
        raise ValueError(
            "Trainer was given local=... that means every trainable parameter: nothing is left to be trained together."
        )
    return tuple(name for name in moving if name in found)


def _named_by(model: nn.Module, moving: Sequence[str], chosen: Any) -> list[str]:
    if isinstance(chosen, type) and issubclass(chosen, nn.Module):
        places = tuple(f"{name}." for name, part in model.named_modules() if name and type(part) is chosen)
        return [name for name in moving if name.startswith(places)]
    if not isinstance(chosen, str):
        raise TypeError(
            f"Trainer was given {chosen!r} in local=...: it is a name, a pattern or a class of layers (an nn.Module)."
        )
    return [
        name
        for name in moving
        if name == chosen or name.startswith(f"{chosen}.") or fnmatchcase(name, chosen)
    ]


class PersonalLayers:
    """What a client keeps of its own layers, for each training that it takes part in."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Hashable, ...], tuple[Any, State]] = OrderedDict()

    def bring(self, model: nn.Module, local: LocalLayers, source: Any, *whose: Hashable) -> None:
        """Put a client's own layers into the model; the first time, the model's stay as they are.

        source   the data set, where another one may come under its name: the layers of the old one do not serve it

        !! ValueError for names that the model does not have
        """
        tensors = named_state(model)
        check_local(local, tensors)
        kept_on, kept = self._kept.get((*whose, local.training), (None, {}))
        if kept_on is not source or {name: t.shape for name, t in kept.items()} != {
            name: tensors[name].shape for name in local.names
        }:
            return
        with torch.no_grad():
            for name, tensor in kept.items():
                tensors[name].copy_(tensor)

    def keep(self, model: nn.Module, local: LocalLayers, source: Any, *whose: Hashable) -> None:
        """Keep a model's layers until the next round."""
        tensors = named_state(model)
        own = {name: tensors[name].detach().to("cpu", copy=True) for name in local.names}
        key = (*whose, local.training)
        self._kept.pop(key, None)
        self._kept[key] = source, own
        # NB: by user, so that nobody's are lost because another one trains much.
        mine = [known for known in self._kept if known[:-1][:1] == whose[:1]]
        if len(mine) > _MOST:
            del self._kept[mine[0]]
        elif len(self._kept) > _MOST_IN_ALL:
            self._kept.popitem(last=False)


def check_impersonal(least_in_sum: int | None, worker: Any) -> None:
    """See NOTE [Personal layers are no longer the same for all]. !! GetNotPermittedError"""
    if least_in_sum is not None:
        raise GetNotPermittedError(
            f"The owner of worker {worker!r} lets updates of this data set leave only in a secure sum of {least_in_sum} "
            "or more, and layers that stay with clients could single one of them out. Train without local=..."
        )


def check_local(local: LocalLayers, tensors: Mapping[str, Any]) -> None:
    """!! ValueError for names that the model does not have"""
    if unknown := [name for name in local.names if name not in tensors]:
        raise ValueError(
            f"A round was asked for with {unknown[0][:60]!r} as a layer that stays here; the model has none."
        )
