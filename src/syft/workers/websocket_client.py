"""`WebsocketClientWorker`: the documented way to reach a worker on another machine."""

from __future__ import annotations

from typing import Any

from syft.workers.network.client_worker import NetworkClientWorker


class WebsocketClientWorker(NetworkClientWorker):
    """A worker at `ws://host:port`, or `wss://host:port` with `secure=True`.

    Certificates are verified: name the authority that signed the worker's with `ca=...` if it is not one that this
    system trusts. All other options are those of `NetworkClientWorker`.
    """

    def __init__(
        self,
        hook: Any = None,
        host: str = "localhost",
        port: int = 8777,
        secure: bool = False,
        id: Any = None,
        is_client_worker: bool = False,
        log_msgs: bool = False,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        given = [f"{name}=..." for name in ("ca", "certificate", "key") if options.get(name) is not None]
        if given and not secure:
            raise ValueError(
                f"WebsocketClientWorker was given {' and '.join(given)}, and the connection would not be encrypted. Add "
                "secure=True, or leave it out."
            )
        self.host, self.port, self.secure = host, port, secure
        address = f"{'wss' if secure else 'ws'}://{_in_url(host)}:{port}"
        super().__init__(
            hook,
            address,
            id,
            is_client_worker=is_client_worker,
            log_msgs=log_msgs,
            verbose=verbose,
            **options,
        )


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
