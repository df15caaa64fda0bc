"""The historical path of `syft.mpc.crt_precision`: the same module under an older name."""

import sys

from syft.mpc import crt_precision
from syft.mpc.crt_precision import *

sys.modules[__name__] = crt_precision
