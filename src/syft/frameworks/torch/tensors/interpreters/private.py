"""The historical path of `syft.tensors.private`: the same module under an older name."""

import sys

from syft.tensors import private
from syft.tensors.private import *

sys.modules[__name__] = private
