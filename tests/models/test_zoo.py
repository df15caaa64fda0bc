"""Every model of the zoo, every way: the table on the page "Real models" is what they give."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

import zoo
import zoo_table
import zoo_ways

ENTRIES = {entry.name: entry for entry in zoo.ALL}
CELLS = zoo_table.committed()

#: What every run of the tests tries; the rest is for `-m slow`.
SAMPLE = [
    ("GPT-2", "remote training"),
    ("Llama", "remote training"),
    ("T5", "remote training"),
    ("Mamba", "remote training"),
    ("Wav2Vec2", "remote training"),
    ("Qwen2", "remote forward"),
    ("nn.Transformer", "remote forward"),
    ("GPT-2", "encrypted forward"),
    ("nn.Transformer", "encrypted forward"),
    ("Graph convolution", "remote training"),
    ("Graph convolution", "remote plan"),
    ("Graph convolution", "serialised plan"),
    ("Graph convolution", "training plan"),
    ("Graph convolution", "encrypted forward"),
    ("Diffusion U-Net", "DP-SGD"),
    ("LSTM", "DP-SGD"),
]


def check(model: str, way: str, workers: Any) -> None:
    entry = ENTRIES[model]
    if find_spec(entry.library) is None:
        pytest.skip(f"{entry.library} is not installed")
    assert zoo_ways.tried(way, entry, workers.bob, workers.alice, workers.carol) == CELLS[model, way]


@pytest.fixture
def three(bob: Any, alice: Any, make_worker: Any) -> Any:
    from types import SimpleNamespace

    return SimpleNamespace(bob=bob, alice=alice, carol=make_worker("carol"))


def test_the_page_has_every_model_and_every_way() -> None:
    assert set(CELLS) == {(model, way) for model in ENTRIES for way in zoo_ways.WAYS}
    assert all(cell.startswith(("yes", "no: ")) for cell in CELLS.values())


def test_every_model_of_the_zoo_runs_and_trains_remotely_bit_for_bit() -> None:
    for model in ENTRIES:
        assert CELLS[model, "remote forward"] == CELLS[model, "remote training"] == "yes"
    assert sum(cell.startswith("yes") for cell in CELLS.values()) >= 0.9 * len(CELLS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "way"), SAMPLE)
def test_a_sample_of_the_zoo(model: str, way: str, three: Any) -> None:
    check(model, way, three)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", zoo_ways.WAYS)
@pytest.mark.parametrize("model", ENTRIES)
def test_the_whole_zoo(model: str, way: str, three: Any) -> None:
    check(model, way, three)


def test_a_wrong_result_is_no_yes(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ENTRIES["Graph convolution"]
    monkeypatch.setattr(
        zoo_ways, "at", lambda worker, batch: {k: (v * 2).send(worker) for k, v in batch.items()}
    )
    assert zoo_ways.tried("remote forward", entry, three.bob).startswith("no: ")
    assert zoo_ways.tried("remote training", entry, three.bob).startswith("no: ")
