"""The historical path of `syft.core.ids`: the same module under an older name."""

import sys

from syft.core import ids
from syft.core.ids import *

sys.modules[__name__] = ids
