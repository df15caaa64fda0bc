"""The historical path of `syft.mpc.linalg.lr`: the same module under an older name."""

import sys

from syft.mpc.linalg import lr
from syft.mpc.linalg.lr import *

sys.modules[__name__] = lr
