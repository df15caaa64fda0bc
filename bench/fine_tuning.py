"""Fine-tuning a language model by adapters: plain, federated, and private beside opacus with the same noise.

    python -m bench fine_tuning

A small BERT learns a public task whole. Its adapters (LoRA, by peft) and its last layer then learn a private one, of
2,048 rows: which two of four groups of words a sentence has more of. Every contestant begins with the same weights, takes
batches of the same size as often, and trains in a process of its own, in turns; each turn has another seed. The noise is
the least for epsilon 2 (PLD), and opacus gets the same: what its own accountant says of it is printed beside ours.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bench.harness import Figure, Timing, benchmark, by_mode
from bench.memory import peak_after, resident

WORDS, LENGTH, GROUPS = 64, 24, 4
DELTA, EPSILON, BOUND, CLIENTS = 1e-4, 2.0, 1.0, 3
LEARNING_RATE = 0.5
CONTESTANTS = {
    "plain": "central, without privacy",
    "federated": "three clients, without privacy",
    "ours": "ours",
    "hooks": "opacus",
    "ghost": "opacus, ghost clipping",
}


def _rows() -> int:
    return by_mode(2048, 2048, 256)


def _epochs() -> int:
    return by_mode(4, 4, 1)


# -- the task --------------------------------------------------------------------------------------------


def sentences(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Words, and the group (of four) that most of a sentence's words come from."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, GROUPS, (rows,), generator=generator)
    from_group = torch.rand(rows, LENGTH, generator=generator) < 0.25
    anything = torch.randint(0, WORDS, (rows, LENGTH), generator=generator)
    of_group = (
        torch.randint(0, WORDS // GROUPS, (rows, LENGTH), generator=generator) * GROUPS + groups[:, None]
    )
    return torch.where(from_group, of_group, anything), groups


class Classifier(nn.Module):
    """A small BERT with a new last layer: words in, numbers for each class out."""

    def __init__(self, classes: int) -> None:
        import transformers

        super().__init__()
        config = transformers.BertConfig(
            vocab_size=WORDS,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=LENGTH,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
        self.bert = transformers.BertModel(config, add_pooling_layer=False)
        self.last = nn.Linear(64, classes)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.bert(input_ids=words).last_hidden_state.mean(1))  # type: ignore[no-any-return]


def with_adapters(model: nn.Module) -> nn.Module:
    import peft

    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"], modules_to_save=["last"])
    return peft.get_peft_model(model, config)


def _learn_public_task(path: Path) -> None:
    torch.manual_seed(0)
    model = Classifier(GROUPS)
    words, groups = sentences(4096, seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(by_mode(3, 3, 1)):
        for picked in torch.randperm(len(words)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(words[picked]), groups[picked]).backward()
            optimizer.step()
    from safetensors.torch import save_file

    save_file(model.bert.state_dict(), path)


def _begin(weights: str, seed: int) -> nn.Module:
    from safetensors.torch import load_file

    torch.manual_seed(seed)
    model = Classifier(2)
    model.bert.load_state_dict(load_file(weights))
    return with_adapters(model)


def _private_task(rows: int, seed: int) -> TensorDataset:
    words, groups = sentences(rows, seed)
    return TensorDataset(words, groups % 2)


# -- the contestants, each in a process of its own -------------------------------------------------------


def _plain(model: nn.Module, data: TensorDataset, batch: int, epochs: int) -> Callable[[], dict[str, float]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def train() -> dict[str, float]:
        for _ in range(epochs):
            for words, classes in DataLoader(data, batch_size=batch, shuffle=True):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(words), classes).backward()
                optimizer.step()
        return {}

    return train


def _federated(
    model: nn.Module, data: TensorDataset, batch: int, epochs: int
) -> Callable[[], dict[str, float]]:
    from syft.federated import Trainer

    words, classes = data.tensors
    clients = {f"client-{k}": TensorDataset(words[k::CLIENTS], classes[k::CLIENTS]) for k in range(CLIENTS)}
    trainer = Trainer(
        model,
        nn.CrossEntropyLoss(),
        clients,
        batch_size=max(1, batch // CLIENTS),
        optimizer_args={"lr": LEARNING_RATE},
        seed=0,
    )

    def train() -> dict[str, float]:
        trainer.fit(rounds=epochs)  # trains the model in place
        return {}

    return train


def _ours(model: nn.Module, data: TensorDataset, batch: int, epochs: int) -> Callable[[], dict[str, float]]:
    from syft.dp.dpsgd import make_private

    training = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        DataLoader(data, batch_size=batch),
        loss_fn=nn.CrossEntropyLoss(),
        max_grad_norm=BOUND,
        noise_multiplier=_noise(batch / len(data), epochs * len(data) // batch),
    )

    def train() -> dict[str, float]:
        for _ in range(epochs):
            for words, classes in training.loader:
                training.step(words, classes)
        return {"epsilon": training.epsilon(DELTA)}

    return train


def _opacus(
    model: nn.Module, data: TensorDataset, batch: int, epochs: int, way: str
) -> Callable[[], dict[str, float]]:
    from opacus import PrivacyEngine

    criterion = nn.CrossEntropyLoss()
    engine = PrivacyEngine()
    trained = [each for each in model.parameters() if each.requires_grad]
    wrapped, optimizer, *more = engine.make_private(
        module=model.train(),
        optimizer=torch.optim.SGD(trained, lr=LEARNING_RATE),
        criterion=criterion,
        data_loader=DataLoader(data, batch_size=batch),
        noise_multiplier=_noise(batch / len(data), epochs * len(data) // batch),
        max_grad_norm=BOUND,
        grad_sample_mode=way,
    )
    loss_fn: Any = more[0] if way == "ghost" else criterion
    loader: Any = more[-1]

    def train() -> dict[str, float]:
        for _ in range(epochs):
            for words, classes in loader:
                optimizer.zero_grad()
                loss_fn(wrapped(words), classes).backward()
                optimizer.step()
        return {"epsilon": engine.get_epsilon(DELTA)}

    return train


def _noise(rate: float, steps: int) -> float:
    from syft.dp.accounting import noise_multiplier_for

    return noise_multiplier_for(EPSILON, DELTA, sampling_rate=rate, steps=steps, kind="pld")


def tell(contestant: str, weights: str, seed: int) -> None:
    """In a process of its own: seconds, the most memory that training takes, and how much is right after it."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model, batch, epochs = _begin(weights, seed), 64, _epochs()
    data, unseen = _private_task(_rows(), seed=100 + seed), _private_task(2048, seed=99)
    make = {"plain": _plain, "federated": _federated, "ours": _ours}.get(contestant)
    train = make(model, data, batch, epochs) if make else _opacus(model, data, batch, epochs, contestant)
    before, peak = resident(), peak_after()
    began = time.perf_counter()
    told = train()
    seconds = time.perf_counter() - began
    told |= {"seconds": seconds, "memory": float(peak() - before)}
    model.eval()
    with torch.no_grad():
        told["right"] = (model(unseen.tensors[0]).argmax(1) == unseen.tensors[1]).float().mean().item()
    print(json.dumps(told))


# -- all of them -----------------------------------------------------------------------------------------


def _one_turn(contestant: str, weights: Path, seed: int) -> dict[str, float]:
    code = f"from bench.fine_tuning import tell; tell({contestant!r}, {str(weights)!r}, {seed})"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{contestant}: {done.stderr[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@benchmark(rank=8, limit=480)
def fine_tuning() -> Iterator[Figure]:
    """Seconds and memory of the training, and how much of unseen data is right after it."""
    turns = by_mode(3, 3, 1)
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "public.safetensors"
        _learn_public_task(weights)
        told: dict[str, list[dict[str, float]]] = {each: [] for each in CONTESTANTS}
        for seed in range(turns):
            for contestant in CONTESTANTS:
                told[contestant].append(_one_turn(contestant, weights, seed))

    def of(contestant: str, what: str) -> list[float]:
        return [each[what] for each in told[contestant]]

    what = f"LoRA of a small BERT, epsilon {EPSILON:g}"
    right = {f"right, {name}": statistics.mean(of(each, "right")) for each, name in CONTESTANTS.items()} | {
        f"epsilon, {CONTESTANTS[each]}": of(each, "epsilon")[0] for each in ("ours", "hooks", "ghost")
    }
    spread = {f"lowest, {name}": min(of(each, "right")) for each, name in CONTESTANTS.items()}
    for theirs in ("plain", "hooks", "ghost"):
        ours, other = Timing.of(of("ours", "seconds")), Timing.of(of(theirs, "seconds"))
        wanted = "" if theirs == "plain" else "at most 1 times"
        met = None if theirs == "plain" else ours <= other
        yield Figure(what, ours, other, CONTESTANTS[theirs], wanted, met, details=right | spread)
    for theirs in ("plain", "hooks", "ghost"):
        mine, other = statistics.median(of("ours", "memory")), statistics.median(of(theirs, "memory"))
        wanted = "" if theirs == "plain" else "at most 1 times"
        met = None if theirs == "plain" else mine <= other
        yield Figure(f"{what}, memory", mine, other, CONTESTANTS[theirs], wanted, met, unit="B")
    for theirs in ("plain", "federated", "hooks", "ghost"):
        mine, other = statistics.mean(of("ours", "right")), statistics.mean(of(theirs, "right"))
        yield Figure(f"{what}, right of unseen", mine, other, CONTESTANTS[theirs], unit="of 1")
