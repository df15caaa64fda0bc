"""The simple forms of 2020: `(number of the type, contents)`, and MessagePack bytes of them.

Nothing in this library sends them: workers speak the format of `syft.serde`. They are for programs that look at what
an object consists of. Types that Python, numpy and torch have are taken apart here; everything else is what
`syft.serde.simplify` makes of it. The numbers are counted in this process, so the bytes are for the same version only.

    proto          the number of a type
    native_serde   types of Python and numpy
    torch_serde    types of torch
    serde          any object, and bytes
"""

from syft.serde.msgpack import native_serde, proto, serde, torch_serde
from syft.serde.msgpack.proto import proto_type_info
from syft.serde.msgpack.serde import deserialize, serialize

__all__ = [
    "deserialize",
    "native_serde",
    "proto",
    "proto_type_info",
    "serde",
    "serialize",
    "torch_serde",
]
