"""What serialising and deserialising raise.

SerdeError (SyftError, ValueError)              bytes that are no frame of ours, or not a permitted one
├── UnserializableError (TypeError)             an object that has no codec, or cannot travel as it is
└── UnknownWorkerError (WorkerNotFoundException) a frame names a worker that the receiver does not know
"""

from __future__ import annotations

from syft.exceptions import SyftError, WorkerNotFoundException


class SerdeError(SyftError, ValueError):
    """Bytes that cannot be decoded, or an object that cannot be encoded."""


class UnserializableError(SerdeError, TypeError):
    """An object that cannot be serialised."""


class UnknownWorkerError(SerdeError, WorkerNotFoundException):
    """A frame names a worker that the worker which decodes it does not know."""
