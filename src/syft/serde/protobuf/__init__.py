"""The names of 2020 for bytes that other languages were to read.

Plans become Protocol Buffers (`Plan.bufferize`, see syft.execution.protobuf). For everything else these functions are
`syft.serde.serialize` and `syft.serde.deserialize` by another name.
"""

from syft.serde.protobuf import native_serde, proto, serde, torch_serde
from syft.serde.protobuf.serde import deserialize, serialize

__all__ = ["deserialize", "native_serde", "proto", "serde", "serialize", "torch_serde"]
