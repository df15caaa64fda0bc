"""Language models over worker processes: whole, by adapters, in masked sums, with privacy, with personal layers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from federated.served_clients import ServedClient, counted_traffic, counting, notes
from syft.dp.federated import ClientPrivacy, DistributedPrivacy
from syft.federated import MaskedSum, Trainer, collated
from syft.federated.layout import Layout, read_state
from syft.workers.network.client_worker import connect
from trainer_parts import same

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.network,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),  # of peft
]
torch.set_num_threads(1)

ROWS = 32
NAMES = ("a", "b", "c")
SIZES = {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16, "vocab_size": 32}


@pytest.fixture(scope="module")
def served() -> Iterator[dict[str, ServedClient]]:
    made = {name: ServedClient(id=name, seed=n, rows=ROWS) for n, name in enumerate(NAMES)}
    for each in made.values():
        _ = each.address  # they start side by side
    yield made
    for each in made.values():
        each.end()


@pytest.fixture
def workers(hook: Any, me: Any, served: Any) -> Iterator[list[Any]]:
    made = [connect(each.address, auto_add=False, patience=5.0) for each in served.values()]
    yield made
    for each in made:
        each.close()


def bert(hidden: int = 32, rank: int | None = 4) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        **SIZES,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
    )
    model = transformers.BertForSequenceClassification(config)
    if rank is None:
        return model
    adapters = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=["query", "value"], modules_to_save=["classifier"]
    )
    return peft.get_peft_model(model, adapters)


def llama(rank: int | None = 4) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **SIZES,
        hidden_size=32,
        intermediate_size=64,
        num_key_value_heads=2,
        pad_token_id=0,
        use_cache=False,
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(config)
    if rank is None:
        return model
    layers = ["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"]
    adapters = peft.LoraConfig(
        r=rank, lora_alpha=4 * rank, target_modules=layers, modules_to_save=["lm_head"]
    )
    return peft.get_peft_model(model, adapters)


def classes(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.logits, labels)


def next_words(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.logits[:, :-1].transpose(1, 2), labels[:, 1:])


CASES: dict[str, Any] = {
    "bert": (bert, classes, "notes", notes),
    "llama": (llama, next_words, "words", counting),
}


def trainer(which: str, clients: Any, model: nn.Module | None = None, **options: Any) -> Trainer:
    make, loss, key, _ = CASES[which]
    settings: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 8,
        "optimizer": "Adam",
        "optimizer_args": {"lr": 0.03},
        "seed": 3,
    }
    if isinstance(clients, list):
        settings["dataset_key"] = key
    return Trainer(model or make(), loss, clients, **settings | options)


def at_home(which: str) -> dict[str, Any]:
    return {name: CASES[which][3](n, ROWS) for n, name in enumerate(NAMES)}


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return counted_traffic(monkeypatch)


@pytest.mark.parametrize("which", ["bert", "llama"])
def test_adapters_trained_over_workers_are_those_trained_here_and_as_good_as_central(
    workers: Any, which: str
) -> None:
    far, near = trainer(which, workers), trainer(which, at_home(which))
    before = near.evaluate(at_home(which)["a"])["loss"]
    far.fit(2), near.fit(2)
    assert not far.history.rounds[-1].failures
    assert all(
        torch.allclose(tensor, read_state(near.model)[name], atol=1e-6)
        for name, tensor in read_state(far.model).items()
    )
    everything = [row for rows in at_home(which).values() for row in rows]
    central = trainer(which, {"all": everything})
    central.fit(2)
    fresh = CASES[which][3](9, 64)
    together, apart = central.evaluate(fresh)["loss"], far.evaluate(fresh)["loss"]
    assert apart < 0.8 * before and apart < together + 0.35, (before, together, apart)


def test_a_whole_model_takes_named_arguments_at_workers(workers: Any) -> None:
    far, near = (
        trainer("bert", who, bert(rank=None), epochs=1) for who in (workers[:2], {**at_home("bert")})
    )
    near.clients.pop("c")
    near.per_round = 2
    far.fit(1), near.fit(1)
    assert same(read_state(far.model), read_state(near.model))
    assert far.evaluate_clients().metrics == pytest.approx(near.evaluate_clients().metrics)


def test_frozen_weights_travel_once_and_a_round_is_as_large_as_the_adapters(
    workers: Any, traffic: list[int]
) -> None:
    model = bert(hidden=128, rank=16)
    layout = Layout.of(model)
    adapters = 4 * layout.size * len(workers)
    frozen = sum(p.numel() * 4 for p in model.parameters() if not p.requires_grad) * len(workers)
    far = trainer("bert", workers, copy.deepcopy(model), epochs=1, batch_size=32)
    far.fit(1)
    assert frozen < traffic[0] < 1.3 * frozen + 2 * adapters
    traffic[:] = [0, 0]
    far.fit(3)
    sent, received = traffic[0] / 2, traffic[1] / 2
    assert adapters < sent < 1.05 * adapters and adapters < received < 1.05 * adapters
    # Another training of the same base model, with other adapters: the base is there.
    torch.manual_seed(5)
    again = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in again.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.02)
    traffic[:] = [0, 0]
    trainer("bert", workers, again, epochs=1, batch_size=32).fit(1)
    assert traffic[0] < 2 * adapters < frozen
    # Other frozen weights are other weights.
    with torch.no_grad():
        next(p for p in far.model.parameters() if not p.requires_grad).add_(0.5)
    traffic[:] = [0, 0]
    far.fit(4)
    assert traffic[0] > frozen
    near = trainer("bert", at_home("bert"), copy.deepcopy(far.model), epochs=1, batch_size=32)
    assert far.evaluate_clients().metrics == pytest.approx(near.evaluate_clients().metrics, rel=1e-4)


@pytest.mark.parametrize("which", ["bert", "llama"])
def test_masked_sums_and_private_sums_of_adapters(workers: Any, which: str) -> None:
    masked = trainer(which, workers, aggregation=MaskedSum(threshold=3))
    before = masked.evaluate(at_home(which)["a"])["loss"]
    masked.fit(2)
    assert masked.aggregation.report.survivors == NAMES  # type: ignore[attr-defined]
    assert masked.evaluate(at_home(which)["a"])["loss"] < before
    privacy: Any = ClientPrivacy(clip_norm=0.5, noise_multiplier=0.01, clients=3)
    options = {"privacy": privacy}
    if which == "llama":  # and both together, between the processes
        privacy = DistributedPrivacy(clip_norm=0.5, noise_multiplier=0.01, clients=3, threshold=3)
        options = {"privacy": privacy, "aggregation": privacy.aggregation(word_bits="fit")}
    private = trainer(which, workers, **options)
    start = private.layout.flatten(read_state(private.model))
    private.fit(1)
    moved = private.layout.flatten(read_state(private.model)) - start
    assert 0 < moved.norm() < 0.55 and privacy.rounds == 1


def test_personal_layers_stay_at_their_workers(workers: Any) -> None:
    far, near = (
        trainer("bert", who, local=["*.lora_B.*", "base_model.model.classifier"])
        for who in (workers, at_home("bert"))
    )
    own = [name for name, _ in far.model.named_parameters() if "lora_B" in name or "classifier" in name]
    start = read_state(far.model)
    far.fit(2), near.fit(2)
    after, expected = read_state(far.model), read_state(near.model)
    assert all(torch.equal(after[name], start[name]) for name in own)
    assert any(not torch.equal(after[name], start[name]) for name in after)
    assert all(torch.allclose(after[name], expected[name], atol=1e-6) for name in after)
    found, wanted = far.evaluate_clients(), near.evaluate_clients()
    assert not found.failures
    for name in NAMES:
        assert found.by_client[name].metrics == pytest.approx(wanted.by_client[name].metrics, rel=1e-4)
    # The figures are those of the personal layers, not of the server's.
    assert (
        found.metrics["loss"]
        < 0.9 * far.evaluate([r for rows in at_home("bert").values() for r in rows])["loss"]
    )


def test_data_that_leaves_in_sums_only_is_not_trained_on_with_personal_layers(workers: Any) -> None:
    guarded = trainer(
        "bert",
        workers,
        dataset_key="confidential",
        aggregation=MaskedSum(threshold=3),
        local=["*.lora_B.*"],
    )
    with pytest.raises(RuntimeError, match="single one of them out"):
        guarded.fit(1)
    with pytest.raises(ValueError, match=r"syft.federated.collated\(dataset, collate_fn\)"):
        trainer("bert", workers, collate_fn=list)


def test_rows_are_collated_where_they_are() -> None:
    ragged = [{"input_ids": [4, 5, 6][: 1 + n % 3], "labels": n % 2} for n in range(6)]

    def pad(rows: list[Any]) -> dict[str, torch.Tensor]:
        words = [torch.tensor(row["input_ids"]) for row in rows]
        padded = nn.utils.rnn.pad_sequence(words, batch_first=True)
        labels = torch.tensor([row["labels"] for row in rows])
        return {"input_ids": padded, "attention_mask": (padded > 0).long(), "labels": labels}

    made = collated(ragged, pad)
    assert len(made) == 6 and made[0]["input_ids"].tolist() == [4, 0, 0] and made[5]["labels"] == 1
    pairs = collated(ragged, lambda rows: (pad(rows)["input_ids"], pad(rows)["labels"]))
    assert pairs[2][0].tolist() == [4, 5, 6]
    with pytest.raises(TypeError, match="collate_fn that returned a str"):
        collated(ragged, lambda rows: "x")
    with pytest.raises(ValueError, match="without rows"):
        collated([], pad)
