"""What notebooks show: tables instead of `repr`, the user's lines of a traceback, bars of a training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import syft as sy
from syft.federated.history import History, RoundReport
from syft.federated.notebook_bars import NotebookBars
from syft.federated.records import ClientFailure
from syft.hooking import tracebacks

HOSTILE = "<script>alert(1)</script>"


def shown(thing: Any) -> str:
    """What a notebook shows. Nothing that others chose is markup in it."""
    markup = thing._repr_html_()
    assert "<script" not in markup and markup.count("<table>") == markup.count("</table>") == 1
    return markup


def test_a_pointer_shows_its_place_and_shape_and_no_value(bob: Any) -> None:
    pointer = torch.tensor([31337.5, 2.0]).tag("#ages").describe(HOSTILE).send(bob)
    markup = shown(pointer)
    assert "bob" in markup and "(2,)" in markup and "#ages" in markup and "31337" not in markup
    assert "&lt;script&gt;" in markup


def test_a_secret_shows_no_share(alice: Any, bob: Any, charlie: Any) -> None:
    secret = torch.tensor([4]).share(alice, bob, crypto_provider=charlie)
    shares = [str(p.location.get_obj(p.id_at_location).item()) for p in secret.child.pointers]
    assert not [share for share in shares if share in shown(secret)]


def test_a_worker_and_a_search_are_tables(bob: Any) -> None:
    kept = torch.ones(2, 3).tag("#x", HOSTILE).send(bob)
    found = bob.search("#x")
    assert found == list(found) and isinstance(found, list)
    assert "(2, 3)" in shown(found) and "1 found" in shown(found)
    assert "bob" in shown(bob) and ">1<" in shown(bob)
    assert "0 found" in shown(bob.search("#nothing")) and bob.search("#nothing") == []
    del kept


def test_a_plan_shows_its_operations() -> None:
    @sy.func2plan(args_shape=[(2,)])
    def double(x: Any) -> Any:
        return x.mul(2)

    assert "mul" in shown(double)
    assert "not built" in shown(sy.func2plan()(lambda x: x))


def test_a_history_shows_every_round() -> None:
    failure = ClientFailure("clinic", "error", HOSTILE)
    rounds = [
        RoundReport(1, ("a", "b"), ("a",), (failure,), training={"loss": 0.5}),
        RoundReport(2, ("a",), ("a",), evaluation={"accuracy": 0.75}),
    ]
    markup = shown(History(rounds))
    assert "1 of 2" in markup and "0.75" in markup and "training loss" in markup


def test_a_bill_shows_what_its_text_shows(alice: Any, bob: Any, charlie: Any) -> None:
    secret = torch.tensor([4, 5]).share(alice, bob, crypto_provider=charlie)
    with sy.mpc.measure() as bill:
        _ = secret * secret
    assert "mul" in shown(bill) and "rounds" in shown(bill) and "total" in shown(bill)


def test_a_budget_shows_what_is_left(bob: Any) -> None:
    private = torch.ones(50, 1).private_tensor(allowed_users=("owner",)).tag("#p").send(bob, user="owner")
    bob.set_budget(dataset="#p", epsilon=2.0)
    bob.release(private, "count", epsilon=0.5, user="ann")
    markup = shown(bob.budget("ann", "#p"))
    assert "0.5 of 2" in markup and "1.5" in markup and "count" in markup


# -- tracebacks --------------------------------------------------------------------------------------


def failing(bob: Any) -> sy.exceptions.SyftError:
    try:
        torch.ones(2).send(bob) + torch.ones(2)
    except sy.exceptions.TensorsNotCollocatedException as error:
        return error
    raise AssertionError


def test_a_traceback_has_the_users_lines_and_counts_the_others(bob: Any) -> None:
    error = failing(bob)
    text = tracebacks.folded(error, error.__traceback__)
    assert "torch.ones(2).send(bob) + torch.ones(2)" in text
    assert "/syft/core/" not in text and "frames inside syft and torch; SYFT_TRACEBACK=full" in text
    assert text.rstrip().splitlines()[-2].startswith("syft.exceptions.TensorsNotCollocatedException: ")


def test_a_traceback_that_is_all_inside_is_not_folded() -> None:
    with pytest.raises(sy.exceptions.WorkerNotFoundException) as caught:
        sy.local_worker.get_worker("nobody at all", fail_hard=True)
    inside = caught.value.__traceback__.tb_next if caught.value.__traceback__ else None
    assert "get_worker" in tracebacks.folded(caught.value, inside)


def test_ipython_is_given_the_lines_that_it_shows(bob: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    shell = SimpleNamespace(
        custom_exceptions=(),
        _showtraceback=lambda kind, error, lines: told.append(lines),
        InteractiveTB=SimpleNamespace(structured_traceback=lambda *a, **k: ["everything"]),
    )
    shell.set_custom_exc = lambda kinds, handler: shell.__dict__.update(
        custom_exceptions=kinds, handler=handler
    )
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    tracebacks.install()
    assert shell.custom_exceptions == (sy.exceptions.SyftError,)
    error = failing(bob)
    returned = shell.handler(shell, type(error), error, error.__traceback__)
    assert told == [returned] and "TensorsNotCollocated" in returned[-2]
    monkeypatch.setenv("SYFT_TRACEBACK", "full")
    assert shell.handler(shell, type(error), error, error.__traceback__) == ["everything"]


def test_a_hook_of_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(*_args: Any) -> None: ...

    monkeypatch.setattr(sys, "excepthook", mine)
    tracebacks.install()
    assert sys.excepthook is mine


def test_a_script_prints_the_short_traceback_and_all_of_it_when_asked(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, syft as sy\n"
        "bob = sy.VirtualWorker(sy.TorchHook(torch), id='bob')\n"
        "torch.ones(2).send(bob) + torch.ones(2)\n"
    )
    lines = {}
    for asked in ("", "full"):
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "SYFT_TRACEBACK": asked},
        )
        assert done.returncode == 1 and "TensorsNotCollocatedException" in done.stderr
        assert "line 3" in done.stderr
        lines[asked] = len(done.stderr.splitlines())
    assert lines[""] <= 8 < lines["full"]


# -- bars --------------------------------------------------------------------------------------------


def test_bars_of_a_notebook_are_redrawn_in_place() -> None:
    drawn: list[str] = []
    handle = SimpleNamespace(update=drawn.append)

    def display(markup: str, display_id: bool) -> Any:
        drawn.append(markup)
        return handle

    bars = NotebookBars(SimpleNamespace(HTML=str, display=display))
    rounds = bars.add_task("rounds", total=3)
    clients = bars.add_task("clients", total=None)
    bars.start()
    bars.reset(clients, total=2)
    bars.update(clients, advance=1, told=HOSTILE)
    bars.update(rounds, completed=1, told="loss 0.5")
    bars.stop()
    assert len(drawn) == 5 and 'value="1" max="3"' in drawn[-1] and "loss 0.5" in drawn[-1]
    assert "1 of 2" in drawn[-1] and "<script" not in "".join(drawn)
