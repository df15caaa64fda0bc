"""Bytes from objects and back, without pickle: one registry, one format.

Modules, in the order they import each other:

    errors, limits   what is raised, what a frame may ask for
    codec_tables     type <-> code, and the functions between them: the tables
    writer, reader   object <-> simple form
    simple_form      `simplify`, `detail`
    class_methods    `simplify` and `detail` of the classes themselves
    registry         fills the tables: `register`
    compression      none, lz4, zstd, per buffer
    wire             simple form and buffers <-> a frame
    ..._types        how each type travels
    codec            `serialize`, `deserialize`
    serde            `serialize` and `deserialize` with the options of 2020
    byte_methods     `bufferize` and `unbufferize` of classes
    message_methods  `bufferize` and its like as methods of messages
    lone_frames      one message in a form of its own
    batch            many objects in one frame
    at_rest          `save` and `load`: tagged tensors in safetensors files
    msgpack, protobuf   the simple forms and the function names of 2020; nothing sends them
"""

from syft.core.lazy import submodules_on_demand as _on_demand
from syft.serde import message_methods as message_methods
from syft.serde.at_rest import load, save
from syft.serde.batch import BatchWriter, deserialize_batch
from syft.serde.byte_methods import add_byte_methods
from syft.serde.chain_types import register_chain
from syft.serde.codec import detail, serialize_frames, simplify
from syft.serde.compression import available_compressions, choose_compression, compression_at_hand
from syft.serde.error_types import register_exception
from syft.serde.errors import SerdeError, UnknownWorkerError, UnserializableError
from syft.serde.limits import Limits
from syft.serde.reader import resolve_worker
from syft.serde.registry import is_registered, register, register_record
from syft.serde.serde import deserialize, serialize
from syft.serde.torch_types import mark_incompressible
from syft.serde.workers import register_workers

__getattr__ = _on_demand("syft.serde")

__all__ = [
    "BatchWriter",
    "Limits",
    "SerdeError",
    "UnknownWorkerError",
    "UnserializableError",
    "add_byte_methods",
    "available_compressions",
    "choose_compression",
    "compression_at_hand",
    "deserialize",
    "deserialize_batch",
    "detail",
    "is_registered",
    "load",
    "mark_incompressible",
    "register",
    "register_chain",
    "register_exception",
    "register_record",
    "register_workers",
    "resolve_worker",
    "save",
    "serialize",
    "serialize_frames",
    "simplify",
]
