"""The historical path of `syft.mpc.precision`: the same module under an older name."""

import sys

from syft.mpc import precision
from syft.mpc.precision import *

sys.modules[__name__] = precision
