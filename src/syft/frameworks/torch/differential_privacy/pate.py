"""The historical path of `syft.dp.pate`: the same module under an older name."""

import sys

from syft.dp import pate
from syft.dp.pate import *

sys.modules[__name__] = pate
