"""The one form in which books, budgets and trainings write down what was spent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syft.dp.events import Event, Gaussian, Pure, read, read_event, total, written

events = st.one_of(
    st.builds(Gaussian, st.floats(1e-6, 1e6), st.floats(1e-9, 1.0)), st.builds(Pure, st.floats(1e-9, 1e6))
)


@given(events, st.integers(1, 1 << 62))
def test_what_is_written_down_is_read_back(event: Event, count: int) -> None:
    assert read(json.loads(json.dumps(written(event, count)))) == (event, count)
    assert read_event(json.loads(json.dumps(written(event)))) == event


@pytest.mark.parametrize(
    "entry",
    [
        {
            "event": "gaussian",
            "noise_multiplier": 1.0,
            "sampling_rate": 1.0,
        },  # how often is not said: not "once"
        {"noise_multiplier": 1.0, "count": 1},
        {"event": "none", "count": 1},
        {"event": "pure", "epsilon": 1.0, "more": 1, "count": 1},
        {"event": "pure", "epsilon": -1.0, "count": 1},
        ["gaussian"],
    ],
)
def test_what_is_no_event_is_not_taken_for_one(entry: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        read(entry)


def test_an_event_alone_has_no_count() -> None:
    with pytest.raises(TypeError):
        read_event({"event": "pure", "epsilon": 1.0, "count": 3})


@given(st.lists(st.dictionaries(events, st.integers(1, 1000))))
def test_the_total_loses_nothing(spent: list[dict[Event, int]]) -> None:
    joint = total(spent)
    assert set(joint) == {event for one in spent for event in one}
    assert sum(joint.values()) == sum(sum(one.values()) for one in spent)
