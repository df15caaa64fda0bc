"""Alias of syft.execution.placeholder."""

import sys

from syft.execution import placeholder
from syft.execution.placeholder import *

sys.modules[__name__] = placeholder
