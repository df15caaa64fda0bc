"""Large products of shares with public values run our kernels at every holder, which choose the faster way there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from syft.mpc import doubles
from syft.mpc.rules import shared_products

#: A product, shapes of the secret and of the public side, and whether it is large.
PRODUCTS = [
    (torch.matmul, (128, 128), (128, 80), True),
    (torch.matmul, (20, 128, 32), (32, 16), True),
    (torch.matmul, (16, 64, 32), (16, 32, 64), True),
    (torch.matmul, (1024,), (1024, 1040), True),
    (torch.matmul, (4, 8), (8, 3), False),
    (torch.matmul, (1030, 1030), (1030,), True),
    (F.linear, (128, 128), (80, 128), True),
    (F.conv2d, (1, 8, 40, 40), (16, 8, 3, 3), True),
    (F.conv1d, (2, 3, 20), (4, 3, 3), False),
    (F.conv_transpose2d, (1, 8, 40, 40), (8, 16, 3, 3), True),
]


def values(*shape: int) -> torch.Tensor:
    """With few digits, so that sums are exact in the fixed precision used here."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-8, 9, shape, generator=generator) / 4


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many products ran by kernels, and in doubles; a machine on which doubles are faster is claimed."""
    calls = {"kernels": 0, "doubles": 0}
    by_kernel, contracted = shared_products._by_kernel, doubles.contracted

    def kernels(*args: Any) -> Any:
        calls["kernels"] += 1
        return by_kernel(*args)

    def in_doubles(*args: Any) -> Any:
        calls["doubles"] += 1
        return contracted(*args)

    monkeypatch.setattr(shared_products, "_by_kernel", kernels)
    monkeypatch.setattr(doubles, "contracted", in_doubles)
    monkeypatch.setattr(doubles, "are_faster", lambda: True)
    return calls


@pytest.mark.parametrize(("function", "secret", "public", "is_large"), PRODUCTS)
def test_in_one_process(
    function: Any, secret: Any, public: Any, is_large: bool, workers: Any, counted: Any
) -> None:
    x, y = values(*secret), values(*public)
    shared = x.fix_precision(base=2, precision_fractional=8).share(
        workers.alice, workers.bob, crypto_provider=workers.charlie
    )
    made = function(shared, y.fix_precision(base=2, precision_fractional=8)).get().float_precision()
    assert torch.allclose(made, function(x, y), atol=0.01)
    assert bool(counted["kernels"]) is is_large
    if len(public) == 2 and len(secret) == 2 and is_large:
        assert counted["doubles"] == 2 * counted["kernels"]  # each holder


@pytest.mark.network
def test_on_a_network(client: Any, counted: Any) -> None:
    x, y = values(128, 128), values(128, 80)
    shared = client.share(x)
    for left in (False, True):
        one, other = (y.t().fix_precision(), shared) if left else (shared, y.fix_precision())
        made = (one @ other).get().float_precision()
        wanted = y.t() @ x if left else x @ y
        assert torch.allclose(made, wanted, atol=0.01)
    assert counted == {"kernels": 2, "doubles": 4}


def test_shapes_that_do_not_fit_are_named_as_torch_names_them(workers: Any) -> None:
    shared = (
        values(1030, 1030).fix_precision().share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    )
    with pytest.raises(RuntimeError, match="1030x1030 and 3x2"):
        shared @ values(3, 2).fix_precision()
