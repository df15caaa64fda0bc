"""The historical path of `syft.mpc.paillier`: the same module under an older name."""

import sys

from syft.mpc import paillier
from syft.mpc.paillier import *

sys.modules[__name__] = paillier
