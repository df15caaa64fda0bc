"""Non-interference of training on offered data, and of programs on shares among workers on a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from guarded_training import TRAINING
from guarded_worlds import COMMANDS, compare

from syft.federated import round_handlers
from syft.operations import running

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(running, "new_seed", lambda: 7)
    yield
    torch.set_num_threads(threads)


def test_trainings_and_rounds_tell_nothing_but_what_is_given_away(hook: Any, me: Any) -> None:
    assert compare(hook, 60, 21, (*COMMANDS, *((command, 40) for command, _ in TRAINING))) > 900


def test_a_round_that_tells_its_failure_is_found(hook: Any, me: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    silently = round_handlers._train_silently

    def loud(*training: Any) -> Any:
        answer, vector = silently(*training)
        if not vector.any():
            raise RuntimeError("the training failed")
        return answer, vector

    monkeypatch.setattr(round_handlers, "_train_silently", loud)
    with pytest.raises(AssertionError, match="is answered by"):
        compare(hook, 200, 21, TRAINING)
