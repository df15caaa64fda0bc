"""`make peers`: an environment for each peer, from the package registry. Imports nothing that has to be installed.

    python bench/peers/install.py [FOLDER] [NAME...]

`NAME.txt` lists what a peer needs, with versions; `NAME.no-deps.txt` what is installed without what it asks for. One that
cannot be installed leaves a file FAILED with the reason, which the benchmarks report.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    return sorted(file.stem for file in HERE.glob("*.txt") if not file.stem.endswith(".no-deps"))


def install(folder: Path, name: str) -> str | None:
    """Why it failed, or nothing. An environment that fits its list is left as it is."""
    target = folder / name
    wanted = "".join(file.read_text() for file in sorted(HERE.glob(f"{name}*.txt")))
    done = target / "INSTALLED"
    if done.exists() and done.read_text() == wanted:
        return None
    shutil.rmtree(target, ignore_errors=True)
    venv.create(target, with_pip=True)
    pip = [str(target / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    for file, more in ((f"{name}.txt", []), (f"{name}.no-deps.txt", ["--no-deps"])):
        if (HERE / file).exists():
            ran = subprocess.run(
                [*pip, *more, "-r", str(HERE / file)], capture_output=True, text=True, check=False
            )
            if ran.returncode:
                said = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")] or [
                    "pip failed"
                ]
                (target / "FAILED").write_text(said[-1] + "\n")
                return said[-1]
    done.write_text(wanted)
    return None


def main(words: list[str]) -> int:
    folder = Path(words[0] if words else ".peers").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    for name in words[1:] or names():
        why = install(folder, name)
        print(f"{name}: {'installed' if why is None else 'ABSENT, ' + why}", flush=True)
    print("mp-spdz: ABSENT, it is not in the package registry (C++, to be built from its sources)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
