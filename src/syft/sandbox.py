"""`create_sandbox`: a hook, six workers and tagged data to play with, in one line of a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.session import session
from syft.exceptions import DependencyError
from syft.grid import PrivateGridNetwork
from syft.hooking.torch_hook import TorchHook
from syft.workers.virtual import VirtualWorker

WORKERS = ("bob", "theo", "jason", "alice", "andy", "jon")
DATASETS = ("diabetes", "breast_cancer", "digits", "iris", "wine", "linnerud")


def create_sandbox(gbs: dict[str, Any], verbose: bool = True, download_data: bool = True) -> None:
    """Put `hook`, the workers bob, theo, jason, alice, andy and jon, `workers` and `grid` into `gbs`.

    Call it as `sy.create_sandbox(globals())`. With `download_data` every worker holds a part of each of
    scikit-learn's bundled data sets, tagged `#<name>` with `#data` or `#target`; nothing is downloaded.
    """
    import syft

    say: Callable[[str], None] = print if verbose else (lambda _line: None)
    say("Setting up Sandbox...")
    hook = session.hook or TorchHook(torch)
    say("\t- Hooking PyTorch")
    workers = [VirtualWorker(hook, id=name) for name in WORKERS]
    gbs.update(zip(WORKERS, workers, strict=True))
    say(f"\t- Creating Virtual Workers: {', '.join(WORKERS)}")
    gbs.update(
        hook=hook,
        workers=workers,
        grid=PrivateGridNetwork(*workers),
        torch=torch,
        th=torch,
        sy=syft,
        syft=syft,
    )
    if download_data:
        say("\t- Distributing the data sets: " + ", ".join(DATASETS))
        for name in DATASETS:
            _distribute(name, workers)
    say("Done!")


def _distribute(name: str, workers: list[VirtualWorker]) -> None:
    """Give every worker a contiguous part of a data set."""
    try:
        from sklearn import datasets
    except ImportError:
        raise DependencyError("sklearn", "scikit-learn") from None
    loaders = {
        "diabetes": datasets.load_diabetes,
        "breast_cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
        "iris": datasets.load_iris,
        "wine": datasets.load_wine,
        "linnerud": datasets.load_linnerud,
    }
    bunch = loaders[name]()
    data = torch.as_tensor(bunch["data"], dtype=torch.float32)
    target = torch.as_tensor(bunch["target"])
    for part, (inputs, targets) in enumerate(
        zip(data.tensor_split(len(workers)), target.tensor_split(len(workers)), strict=True)
    ):
        for tensor, role in ((inputs.clone(), "#data"), (targets.clone(), "#target")):
            tensor.tag(f"#{name}", role).describe(bunch["DESCR"].partition(":\n")[2].lstrip())  # type: ignore[attr-defined]
            workers[part].load_data([tensor])


def hook(gbs: dict[str, Any]) -> Any:
    """The hook of this process, made if there is none yet; put into `gbs` as `hook`, as `create_sandbox` does."""
    made = session.hook or TorchHook(torch)
    gbs["hook"] = made
    return made
