"""Every row: it has calls, its columns agree with torch's schema, and it is tested by existing."""

from __future__ import annotations

import pytest
import torch
from calls import WORLDS, recorded_calls
from worlds import admitted, run_in

from syft.operations import all_rows
from syft.operations.row import ELEMENTWISE_ON_FLOATS
from syft.operations.value_checks import VALUE_CHECKS
from syft.operations.written_whole import WRITTEN_WHOLE

OUTER = sorted(name for name, row in all_rows().items() if not row.inner)


def test_every_row_has_a_call_that_is_admitted():
    lacking = [name for name in OUTER if not any(admitted(call) for call in recorded_calls()[name])]
    assert not lacking


def test_no_row_takes_an_out_nor_hands_out_python_values():
    for name, row in all_rows().items():
        schema = row.function._schema
        assert not any(a.is_out for a in schema.arguments), name
        assert all("Tensor" in str(r.type) for r in schema.returns), name
        assert row.packet not in ("set", "set_", "resize_", "item", "_local_scalar_dense"), name


def test_no_row_has_a_shape_that_depends_on_values():
    # These are told it by a public number; an index of masks is refused, one of integers has a shape.
    told = {
        "aten.repeat_interleave.Tensor",
        "aten.one_hot.default",
        "aten._ctc_loss.default",
        "aten.index.Tensor",
    }
    dynamic = {
        name
        for name, row in all_rows().items()
        if {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(row.function.tags)
    }
    assert dynamic <= told


def test_a_row_is_checked_if_and_only_if_there_is_a_check_of_its_values():
    checked = {row.packet for row in all_rows().values() if row.way == "checked"}
    assert checked <= set(VALUE_CHECKS)
    assert {packet.removesuffix("_") for packet in VALUE_CHECKS} <= {p.removesuffix("_") for p in checked} | {
        "special_polygamma"
    }


def test_what_torch_runs_as_several_operations_is_decomposed():
    # one_hot has no meta kernel that is told its classes, and makes nothing but zeros and ones.
    wrong = [n for n in OUTER if all_rows()[n].is_composite != (all_rows()[n].way == "decomposed")]
    assert wrong == ["aten.one_hot.default"]


def test_what_hands_out_memory_as_it_is_runs_as_something_else():
    unwritten = {n for n in all_rows() if n.split(".")[1].startswith(("empty", "new_empty"))}
    assert unwritten <= set(WRITTEN_WHOLE)


@pytest.mark.filterwarnings("ignore")
def test_what_works_row_by_row_does_not_fail_because_of_one_row():
    """Else one record would make zeros of all rows, and no noise of a release would hide that."""
    failed = set()
    for name in OUTER:
        row = all_rows()[name]
        if (
            row.row_wise is None or name == "aten.index_select.default"
        ):  # its index is public where rows are followed
            continue
        for call in recorded_calls()[name][:6]:
            if row.row_wise == ELEMENTWISE_ON_FLOATS and "float" not in str(call[1]):
                continue
            admission = admitted(call)
            for world in WORLDS if admission is not None else ():
                failed |= {name} if run_in(admission, call, world)[0].failure is not None else set()
    assert failed == set()


@pytest.mark.parametrize("name", ["aten.set_.source_Tensor", "aten.special_chebyshev_polynomial_t.default"])
def test_operations_that_have_no_bound_are_not_there(name):
    assert name not in all_rows()
    assert not any(packet in name for packet in ("mvlgamma", "unique") for name in all_rows())
