"""The historical path of `syft.mpc.linalg.operations`: the same module under an older name."""

import sys

from syft.mpc.linalg import operations
from syft.mpc.linalg.operations import *

sys.modules[__name__] = operations
