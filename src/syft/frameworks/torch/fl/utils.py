"""The historical path of `syft.federated.utils`: the same module under an older name."""

import sys

from syft.federated import utils
from syft.federated.utils import *

sys.modules[__name__] = utils
