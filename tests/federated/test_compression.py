"""Updates in fewer bytes: what is sent, what is held back, and that training goes on."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import syft as sy
from syft.dp.federated import ClientPrivacy
from syft.federated import Buffered, MaskedSum, Quantize, RandomK, TopK, Trainer
from syft.federated.compression import HeldBack, UpdateForm, common_places, compress
from syft.federated.engines import RayEngine
from syft.federated.layout import Layout, read_state
from syft.federated.packing import pack, packed_size, unpacked
from syft.federated.records import CompressedUpdate, FitInstructions, FitResult
from syft.serde import deserialize, serialize
from trainer_parts import Fixed, classes, line, net, same, weights

torch.set_num_threads(1)

LAYOUT = Layout.of(nn.Sequential(nn.Linear(20, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))


def told(compression: Any, layout: Layout = LAYOUT, round: int = 1, seed: int = 0) -> FitInstructions:
    rule = compression.rule(layout.trainable, 5, "one training")
    return FitInstructions(round, seed, {}, compression=rule)


def sent(vector: Tensor, compression: Any, held: HeldBack | None = None, **of: int) -> Tensor:
    """What the server makes of an update that went over a wire."""
    instructions = told(compression, **of)
    made = compress(vector, LAYOUT, instructions, HeldBack() if held is None else held)
    arrived = deserialize(serialize(made))
    return UpdateForm(LAYOUT, instructions.compression).of_compressed(arrived, instructions.round)


def some_vector(seed: int = 0) -> Tensor:
    return torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 32), st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_words_of_any_bits_are_packed_and_unpacked(bits: int, words: list[int]) -> None:
    cut = np.array([word % (1 << bits) for word in words], dtype=np.uint32)
    data = pack(cut, bits)
    assert data.size == packed_size(len(words), bits)
    found = np.concatenate([np.zeros(0, np.int32), *(block for _, block in unpacked(data, len(words), bits))])
    assert found.view(np.uint32).tolist() == cut.tolist()


# -- what is sent -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 4, 13])
def test_quantised_numbers_are_within_a_step_and_right_in_the_mean(bits: int) -> None:
    vector = some_vector()
    parts = vector[: LAYOUT.trainable].split([e.numel for e in LAYOUT.entries if e.is_parameter])
    levels = 2 ** (bits - 1) - 1
    step = torch.cat([torch.full_like(part, part.abs().max() / levels) for part in parts])
    found = torch.stack([sent(vector, Quantize(bits), seed=seed) for seed in range(200)])
    head, rest = found[:, : LAYOUT.trainable], found[:, LAYOUT.trainable :]
    assert bool(((head - vector[: LAYOUT.trainable]).abs() <= step * 1.0001).all())
    # The standard deviation of rounding is at most half a step; 200 draws, 6 deviations.
    assert bool(((head.mean(0) - vector[: LAYOUT.trainable]).abs() <= 6 * step / 2 / 14 + 1e-6).all())
    assert torch.equal(rest[0], vector[LAYOUT.trainable :])  # buffers as they are


def test_the_largest_numbers_are_sent_and_the_others_later() -> None:
    held, count = HeldBack(), math.ceil(0.1 * LAYOUT.trainable)
    vectors = [some_vector(seed) for seed in range(60)]
    arrived = [sent(vector, TopK(0.1), held) for vector in vectors]
    first = vectors[0][: LAYOUT.trainable].abs()
    assert torch.equal(arrived[0][: LAYOUT.trainable] != 0, first >= first.topk(count).values[-1])
    assert all(int((vector[: LAYOUT.trainable] != 0).sum()) == count for vector in arrived)
    left = held.find(LAYOUT.trainable, None, "one training")
    assert left is not None
    total = sum(vector[: LAYOUT.trainable] for vector in vectors)
    assert torch.allclose(sum(a[: LAYOUT.trainable] for a in arrived) + left, total, atol=1e-4)


def test_random_places_are_the_same_for_all_clients_and_others_in_the_next_round() -> None:
    rule = RandomK(0.25).rule(LAYOUT.trainable, 5, "one")
    places = [common_places(rule, LAYOUT.trainable, number) for number in (1, 1, 2)]
    assert torch.equal(places[0], places[1]) and not torch.equal(places[0], places[2])
    assert len(set(places[0].tolist())) == rule.kept == math.ceil(0.25 * LAYOUT.trainable)
    counts = torch.zeros(LAYOUT.trainable)
    for number in range(400):
        counts[common_places(rule, LAYOUT.trainable, number)] += 1
    assert counts.min() > 60 and counts.max() < 140  # 100 expected, deviation below 9


def test_places_are_the_same_on_every_machine() -> None:
    rule = RandomK(0.5).rule(10, 5, "one")
    assert common_places(rule, 10, 3).tolist() == [1, 2, 6, 8, 9]


def test_without_feedback_random_places_are_right_in_the_mean() -> None:
    vector = torch.ones(LAYOUT.size)
    found = torch.stack([sent(vector, RandomK(0.5), round=n) for n in range(400)])
    assert bool(((found.mean(0) - 1).abs() < 0.3).all()) and float(found.max()) == pytest.approx(2.0, abs=0.1)


def test_an_update_that_is_not_finite_is_not_held_back() -> None:
    held = HeldBack()
    vector = some_vector()
    vector[3] = math.nan
    assert not bool(torch.isfinite(sent(vector, TopK(0.1), held)).all())
    assert held.find(LAYOUT.trainable, None, "one training") is None
    assert not bool(torch.isfinite(sent(vector, Quantize(4))).all())


# -- training -----------------------------------------------------------------------------------------------

TEST = classes(seed=9, clients=1, rows=200)["client 0"]
WAYS = [Quantize(8), Quantize(3), TopK(0.1), RandomK(0.3), RandomK(0.3, error_feedback=True)]


def trainer(compression: Any, clients: Any = None, **options: Any) -> Trainer:
    settings: dict[str, Any] = {
        "epochs": 1,
        "optimizer_args": {"lr": 0.3},
        "seed": 5,
        "evaluate": TEST,
        **options,
    }
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    data = classes() if clients is None else clients
    return Trainer(model, nn.CrossEntropyLoss(), data, compression=compression, **settings)


def test_training_with_compressed_updates_ends_where_it_does_without() -> None:
    plain = trainer(None).fit(15).curve("loss")[1]
    assert plain[-1] < 0.35
    for way in WAYS:
        assert trainer(way).fit(15).curve("loss")[1][-1] < plain[-1] + 0.1, way


def test_without_feedback_what_is_left_out_is_lost() -> None:
    """So the test above would notice."""
    losses = [trainer(TopK(0.03, error_feedback=how)).fit(8).curve("loss")[1][-1] for how in (True, False)]
    assert losses[0] < losses[1] - 0.02


@pytest.mark.parametrize("way", [TopK(1.0), RandomK(1.0), RandomK(1.0, error_feedback=True)])
def test_all_of_an_update_is_the_update(way: Any) -> None:
    def run(compression: Any) -> Any:
        some = Trainer(net(), nn.CrossEntropyLoss(), classes(), "fedadam", compression=compression, seed=1)
        some.fit(2)
        return read_state(some.model)

    assert same(run(way), run(None))


@pytest.mark.parametrize("way", [Quantize(4), TopK(0.1), RandomK(0.2, error_feedback=True)])
def test_every_engine_gives_the_same_weights(way: Any) -> None:
    runs = [trainer(way, engine=engine) for engine in ("serial", "threads")]
    for each in runs:
        each.fit(3)
    assert same(read_state(runs[0].model), read_state(runs[1].model))


@pytest.mark.parametrize("way", WAYS)
def test_asynchronous_rounds_train_with_compressed_updates(way: Any) -> None:
    losses = trainer(way, schedule=Buffered(2, 4)).fit(20).curve("loss")[1]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("strategy", ["median", "krum"])
def test_robust_strategies_see_updates_as_the_server_reads_them(strategy: str) -> None:
    losses = trainer(RandomK(0.5), strategy=strategy).fit(8).curve("loss")[1]
    assert losses[-1] < losses[0]


def test_a_client_of_your_own_may_send_its_update_as_it_is() -> None:
    for way, expected in ((Quantize(2), [4.0]), (RandomK(1.0), [4.0])):
        some = Trainer(line(0.0), nn.MSELoss(), {"a": Fixed(3.0), "b": Fixed(5.0)}, compression=way)
        some.fit(1)
        assert weights(some.model) == expected


def test_a_training_that_is_resumed_says_what_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer(TopK(0.1), checkpoint=tmp_path / "run").fit(1)
    with caplog.at_level(logging.WARNING):
        assert trainer(TopK(0.1), checkpoint=tmp_path / "run").resume()
    assert "What clients held back of their updates is in no checkpoint" in caplog.text
    whole = trainer(RandomK(0.5), checkpoint=tmp_path / "other", seed=None)
    whole.fit(2)
    parts = trainer(RandomK(0.5), checkpoint=tmp_path / "other", seed=None)
    assert parts.resume() and parts._form.rule is not None
    assert parts._form.rule.seed == whole._form.rule.seed  # type: ignore[union-attr]


# -- sums that hide, and privacy ----------------------------------------------------------------------------


def test_masked_sums_of_random_places_are_the_plain_ones_in_fewer_words() -> None:
    masked = [trainer(way, aggregation=MaskedSum(clip=16.0)) for way in (None, RandomK(0.1))]
    plain = trainer(RandomK(0.1))
    for each in (*masked, plain):
        each.fit(2)
    hidden, seen = read_state(masked[1].model), read_state(plain.model)
    assert all(torch.allclose(hidden[name], seen[name], atol=1e-4) for name in seen)
    whole, part = (m.aggregation.report.to_server for m in masked)  # type: ignore[attr-defined]
    numbers, clients = plain.layout.size, len(plain.clients)
    assert whole - part == pytest.approx(0.9 * numbers * 8 * clients, rel=0.05)


@pytest.mark.parametrize("way", [Quantize(2), TopK(0.05), RandomK(0.1), RandomK(0.1, error_feedback=True)])
def test_with_privacy_what_a_client_adds_is_within_the_bound(
    way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms: list[float] = []
    honest = ClientPrivacy.clip

    def watched(self: Any, update: Tensor) -> Tensor:
        found = honest(self, update)
        norms.append(float(found.norm()))
        return found

    monkeypatch.setattr(ClientPrivacy, "clip", watched)
    privacy = ClientPrivacy(0.05, 1.0, clients=5)
    some = trainer(way, privacy=privacy)
    some.fit(3)
    assert len(norms) == 15 and max(norms) <= 0.05 and min(norms) > 0.04
    assert privacy.rounds == 3


def test_data_that_leaves_in_sums_only_is_not_trained_on_with_feedback(hook: Any) -> None:
    workers = [sy.VirtualWorker(hook, id=f"summed {n}") for n in range(3)]
    for worker, part in zip(workers, classes(clients=3).values(), strict=True):
        worker.add_dataset(part, "sums", least_in_sum=3)
    some: dict[str, Any] = {"dataset_key": "sums", "aggregation": MaskedSum(threshold=3, clip=16.0)}
    model = nn.Linear(6, 2)
    fair = Trainer(model, nn.CrossEntropyLoss(), workers, compression=RandomK(0.5), **some)
    assert len(fair.fit(1).rounds[0].accepted) == 3
    way = RandomK(0.5, error_feedback=True)
    unfair = Trainer(model, nn.CrossEntropyLoss(), workers, compression=way, **some)
    with pytest.raises(RuntimeError, match=r"could single one of them out. Train with error_feedback=False"):
        unfair.fit(1)


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Quantize(1), "bits=1: it is a whole number from 2 to 16"),
        (lambda: Quantize(8.0), "bits=8.0"),  # type: ignore[arg-type]
        (lambda: TopK(0.0), "fraction=0.0: it is a number above 0 and at most 1"),
        (lambda: RandomK(1.5), "RandomK was given fraction=1.5"),
        (lambda: TopK(0.1, error_feedback=1), "error_feedback=1"),  # type: ignore[arg-type]
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        make()


@pytest.mark.parametrize(
    ("way", "options", "sentence"),
    [
        ("gzip", {}, r"it is Quantize\(bits\), TopK"),
        (TopK(0.1), {"aggregation": MaskedSum()}, r"places tell about the data. Use RandomK\(fraction\)"),
        (
            Quantize(8),
            {"aggregation": MaskedSum()},
            r"MaskedSum\(clip=..., fraction_bits=..., word_bits='fit'\)",
        ),
        (RandomK(0.1), {"aggregation": MaskedSum(), "schedule": Buffered(2)}, "of several rounds"),
        (Quantize(8), {"strategy": "scaffold"}, "Scaffold reads clients' gradients off their updates"),
        (
            TopK(0.1),
            {"engine": object.__new__(RayEngine)},
            "they hold nothing back. Use error_feedback=False",
        ),
    ],
)
def test_what_compression_cannot_be_used_with_is_refused(way: Any, options: Any, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        trainer(way, **options)


def hostile(update: CompressedUpdate) -> list[CompressedUpdate]:
    places = update.places
    return [
        replace(update, values=update.values[:-1]),
        replace(update, values=update.values.double()),
        replace(update, places=places.flip(0)),
        replace(update, places=torch.full_like(places, 3)),
        replace(update, places=places - 10_000),
        replace(update, places=places + 10_000),
        replace(update, places=places.float()),
        replace(update, rest=torch.zeros(4)),
        replace(update, scales=torch.zeros(4)),
        replace(update, values=update.values * math.nan),
    ]


def test_what_cannot_be_read_is_left_out_with_a_reason() -> None:
    class Sends:
        def __init__(self, change: int) -> None:
            self.change = change

        def fit(self, instructions: FitInstructions) -> Any:
            layout = Layout.of(line(0.0, 0.0, 0.0))
            made = compress(torch.tensor([1.0, 2.0, 3.0]), layout, instructions, HeldBack())
            return FitResult(instructions.round, {}, 1, 1, compressed=hostile(made)[self.change])

        def evaluate(self, instructions: Any) -> Any:
            return None

    clients = {f"liar {n}": Sends(n) for n in range(10)}
    some = Trainer(
        line(0.0, 0.0, 0.0), nn.MSELoss(), {"a": Fixed(1.0, 1.0, 1.0), **clients}, compression=TopK(0.6)
    )
    (report,) = some.fit(1).rounds
    assert report.accepted == ("a",) and weights(some.model) == [1.0, 1.0, 1.0]
    kinds = [failure.kind for failure in report.failures]
    assert kinds == ["malformed"] * 9 + ["not finite"], [str(failure) for failure in report.failures]
    plain = Trainer(line(0.0, 0.0, 0.0), nn.MSELoss(), {"a": Fixed(1.0, 1.0, 1.0)})
    form = UpdateForm(plain.layout)
    with pytest.raises(ValueError, match="that was not asked for"):
        form.of_compressed(CompressedUpdate(*[torch.zeros(0)] * 4), 1)


def test_codes_beyond_their_bits_are_refused() -> None:
    form = UpdateForm(LAYOUT, Quantize(2).rule(LAYOUT.trainable, 0, ""))
    made = compress(some_vector(), LAYOUT, told(Quantize(2)), HeldBack())
    with pytest.raises(ValueError, match="numbers beyond 2 bits"):
        form.of_compressed(replace(made, values=torch.full_like(made.values, 255)), 1)


def test_a_rule_that_does_not_fit_the_model_is_refused_by_the_client() -> None:
    for rule in (
        replace(TopK(0.1).rule(10, 0, ""), kept=0),
        replace(TopK(0.1).rule(10, 0, ""), kept=10**9),
        replace(Quantize(8).rule(10, 0, ""), bits=40),
    ):
        with pytest.raises(ValueError, match="A round was asked for with compression"):
            compress(some_vector(), LAYOUT, FitInstructions(1, 0, {}, compression=rule), HeldBack())


def test_what_is_held_back_leaves_with_a_client() -> None:
    data = TensorDataset(torch.ones(4, 6), torch.zeros(4, dtype=torch.int64))
    some = trainer(TopK(0.05), {"a": data, "b": data})
    some.fit(2)
    key = some._training_id
    before: Any = some.clients["a"]
    assert before.held.find(some.layout.trainable, None, key) is not None
    some.remove_clients("a")
    some.add_clients({"a": data})
    after: Any = some.clients["a"]
    assert after.held.find(some.layout.trainable, None, key) is None
