"""Serialisation against a memcpy, and of the messages that stream between workers."""

from __future__ import annotations

import torch

from bench.harness import Figure, benchmark, beside, side_by_side


@benchmark(rows=("serialize", "deserialize"), rank=3)
def serde_million_floats() -> list[Figure]:
    from syft import serde

    x, warm = torch.randn(1_000_000), torch.empty(1_000_000)
    data = serde.serialize(x)
    received = bytearray(data)
    memcpy, clone, out, pieces, copied, over = side_by_side(
        lambda: warm.copy_(x),
        lambda: x.clone(),
        lambda: serde.serialize(x),
        lambda: serde.serialize_frames(x),
        lambda: serde.deserialize(data),
        lambda: serde.deserialize(received),
    )
    return [
        beside("serialize", out, {"memcpy": memcpy}),
        beside("deserialize", copied, {"memcpy": memcpy}),
        Figure("serialize, 1e6 floats", out, clone, "one clone (fresh memory)", "", None),
        Figure("serialize, 1e6 floats, as frames (no copy)", pieces, memcpy, "one memcpy"),
        Figure("deserialize, 1e6 floats, bytearray (no copy)", over, memcpy, "one memcpy"),
    ]


@benchmark
def serde_messages() -> list[Figure]:
    from syft import serde
    from syft.messaging.message import ObjectMessage, Operation, Ref

    command = Operation("aten.add.Tensor", None, [Ref(2**59 + 1), Ref(2**59 + 2)], {}, (2**59 + 3,))
    small = ObjectMessage(torch.randn(10), 2**59)
    figures = []
    for name, message in (("an Operation", command), ("a tensor of 10 floats", small)):
        data = serde.serialize(message)
        out, back = side_by_side(lambda m=message: serde.serialize(m), lambda d=data: serde.deserialize(d))  # type: ignore[misc]
        figures += [
            Figure(f"serialize {name}", out, None, "", "", None),
            Figure(f"deserialize {name}", back, None, "", "", None),
        ]
    return figures


@benchmark
def serde_compression() -> list[Figure]:
    from syft import serde

    images = (torch.rand(256, 784) * 4).floor().clamp_(0, 1)
    figures = []
    for scheme in serde.available_compressions():
        data = serde.serialize(images, compression=scheme)
        plain, out, back = side_by_side(
            lambda: serde.serialize(images),
            lambda s=scheme: serde.serialize(images, compression=s),  # type: ignore[misc]
            lambda d=data: serde.deserialize(d),  # type: ignore[misc]
            rounds=7,
        )
        share = len(data) / images.nbytes
        figures += [
            Figure(f"{scheme}: 800 KB of images to {share:.0%}", out, plain, "no compression", "", None),
            Figure("  and back", back, plain, "no compression", "", None),
        ]
    return figures
