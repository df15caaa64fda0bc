"""The plugin of mypy: the names that the hook adds to torch type-check, and no others."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from syft.hooking.mypy_plugin import ADDED

GOOD = """
import torch
import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
x = torch.tensor([1.0, 2.0]).tag("#x").send(bob)
y: torch.Tensor = (x + x).get()
secret = torch.ones(2).fix_precision().share(bob, bob, crypto_provider=bob)
model = torch.nn.Linear(2, 1).send(bob)
"""

BAD = """
import torch

torch.ones(2).sendd()
number: int = torch.ones(2).send(1)
"""


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path, names in ADDED.items() for group in names for name in group]
)
def test_what_the_plugin_knows_the_hook_adds(path: str, name: str) -> None:
    module, _, cls = path.rpartition(".")
    assert name in {
        known for one in getattr(importlib.import_module(module), cls).__mro__ for known in vars(one)
    }


@pytest.mark.slow  # mypy reads all of torch
@pytest.mark.timeout(600)
def test_programs_type_check_with_the_plugin_and_mistakes_do_not(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\nplugins = syft.hooking.mypy_plugin\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "good.py", "bad.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "good.py" not in done.stdout, done.stdout
    assert 'bad.py:4: error: "Tensor" has no attribute "sendd"' in done.stdout
    assert "bad.py:5: error: Incompatible types in assignment" in done.stdout
