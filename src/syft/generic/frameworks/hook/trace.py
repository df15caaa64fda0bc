"""Alias of syft.execution.trace_log."""

import sys

from syft.execution import trace_log
from syft.execution.trace_log import *

sys.modules[__name__] = trace_log
