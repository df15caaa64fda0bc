"""`NetworkMonitor`: packets on an interface, as pyshark reads them."""

from __future__ import annotations

from typing import Any

from syft.exceptions import DependencyError


def _pyshark() -> Any:
    try:
        import pyshark  # type: ignore[import-not-found]
    except ImportError:
        raise DependencyError("pyshark") from None
    return pyshark


class NetworkMonitor:
    """What goes over the wire. Needs the package pyshark, and the program tshark.

    For the bytes and rounds that a computation costs no packet has to be caught: see `plan.cost()`.
    """

    @staticmethod
    def get_packets(
        timeout: float = 50,
        interface: str | None = None,
        bpf_filter: str | None = None,
        display_filter: str = "tcp.port == 80",
        tshark_path: str | None = None,
        output_file: str | None = None,
    ) -> tuple[Any, int]:
        """Catch packets for `timeout` seconds; returns the capture and how many there are."""
        capture = _pyshark().LiveCapture(
            interface=interface,
            bpf_filter=bpf_filter,
            tshark_path=tshark_path,
            output_file=output_file,
            display_filter=display_filter,
        )
        capture.sniff(timeout=timeout)
        return capture, len(capture)

    @staticmethod
    def read_packet(index: int | None = None, capture_input: Any = None) -> Any:
        """The packet of that number in a capture, or the first."""
        if capture_input is None:
            raise ValueError(
                "read_packet() was called without capture_input=...; pass what get_packets() returned first."
            )
        return capture_input[0 if index is None else index]
