"""Every name of 2020 resolves and takes its parameters, or stands in the table `names_left_out.toml` with its reason."""

from __future__ import annotations

from collections import defaultdict

import pytest

from compat import names

MODULES: dict[str, list[names.Row]] = defaultdict(list)
for _row in names.read_rows():
    MODULES[_row.module].append(_row)

#: How many names the table may hold, a wildcard counted once.
MOST_LEFT_OUT = 120


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_a_module_resolves_or_is_listed_with_its_reason(module: str) -> None:
    entries, pending = names.left_out(), set(names.pending())
    lost, to_strike = [], []
    for row in MODULES[module]:
        fault = names.fault(row)
        is_listed = any(names.is_listed(row, entry) for entry in entries)
        if fault is not None and not is_listed and str(row) not in pending:
            lost.append(f"{row}: {fault}")
        if fault is None and is_listed:
            to_strike.append(f"{row}: it resolves, so it must not be left out")
        if fault is None and str(row) in pending:
            to_strike.append(f"{row}: it resolves, strike it with `python tests/compat/names.py --prune`")
    assert not lost, "These names were there in 2020:\n" + "\n".join(lost)
    assert not to_strike, "\n".join(to_strike)


def test_the_table_names_only_what_there_was_and_says_why() -> None:
    rows = names.read_rows()
    for entry in names.left_out():
        assert len(entry["reason"]) > 20, entry
        for name in entry["names"]:
            alone = {**entry, "names": [name]}
            assert any(names.is_listed(row, alone) for row in rows), (entry["module"], name)
    assert set(names.pending()) <= {str(row) for row in rows}
    assert sum(len(entry["names"]) for entry in names.left_out()) <= MOST_LEFT_OUT


def test_a_wrong_signature_is_found() -> None:
    wrong = names.Row("syft.serde", "serialize", "(obj, worker=, flavour=)")
    assert "flavour" in (names.fault(wrong) or "")
    short = names.Row("syft.workers.virtual", "VirtualWorker.register_obj", "(self)")
    assert "missing a required argument" in (names.fault(short) or "")
    assert names.fault(names.Row("syft.nowhere", "module", "")) is not None
    assert names.fault(names.Row("syft.workers.virtual", "VirtualWorker.nothing", "(self)")) is not None
