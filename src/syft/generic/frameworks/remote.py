"""Historical path of `worker.remote`."""

from syft.workers.remote import RemoteNamespace as Remote

__all__ = ["Remote"]
