"""`python -m syft` is the `syft` command."""

import sys

from syft.cli import main

sys.exit(main())
