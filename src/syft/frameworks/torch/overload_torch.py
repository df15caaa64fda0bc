"""The historical path of `syft.core.overload`: the same module under an older name."""

import sys

from syft.core import overload
from syft.core.overload import *

sys.modules[__name__] = overload
