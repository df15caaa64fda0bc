"""A plain step of SGD on secrets writes all parameters by one operation, and what it does is what it did one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy


@pytest.fixture
def workers(hook: Any) -> list[Any]:
    return [sy.VirtualWorker(hook, id=f"foreach {name}", auto_add=False) for name in "abc"]


def _trained(
    workers: list[Any], programs: list[str] | None = None, protocol: str | None = None, **options: Any
) -> tuple[Any, list[torch.Tensor]]:
    """An optimizer after two steps, and the parameters then."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    x: Any = torch.randn(5, 4)
    if workers:
        *holders, provider = workers
        named = {} if protocol is None else {"protocol": protocol}
        model.fix_precision(base=2, precision_fractional=16).share(
            *holders, crypto_provider=provider, **named
        )
        x = x.fix_precision(base=2, precision_fractional=16).share(
            *holders, crypto_provider=provider, **named
        )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **options)
    for _ in range(2):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        if programs is not None:
            programs.clear()
        optimizer.step()
    if workers:
        asked = list(programs or ())
        found = [p.get().float_precision() for p in model.parameters()]  # and the gradients
        if programs is not None:
            programs[:] = asked
        return optimizer, found
    return optimizer, [p.detach() for p in model.parameters()]


def test_one_program_writes_all_parameters(workers: list[Any], programs: list[str]) -> None:
    optimizer, found = _trained(workers, programs)
    assert programs == ["steps.side_by_side"]
    assert optimizer.param_groups[0]["foreach"] is None, "between its steps it is as it was made"
    _, expected = _trained([])
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() < 1e-3


def test_who_asks_for_one_by_one_gets_that(workers: list[Any], programs: list[str]) -> None:
    _, found = _trained(workers, programs, foreach=False)
    assert sorted(programs) == ["scaled.multiply_truncated"] * 2 + ["truncate.rescale"] * 4
    _, together = _trained(workers)
    for one, other in zip(found, together, strict=True):
        assert (one - other).abs().max() <= 64 * 2.0**-16


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"maximize": True}])
def test_more_than_a_sum_goes_one_by_one(
    options: dict[str, Any], workers: list[Any], programs: list[str]
) -> None:
    _, found = _trained(workers, programs, **options)
    assert not {"truncate.rescale_together", "steps.side_by_side"} & set(programs)
    _, expected = _trained([], **options)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() < 1e-3


def test_secrets_with_macs_train_as_before(workers: list[Any]) -> None:
    _, found = _trained(workers, protocol="spdz2k")
    _, expected = _trained([])
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() < 1e-3


def test_an_exception_in_a_step_does_not_keep_the_choice(workers: list[Any]) -> None:
    optimizer, _ = _trained(workers)

    def closure() -> float:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        optimizer.step(closure)
    optimizer.zero_grad()
    optimizer.step()
    assert optimizer.param_groups[0]["foreach"] is None


def test_a_list_is_added_in_place_and_views_see_it(workers: list[Any]) -> None:
    *holders, provider = workers
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0])

    def share(values: torch.Tensor) -> Any:
        fixed: Any = values.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
        return fixed.share(*holders, crypto_provider=provider)

    first, second, step = share(x), share(y), share(x)
    view = first[:1]
    torch._foreach_add_([first, second], [step, step], alpha=-0.3)  # type: ignore[attr-defined]
    assert (first.get().float_precision() - 0.7 * x).abs().max() < 2**-14
    assert (second.get().float_precision() - (y - 0.3 * x)).abs().max() < 2**-14
    assert (view.get().float_precision() - 0.7).abs().max() < 2**-14
    whole = share(x)
    torch._foreach_add_([whole], [step], alpha=2)  # type: ignore[attr-defined]
    assert (whole.get().float_precision() - 3 * x).abs().max() < 2**-14
    alone = torch.ones(2).fix_precision()  # type: ignore[attr-defined]
    torch._foreach_add_([alone], [x.fix_precision()], alpha=0.5)  # type: ignore[attr-defined]
    assert (alone.float_precision() - (1 + 0.5 * x)).abs().max() <= 1e-3
