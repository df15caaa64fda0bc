"""The hospital's data, the company's model, the patient's answer: three users of workers that none of them runs.

    python examples/several_users/hospital_company_patient.py

It starts two holders and a provider, each a `syft worker` in a process of its own that asks for tokens. Then it is one
user after the other, each with a token and connections of their own. Nobody but the patient learns the answer; the
holders see uniform numbers, the hospital nothing of the model, the company nothing of the data, and the holders refuse
whoever asks for what the owners have not allowed. See docs/secrets_network.md, "Several users".
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

import syft as sy
from syft.identity.tokens import TokenAuthority
from syft.mpc.offers import find_secrets

hook = sy.TorchHook(torch, verbose=False)
NAMES = ("alice", "bob", "carol")


@contextlib.contextmanager
def workers(folder: Path, *options: str) -> Iterator[TokenAuthority]:
    """Two holders and a provider that know each other, and who issues tokens for them."""
    authority = TokenAuthority.create(folder / "tokens")
    started = []
    for name in NAMES:
        token = folder / f"{name}.token"
        token.write_text(authority.issue(name, 3600))
        command = [
            sys.executable,
            "-m",
            "syft",
            "worker",
            "--id",
            name,
            "--listen",
            f"unix://{folder}/{name}",
        ]
        command += [
            "--tokens",
            str(folder / "tokens"),
            "--peer-token-file",
            str(token),
            "--log-level",
            "error",
        ]
        for peer in NAMES:
            command += ["--peer", f"{peer}=unix://{folder}/{peer}"] if peer != name else []
        started.append(subprocess.Popen([*command, *options], stdout=subprocess.PIPE))
    try:
        for one in started:
            assert one.stdout is not None and one.stdout.readline().startswith(b"worker ")
        yield authority
    finally:
        for one in started:
            one.terminate()
            one.wait(30)


@contextlib.contextmanager
def connections(folder: Path, authority: TokenAuthority, user: str) -> Iterator[list[sy.NetworkClientWorker]]:
    """A user's own connections to the three. (Users are in one process here, so no name may stand for two of them.)"""
    token = authority.issue(user, 3600)
    made = [sy.connect(f"unix://{folder}/{name}", name, token=token, auto_add=False) for name in NAMES]
    try:
        yield made
    finally:
        for one in made:
            one.close()


def hospital(alice: object, bob: object, carol: object, scan: torch.Tensor) -> None:
    """Share the data. The company may compute with it, the patient may have what comes of it; nobody else anything."""
    secret = scan.fix_precision().share(
        alice, bob, crypto_provider=carol, may_compute=["company"], may_get=["patient"]
    )
    secret.offer("#scan")


def company(alice: object, bob: object, carol: object, model: torch.nn.Module) -> None:
    """Share the model, find the data, compute, and leave the answer for the patient."""
    model.fix_precision().share(alice, bob, crypto_provider=carol, may_get=["patient"])
    (scan,) = find_secrets("#scan", alice, bob, crypto_provider=carol)
    with torch.no_grad():
        answer = model(scan)
    answer.offer("#answer")
    for secret in (scan, answer):
        try:
            secret.get()
        except sy.exceptions.GetNotPermittedError as error:
            print(f"company: {error}")
        else:
            raise AssertionError("The company got what it may not have.")


def patient(alice: object, bob: object, carol: object) -> torch.Tensor:
    """Fetch the answer: both holders give their share, because both owners have allowed it."""
    (answer,) = find_secrets("#answer", alice, bob, crypto_provider=carol)
    found: torch.Tensor = answer.get().float_precision()
    return found


def main(*options: str) -> None:
    torch.manual_seed(1)
    scan = torch.randn(1, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    with torch.no_grad():
        expected = model(scan)
    with tempfile.TemporaryDirectory() as name, workers(Path(name), *options) as authority:
        folder = Path(name)
        with connections(folder, authority, "hospital") as links:
            hospital(*links, scan)
        with connections(folder, authority, "company") as links:
            company(*links, model)
        with connections(folder, authority, "eve") as links:
            assert find_secrets("#scan", *links[:2]) == find_secrets("#answer", *links[:2]) == []
        with connections(folder, authority, "patient") as links:
            answer = patient(*links)
    print(f"patient: {answer.tolist()}; without secrets it would be {expected.tolist()}")
    assert torch.allclose(answer, expected, atol=0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
