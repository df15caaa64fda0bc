"""The `syft` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `syft` command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="syft", description="Private machine learning in ordinary PyTorch.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("demo", help="a tour of what works, in under a minute")
    commands.add_parser("version", help="print the versions of resyft and torch")
    chosen = parser.parse_args(arguments)
    if chosen.command == "demo":
        from syft.demo import main as run_demo

        run_demo()
    else:
        import torch

        import syft

        print(f"resyft {syft.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
