"""examples/several_users: three users of three `syft worker`s with tokens, as a program of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import forked

pytestmark = pytest.mark.network
PROGRAM = Path(__file__).parents[2] / "examples/several_users/hospital_company_patient.py"


def run(*options: str) -> str:
    done = forked.run(str(PROGRAM), *options, capture_output=True, text=True, timeout=600, forks=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def check(said: str) -> None:
    assert said.count("company: User 'company' may not get object") == 2
    assert "patient: [[" in said


def test_the_patient_alone_gets_the_answer() -> None:
    check(run("--isolation", "none", "--threads", "1"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_patient_alone_gets_the_answer_behind_the_walls_of_isolation() -> None:
    check(run())
