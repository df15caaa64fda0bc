"""SPU, SEMI2K over a ring of 64 bits: two parties, each in a process, over its own links. Runs in the environment `spu`.

    python -m bench.peers.spu_parties SEMI2K [tiny]

Correlations come from a first party that is trusted with them (its default), so no third process takes part. A program is
compiled once, and not while it is timed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.peer import answer_jobs
from bench.peers.sizes import POSITIVE, size_of

PARTIES = 2


def prepared(case: str, is_tiny: bool) -> tuple[Callable[..., Any], list[Any]]:
    """A function of jax, and its arguments in plain."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    size, random = size_of(case, is_tiny), np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    if case in ("lt_1e6", "relu_1e6", "mul_1e6") or case.endswith("_1e5"):
        x = normal(size) if case not in POSITIVE else (random.random(size) * 99.9 + 0.1).astype(np.float32)
        functions: dict[str, Callable[..., Any]] = {
            "lt": lambda a, b: a < 0,
            "relu": lambda a, b: jnp.maximum(a, 0),
            "mul": lambda a, b: a * b,
            "exp": lambda a, b: jnp.exp(a),
            "sigmoid": lambda a, b: jax.nn.sigmoid(a),
            "tanh": lambda a, b: jnp.tanh(a),
            "reciprocal": lambda a, b: 1 / a,
            "sqrt": lambda a, b: jnp.sqrt(a),
            "log": lambda a, b: jnp.log(a),
        }
        return functions[case.rpartition("_")[0]], [x, normal(size)]
    if case.startswith("matmul"):
        return lambda a, b: a @ b, [normal(size, size), normal(size, size)]
    if case == "softmax":
        return lambda a: jax.nn.softmax(a, axis=1), [normal(size, 10)]
    if case == "max_pool":
        return _pool, [normal(1, 16, size, size)]
    if case == "conv":
        return lambda a, w: _conv(a, w, "SAME"), [normal(1, 64, size, size), normal(64, 64, 3, 3) / 24]
    if case == "mlp_128":
        return _mlp, [normal(size, 784), *_layers(normal, 784, 128, 128, 10)]
    if case.startswith("cnn"):
        filters = [
            normal(20, 1, 5, 5) / 5,
            normal(1, 20, 1, 1),
            normal(50, 20, 5, 5) / 22,
            normal(1, 50, 1, 1),
        ]
        return _cnn, [normal(size, 1, 28, 28), *filters, *_layers(normal, 800, 500, 10)]
    target = np.eye(10, dtype=np.float32)[random.integers(0, 10, size)]
    weights = _layers(normal, 784, 128, 10)
    loss_of = _squares if case == "sgd_mse" else _entropy

    def step(data: Any, wanted: Any, *held: Any) -> Any:
        slopes = jax.grad(lambda *now: loss_of(_mlp(data, *now), wanted), argnums=range(len(held)))(*held)
        return [value - 0.05 * slope for value, slope in zip(held, slopes, strict=True)]

    return step, [normal(size, 784), target, *weights]


def _layers(normal: Any, *sizes: int) -> list[Any]:
    found = []
    for before, after in itertools.pairwise(sizes):
        found += [normal(before, after) / before**0.5, normal(after)]
    return found


def _mlp(x: Any, *held: Any) -> Any:
    import jax.numpy as jnp

    for index in range(0, len(held), 2):
        x = x @ held[index] + held[index + 1]
        if index + 2 < len(held):
            x = jnp.maximum(x, 0)
    return x


def _conv(x: Any, weight: Any, padding: str) -> Any:
    import jax

    return jax.lax.conv_general_dilated(x, weight, (1, 1), padding)


def _pool(x: Any) -> Any:
    import jax

    return jax.lax.reduce_window(x, -jax.numpy.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def _cnn(x: Any, first: Any, first_bias: Any, second: Any, second_bias: Any, *rest: Any) -> Any:
    import jax.numpy as jnp

    x = _pool(jnp.maximum(_conv(x, first, "VALID") + first_bias, 0))
    x = _pool(jnp.maximum(_conv(x, second, "VALID") + second_bias, 0))
    return _mlp(x.reshape(x.shape[0], -1), *rest)


def _squares(out: Any, wanted: Any) -> Any:
    return ((out - wanted) ** 2).mean()


def _entropy(out: Any, wanted: Any) -> Any:
    import jax

    return -(jax.nn.log_softmax(out) * wanted).sum(1).mean()


def _configured(libspu: Any) -> Any:
    config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.SEMI2K, field=libspu.FieldType.FM64)
    config.max_concurrency = 1
    return config


def _compiled(case: str, is_tiny: bool) -> Any:
    from spu import libspu  # type: ignore[import-not-found, unused-ignore]
    from spu.utils import frontend  # type: ignore[import-not-found, unused-ignore]

    function, values = prepared(case, is_tiny)
    names = [f"in{index}" for index in range(len(values))]
    secret = [libspu.Visibility.VIS_SECRET] * len(values)

    def outputs(flat: list[Any]) -> list[str]:
        return [f"out{index}" for index in range(len(flat))]

    return frontend.compile(frontend.Kind.JAX, function, values, {}, names, secret, outputs)[0]


def party(rank: int, ports: list[int], pipe: Any, is_tiny: bool) -> None:
    import spu  # type: ignore[import-not-found, unused-ignore]
    from spu import libspu

    desc = libspu.link.Desc()
    for number, port in enumerate(ports):
        desc.add_party(f"party{number}", f"127.0.0.1:{port}")
    runtime = spu.Runtime(libspu.link.create_brpc(desc, rank), _configured(libspu))
    program: Any = None
    pipe.send({"ready": True})
    while True:
        what, *more = pipe.recv()
        try:
            if what == "prepare":
                program = _compiled(more[0], is_tiny)
                for name, share in zip(program.input_names, more[1], strict=True):
                    runtime.set_var(name, share)
                pipe.send({})
            elif what == "result":
                pipe.send({"shares": [runtime.get_var(name) for name in program.output_names]})
            else:
                began = time.perf_counter()
                for _ in range(more[0]):
                    runtime.run(program)
                pipe.send({"seconds": (time.perf_counter() - began) / more[0]})
        except Exception as failure:  # noqa: BLE001  (the other cases are still wanted)
            pipe.send({"failed": f"{type(failure).__name__}: {failure}"[:300]})


class Parties:
    """Both processes, as this one sees them."""

    def __init__(self, is_tiny: bool) -> None:
        import spu
        from spu import libspu

        self._is_tiny = is_tiny
        self._io, self._secret = spu.Io(PARTIES, _configured(libspu)), libspu.Visibility.VIS_SECRET
        self._job, self._expected = "", []
        ports = _free_ports()
        self._pipes = []
        context = multiprocessing.get_context("spawn")
        for rank in range(PARTIES):
            ours, theirs = context.Pipe()
            context.Process(target=party, args=(rank, ports, theirs, is_tiny), daemon=True).start()
            self._pipes.append(ours)
        for pipe in self._pipes:
            pipe.recv()

    def _ask(self, each: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
        for pipe, message in zip(self._pipes, each, strict=True):
            pipe.send(message)
        found = [pipe.recv() for pipe in self._pipes]
        for one in found:
            if "failed" in one:
                raise RuntimeError(one["failed"])
        return found

    def answer(self, job: str, calls: int) -> dict[str, Any]:
        import jax
        import numpy as np

        if job != self._job:
            function, values = prepared(job, self._is_tiny)
            shares = [self._io.make_shares(np.asarray(value), self._secret) for value in values]
            self._ask([("prepare", job, [one[rank] for one in shares]) for rank in range(PARTIES)])
            self._job = job
            self._expected = [
                np.asarray(one) for one in jax.tree_util.tree_leaves(jax.jit(function)(*values))
            ]
        ran = self._ask([("run", max(1, calls))] * PARTIES)
        if calls:
            return {"seconds": max(one["seconds"] for one in ran)}
        held = [one["shares"] for one in self._ask([("result",)] * PARTIES)]
        opened = [self._io.reconstruct(list(pair)) for pair in zip(*held, strict=True)]
        errors = [abs(a.astype(float) - b).max() for a, b in zip(opened, self._expected, strict=True)]
        return {"error": float(max(errors))}


def _free_ports() -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(PARTIES)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


if __name__ == "__main__":
    parties = Parties("tiny" in sys.argv[2:])
    answer_jobs(parties.answer)
