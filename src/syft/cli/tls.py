"""Which certificate a worker shows: `--tls DIR`, the folder that `syft cert make` filled, or `--cert` and `--key`."""

from __future__ import annotations

from pathlib import Path

#: What `syft cert make` calls the files of a worker unless it is told another name.
SERVER = "server"


def certificate_files(
    directory: Path | None, certificate: Path | None, key: Path | None
) -> tuple[Path | None, Path | None]:
    """The certificate and its key; None for each without TLS. !! ValueError"""
    if directory is None:
        if (certificate is None) != (key is None):
            raise ValueError(
                "A certificate comes with its key: pass both --cert FILE and --key FILE, or --tls DIR for the folder "
                "that `syft cert make` filled."
            )
        return certificate, key
    if certificate is not None or key is not None:
        raise ValueError(
            f"--tls {directory} names a certificate and its key: leave out --cert and --key, or --tls."
        )
    found = directory / f"{SERVER}.pem", directory / f"{SERVER}.key"
    for path in found:
        if not path.exists():
            raise ValueError(
                f"--tls {directory}: there is no {path.name} in it. Make one with `syft cert make {directory}`, or name "
                "other files with --cert and --key."
            )
    return found


def default_address(has_certificate: bool) -> str:
    """Where a worker listens that was not told where: this machine alone can reach it."""
    # NB: by name where there is a certificate, which may be for names only.
    return "wss://localhost:8777" if has_certificate else "ws://127.0.0.1:8777"
