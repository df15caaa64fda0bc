#!/usr/bin/env bash
# The run whose figures the page shows: every target beside its peers, then how cost grows. At most 35 minutes, mostly 20.
#
#     bench/full_run.sh [--tiny] [--busy]
#
# Writes bench/results/run_DATE.json (and .md), bench/results/growth.json, docs/plots, and the generated blocks of
# docs/benchmarks.md. It waits up to two minutes for the machine to become quiet. PYTHON and BENCH_PEERS name another
# interpreter and another folder of peers; BENCH_MINUTES is for the first part.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${PYTHON:-.venv/bin/python}"
name="run_$(date -u +%Y-%m-%d_%H%M)"
tiny="" page="docs/benchmarks.md" plots="docs/plots" growth="bench/results/growth.json"
for word in "$@"; do
    if [ "$word" = "--tiny" ]; then
        # NB: nothing that is committed is touched
        tiny="--tiny" name="latest_tiny" plots="bench/results/latest_plots"
        growth="bench/results/latest_growth.json" page="bench/results/latest_page.md"
        cp docs/benchmarks.md "$page"
    fi
done
PYTHONPATH="$PWD/src" "$python" -m bench "$@" --wait 120 --minutes "${BENCH_MINUTES:-14}" \
    --json "bench/results/$name.json" --markdown "bench/results/$name.md" --page "$page"
PYTHONPATH="$PWD/src" timeout 1200 "$python" -m bench.growth $tiny --json "$growth" --plots "$plots" --page "$page" \
    || echo "growth: not all curves (see above)"
echo "Written: bench/results/$name.json, $growth, $plots, $page"
