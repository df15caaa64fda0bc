"""Small functions that `hook_args` builds its functions from: apply one per element, reach one element.

Their names are documented, and are public as names of `syft.core.hook_args`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

# -- folds: apply one function per element ----------------------------------------------------------


def zero_fold(*a: Any, **k: Any) -> tuple[Any, ...]:
    return ()


def one_fold(return_tuple: bool, **kwargs: Any) -> Callable[..., Any]:
    def _one_fold(lambdas: Sequence[Callable[..., Any]], args: Any, **kwargs: Any) -> Any:
        return lambdas[0](args[0], **kwargs)

    def tuple_one_fold(lambdas: Sequence[Callable[..., Any]], args: Any, **kwargs: Any) -> Any:
        return (lambdas[0](args[0], **kwargs),)

    return tuple_one_fold if return_tuple else _one_fold


def many_fold(lambdas: Sequence[Callable[..., Any]], args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return tuple([f(a, **kwargs) for f, a in zip(lambdas, args, strict=False)])


def _n_fold(n: int, name: str) -> Callable[..., tuple[Any, ...]]:
    def fold(lambdas: Sequence[Callable[..., Any]], args: Any, **kwargs: Any) -> tuple[Any, ...]:
        if len(args) < n:
            raise IndexError(f"{name} was given {len(args)} arguments; it applies {n} functions to {n}.")
        return many_fold(lambdas[:n], args[:n], **kwargs)

    fold.__name__ = fold.__qualname__ = name
    fold.__doc__ = f"Apply {n} functions to {n} arguments, one each."
    return fold


def two_fold(lambdas: Sequence[Callable[..., Any]], args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return lambdas[0](args[0], **kwargs), lambdas[1](args[1], **kwargs)


def three_fold(lambdas: Sequence[Callable[..., Any]], args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return lambdas[0](args[0], **kwargs), lambdas[1](args[1], **kwargs), lambdas[2](args[2], **kwargs)


four_fold = _n_fold(4, "four_fold")
five_fold = _n_fold(5, "five_fold")
six_fold = _n_fold(6, "six_fold")
seven_fold = _n_fold(7, "seven_fold")
eight_fold = _n_fold(8, "eight_fold")

_folds = {
    2: two_fold,
    3: three_fold,
    4: four_fold,
    5: five_fold,
    6: six_fold,
    7: seven_fold,
    8: eight_fold,
}


def _fold_of(count: int, return_tuple: bool) -> Callable[..., Any]:
    if count == 0:
        return zero_fold
    if count == 1:
        return one_fold(return_tuple)
    return _folds.get(count, many_fold)


def typed_identity(a: Any) -> Callable[[Any], Any]:
    """An identity that only takes what has the type of `a`; anything else !! AssertionError."""
    expected = type(a)

    def identity(i: Any, **_kwargs: Any) -> Any:
        if type(i) is not expected:
            raise AssertionError(
                f"The argument was a {expected.__name__} when this signature was built and is a "
                f"{type(i).__name__} now."
            )
        return i

    return identity


def _identity(i: Any, **_kwargs: Any) -> Any:
    return i


# -- reaching into nested arguments -----------------------------------------------------------------


def one_layer(idx1: int) -> Callable[[Any], Any]:
    return lambda x: x[idx1]


def two_layers(idx1: int, idx2: int) -> Callable[[Any], Any]:
    return lambda x: x[idx1][idx2]


def three_layers(idx1: int, *ids: int) -> Callable[[Any], Any]:
    inner = two_layers(*ids)
    return lambda x: inner(x[idx1])


def four_layers(idx1: int, *ids: int) -> Callable[[Any], Any]:
    inner = three_layers(*ids)
    return lambda x: inner(x[idx1])


get_element_at: dict[int, Callable[..., Callable[[Any], Any]]] = {
    1: one_layer,
    2: two_layers,
    3: three_layers,
    4: four_layers,
}


def _element_getter(path: Sequence[int]) -> Callable[[Any], Any]:
    if len(path) in get_element_at:
        return get_element_at[len(path)](*path)
    inner = _element_getter(path[1:])
    return lambda x: inner(x[path[0]])


def build_get_tensor_type(rules: Any, layer: list[int] | None = None) -> Callable[[Any], type | None]:
    """A function that returns the type of the first tensor in arguments of this structure; None if there is none.

    rules = (0, [1, (0, 0)], 0) gives x -> type(x[1][0]). `layer` is the path to `rules` inside the arguments.
    """
    path = first_tensor(rules)
    if path is None:
        return lambda x: None
    element = _element_getter([*(layer or ()), *path])
    return lambda x: type(element(x))


def first_tensor(rules: Any) -> list[Any] | None:
    """The path to the first 1 in rules: [1, 0] in (0, [1, (0, 0)], 0); None if there is none."""
    for index, rule in rules.items() if isinstance(rules, dict) else enumerate(rules):
        if isinstance(rule, (list, tuple, dict)):
            below = first_tensor(rule)
            if below is not None:
                return [index, *below]
        elif rule == 1:
            return [index]
    return None
