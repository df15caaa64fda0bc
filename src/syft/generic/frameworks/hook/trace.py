"""The historical path of `syft.execution.trace`: the same module under an older name."""

import sys

from syft.execution import trace
from syft.execution.trace import *

sys.modules[__name__] = trace
