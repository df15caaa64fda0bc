"""The historical path of `syft.federated.dataset`: the same module under an older name."""

import sys

from syft.federated import dataset
from syft.federated.dataset import *

sys.modules[__name__] = dataset
