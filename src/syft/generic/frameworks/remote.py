"""The historical path of `syft.workers.remote`: the same module under an older name."""

import sys

from syft.workers import remote
from syft.workers.remote import *

sys.modules[__name__] = remote
