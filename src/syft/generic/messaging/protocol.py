"""The historical path of protocols; they live in `syft.execution`."""

from syft.execution.protocol import Protocol

__all__ = ["Protocol"]
