"""The historical path of `syft.tensors.remote`: the same module under an older name."""

import sys

from syft.tensors import remote
from syft.tensors.remote import *

sys.modules[__name__] = remote
