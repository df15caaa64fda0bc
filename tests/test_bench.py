"""The harness of the benchmarks: it refuses a busy machine, compares within one run, and reports what is absent."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench import machine, peer, report, svg
from bench.growth import Series
from bench.harness import BENCHMARKS, Benchmark, Figure, Timing, beside, chosen, side_by_side
from bench.peers import install
from bench.peers.sizes import SIZES
from bench.report import Report
from bench.targets import GPU_TARGETS, MPC, TARGETS, Target, amount, gpu_lines

QUIET = machine.Look(load=0.1, cores=2, others=0.01, stretch=1.0, spread=0.02, loop_seconds=0.01)
BUSY = machine.Look(load=5.0, cores=2, others=0.9, stretch=2.5, spread=0.6, loop_seconds=0.03)
FACTS = {
    "date": "2026-01-01 00:00 UTC", "processor": "a processor", "cores": 2, "memory_GB": 8, "system": "Linux",
    "python": "3.11", "torch": "2.13", "threads": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_MODE", "full")
    command.register()


def options(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"busy": False, "minutes": 1.0, "json": "", "wait": 0.0} | given)


def one_row(name: str = "one") -> Benchmark:
    return Benchmark(name, "tests", list, rows=("pointer_add",), limit=5)


# -- the machine -----------------------------------------------------------------------------------------------


def test_a_quiet_machine_is_not_complained_about() -> None:
    assert QUIET.complaints() == [] and QUIET.complaints(QUIET) == []


def test_each_sign_of_a_busy_machine_is_named() -> None:
    said = "; ".join(BUSY.complaints())
    assert "load average 5.0 on 2 cores" in said and "others use 90%" in said
    assert "2.50 times its processor time" in said and "varies by 60%" in said
    # Once rows have run, the load is our own; the level of the loop is compared instead.
    later = "; ".join(BUSY.complaints(QUIET))
    assert "load average" not in later and "3.00 times as long as at the start" in later


def test_the_look_at_this_machine_has_all_its_numbers() -> None:
    now = machine.look(turns=3)
    assert now.cores == os.cpu_count() and now.loop_seconds > 0 and now.stretch > 0.5
    assert {"processor", "cores", "torch", "python", "date"} <= set(machine.facts())


def test_nothing_is_measured_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "look", lambda: BUSY)
    monkeypatch.setattr(command, "run_apart", lambda *_: pytest.fail("it was run"))
    with pytest.raises(SystemExit, match="too busy to measure anything: load average 5"):
        command.measure(Report(FACTS, "full"), [one_row()], options())


def test_with_busy_every_row_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "look", lambda: BUSY)
    monkeypatch.setattr(command, "run_apart", lambda *_: ([beside("pointer_add", 9e-6, {})], ""))
    found = Report(FACTS, "full")
    command.measure(found, [one_row()], options(busy=True, json=str(tmp_path / "found.json")))
    assert "others use 90%" in found.busy["pointer_add"]
    assert "met, **busy machine**" in report.markdown(found)
    assert report.from_json((tmp_path / "found.json").read_text()).busy == found.busy


def test_a_row_beside_which_the_machine_became_busy_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([QUIET, QUIET, BUSY, QUIET, BUSY])
    ran = []
    monkeypatch.setattr(command, "SETTLING", 0.0)
    monkeypatch.setattr(machine, "look", lambda: next(looks))
    monkeypatch.setattr(
        command, "run_apart", lambda *_: (ran.append(1) or [beside("pointer_add", 9e-6, {})], "")
    )
    found = Report(FACTS, "full")
    command.measure(found, [one_row()], options())
    assert len(ran) == 2, "it was tried once more"
    assert found.figures == [] and "the machine was busy" in found.left_out["pointer_add"]
    assert "not measured: the machine was busy" in report.markdown(found)


def test_when_the_time_is_over_the_rest_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "look", lambda: QUIET)
    found = Report(FACTS, "full")
    command.measure(found, [one_row()], options(minutes=0.0))
    assert "no time left" in found.left_out["pointer_add"]


# -- benchmarks in processes of their own ----------------------------------------------------------------------


def test_a_benchmark_that_hangs_is_ended_and_keeps_its_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = json.dumps(report.figure_to_json(beside("pointer_add", Timing.of([1.0, 2.0, 3.0]), {})))
    child = tmp_path / "child.pid"
    # A job of its own has a process group of its own, as peers have.
    script = f"set -m; sleep 600 & echo $! > {child}; echo '{line}'; sleep 600"
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _words, **more: start(["bash", "-c", script], **more))
    figures, why = command.run_apart(one_row(), 4.0)
    assert why == "timed out after 4 s" and [figure.row for figure in figures] == ["pointer_add"]
    assert isinstance(figures[0].ours, Timing) and figures[0].ours.high == 2.5
    until = time.monotonic() + 60
    while (gone := Path(f"/proc/{child.read_text().strip()}")).exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not gone.exists(), "what it had started is ended, too"


def test_a_benchmark_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen
    wrong = [sys.executable, "-c", "raise ValueError('no such thing')"]
    monkeypatch.setattr(subprocess, "Popen", lambda _words, **more: start(wrong, **more))
    assert command.run_apart(one_row(), 60.0) == ([], "failed: ValueError: no such thing")


def test_a_benchmark_that_leaves_a_process_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen
    script = ["bash", "-c", "sleep 600 & exit 0"]
    monkeypatch.setattr(subprocess, "Popen", lambda _words, **more: start(script, **more))
    assert command.run_apart(one_row(), 500.0) == ([], "")


# -- figures ---------------------------------------------------------------------------------------------------


def test_contestants_take_turns_and_keep_their_spread() -> None:
    order: list[str] = []
    ours, theirs = side_by_side(lambda: order.append("a"), lambda: order.append("b"), rounds=5)
    assert ours.turns == theirs.turns == 5 and ours.low <= ours <= ours.high
    changes = sum(one != other for one, other in itertools.pairwise(order))
    assert changes >= 2 * 5 - 1, "each turn has both"


def test_a_fraction_of_a_time_keeps_its_spread_and_a_ratio_is_a_number() -> None:
    time = Timing.of([1.0, 2.0, 3.0, 4.0, 5.0])
    tenth = time / 10
    assert isinstance(tenth, Timing) and (tenth, tenth.low, tenth.high) == (0.3, 0.2, 0.4)
    assert not isinstance(time / time, Timing) and time / time == 1.0


def test_a_ratio_is_that_of_the_peer_which_was_measured_in_the_same_run() -> None:
    figure = beside("mul_1e6", 0.1, {"CrypTen TTP": 0.4, "SPU SEMI2K": 0.15})
    assert figure.against == "SPU SEMI2K" and figure.ratio == pytest.approx(0.1 / 0.15)
    assert figure.met is False, "half of the best is wanted"
    assert beside("mul_1e6", 0.07, {"CrypTen TTP": 0.4, "SPU SEMI2K": 0.15}).met is True
    named = beside("chain_1000", 0.04, {"torch RPC": 0.2, "faster": 0.001})
    assert named.against == "torch RPC" and named.met is True


def test_without_a_peer_a_ratio_is_not_judged() -> None:
    figure = beside("mul_1e6", 0.1, {}, absent={"SPU SEMI2K": "not installed: make peers"})
    assert figure.ratio is None and figure.met is None
    assert beside("relu_1e6", 9.0, {}).met is False, "what needs no peer is missed without one"


def test_small_sizes_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_MODE", "tiny")
    assert beside("relu_1e6", 9.0, {"CrypTen TTP": 1.0}).met is None


def test_every_part_of_a_target_counts() -> None:
    both = {"CrypTen TTP": 1.0}
    known = {"error": 0.001, "error of CrypTen": 0.1}
    assert beside("exp_1e5", 0.1, both, details=known).met is True
    assert beside("exp_1e5", 0.1, both, details=known | {"error": 0.02}).met is False
    assert beside("exp_1e5", 0.1, both).met is None, "an error that is not known is not met"
    assert beside("lt_1e6", 0.1, both, details={"bytes an element": 81.0}).met is False


def test_what_encoding_costs_is_told_apart_from_what_the_function_does() -> None:
    both, where = {"CrypTen TTP": 1.0}, " on the encoded input"
    known = {"rounds": 27, "error": 6e-4, "error of CrypTen": 1.6e-3}
    exact = {f"error{where}": 2e-5, f"error of CrypTen{where}": 1.5e-3}
    assert beside("reciprocal_1e5", 0.1, both, details=known).met is None, "not known on the encoded input"
    figure = beside("reciprocal_1e5", 0.1, both, details=known | exact)
    assert figure.met is True and "error on the encoded input at most 0.1" in figure.target
    assert beside("reciprocal_1e5", 0.1, both, details=known | exact | {f"error{where}": 2e-4}).met is False
    assert "| 0.0006 | 0.0016 | 2e-05 and 0.0015 |" in report.markdown(
        Report(FACTS, "full", [figure], looks=[QUIET.as_json()])
    )


def test_amounts_are_read_by_people() -> None:
    assert [amount(0.0123), amount(2e-6), amount(None), amount(5e6, "B"), amount(0, "B")] == [
        "12.3 ms", "2 us", "-", "5 MB", "0 B",
    ]  # fmt: skip
    assert report.spread(Timing.of([0.01, 0.02, 0.03])) == "20 ms (15-25)"


def test_the_markdown_is_made_from_the_figures() -> None:
    found = Report(FACTS, "full", looks=[QUIET.as_json()])
    absent = {"SPU SEMI2K": "not installed: make peers"}
    found.figures = [
        beside(
            "mul_1e6",
            Timing.of([0.01, 0.02, 0.03]),
            {"CrypTen TTP": 0.05},
            absent=absent,
            details={"rounds": 2},
        ),
        Figure("another", 1.0, 2.0, "something"),
    ]
    text = report.markdown(found)
    row = "| mul, 1e6 | 20 ms (15-25) | CrypTen TTP 50 ms; SPU SEMI2K absent | 0.40 |"
    assert f"{row} 2 times as fast as the best peer | met |" in text
    assert "Absent: SPU SEMI2K (not installed: make peers)." in text
    assert "1 met, 0 missed, 0 not judged" in text and "| another | 1 s | 2 s | something | 0.50 |" in text
    assert all(target.what in text for target in TARGETS.values()), "rows without a figure are there, too"
    assert report.markdown(report.from_json(report.to_json(found))) == text


def test_the_block_of_a_page_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_block(page, "new")
    report.write_block(page, "newer")
    assert page.read_text() == f"before\n{report.BEGIN}\n\nnewer\n{report.END}\nafter\n"
    page.write_text("without")
    with pytest.raises(SystemExit, match="put them where the table belongs"):
        report.write_block(page, "new")


# -- the tables of what there is -------------------------------------------------------------------------------


def test_every_target_has_exactly_one_benchmark() -> None:
    rows = [row for each in BENCHMARKS.values() for row in each.rows]
    assert sorted(rows) == sorted(TARGETS)
    assert {key for key, target in TARGETS.items() if target.group == MPC} == set(SIZES)


def test_every_target_says_what_is_wanted() -> None:
    assert all(target.text for target in TARGETS.values())
    assert Target("x", MPC, "x", ratio=0.25, of="torch RPC").text == "4 times as fast as torch RPC"


def test_the_rows_of_a_card_are_in_the_results() -> None:
    lines = gpu_lines(report.RESULTS / "gpu_h200.json")
    assert len(lines) == len(GPU_TARGETS)
    assert [line for line in lines if line[3] == "not measured"] == []


def test_words_choose_by_name_file_or_row_and_targets_come_first() -> None:
    assert [each.name for each in chosen(["epoch_fit"])] == ["federated_epoch"]
    assert {each.area for each in chosen(["mpc_processes"])} == {"mpc_processes"}
    ranks = [each.rank for each in chosen([])]
    assert ranks == sorted(ranks) and chosen([])[0].rows


# -- peers -----------------------------------------------------------------------------------------------------


def test_a_peer_that_is_not_there_is_reported_as_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_PEERS", str(tmp_path))
    with pytest.raises(peer.PeerAbsentError, match="not installed: make peers"):
        peer.python_of("crypten")
    (tmp_path / "spu").mkdir()
    (tmp_path / "spu" / "FAILED").write_text("ERROR: no such version\n")
    with pytest.raises(peer.PeerAbsentError, match="could not be installed: ERROR: no such version"):
        peer.python_of("spu")


_ECHO = """
import sys
sys.path.insert(0, {root!r})
from bench.peer import answer_jobs
def answer(job, calls):
    print("noise on the way")
    if job == "wrong":
        raise ValueError("not this one")
    return {{"seconds": 0.5, "calls": calls}}
answer_jobs(answer, version="1.0")
"""


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_peer_answers_is_stopped_in_between_and_survives_a_failing_job() -> None:
    one = peer.Peer([sys.executable, "-c", _ECHO.format(root=str(peer.ROOT))])
    try:
        assert one.greeting["version"] == "1.0"
        assert one.ask("job", 3) == {"seconds": 0.5, "calls": 3}
        with pytest.raises(peer.PeerAbsentError, match="ValueError: not this one") as caught:
            one.ask("wrong")
        assert caught.value.peer is one
        assert one.job("job").timed(2) == 0.5
        until = time.monotonic() + 60
        while (status := _status(one._process.pid)) != "T" and time.monotonic() < until:
            time.sleep(0.01)
        assert status == "T", "it takes no core from whoever is timed"
        os.kill(one._process.pid, signal.SIGKILL)
        with pytest.raises(peer.PeerAbsentError, match="its process ended"):
            one.ask("job")
    finally:
        one.close()


def test_what_a_peer_needs_is_pinned() -> None:
    assert set(install.names()) == {"crypten", "flower", "ray", "spu"}
    for name in install.names():
        lines = [line for file in install.HERE.glob(f"{name}*.txt") for line in file.read_text().splitlines()]
        lines = [line for line in lines if not line.startswith("#")]
        pinned = dict(line.split("==") for line in lines if "==" in line)
        assert pinned.get("torch", "2.13.0") == "2.13.0"
        assert any(key.startswith((name, "flwr")) for key in pinned), f"the version of {name} is not said"


# -- growth ----------------------------------------------------------------------------------------------------


def test_a_curve_that_bends_upward_is_noticed() -> None:
    linear = Series("x", 1, "", [(float(x), x * 1e-6, 0.0) for x in (10, 100, 1000)])
    square = Series("x", 1, "", [(float(x), x * x * 1e-6, 0.0) for x in (10, 100, 1000)])
    assert linear.last_slope() == pytest.approx(1.0) and square.last_slope() == pytest.approx(2.0)
    assert Series("x", 1, "", linear.points[:2]).last_slope() is None


def test_a_chart_has_every_point_and_escapes_text() -> None:
    text = svg.chart("a < b", "elements", "s", [svg.Line("ours", [(1, 0.1), (10, 1.0), (100, 10.0)], 1.0)])
    assert (
        text.startswith("<svg")
        and text.count("<circle") == 3
        and "a &lt; b" in text
        and "stroke-dasharray" in text
    )
