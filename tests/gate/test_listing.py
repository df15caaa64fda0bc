"""The page of admitted operations says what the table says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from syft.operations.listing import page

_PAGE = Path(__file__).parents[2] / "docs" / "admitted_operations.md"


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="the page lists the overloads of torch 2.13"
)
def test_the_page_of_admitted_operations_is_current():
    assert _PAGE.read_text() == page(), "run: python -m syft.operations.listing > docs/admitted_operations.md"
