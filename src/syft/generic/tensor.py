"""The historical path of `syft.core.abstract`: the same module under an older name."""

import sys

from syft.core import abstract
from syft.core.abstract import *

sys.modules[__name__] = abstract
