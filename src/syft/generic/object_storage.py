"""The historical path of `syft.workers.documented_storage`: the same module under an older name."""

import sys

from syft.workers import documented_storage
from syft.workers.documented_storage import *

sys.modules[__name__] = documented_storage
