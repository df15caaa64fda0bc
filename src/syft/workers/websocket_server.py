"""`WebsocketServerWorker`: the documented way to let others reach a worker."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from syft.workers.network.server_worker import NetworkServerWorker
from syft.workers.websocket_client import _in_url


class WebsocketServerWorker(NetworkServerWorker):
    """Listens at `ws://host:port`, or at `wss://host:port` if it is given a certificate and its key.

    `start()` serves until it is stopped; `start(block=False)` serves in threads and returns. Port 0 takes a free one,
    which `port` tells afterwards. All other options are those of `NetworkServerWorker`.
    """

    def __init__(
        self,
        hook: Any = None,
        host: str = "127.0.0.1",
        port: int = 8777,
        id: Any = 0,
        log_msgs: bool = False,
        verbose: bool = False,
        data: Iterable[Any] | None = None,
        cert_path: str | Path | None = None,
        key_path: str | Path | None = None,
        loop: Any = None,
        **options: Any,
    ) -> None:
        if loop is not None:
            warnings.warn(
                "WebsocketServerWorker(loop=...) is ignored: the worker serves in threads. Leave it out.",
                stacklevel=2,
            )
        if (cert_path is None) != (key_path is None):
            missing = "cert_path" if cert_path is None else "key_path"
            raise ValueError(
                f"WebsocketServerWorker needs cert_path=... and key_path=... to serve wss://, and {missing} is missing. "
                "Make both with `syft cert`, or leave both out to serve ws:// on this machine alone."
            )
        if cert_path is None and options.get("client_ca") is not None:
            raise ValueError(
                "WebsocketServerWorker was given client_ca=..., and nobody can show a certificate without TLS. Add "
                "cert_path=... and key_path=..., or let users prove who they are with tokens=..."
            )
        self.host = host
        scheme = "ws" if cert_path is None else "wss"
        super().__init__(
            hook,
            f"{scheme}://{_in_url(host)}:{port}",
            id,
            data,
            certificate=cert_path,
            key=key_path,
            log_msgs=log_msgs,
            verbose=verbose,
            **options,
        )

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])
