"""The historical path of the states of plans; they live in `syft.execution`."""

from syft.execution.state import State

__all__ = ["State"]
