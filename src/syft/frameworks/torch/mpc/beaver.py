"""The historical path of `syft.mpc.documented.beaver`: the same module under an older name."""

import sys

from syft.mpc.documented import beaver
from syft.mpc.documented.beaver import *

sys.modules[__name__] = beaver
