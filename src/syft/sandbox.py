"""`create_sandbox`: a hook, six workers and tagged data to play with, in one line of a notebook."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from syft.core.session import session
from syft.exceptions import DependencyError
from syft.grid import PrivateGridNetwork
from syft.hooking.torch_hook import TorchHook
from syft.workers.virtual import VirtualWorker

logger = logging.getLogger(__name__)

WORKERS = ("bob", "theo", "jason", "alice", "andy", "jon")
DATASETS = ("boston", "diabetes", "breast_cancer", "digits", "iris", "wine", "linnerud")
#: Further tags of a data set.
_TAGS = {"boston": ("#housing", "#boston_housing", "#synthetic")}

# NB: a search also looks into descriptions, so this one names no other data set.
_BOSTON = (
    "SYNTHETIC stand-in for the Boston housing data: made-up numbers of the same shape (506 x 13). scikit-learn no "
    "longer ships the original."
)


def create_sandbox(gbs: dict[str, Any], verbose: bool = True, download_data: bool = True) -> None:
    """Put `hook`, the workers bob, theo, jason, alice, andy and jon, `workers` and `grid` into `gbs`.

    Call it as `sy.create_sandbox(globals())`. With `download_data` every worker holds a part of each of
    scikit-learn's bundled data sets, tagged `#<name>` with `#data` or `#target`; nothing is downloaded. `#boston`, which
    scikit-learn no longer has, is synthetic, and is tagged `#synthetic`, too.
    """
    import syft

    say: Callable[[str], None] = print if verbose else logger.info
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
        say(
            f"\t- #boston is a {_BOSTON} Older programs run with it; for real data of this kind use #diabetes."
        )
        for name in DATASETS:
            _distribute(name, workers)
    say("Done!")


def hook(gbs: dict[str, Any]) -> Any:
    """The sandbox without data, quietly; returns the hook."""
    create_sandbox(gbs, verbose=False, download_data=False)
    return gbs["hook"]


def _distribute(name: str, workers: list[VirtualWorker]) -> None:
    """Give every worker a contiguous part of a data set."""
    inputs, targets, about = _synthetic_boston() if name == "boston" else _from_sklearn(name)
    tags = (f"#{name}", *_TAGS.get(name, ()))
    for whole, role in ((inputs, "#data"), (targets, "#target")):
        for worker, part in zip(workers, whole.tensor_split(len(workers)), strict=True):
            tensor: Any = part.clone()
            worker.load_data([tensor.tag(*tags, role).describe(about)])


def _from_sklearn(name: str) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Data, targets and the description of a data set that scikit-learn ships."""
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
    targets = torch.as_tensor(bunch["target"])
    return (
        torch.as_tensor(bunch["data"], dtype=torch.float32),
        targets.float() if targets.is_floating_point() else targets,
        bunch["DESCR"].partition(":\n")[2].lstrip(),
    )


def _synthetic_boston() -> tuple[torch.Tensor, torch.Tensor, str]:
    """506 made-up rows of 13 columns and a target that depends on them, the same ones each time."""
    generator = torch.Generator().manual_seed(506)

    def normal() -> torch.Tensor:
        return torch.randn(506, generator=generator)

    wealth = normal()  # what ties the columns together
    rooms = 6.3 + 0.6 * (0.7 * wealth + 0.7 * normal())
    poverty = (12.0 - 5.5 * wealth + 4.0 * normal()).clamp(1.5, 38.0)
    nitric_oxides = (0.55 - 0.06 * wealth + 0.09 * normal()).clamp(0.38, 0.88)
    pupils = (18.5 - 0.8 * wealth + 1.8 * normal()).clamp(12.0, 22.0)
    columns = [
        torch.exp(-1.0 - wealth + normal()),  # crime
        (20.0 * wealth + 15.0 * normal()).clamp(0.0, 100.0),  # large plots
        (11.0 - 3.0 * wealth + 5.0 * normal()).clamp(0.4, 28.0),  # industry
        (torch.rand(506, generator=generator) < 0.07).float(),  # at the river
        nitric_oxides,
        rooms,
        (68.0 - 8.0 * wealth + 24.0 * normal()).clamp(2.0, 100.0),  # age
        (3.8 + 0.6 * wealth + 1.8 * normal()).clamp(1.1, 12.0),  # distance to work
        (9.5 - 4.0 * wealth + 6.0 * normal()).round().clamp(1.0, 24.0),  # highways
        (408.0 - 60.0 * wealth + 130.0 * normal()).round().clamp(187.0, 711.0),  # tax
        pupils,
        (370.0 + 20.0 * wealth + 70.0 * normal()).clamp(0.3, 396.9),
        poverty,
    ]
    prices = 22.5 + 5.5 * (rooms - 6.3) - 0.5 * (poverty - 12.0) - 12.0 * (nitric_oxides - 0.55)
    prices = (prices - 0.7 * (pupils - 18.5) + 3.0 * normal()).clamp(5.0, 50.0)
    return torch.stack(columns, dim=1), prices, _BOSTON
