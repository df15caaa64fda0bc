"""The historical path of `syft.workers.store`: the same module under an older name."""

import sys

from syft.workers import store
from syft.workers.store import *

sys.modules[__name__] = store
