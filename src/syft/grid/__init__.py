"""Several workers searched as one.

abstract_grid   what every grid offers
private_grid    `PrivateGridNetwork`: the workers that a program knows
"""

from syft.core.lazy import submodules_on_demand as _on_demand
from syft.grid.abstract_grid import AbstractGrid
from syft.grid.private_grid import PrivateGridNetwork

__getattr__ = _on_demand("syft.grid")

__all__ = ["AbstractGrid", "PrivateGridNetwork"]
