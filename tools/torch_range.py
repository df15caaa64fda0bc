"""`make torch-range`: the tests of what is closest to torch, with each release of torch in the range.

    python tools/torch_range.py                   2.11, 2.12, 2.13 and the newest that installs
    python tools/torch_range.py 2.12 2.13         these
    python tools/torch_range.py --rooms core 2.13 the tests of one room

Each release has a virtual environment of its own in a temporary folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
RELEASES = ["2.11", "2.12", "2.13", "newest"]
ROOMS = ["core", "tensors", "hook", "workers"]


def requirement(release: str) -> str:
    """What pip is asked for."""
    return "torch" if release == "newest" else f"torch=={release}.*"


def test_with(release: str, rooms: list[str]) -> str:
    """One word and the version: what came of the tests with this release."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        if subprocess.run([*pip, requirement(release)], check=False).returncode:
            return "not installable here"
        subprocess.run([*pip, "--editable", f"{ROOT}[dev]"], check=True)
        asked = [python, "-c", "import torch; print(torch.__version__)"]
        version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        tests = [str(ROOT / "tests" / room) for room in rooms]
        # A release above the tested range is announced with a warning, which is no failure here.
        newer = "ignore:torch .* is newer than:UserWarning"
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-x", "-W", newer, *tests], cwd=ROOT, check=False
        )
        return f"{'passed' if done.returncode == 0 else 'FAILED'} ({version})"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", default=RELEASES)
    parser.add_argument(
        "--rooms", nargs="+", default=ROOMS, choices=sorted(p.name for p in (ROOT / "tests").iterdir())
    )
    chosen = parser.parse_args()
    results = {release: test_with(release, chosen.rooms) for release in chosen.releases}
    for release, result in results.items():
        print(f"torch {release:<8} {result}")
    return int(any(result.startswith("FAILED") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
