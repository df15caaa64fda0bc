"""Benchmarks: `make bench`, or `python -m bench [words of names]`. One table, and JSON in bench/results/."""
