"""Where clients run: one engine per file, one registry.

    base      Task, Outcome, the protocol, the registry
    serial    one after the other, in the calling thread
    threads   side by side in this process
    parcels   what goes to a client in another process, and what comes back
    ray       in a pool of Ray actors

NOTE [Another engine]
An engine is one more file: a class with `run`, registered under its name. It gets tasks whose
`instructions` travel (`syft.serde.serialize`), and yields one `Outcome` for each as they finish: what the client
returned, or a `ClientFailure`. It yields a failure for a client that is not done `deadline` seconds after it
began, and nothing for it afterwards. The round checks what comes; an engine does not. One that also has `stream` can
run asynchronous rounds.
"""

from syft.federated.engines.base import (
    ENGINES,
    Engine,
    Outcome,
    StreamingEngine,
    Task,
    TaskStream,
    make_engine,
    register_engine,
)
from syft.federated.engines.ray import RayEngine, RayEngineError
from syft.federated.engines.serial import SerialEngine
from syft.federated.engines.threads import ThreadEngine

__all__ = [
    "ENGINES",
    "Engine",
    "Outcome",
    "RayEngine",
    "RayEngineError",
    "SerialEngine",
    "StreamingEngine",
    "Task",
    "TaskStream",
    "ThreadEngine",
    "make_engine",
    "register_engine",
]
