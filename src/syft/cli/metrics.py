"""Numbers about a worker for Prometheus; needs the extra `metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from syft.exceptions import DependencyError


def serve_metrics(worker: Any, port: int, host: str = "127.0.0.1") -> Any:
    """Answer Prometheus at `http://host:port/metrics`; returns the server, to be shut down."""
    try:
        import prometheus_client
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError:
        raise DependencyError("prometheus_client", "resyft[metrics]") from None

    class Collector:
        """Reads the numbers when they are asked for."""

        def collect(self) -> Iterator[Any]:
            said = worker.status()
            for name, text in GAUGES.items():
                if name in said:
                    yield GaugeMetricFamily(f"syft_{name}", text, value=float(said[name]))
            commands = CounterMetricFamily("syft_commands", "Commands executed.")
            commands.add_metric([], float(said["commands"]))
            yield commands
            refusals = CounterMetricFamily(
                "syft_decisions", "Decisions in the audit log.", labels=["granted"]
            )
            for granted, count in worker.decisions().items():
                refusals.add_metric([str(granted).lower()], float(count))
            yield refusals

    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector())
    server, _thread = prometheus_client.start_http_server(port, addr=host, registry=registry)
    return server


GAUGES = {
    "objects": "Objects in the store.",
    "bytes": "Bytes of the tensors in the store.",
    "sessions": "Sessions, connected or not.",
    "connections": "Sessions that are connected.",
    "uptime": "Seconds since the worker was started.",
}
