"""Graphs that nobody can differentiate any more let go of what workers keep for them.

    running_loss += loss.get()

keeps the graph of every loss alive, here as in plain torch. A graph whose parameters have been overwritten since (by
`optimizer.step()`) could only fail in `backward()`, as torch says itself. What it saved at workers is given back.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

#: How many fetched results with a history may wait before they are looked through.
_FEWEST = 8


class _Waiting:
    """The fetched results whose graphs may still be differentiated."""

    def __init__(self) -> None:
        self.nodes: list[weakref.ref[Any]] = []
        self.limit = _FEWEST


_waiting = _Waiting()
_names: dict[type, tuple[tuple[str, str], ...]] = {}


def note_fetch(node: Any) -> None:
    """A value with a history was fetched; `node` is its node. Now and then the stale ones among them are released."""
    _waiting.nodes.append(weakref.ref(node))
    if len(_waiting.nodes) >= _waiting.limit:
        _waiting.nodes = [ref for ref in _waiting.nodes if _is_waiting(ref())]
        _waiting.limit = max(_FEWEST, 2 * len(_waiting.nodes))


def _is_waiting(node: Any) -> bool:
    if node is None:
        return False
    if not _is_stale(node):
        return True
    _release(node)
    return False


def _nodes_below(node: Any) -> Iterator[Any]:
    seen, found = set(), [node]
    while found:
        one = found.pop()
        if one is not None and one not in seen:
            seen.add(one)
            found.extend(below for below, _ in one.next_functions)
            yield one


def _saved(node: Any) -> tuple[tuple[str, str], ...]:
    """The names under which a kind of node hands out what it saved: the values, and the places they are in."""
    kind = type(node)
    names = _names.get(kind)
    if names is None:
        raw = [name for name in dir(node) if name.startswith("_raw_saved_")]
        values = {"_raw_saved_tensors": "saved_tensors"}
        names = _names[kind] = tuple((values.get(n, n.replace("_raw", "", 1)), n) for n in raw)
    return names


def _is_stale(node: Any) -> bool:
    """Whether torch would refuse to differentiate: something saved was overwritten, or is freed already."""
    for one in _nodes_below(node):
        for value, _place in _saved(one):
            try:
                getattr(one, value)
            except RuntimeError:
                return True
    return False


def _release(node: Any) -> None:
    for one in _nodes_below(node):
        for _value, place in _saved(one):
            try:
                places = getattr(one, place)
                for saved in places if isinstance(places, (tuple, list)) else (places,):
                    saved.register_hooks(_forget, _refuse)
            except RuntimeError:
                continue  # freed already, or nothing was saved


def _forget(_tensor: Any) -> None:
    return None


def _refuse(_packed: None) -> NoReturn:
    raise RuntimeError(
        "backward() was called on a result that was fetched before its parameters were overwritten (by optimizer.step(), "
        "for example). Call backward() first, or fetch the value with `.detach().get()`."
    )
