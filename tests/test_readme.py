"""What the README shows as output is what its examples print."""

from __future__ import annotations

import re
from pathlib import Path

from forked_runs import ROOT, run

PAIR = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_examples_of_the_readme_print_what_it_shows(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    pairs = PAIR.findall(readme)
    assert len(pairs) == 4 == readme.count("```python\n"), "each pillar has an example and its output"
    assert all(len(code.splitlines()) <= 13 for code, _shown in pairs)
    mark = "\nprint('-- end of an example --')\n"
    status, printed = run(tmp_path, mark.join(code for code, _shown in pairs))
    assert status == 0, printed
    for (_code, shown), output in zip(pairs, printed.split("-- end of an example --\n"), strict=True):
        pattern = ".*".join(map(re.escape, shown.strip().split("...")))
        assert re.fullmatch(pattern, output.strip()), f"shown:\n{shown}\nprinted:\n{output}"
