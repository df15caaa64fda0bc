"""The historical path of `syft.mpc.paillier.keys`: the same module under an older name."""

import sys

from syft.mpc.paillier import keys
from syft.mpc.paillier.keys import *

sys.modules[__name__] = keys
