"""The historical path of `syft.mpc.sharing`: the same module under an older name."""

import sys

from syft.mpc import sharing
from syft.mpc.sharing import *

sys.modules[__name__] = sharing
