"""What a Trainer is given, checked before anything is made of it.

One duty: an error for a setting of the wrong kind, as a sentence. Imports `callbacks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from torch import nn

from syft.federated.callbacks import Callback
from syft.federated.records import Metrics


def check_work(model: Any, loss: Any, metrics: Any) -> None:
    """!! TypeError for what cannot be trained, or cannot be called"""
    if not isinstance(model, nn.Module):
        raise TypeError(f"Trainer was given a {type(model).__name__} as model: it is an nn.Module.")
    if not callable(loss):
        raise TypeError(
            f"Trainer was given a {type(loss).__name__} as loss: it is a function of output and target, e.g. "
            "nn.CrossEntropyLoss()."
        )
    if metrics is not None and not (
        isinstance(metrics, Mapping)
        and all(isinstance(name, str) and callable(metric) for name, metric in metrics.items())
    ):
        raise TypeError(f"Trainer was given metrics={metrics!r}: they are a dict of functions by name.")


def check_callbacks(callbacks: Any) -> None:
    """!! TypeError"""
    wrong = callbacks
    if isinstance(callbacks, (list, tuple)):
        others = [each for each in callbacks if not isinstance(each, Callback)]
        if not others:
            return
        wrong = others[0]
    raise TypeError(
        f"Trainer was given {wrong!r} among its callbacks: they are a list of syft.federated.Callback objects."
    )


def check_count(name: str, value: Any) -> None:
    """!! ValueError"""
    if not is_count(value) or value < 1:
        raise ValueError(f"Trainer was given {name}={value!r}: it is a whole number of 1 or more.")


def check_deadline(deadline: Any) -> None:
    """!! ValueError"""
    if deadline is not None and not (is_number(deadline) and deadline > 0):
        raise ValueError(
            f"Trainer was given deadline={deadline!r}: it is a number of seconds above 0, or None."
        )


def check_seed(seed: Any) -> None:
    """!! TypeError"""
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise TypeError(f"Trainer was given seed={seed!r}: it is a whole number, or None.")


def checked_arguments(args: Any, round: int) -> dict[str, Any]:
    """The arguments of the clients' optimizer in a round. !! TypeError"""
    found = args(round) if callable(args) else args
    if not isinstance(found, Mapping):
        of = f" for round {round}" if callable(args) else ""
        raise TypeError(
            f"Trainer was given optimizer_args={found!r}{of}: they are a dict, e.g. {{'lr': 0.1}}, or a function that "
            "returns one for a round."
        )
    return dict(found)


def checked_figures(found: Any) -> Metrics:
    """What a function returned that evaluates a model. !! TypeError"""
    try:
        return {str(name): float(value) for name, value in found.items()}
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"evaluate returned {str(found)[:60]!r}, a {type(found).__name__}: a function of the model returns a dict "
            "of numbers by name, e.g. {'accuracy': 0.9}."
        ) from None


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
