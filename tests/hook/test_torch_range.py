"""A torch that is newer than the tested ones is used with one warning."""

from __future__ import annotations

import warnings

import pytest

from syft.hooking.torch_hook import TESTED_TORCH, warn_if_untested

NEWEST = ".".join(map(str, TESTED_TORCH[1]))
NEXT = f"{TESTED_TORCH[1][0]}.{TESTED_TORCH[1][1] + 1}"


@pytest.mark.parametrize("version", ["2.11.0", f"{NEWEST}.0", f"{NEWEST}.9+cpu", f"{NEWEST}.0a0+git1234"])
def test_a_tested_torch_is_used_without_a_warning(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_untested(version)


@pytest.mark.parametrize("version", [f"{NEXT}.0", f"{NEXT}.0a0+git1234", "3.0.1+cu130"])
def test_a_newer_torch_is_named_in_a_warning_with_the_cure(version: str) -> None:
    with pytest.warns(
        UserWarning, match=rf"torch {version.split('+')[0]}.* is newer .* 'torch=={NEWEST}\.\*'"
    ):
        warn_if_untested(version)
