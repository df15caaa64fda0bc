"""torch's own operator database through secrets: fixed precision over shares of two holders, with gradients."""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten

import opdb
from mpc import test_fixed_opdb as fixed
from syft.core.chain import Wrapper
from syft.mpc import provider

#: 20 fractional bits; results may differ by this, relative or absolute.
BASE, DIGITS, TOLERANCE = 2, 20, 2e-3
SAMPLES, ELEMENTS = 3, 1000

READS = "the operation reads a value (`.item()`, torch.equal), and the value is nobody's"

#: What fixed precision can over integers that are here and not over shares.
NOT_OVER_SHARES: dict[str, str] = {
    "equal": READS,
    "nn.functional.gaussian_nll_loss": READS,
}

#: The other way round: with small samples alone they agree.
ONLY_LARGE_DISAGREE = {"masked.log_softmax"}

#: The entries that do not agree with plain torch, and why. Strict: whoever mends one strikes its name.
NOT_YET: dict[str, str] = {
    name: reason
    for name, reason in {**fixed.NOT_YET, **NOT_OVER_SHARES}.items()
    if name not in ONLY_LARGE_DISAGREE
}

#: What never makes sense on secrets: not counted against the share of supported entries.
WITHOUT_SENSE = (*fixed.WITHOUT_SENSE, READS)

#: Quotients of powers of tiny numbers: whether they agree depends on how the coins of the truncations fall. Not run,
#: and counted as not supported.
DEPENDS_ON_COINS = {"dist", "linalg.vector_norm", "nn.functional.cosine_embedding_loss"}

#: Weights of up to 9 between a softmax and the result: its one unit, which falls or not, is some thousand in gradients.
AMPLIFIED = {"nn.functional.multi_head_attention_forward": 0.1}

ENTRIES = [op for op in opdb.entries(torch.float32) if opdb.op_id(op) not in fixed.TAKES_NO_TENSOR]


def size_of(sample: Any) -> int:
    leaves = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))


def with_small_samples(op: Any) -> Any:
    """The entry with its first few samples that are small, or the smallest one."""
    made = copy.copy(op)

    def samples(_op: Any, *args: Any) -> Iterator[Any]:
        every = op.sample_inputs_func(op, *args)
        small = list(itertools.islice((s for s in every if 0 < size_of(s) <= ELEMENTS), SAMPLES))
        if not small:
            opdb.seed(0)
            small = sorted(op.sample_inputs_func(op, *args), key=size_of)[:1]
        yield from small

    made.sample_inputs_func = samples
    return made


@pytest.fixture
def lift(make_worker: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Shares of a tensor. The provider's coins are those of a counter, so that a failure comes again."""
    counter = itertools.count()
    monkeypatch.setattr(
        provider, "new_seed", lambda: hashlib.sha256(str(next(counter)).encode()).digest()[:16]
    )
    alice, bob, deals = (make_worker(name) for name in ("alice", "bob", "provider"))

    def to_shares(tensor: torch.Tensor) -> Any:
        if not tensor.is_floating_point():
            return tensor
        encoded: Any = tensor.detach().fix_precision(base=BASE, precision_fractional=DIGITS)  # type: ignore[attr-defined]
        shared = encoded.share(alice, bob, crypto_provider=deals)
        return shared.requires_grad_(tensor.requires_grad)

    return to_shares


def lower(tensor: Any) -> torch.Tensor:
    if type(tensor) is not Wrapper:
        return tensor
    return tensor.virtual_get().float_precision()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "op", [op for op in ENTRIES if opdb.op_id(op) not in DEPENDS_ON_COINS], ids=opdb.op_id
)
def test_secrets_agree_with_torch(op: Any, lift: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    close = functools.partial(fixed.close, most=AMPLIFIED.get(opdb.op_id(op), TOLERANCE))
    monkeypatch.setattr(torch.testing, "assert_close", close)

    def run() -> int:
        return opdb.compare(with_small_samples(op), torch.float32, lift, lower, SAMPLES, may_be_plain=True)

    if opdb.op_id(op) in NOT_YET:
        with pytest.raises(Exception):  # noqa: B017, PT011  (whatever kind: the table says why)
            run()
    else:
        assert run() > 0


def test_the_table_names_only_entries_and_most_are_supported() -> None:
    assert fixed.TOLERANCE == TOLERANCE
    names = {opdb.op_id(op) for op in ENTRIES}
    assert set(NOT_YET) <= names | opdb.LATER
    sensible = [n for n in names if NOT_YET.get(n) not in WITHOUT_SENSE]
    unsupported = NOT_YET.keys() | DEPENDS_ON_COINS
    assert sum(name not in unsupported for name in sensible) >= 0.7 * len(sensible)
