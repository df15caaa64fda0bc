"""`PrivateGridNetwork`: the workers that a program knows, searched and asked as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from syft.exceptions import PermissionDeniedError
from syft.grid.abstract_grid import AbstractGrid


@dataclass(frozen=True)
class ServedModel:
    """A model that workers of a grid hold: what is called, and where it is."""

    replicas: tuple[Any, ...]
    hosts: tuple[Any, ...]
    crypto_provider: Any
    allows_inference: bool


class PrivateGridNetwork(AbstractGrid):
    """The workers a program works with. Models that are served through it are known to this grid alone."""

    def __init__(self, *workers: Any) -> None:
        super().__init__()
        self.workers = list(workers)
        self._models: dict[Any, ServedModel] = {}
        self._encrypted_models: dict[Any, ServedModel] = {}

    def search(self, *query: str) -> dict[Any, list[Any]]:
        """Pointers to everything that matches all terms, by the id of the worker that holds it.

        Without terms: to everything that one may see there.
        """
        found = {w.id: w.search(list(query) or None) for w in self.workers}
        return {worker_id: pointers for worker_id, pointers in found.items() if pointers}

    # -- models ----------------------------------------------------------------------------------------

    def serve_model(
        self,
        model: Any,
        id: Any,
        mpc: bool = False,
        allow_remote_inference: bool = False,
        allow_download: bool = False,
        n_replica: int = 1,
    ) -> None:
        """Copy a model (an nn.Module, or a plan that is built) to `n_replica` workers, to be asked under `id`.

        mpc                     share its parameters instead, so that nobody holds them: among all workers but the last,
                                which deals the randomness. `n_replica` must be 1 then.
        allow_remote_inference  let `run_remote_inference` ask it
        allow_download          !! ValueError: a grid hands out no models
        """
        if allow_download:
            raise ValueError(
                "serve_model(allow_download=True) was called on a PrivateGridNetwork, which hands out no models. Give "
                "whoever needs it the model itself, or let them fetch a plan with worker.fetch_plan(plan.id, host)."
            )
        if id in self._models or id in self._encrypted_models:
            raise ValueError(f"A model {id!r} is served already. Serve this one under another id.")
        if mpc:
            if n_replica != 1:
                raise ValueError(
                    f"serve_model(mpc=True) was asked for {n_replica} replicas; a shared model is one. Leave it out."
                )
            callable_, hosts, provider = self._host_encrypted_model(model)
            self._encrypted_models[id] = ServedModel((callable_,), hosts, provider, allow_remote_inference)
            return
        if not 1 <= n_replica <= len(self.workers):
            raise ValueError(
                f"serve_model() was asked for {n_replica} replicas on {len(self.workers)} workers. Ask for one to a "
                "worker at the most."
            )
        hosts = tuple(self.workers[:n_replica])
        replicas = tuple(model.copy().send(host) for host in hosts)
        self._models[id] = ServedModel(replicas, hosts, None, allow_remote_inference)

    def run_remote_inference(self, id: Any, data: Any, mpc: bool = False) -> torch.Tensor:
        """What the model answers to `data`: computed at a host, or on shares of both with `mpc`."""
        return self._run_encrypted_inference(id, data) if mpc else self._run_unencrypted_inference(id, data)

    def query_model_hosts(self, id: Any, mpc: bool = False) -> Any:
        """The workers that hold a model; with `mpc` those who hold its shares, and the crypto provider."""
        return self._query_encrypted_model_hosts(id) if mpc else list(self._served(id, False).hosts)

    def _host_encrypted_model(
        self, model: Any, n_shares: int | None = None
    ) -> tuple[Any, tuple[Any, ...], Any]:
        """Share a copy of a model among `n_shares` workers (all but the last, if it is left out)."""
        count = len(self.workers) - 1 if n_shares is None else n_shares
        if count < 2 or count >= len(self.workers):
            raise ValueError(
                f"A model is shared among at least two workers, with one more to deal the randomness; this grid has "
                f"{len(self.workers)} and {count} holders were wanted. Add workers to the grid."
            )
        holders, provider = tuple(self.workers[:count]), self.workers[count]
        shared = model.copy()
        if isinstance(shared, torch.nn.Module):
            shared.fix_precision().share(*holders, crypto_provider=provider)  # type: ignore[operator]
        else:
            shared.fix_precision_()
            shared.share_(*holders, crypto_provider=provider)
        return shared, holders, provider

    def _query_encrypted_model_hosts(self, id: Any) -> tuple[list[Any], Any]:
        served = self._served(id, True)
        return list(served.hosts), served.crypto_provider

    def _run_unencrypted_inference(self, id: Any, data: Any) -> torch.Tensor:
        served = self._askable(id, False)
        with torch.no_grad():
            answer = served.replicas[0](data.send(served.hosts[0]))
        return answer.get()  # type: ignore[no-any-return]

    def _run_encrypted_inference(self, id: Any, data: Any) -> torch.Tensor:
        served = self._askable(id, True)
        shared = data.fix_precision().share(*served.hosts, crypto_provider=served.crypto_provider)
        with torch.no_grad():
            answer = served.replicas[0](shared)
        return answer.get().float_precision()  # type: ignore[no-any-return]

    def _served(self, id: Any, mpc: bool) -> ServedModel:
        served = (self._encrypted_models if mpc else self._models).get(id)
        if served is None:
            other = self._models if mpc else self._encrypted_models
            hint = (
                f"It is served with mpc={not mpc}."
                if id in other
                else "Serve it with serve_model(model, id)."
            )
            raise LookupError(f"This grid serves no model {id!r} with mpc={mpc}. {hint}")
        return served

    def _askable(self, id: Any, mpc: bool) -> ServedModel:
        served = self._served(id, mpc)
        if not served.allows_inference:
            raise PermissionDeniedError(
                f"The model {id!r} was served without allow_remote_inference=True, so it is not asked through the grid."
            )
        return served

    def __repr__(self) -> str:
        return f"<PrivateGridNetwork of {', '.join(str(w.id) for w in self.workers) or 'no workers'}>"
