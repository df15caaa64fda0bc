"""The historical path of `syft.mpc.documented.spdz`: the same module under an older name."""

import sys

from syft.mpc.documented import spdz
from syft.mpc.documented.spdz import *

sys.modules[__name__] = spdz
