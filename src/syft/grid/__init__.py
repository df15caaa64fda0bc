"""Several workers searched as one.

abstract_grid   what every grid offers
private_grid    `PrivateGridNetwork`: the workers that a program knows
"""

from syft.grid.abstract_grid import AbstractGrid
from syft.grid.private_grid import PrivateGridNetwork

__all__ = ["AbstractGrid", "PrivateGridNetwork"]
