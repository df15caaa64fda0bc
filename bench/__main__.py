"""`python -m bench [words] [--quick | --tiny] [--busy] ...`: run the benchmarks whose names contain any of the words.

Each benchmark runs in a process of its own, which is ended when its time is up; what it had found by then is kept. When
the machine is too busy, before or after one, its figures are not reported, unless `--busy` is given, which marks them.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import importlib.util
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import machine, report
from bench.harness import BENCHMARKS, Benchmark, chosen, mode
from bench.report import Report

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
#: Seconds to wait for a busy machine to become quiet, before each benchmark.
PATIENCE = 20.0
#: Seconds after a benchmark in which its own processes may still be ending.
SETTLING = 3.0
#: The last rank of a quick run.
QUICK = 4
#: Share of a benchmark's limit that it has when fewer turns are taken.
SHARES = {"full": 1.0, "quick": 0.6, "tiny": 2.0}


def register() -> None:
    """Import the files, which puts their benchmarks into the registry."""
    from bench import (  # noqa: F401
        chain,
        dp,
        fedavg,
        fedavg_flower,
        fedavg_many,
        federated,
        fine_tuning,
        first_use,
        integrity,
        memory,
        mpc_processes,
        network,
        network_isolated,
        network_trouble,
        plain_torch,
        plan,
        pointers,
        secrets_in_process,
        secure_aggregation,
        serde,
        transport,
    )


# -- the process of one benchmark ------------------------------------------------------------------------------


def run_here(name: str) -> int:
    """Run one, and print its figures as lines of JSON."""
    import torch

    import syft

    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    syft.TorchHook(torch)
    for figure in BENCHMARKS[name].run():
        print(json.dumps(report.figure_to_json(figure)), file=out)
    return 0


# -- the process that watches ----------------------------------------------------------------------------------


def run_apart(each: Benchmark, limit: float) -> tuple[list[Any], str]:
    """The figures of a benchmark, and why there are no more of them, if there should be."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", "--one", each.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    found, until = [], time.monotonic() + limit
    assert process.stdout is not None
    assert process.stderr is not None
    said, text = b"", {process.stdout: b"", process.stderr: b""}
    why = ""
    while text:
        has_ended = process.poll() is not None
        ready, _, _ = select.select(list(text), [], [], 0.2)
        if not ready and has_ended:
            break  # what it has left running may have its streams open
        if time.monotonic() > until:
            why = f"timed out after {limit:.0f} s"
            break
        for stream in ready:
            piece = os.read(stream.fileno(), 65536)
            if not piece:
                rest = text.pop(stream)
                said = rest if stream is process.stderr else said
                continue
            text[stream] += piece
            if stream is process.stdout:
                *lines, text[stream] = text[stream].split(b"\n")
                found += [report.figure_from_json(json.loads(line)) for line in lines]
    said = text.get(process.stderr, said)
    if not why:
        process.wait()
    is_failed = not why and process.returncode != 0
    _end_session(process)
    if is_failed:
        last = [line for line in said.decode(errors="replace").splitlines() if line.strip()] or [""]
        why = f"failed: {last[-1][:300]}"
    return found, why


def _end_session(process: Any) -> None:
    """The process and all that it started, also in groups of their own (peers)."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            session = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3])
            if session == process.pid:
                os.kill(int(entry.name), signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()


def measure(found: Report, wanted: list[Benchmark], options: argparse.Namespace) -> None:
    """All of them, in order, as long as there is time."""
    began = time.monotonic()
    while True:
        first = machine.look()
        complaints = first.complaints()
        if not complaints or options.busy or time.monotonic() - began > options.wait:
            break
    found.looks.append(first.as_json())
    if complaints and not options.busy:
        raise SystemExit(
            f"The machine is too busy to measure anything: {'; '.join(complaints)}. End what else runs and try again, or "
            "pass --busy: every row will say that it was."
        )
    print(report.HEAD)
    for each in wanted:
        left = options.minutes * 60 - (time.monotonic() - began)
        limit = min(each.limit * SHARES[mode()], left)
        if left < 5:
            _leave_out(found, each, f"no time left of {options.minutes:g} minutes")
            continue
        _measure_one(found, each, limit, first, options.busy)
        found.seconds = time.monotonic() - began
        if options.json:
            Path(options.json).write_text(report.to_json(found))


def _look(found: Report, first: machine.Look, patience: float) -> list[str]:
    """What is to be said against the machine, after waiting a while for it to become quiet."""
    until = time.monotonic() + patience
    while True:
        now = machine.look()
        complaints = now.complaints(first)
        if not complaints or time.monotonic() > until:
            found.looks.append(now.as_json())
            return complaints


def _measure_one(found: Report, each: Benchmark, limit: float, first: machine.Look, is_kept: bool) -> None:
    """Once more, if the machine was not quiet."""
    for attempt in (1, 2):
        before = _look(found, first, 0.0 if is_kept else PATIENCE)
        if before and not is_kept:
            figures, why, troubles = [], "", before
            break
        figures, why = run_apart(each, limit)
        troubles = [*before, *_look(found, first, 0.0 if is_kept else SETTLING)]
        if not troubles or is_kept or attempt == 2:
            break
        print(f"    {each.name}: {'; '.join(troubles)}: once more", flush=True)
    if troubles and not is_kept:
        _leave_out(found, each, f"the machine was busy: {'; '.join(troubles)}")
        return
    for figure in figures:
        found.figures.append(figure)
        if troubles:
            found.busy[figure.row or figure.name] = "; ".join(troubles)
        print(report.text_row(figure, bool(troubles)), flush=True)
    missing = [row for row in each.rows if row not in {figure.row for figure in figures}]
    if why:
        _leave_out(found, each, why, missing)


def compile_package() -> None:
    """Write the bytecode of `syft`, as pip does when it installs it: first uses import."""
    spec = importlib.util.find_spec("syft")
    for folder in (spec and spec.submodule_search_locations) or ():
        compileall.compile_dir(folder, quiet=2)


def _leave_out(found: Report, each: Benchmark, why: str, rows: list[str] | None = None) -> None:
    print(f"    {each.name}: {why}", flush=True)
    found.left_out[each.name] = why
    found.left_out |= dict.fromkeys(each.rows if rows is None else rows, why)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="of names, files or rows of bench/targets.py; all without")
    parser.add_argument("--quick", action="store_true", help="fewer turns, and the rows of the targets alone")
    parser.add_argument("--tiny", action="store_true", help="small sizes, two turns: to see that it runs")
    parser.add_argument("--targets", action="store_true", help="the rows of the targets alone")
    parser.add_argument("--busy", action="store_true", help="report on a busy machine too; every row says so")
    parser.add_argument(
        "--wait", type=float, default=0.0, help="seconds to wait for the machine to become quiet"
    )
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="for all of it; the most important rows come first"
    )
    parser.add_argument("--json", default=str(report.RESULTS / "latest.json"), help="where the figures go")
    parser.add_argument("--markdown", help="where the tables go")
    parser.add_argument(
        "--page", nargs="?", const=str(PAGE), help="the page whose generated block is written"
    )
    parser.add_argument("--list", action="store_true", help="what there is")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    register()
    if options.one:
        return run_here(options.one)
    os.environ["BENCH_MODE"] = "tiny" if options.tiny else "quick" if options.quick else "full"
    wanted = [each for each in chosen(options.words) if each.rows or not options.targets]
    if options.quick and not options.words:
        wanted = [each for each in wanted if each.rows and each.rank <= QUICK]
    if options.list:
        for each in wanted:
            print(f"{each.rank}  {each.area + '.py':<24} {each.name:<36} {' '.join(each.rows)}")
        return 0
    if not wanted:
        raise SystemExit(
            f"No benchmark has a name with any of {options.words}: `python -m bench --list` shows them."
        )
    compile_package()
    found = Report(machine.facts(), mode())
    Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    measure(found, wanted, options)
    text = report.markdown(found)
    Path(options.json).write_text(report.to_json(found))
    Path(options.markdown or Path(options.json).with_suffix(".md")).write_text(text)
    if options.page:
        report.write_block(Path(options.page), text)
    judged = [figure.met for figure in found.figures if figure.row]
    print(
        f"{judged.count(True)} targets met, {judged.count(False)} missed; {found.seconds:.0f} s; {options.json}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
