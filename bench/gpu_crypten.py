"""CrypTen on the same card, for a ratio in one run with `bench.gpu_network`: two processes, weights and input secret.

    python -m bench.gpu_crypten [--device cuda:0] [--provider TFP] [--small] [--json FILE]

CrypTen 0.4.1 is pure Python and is carried along (`pip install --no-deps crypten omegaconf`, and onnx). Its two processes
speak by gloo on the loopback interface. `TFP` is its default, whose first party makes all correlations and so sees
everything; `TTP` has a third process that deals, as ours has. Dealing happens while they compute, so these
figures are of both phases together: compare them with "together" of ours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import torch

REPEATS = 3


def import_crypten() -> Any:
    """CrypTen, which imports a module of torch's ONNX exporter that is gone; it is needed by its converter alone."""
    name = "torch.onnx._internal.registration"
    try:
        __import__(name)
    except ImportError:
        stand_in = types.ModuleType(name)
        stand_in.registry = None  # type: ignore[attr-defined]
        sys.modules[name] = stand_in
    import crypten  # type: ignore[import-not-found, unused-ignore]
    import crypten.mpc  # type: ignore[import-not-found, unused-ignore]

    return crypten


def encrypted_resnet(crypten: Any, model: Any, device: str) -> Callable[[Any], Any]:
    """torchvision's ResNet (eval mode) with every weight secret, layer by layer as its `forward` says."""

    def secret(value: torch.Tensor) -> Any:
        return crypten.cryptensor(value.detach().to(device))

    def convolution(layer: Any) -> Callable[[Any], Any]:
        weight = secret(layer.weight)
        return lambda x: x.conv2d(weight, stride=layer.stride, padding=layer.padding)

    def norm(layer: Any) -> Callable[[Any], Any]:
        # BatchNorm in eval is a product and a sum; both are computed in plain before they are encrypted.
        factor = layer.weight / (layer.running_var + layer.eps).sqrt()
        scale, shift = (
            secret(factor[:, None, None]),
            secret((layer.bias - layer.running_mean * factor)[:, None, None]),
        )
        return lambda x: x * scale + shift

    def block(layer: Any) -> Callable[[Any], Any]:
        first, second = convolution(layer.conv1), convolution(layer.conv2)
        norm1, norm2 = norm(layer.bn1), norm(layer.bn2)
        down = None
        if layer.downsample is not None:
            conv, bn = convolution(layer.downsample[0]), norm(layer.downsample[1])
            down = lambda x: bn(conv(x))  # noqa: E731

        def run(x: Any) -> Any:
            inner = norm2(second(norm1(first(x)).relu()))
            return (inner + (x if down is None else down(x))).relu()

        return run

    head, bn = convolution(model.conv1), norm(model.bn1)
    blocks = [block(one) for part in (model.layer1, model.layer2, model.layer3, model.layer4) for one in part]
    weight, bias = secret(model.fc.weight), secret(model.fc.bias)

    def forward(x: Any) -> Any:
        x = bn(head(x)).relu().max_pool2d(3, stride=2, padding=1)
        for one in blocks:
            x = one(x)
        return x.mean((2, 3)).matmul(weight.t()) + bias

    return forward


def cases(
    crypten: Any, device: str, is_small: bool
) -> dict[str, Callable[[], tuple[Callable[[], Any], torch.Tensor]]]:
    """name -> what is timed, and what plain torch says; made one after the other, for the card's memory."""

    def secret(value: torch.Tensor) -> Any:
        return crypten.cryptensor(value.to(device))

    def product(size: int) -> Any:
        x, y = torch.randn(size, size), torch.randn(size, size)
        a, b = secret(x), secret(y)
        return lambda: a.matmul(b), x @ y

    def relu(count: int) -> Any:
        x = torch.randn(count)
        a = secret(x)
        return lambda: a.relu(), x.relu()

    def softmax() -> Any:
        x = torch.randn(12, 128, 128)
        a = secret(x)
        return lambda: a.softmax(-1), x.softmax(-1)

    def resnet() -> Any:
        import torchvision  # type: ignore[import-not-found, import-untyped, unused-ignore]

        model, x = torchvision.models.resnet18(weights=None).eval(), torch.randn(1, 3, 224, 224)
        with torch.no_grad():
            expected = model(x)
        forward, a = encrypted_resnet(crypten, model, device), secret(x)
        return lambda: forward(a), expected

    if is_small:
        return {"matmul 64": lambda: product(64), "relu 1000": lambda: relu(1000)}
    return {
        "matmul 1024": lambda: product(1024),
        "matmul 4096": lambda: product(4096),
        "relu 1e6": lambda: relu(10**6),
        "relu 1e7": lambda: relu(10**7),
        "softmax 12x128x128": softmax,
        "ResNet-18, 224x224, batch 1": resnet,
    }


def party(device: str, provider: str, is_small: bool, file: str | None) -> list[dict[str, Any]]:
    crypten = import_crypten()
    torch.set_num_threads(2)
    rows = []
    with crypten.cfg.temp_override({"mpc.provider": provider}):
        for name, make in cases(crypten, device, is_small).items():
            torch.manual_seed(0)
            row: dict[str, Any] = {"name": f"CrypTen {provider}: {name}, two processes, on {device}"}
            try:
                run, expected = make()
                error = (run().get_plain_text().cpu() - expected).abs().max()
                times = []
                for _ in range(REPEATS):
                    started = time.perf_counter()
                    result = run()
                    if device != "cpu":
                        torch.cuda.synchronize()
                    times.append(time.perf_counter() - started)
                    del result
                row |= {"ms": statistics.median(times) * 1e3, "error": float(error), "repeats": REPEATS}
            except Exception as failure:  # noqa: BLE001  (the other rows are still wanted)
                row["failed"] = f"{type(failure).__name__}: {str(failure)[:300]}"
            if crypten.comm.get().get_rank() == 0:
                print(json.dumps(row), flush=True)
            rows.append(row)
            if file and crypten.comm.get().get_rank() == 0:
                with open(file, "w") as out:
                    json.dump(rows, out, indent=1)
    return rows


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--provider", default="TFP", choices=["TFP", "TTP"])
    parser.add_argument("--small", action="store_true", help="sizes for a look on the CPU")
    parser.add_argument("--json", help="where to write the figures, after every row")
    given = parser.parse_args(argv)
    crypten = import_crypten()
    crypten.cfg.mpc.provider = given.provider
    # NB: CrypTen forks its parties; nothing has opened the card before.
    run = crypten.mpc.run_multiprocess(world_size=2)(party)
    rows = run(given.device, given.provider, given.small, given.json)
    return int(not rows or any("failed" in row for row in rows[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
