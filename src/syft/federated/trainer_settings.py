"""What a Trainer is given, checked before anything is made of it.

One duty: an error for a setting of the wrong kind, as a sentence. Imports `callbacks`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any, cast

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


def check_collate(collate_fn: Any) -> None:
    """!! TypeError"""
    if collate_fn is not None and not callable(collate_fn):
        raise TypeError(
            f"Trainer was given collate_fn={collate_fn!r}: it is a function from a list of rows to a batch."
        )


def check_flags(**flags: Any) -> None:
    """!! TypeError"""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"Trainer was given {name}={value!r}: it is True or False.")


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


#: What may be another for some clients.
CLIENT_SETTINGS = ("epochs", "batch_size", "optimizer_args")


def checked_client_settings(settings: Any, clients: Collection[str]) -> dict[str, dict[str, Any]]:
    """How some clients train otherwise, by name. !! TypeError, ValueError"""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping) or not all(isinstance(each, Mapping) for each in settings.values()):
        raise TypeError(
            f"Trainer was given client_settings={settings!r}: they are a dict of dicts by the names of clients, e.g. "
            "{'small': {'epochs': 5}}."
        )
    for name, own in settings.items():
        if name not in clients:
            raise ValueError(
                f"Trainer was given client_settings for {name!r}, which is not among its clients."
            )
        for key, value in own.items():
            if key not in CLIENT_SETTINGS:
                raise ValueError(
                    f"Trainer was given client_settings with {key!r} for {name!r}: a client may have its own "
                    f"{', '.join(CLIENT_SETTINGS)}."
                )
            if key == "optimizer_args":
                checked_arguments(value, 1)
            else:
                check_count(f"client_settings[{name!r}][{key!r}]", value)
    return {name: dict(own) for name, own in settings.items()}


def count_per_round(known: int, fraction: float | None, count: int | None) -> int:
    """How many of the clients a round asks. !! ValueError"""
    if fraction is not None and count is not None:
        raise ValueError("Trainer was given fraction and clients_per_round. Give one of them.")
    if fraction is not None:
        if not is_number(fraction) or not 0 < fraction <= 1:
            raise ValueError(
                f"Trainer was given fraction={fraction!r}: it is a number above 0 and at most 1."
            )
        return max(1, round(fraction * known))
    if count is None:
        return known
    check_count("clients_per_round", count)
    if count > known:
        raise ValueError(f"Trainer was given clients_per_round={count}, and there are {known} clients.")
    return count


def check_groups(groups: Any, clients: Collection[str]) -> Mapping[str, Sequence[str]]:
    """Names of clients by the names of their groups. !! TypeError, ValueError"""
    if not isinstance(groups, Mapping) or any(
        isinstance(names, str) or not isinstance(names, Collection) for names in groups.values()
    ):
        raise TypeError(
            f"evaluate_clients() was given groups={groups!r}: they are a dict of lists of clients, e.g. "
            "{'north': ['a', 'b']}."
        )
    for group, names in groups.items():
        if unknown := [name for name in names if name not in clients]:
            raise ValueError(
                f"evaluate_clients() was given the group {group!r} with {unknown[0]!r}, which is not a client."
            )
    return cast(Mapping[str, Sequence[str]], groups)


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
