"""The historical path of `syft.mpc.documented.securenn`: the same module under an older name."""

import sys

from syft.mpc.documented import securenn
from syft.mpc.documented.securenn import *

sys.modules[__name__] = securenn
