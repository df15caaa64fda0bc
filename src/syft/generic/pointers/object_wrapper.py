"""The historical path of `syft.tensors.object_wrapper`: the same module under an older name."""

import sys

from syft.tensors import object_wrapper
from syft.tensors.object_wrapper import *

sys.modules[__name__] = object_wrapper
