"""Alias of syft.execution.pointer_protocol."""

from syft.execution.pointer_protocol import PointerProtocol as PointerProtocol
