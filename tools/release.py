"""`make release`: check that everything agrees on the version, build, look into what was built, and tag.

python tools/release.py            build and check
python tools/release.py --tag      the same, then tag the commit
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def version() -> str:
    """The version, from the one place where it stands."""
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / "src/syft/version.py").read_text(), re.MULTILINE)
    if found is None:
        sys.exit("src/syft/version.py has no __version__.")
    return found[1]


def check_changelog(number: str, changelog: str) -> None:
    """!! SystemExit unless the changelog has a heading for this version with something below it."""
    found = re.search(
        rf"^## {re.escape(number)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None or "- " not in found[1]:
        sys.exit(
            f"CHANGELOG.md has no entries below '## {number}'. Rename 'Unreleased', and begin a new one."
        )


def check_built(number: str, folder: Path) -> None:
    """!! SystemExit unless there are a wheel and a source archive of this version with what they need."""
    wheel, source = folder / f"resyft-{number}-py3-none-any.whl", folder / f"resyft-{number}.tar.gz"
    if not wheel.exists() or not source.exists():
        sys.exit(
            f"{folder} has no wheel and source archive of {number}: {sorted(p.name for p in folder.iterdir())}."
        )
    names = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(source) as archive:
        names |= {name.partition("/")[2] for name in archive.getnames()}
    needed = {"syft/py.typed", "syft/version.py", "LICENSE", "README.md", "SECURITY.md", "docs/index.md"}
    if missing := needed - names:
        sys.exit(f"What was built lacks {', '.join(sorted(missing))}.")


def main(tag: bool) -> None:
    number = version()
    check_changelog(number, (ROOT / "CHANGELOG.md").read_text())
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout:
        sys.exit("There are uncommitted changes. Commit them first.")
    folder = ROOT / "dist"
    for old in folder.glob(f"resyft-{number}*"):
        old.unlink()
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True)
    check_built(number, folder)
    print(f"dist/ has resyft {number}.")
    if tag:
        subprocess.run(
            ["git", "tag", "--annotate", f"v{number}", "--message", f"resyft {number}"], cwd=ROOT, check=True
        )
        print(f"Tagged v{number}. To publish: git push origin v{number}, and upload dist/.")


if __name__ == "__main__":
    main("--tag" in sys.argv[1:])
