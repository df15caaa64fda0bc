"""Graphs that nobody can differentiate any more let go of what workers keep for them.

    running_loss += loss.get()

keeps the graph of every loss alive, here as in plain torch. A graph whose parameters have been overwritten since (by
`optimizer.step()`), or that was differentiated already, could only fail in `backward()`, as torch says itself. What it
saved at workers is given back, and so are leaves that nobody but the graph has, with their gradients.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterator
from functools import cache
from typing import Any, NoReturn

import torch

from syft.core.chain import EMPTY, Wrapper
from syft.exceptions import ChainError

#: How many fetched results with a history may wait before they are looked through.
_FEWEST = 8


class _Waiting:
    """The fetched results whose graphs may still be differentiated, or have leaves that somebody else has, too."""

    def __init__(self) -> None:
        self.nodes: list[weakref.ref[Any]] = []
        self.limit = _FEWEST


_waiting = _Waiting()
_names: dict[type, tuple[tuple[str, str], ...]] = {}


def note_fetch(node: Any) -> None:
    """A value with a history was fetched; `node` is its node. The stale ones among those before it are released.

    Most often that is the one of the batch before, so that one is looked at every time, and all of them now and then.
    """
    nodes = _waiting.nodes
    if nodes and not _is_waiting(nodes[-1]()):
        nodes.pop()
    nodes.append(weakref.ref(node))
    if len(nodes) >= _waiting.limit:
        _waiting.nodes = [ref for ref in nodes if _is_waiting(ref())]
        _waiting.limit = max(_FEWEST, 2 * len(_waiting.nodes))


def _is_waiting(node: Any) -> bool:
    if node is None:
        return False
    if not _is_stale(node):
        return True
    _release(node)
    return not _let_go_of_leaves(node)


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


def free_graph(node: Any) -> None:
    """Free what a graph has saved that was differentiated elsewhere; torch refuses to differentiate it again."""
    _release(node, _refuse_twice)


def _release(node: Any, refuse: Any = None) -> None:
    refuse = refuse or _refuse
    # NB: of a view of a leaf that was written into, torch makes the view again first; the leaf may have been fetched.
    EMPTY.has_views = True
    try:
        for one in _nodes_below(node):
            for _value, place in _saved(one):
                try:
                    places = getattr(one, place)
                except (RuntimeError, ChainError):
                    continue  # freed already
                for saved in places if isinstance(places, (tuple, list)) else (places,):
                    with contextlib.suppress(RuntimeError, ChainError):  # nothing was saved, or it is hooked
                        saved.register_hooks(_forget, refuse)
    finally:
        EMPTY.has_views = False


def _let_go_of_leaves(node: Any) -> bool:
    """Empty the leaves that only the graph has; whether none is left but parameters.

    `detach().requires_grad_()` makes such a leaf for every batch. Its gradient can be read through the leaf alone.
    """
    is_done = True
    for one in _nodes_below(node):
        leaf = getattr(one, "variable", None)
        if type(leaf) is not Wrapper or leaf.child is None or isinstance(leaf, torch.nn.Parameter):
            continue
        in_python, in_torch = _references_of_a_lone_leaf()
        is_lone = sys.getrefcount(leaf) <= in_python and leaf._use_count() <= in_torch  # type: ignore[attr-defined]
        if is_lone and not leaf._post_accumulate_grad_hooks:
            leaf.grad = leaf.child = None
        else:
            is_done = False
    return is_done


@cache
def _references_of_a_lone_leaf() -> tuple[int, int]:
    """How many references in Python and in torch a leaf has that only a graph holds, and a variable that looks at it."""
    with torch.enable_grad():
        graph = torch.ones(1, requires_grad=True).exp().grad_fn
    leaf = graph.next_functions[0][0].variable  # type: ignore[union-attr]
    return sys.getrefcount(leaf), leaf._use_count()


def _forget(_tensor: Any) -> None:
    return None


def _refuse_twice(_packed: None) -> NoReturn:
    raise RuntimeError(
        "Trying to backward through the graph a second time: what it saved was freed when it was differentiated. Call "
        "backward(retain_graph=True) the first time."
    )


def _refuse(_packed: None) -> NoReturn:
    raise RuntimeError(
        "backward() was called on a result that was fetched before its parameters were overwritten (by optimizer.step(), "
        "for example). Call backward() first, or fetch the value with `.detach().get()`."
    )
