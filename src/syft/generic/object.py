"""The historical path of `syft.core.objects`: the same module under an older name."""

import sys

from syft.core import objects
from syft.core.objects import *

sys.modules[__name__] = objects
