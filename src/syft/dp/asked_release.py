"""Asking for a release: what a request is bound to, and what its owner reads.

One duty: a release as something that can be asked for. An approval covers one mechanism with its numbers and options
(`digest_of_release`) and exactly what is charged for it (`text_of_charge`). Imports `composition` and `events`.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import msgspec

from syft import serde
from syft.dp.composition import Charge
from syft.dp.events import read_event, written
from syft.exceptions import RequestNotPermittedError
from syft.messaging.message import ReleaseMessage
from syft.requests import keeper
from syft.requests.approvals import Prepared
from syft.requests.records import Ask


def digest_of_release(message: ReleaseMessage) -> str:
    """Stands for what a release is asked for with."""
    options = {name: message.options[name] for name in sorted(message.options, key=str)}
    asked = (message.mechanism, float(message.epsilon), float(message.delta), options)
    return hashlib.sha256(serde.serialize(asked)).hexdigest()


def stated_release(_worker: Any, prepared: Prepared) -> Ask:
    """A request for a release, which says what would be charged. !! RequestNotPermittedError"""
    ask = prepared.ask
    try:
        mechanism, epsilon, delta, event, count = json.loads(ask.charge)
        charge = Charge(
            str(mechanism),
            None if event is None else read_event(event),
            float(epsilon),
            float(delta),
            int(count),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise RequestNotPermittedError("A request for a release does not say what it costs.") from error
    is_finite, times = math.isfinite(charge.epsilon), "" if charge.count == 1 else f", {charge.count} times"
    cost = f"epsilon {charge.epsilon:g}" if is_finite else f"the cost of {charge.event}"
    stated = {
        "mechanism": charge.mechanism[:500],
        "cost": f"{cost}, delta {charge.delta:g}{times}"[:1000],
        "data sets": " ".join(ask.datasets)[:1000],
    }
    return msgspec.structs.replace(
        ask,
        what=f"{charge.mechanism[:100]} of {', '.join(ask.datasets)[:200]} at {cost}{times}"[:500],
        details={**ask.details, **stated},
        epsilon=charge.epsilon if is_finite else None,
    )


def text_of_charge(charge: Charge) -> str:
    """All that is charged, as text: an approval beyond the budget is for that and nothing else."""
    event = None if charge.event is None else written(charge.event)
    return json.dumps([charge.mechanism, repr(charge.epsilon), repr(charge.delta), event, charge.count])


keeper.STATEMENTS["release"] = stated_release
