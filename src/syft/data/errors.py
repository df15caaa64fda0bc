"""What is raised for a file that cannot be served."""

from __future__ import annotations

from syft.exceptions import SyftError


class DataFileError(SyftError, ValueError):
    """A file of the owner's that cannot be served."""
