"""The historical path of `syft.core.types`: the same module under an older name."""

import sys

from syft.core import types
from syft.core.types import *

sys.modules[__name__] = types
