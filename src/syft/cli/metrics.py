"""Numbers about a worker for Prometheus; needs the extra `metrics`."""

from __future__ import annotations

import contextlib
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
    try:
        server, _thread = prometheus_client.start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ValueError(
            f"The port {port} cannot be used for metrics: {error}. Choose another --metrics-port, or 0 for a free one."
        ) from error
    return server


@contextlib.contextmanager
def served_metrics(worker: Any, port: int | None) -> Iterator[str | None]:
    """Inside, Prometheus is answered at the address that this gives; nothing without a port."""
    if port is None:
        yield None
        return
    server = serve_metrics(worker, port)
    try:
        host, real_port = server.server_address[:2]
        yield f"http://{host}:{real_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


GAUGES = {
    "objects": "Objects in the store.",
    "bytes": "Bytes of the tensors in the store.",
    "sessions": "Sessions, connected or not.",
    "connections": "Sessions that are connected.",
    "uptime": "Seconds since the worker was started.",
}
