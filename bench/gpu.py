"""Secrets on a GPU: kernels, functions and whole models, with secret weights and secret input, both parties on one card.

    python -m bench.gpu [kernels] [functions] [training] [bert_training] [models [NAME...]] [--json FILE]

Holders and provider are in one process here; `bench.gpu_network` has them in processes of their own.

Every figure is the median of five after warm-up, with the device synchronised. "online" is the time of the parties with
correlations that were dealt ahead of time, "offline" the time that the provider takes to deal them, on the same card.
"error" is the largest difference from plain torch, in float32 on the same card, over values of size about 1. "LAN" is
what the counted rounds and bytes would add on a network of 10 Gbit/s and 0.5 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import syft as sy
from syft.mpc import kernels
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.protocols import select
from syft.mpc.provider import Provider
from syft.mpc.randomness import Stream

CUDA = torch.device("cuda")
REPEATS = 5
ROWS: list[dict[str, Any]] = []


def seconds(run: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def median(run: Callable[[], Any]) -> float:
    run()
    return statistics.median(seconds(run) for _ in range(REPEATS))


def report(name: str, **figures: Any) -> None:
    ROWS.append({"name": name, **figures})
    shown = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items())
    print(f"{name}: {shown}", flush=True)


def attempt(name: str, run: Callable[[], Any]) -> None:
    try:
        run()
    except Exception as error:  # noqa: BLE001  (the other rows are still wanted)
        where = "".join(traceback.format_tb(error.__traceback__)[-3:])
        report(name, failed=f"{type(error).__name__}: {str(error)[:300]}")
        print(where, flush=True)
    torch.cuda.empty_cache()


def random_words(*shape: int) -> torch.Tensor:
    return Stream().wide_words(shape, CUDA)


# -- kernels -------------------------------------------------------------------------------------------


def bench_kernels() -> None:
    for size in (1024, 2048, 4096, 8192):
        x, y = random_words(size, size), random_words(size, size)
        took = median(lambda x=x, y=y: kernels.matmul(x, y))
        right = torch.equal(kernels.matmul(x[:4], y).cpu(), x[:4].cpu() @ y.cpu())
        report(f"ring matmul {size}", ms=took * 1e3, Tops=2 * size**3 / took / 1e12, exact=right)
    for count in (10**6, 10**8):
        took = median(lambda count=count: random_words(count))
        report(f"ChaCha20 {count} words", ms=took * 1e3, TB_per_s=8 * count / took / 1e12)


def bench_functions() -> None:
    for count in (10**4, 10**6, 10**7, 10**8):
        attempt(f"x < 0, {count}", lambda count=count: _signs(count))
    for count in (10**4, 10**6, 10**7):
        attempt(f"x < 0 by function secret sharing, {count}", lambda count=count: _signs(count, "fss"))
    for size in (1024, 4096):
        attempt(f"secret matmul {size}", lambda size=size: _product(size))


def _product(size: int) -> None:
    x, y = secret(torch.randn(size, size, device=CUDA)), secret(torch.randn(size, size, device=CUDA))
    timed_apart(f"secret matmul {size}", lambda: x @ y, None)


def _signs(count: int, how: Any = None) -> None:
    kwargs = {} if how is None else {"how": how}
    driver = Lockstep(2, Provider(2))
    value = random_words(count)
    mask = random_words(count)
    shares = Shares((mask, value - mask))
    noted = noting(driver.provider)
    result = driver.run(select.is_negative, shares, **kwargs)
    rounds, sent = driver.cost.rounds, max(driver.cost.bytes_sent)
    right = bool(((result[0] + result[1]) == (value < 0)).all())
    kinds = list(noted)
    del result
    offline, online = [], []
    for _ in range(REPEATS):
        offline.append(seconds(lambda: driver.provider.provide(*kinds, device=shares[0].device)))
        online.append(seconds(lambda: driver.run(select.is_negative, shares, **kwargs)))
    report(
        f"x < 0, {count}" if how is None else f"x < 0 by function secret sharing, {count}",
        online_ms=statistics.median(online) * 1e3,
        offline_ms=statistics.median(offline) * 1e3,
        exact=right,
        rounds=rounds,
        MB=sent / 1e6,
        MB_by_the_provider=driver.provider.cost.bytes / driver.provider.cost.correlations / 1e6,
    )


# -- models --------------------------------------------------------------------------------------------

hook: Any = None
alice: Any = None
bob: Any = None
carol: Any = None
PRECISION = {"base": 2, "precision_fractional": 16}


def start() -> None:
    global hook, alice, bob, carol
    if hook is None:
        hook = sy.TorchHook(torch)
        alice, bob, carol = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "carol"))


def secret(value: Any) -> Any:
    start()
    return value.fix_precision(**PRECISION).share(alice, bob, crypto_provider=carol)


def noting(provider: Provider) -> list[Any]:
    """The kinds that the provider makes from now on."""
    noted: list[Any] = []
    make = type(provider).make

    def noting_make(kind: Any, place: Any, also: Any = None, device: Any = None) -> Any:
        noted.append(kind)
        return make(provider, kind, place, also, device)

    provider.make = noting_make  # type: ignore[method-assign]
    return noted


def timed_apart(name: str, run: Callable[[], Any], expected: Any) -> None:
    """Report online and offline time, rounds, bytes and error of something with secrets."""
    from syft.mpc.group import Group

    group = Group.of([alice, bob], carol)
    provider = group.driver.provider
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        first = seconds(run)
        noted = noting(provider)
        run()
        del noted[:]
        group.reset_costs()
        result = run()
        rounds, sent = group.online.rounds, sum(group.online.bytes_sent)
        error = None if expected is None else float((opened(result) - expected).abs().max())
        del result
        kinds = list(noted)
        together = median(run)
        device = torch.device("cuda", torch.cuda.current_device())
        offline, online = [], []
        for _ in range(REPEATS):
            offline.append(seconds(lambda: provider.provide(*kinds, device=device)))
            online.append(seconds(run))
    del provider.make
    lan = rounds * 0.5e-3 + sent * 8 / 2 / 10e9
    report(
        name,
        online_ms=statistics.median(online) * 1e3,
        offline_ms=statistics.median(offline) * 1e3,
        together_ms=together * 1e3,
        first_ms=first * 1e3,
        rounds=rounds,
        MB=sent / 1e6,
        LAN_adds_ms=lan * 1e3,
        error=error,
        GB=torch.cuda.max_memory_allocated() / 1e9,
    )


def timed_recorded(
    name: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], expected: Any
) -> None:
    """The same for a model, as a recording and call by call."""
    from syft.mpc.group import Group
    from syft.mpc.recording import record

    group = Group.of([alice, bob], carol)
    with torch.no_grad():
        first = seconds(lambda: model(*args, **kwargs))
        model(*args, **kwargs)
        by_call = statistics.median(seconds(lambda: model(*args, **kwargs)) for _ in range(3))
        started = time.perf_counter()
        torch.cuda.reset_peak_memory_stats()
        fast = record(model, *args, **kwargs)
        recording = time.perf_counter() - started
        group.reset_costs()
        error = float((opened(fast(*args, **kwargs)) - expected).abs().max())
        rounds, sent = group.online.rounds, sum(group.online.bytes_sent)
        offline, online = [], []
        for _ in range(REPEATS):
            offline.append(seconds(fast.provide))
            online.append(seconds(lambda: fast(*args, **kwargs)))
    report(
        name,
        online_ms=statistics.median(online) * 1e3,
        offline_ms=statistics.median(offline) * 1e3,
        call_by_call_ms=by_call * 1e3,
        first_ms=first * 1e3,
        recording_ms=recording * 1e3,
        rounds=rounds,
        MB=sent / 1e6,
        LAN_adds_ms=(rounds * 0.5e-3 + sent * 8 / 2 / 10e9) * 1e3,
        error=error,
        GB=torch.cuda.max_memory_allocated() / 1e9,
    )


def opened(result: Any) -> torch.Tensor:
    value = result[0] if isinstance(result, tuple) else getattr(result, "last_hidden_state", result)
    return value.copy().get().float_precision()


def vision(name: str, batch: int = 1) -> None:
    import torchvision

    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).eval().to(CUDA)
    x = torch.randn(batch, 3, 224, 224, device=CUDA)
    with torch.no_grad():
        expected = model(x)
        scale = float(expected.abs().max())
    hidden, shared = secret(x), secret(model)
    title = f"{name} 224x224, batch {batch} (outputs up to {scale:.3g})"
    timed_recorded(title, shared, (hidden,), {}, expected)


def language(name: str) -> None:
    import transformers as T

    made = {
        "BERT-base, 128 tokens": lambda: T.BertModel(T.BertConfig(), add_pooling_layer=False),
        "GPT-2 124M, 128 tokens": lambda: T.GPT2Model(T.GPT2Config(use_cache=False)),
        "Llama-shaped 1.3B, 128 tokens": lambda: T.LlamaModel(
            T.LlamaConfig(
                hidden_size=2048,
                intermediate_size=5504,
                num_hidden_layers=24,
                num_attention_heads=16,
                vocab_size=32000,
                use_cache=False,
            )
        ),
    }[name]
    torch.manual_seed(0)
    model = made().eval().to(CUDA)
    x = torch.randn(1, 128, model.config.hidden_size, device=CUDA) * 0.5
    with torch.no_grad():
        expected = model(inputs_embeds=x).last_hidden_state
    hidden, shared = secret(x), secret(model)
    timed_recorded(name, shared, (), {"inputs_embeds": hidden}, expected)


def bench_models(names: list[str]) -> None:
    wanted: dict[str, Callable[[], None]] = {
        "resnet18": lambda: vision("resnet18"),
        "bert": lambda: language("BERT-base, 128 tokens"),
        "gpt2": lambda: language("GPT-2 124M, 128 tokens"),
        "resnet50": lambda: vision("resnet50"),
        "vgg16": lambda: vision("vgg16"),
        "llama": lambda: language("Llama-shaped 1.3B, 128 tokens"),
        "resnet18x32": lambda: vision("resnet18", 32),
    }
    for name in names or list(wanted):
        start()
        attempt(name, wanted[name])


def bench_training() -> None:
    start()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(2),
        torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 8 * 8, 10),
    ).to(CUDA)  # fmt: skip
    x, y = (
        torch.randn(128, 3, 32, 32, device=CUDA),
        F.one_hot(torch.arange(128, device=CUDA) % 10, 10).float(),
    )
    hidden, labels, shared = secret(x), secret(y), secret(model)
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.05).fix_precision()

    def step() -> None:
        optimizer.zero_grad()
        loss = ((shared(hidden) - labels) ** 2).sum() / 128
        loss.backward()
        optimizer.step()

    took = median(step)
    report("CNN training step, CIFAR shape, batch 128", ms=took * 1e3, epoch_of_50000_s=took * 391)


class LastLayers(torch.nn.Module):
    """The last layers of a BERT with a classifier: what is trained when the layers below are kept as they are."""

    def __init__(self, layers: int, **options: Any) -> None:
        super().__init__()
        import transformers as T

        config = T.BertConfig(num_hidden_layers=layers, **options)
        self.encoder = T.BertModel(config, add_pooling_layer=False).encoder
        self.classifier = torch.nn.Linear(config.hidden_size, 2)

    def forward(self, hidden: Any) -> Any:
        return self.classifier(self.encoder(hidden).last_hidden_state[:, 0])


def bert_step(layers: int, batch: int, tokens: int, device: torch.device, **options: Any) -> Any:
    """A step of SGD on secrets as a function, and one that says how far the parameters are from plain training."""
    torch.manual_seed(0)
    plain = LastLayers(layers, **options).eval().to(device)
    model = LastLayers(layers, **options).eval().to(device)
    model.load_state_dict(plain.state_dict())
    x = torch.randn(batch, tokens, plain.classifier.in_features, device=device) * 0.5
    y = F.one_hot(torch.arange(batch, device=device) % 2, 2).float()
    hidden, labels = secret(x), secret(y)
    secret(model)
    steps = torch.optim.SGD(plain.parameters(), lr=0.001), torch.optim.SGD(model.parameters(), lr=0.001)
    done = 0

    def step(of: Any, given: Any, target: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        (((of(given) - target) ** 2).sum() / batch).backward()
        optimizer.step()

    def secret_step() -> None:
        nonlocal done
        done += 1
        step(model, hidden, labels, steps[1])

    def error() -> float:
        for _ in range(done):
            step(plain, x, y, steps[0])
        found = [p.copy().get().float_precision() for p in model.parameters()]
        return max(
            float((a.detach() - b.detach()).abs().max())
            for a, b in zip(found, plain.parameters(), strict=True)
        )

    return secret_step, error


def bench_bert_training(layers: int = 2, batch: int = 8) -> None:
    from syft.mpc.group import Group

    start()
    step, error = bert_step(layers, batch, 128, CUDA)
    step()
    group = Group.of([alice, bob], carol)
    group.reset_costs()
    torch.cuda.reset_peak_memory_stats()
    step()
    rounds, sent = group.online.rounds, sum(group.online.bytes_sent)
    took = statistics.median(seconds(step) for _ in range(3))
    report(
        f"a training step of the last {layers} layers of BERT-base, {batch} texts of 128 tokens",
        ms=took * 1e3,
        rounds=rounds,
        MB=sent / 1e6,
        LAN_adds_ms=(rounds * 0.5e-3 + sent * 8 / 2 / 10e9) * 1e3,
        error_of_weights_after_5_steps=error(),
        GB=torch.cuda.max_memory_allocated() / 1e9,
    )


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "areas",
        nargs="*",
        help="kernels, functions, training, bert_training, models; names of models after it",
    )
    parser.add_argument("--json", help="where to write the figures")
    given = parser.parse_args(argv)
    areas = given.areas or ["kernels", "functions", "training", "bert_training", "models"]
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for area, bench in (
        ("kernels", bench_kernels),
        ("functions", bench_functions),
        ("training", bench_training),
        ("bert_training", bench_bert_training),
    ):
        if area in areas:
            attempt(area, bench)
    if "models" in areas:
        bench_models(areas[areas.index("models") + 1 :])
    if given.json:
        with open(given.json, "w") as file:
            json.dump(ROWS, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
