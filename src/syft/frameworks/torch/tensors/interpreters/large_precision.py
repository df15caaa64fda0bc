"""The historical path of `syft.mpc.large_precision`: the same module under an older name."""

import sys

from syft.mpc import large_precision
from syft.mpc.large_precision import *

sys.modules[__name__] = large_precision
