"""Tests of the gate import their calls by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
