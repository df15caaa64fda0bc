"""Three `syft worker` processes with folders of data, and a scientist who finds it, writes a model with mock data, trains
in rounds over all of them, trains with noise, and asks for a release."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import forked
import syft as sy
from syft.cli import main
from syft.federated import Trainer

pytestmark = pytest.mark.network

ABOUT = """
[offer]
target = "sick"
description = "a trial"
[columns.sick]
kind = "category"
categories = ["no", "yes"]
show_categories = "names"
[columns.sex]
kind = "category"
categories = ["f", "m"]
"""


def fill(folder: Path, seed: int) -> None:
    """Patients who are sick when age and weight, together, are high; and two classes of images."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(60, 2, generator=generator)
    lines = [
        f"{a:.4f},{w:.4f},{'fm'[i % 2]},{'yes' if a + w > 0 else 'no'},someone {i}"
        for i, (a, w) in enumerate(rows.tolist())
    ]
    (folder / "patients.csv").write_text("\n".join(["age,weight,sex,sick,name", *lines]) + "\n")
    (folder / "patients.toml").write_text(ABOUT)
    for name, grey in (("dark", 20), ("light", 220)):
        (folder / "scans" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("L", (4, 4), grey + number).save(folder / "scans" / name / f"{number}.png")
    (folder / "scans.toml").write_text('dtype = "float32"\nshow_categories = "count"\n')


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Of three workers: one with a process for each user and a book of budgets, two with one for all."""
    home = tmp_path_factory.mktemp("three")
    assert main(["budget", "create", str(home / "book")]) == 0
    for tag in ("#patients", "#scans"):
        assert (
            main(
                ["budget", "set", str(home / "book"), "--dataset", tag, "--epsilon", "50", "--delta", "1e-5"]
            )
            == 0
        )
    running = []
    for number in range(3):
        fill(home / f"data{number}", number)
        arguments = [
            "--id",
            f"h{number}",
            "--listen",
            "tcp://127.0.0.1:0",
            "--data",
            str(home / f"data{number}"),
        ]
        more = ["--budgets", str(home / "book")] if number == 0 else ["--isolation", "none"]
        running.append(
            forked.start(
                *("-m", "syft", "worker", *arguments, "--offer", "scans=scans", "--threads", "1", *more),
                stdout=forked.PIPE,
                stderr=forked.DEVNULL,
                text=True,
            )
        )
    try:
        lines = [str(process.stdout.readline()) for process in running if process.stdout is not None]
        yield [found.group(1) for line in lines if (found := re.search(r"at (\S+?),", line))]
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.communicate(timeout=800)


def model_for(inputs: int) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(inputs, 2))


def test_a_scientist_finds_trains_in_rounds_and_with_noise(
    addresses: list[str], hook: Any, me: Any, types: Any
) -> None:
    assert len(addresses) == 3
    workers = [sy.connect(address, auto_add=False) for address in addresses]
    try:
        patients, scans = workers[0].datasets()
        assert (patients.name, patients.rows, patients.description) == ("patients", "60", "a trial")
        assert [column.name for column in patients.parts[0].columns] == ["age", "weight", "sex"]
        assert patients.parts[0].columns[2].categories is None  # not shown
        assert patients.parts[1].columns[0].categories == ("no", "yes")
        assert scans.parts[0].shape == (1, 4, 4) and scans.parts[1].columns[0].count == 2
        assert workers[1].datasets() == [patients, scans]
        mock = workers[0].mock("patients", 16)
        assert all(map(torch.equal, mock.tensors, workers[2].mock("patients", 16).tensors))
        assert model_for(3)(mock.tensors[0]).shape == (16, 2)

        for key, inputs in (("patients", 3), ("scans", 16)):
            trainer = Trainer(
                model_for(inputs),
                F.cross_entropy,
                workers,
                dataset_key=key,
                optimizer_args={"lr": 0.5},
                batch_size=10,
            )
            history = trainer.fit(rounds=2)
            assert len(history.rounds) == 2 and not any(one.failures for one in history.rounds)
            assert trainer.evaluate_clients().metrics["loss"] < 0.65

        (inputs,) = workers[0].search(["#patients", "#inputs"])
        (target,) = workers[0].search(["#patients", "#target"])
        from syft.dp.release_training import train_privately

        private = train_privately(
            inputs, target, model_for(3), loss="cross_entropy", user="me", epsilon=20.0, delta=1e-6, epochs=2,
            batch_size=20, lr=0.5,
        )  # fmt: skip
        assert not torch.equal(private[1].weight, model_for(3)[1].weight)  # type: ignore[index]
        assert abs(workers[0].release(inputs[:, 0], "mean", epsilon=5.0, bounds=(-3, 3))) < 1.5
        with pytest.raises(sy.exceptions.GetNotPermittedError):
            inputs.copy().get()
    finally:
        for worker in workers:
            worker.close()

    out = types("search", addresses[0], "#patients")[1]
    assert (
        "float32 (3,) age, weight, sex" in out
        and "sick (no, yes)" in out
        and "training in rounds, releases" in out
    )
    assert "someone" not in out
    found = json.loads(types("search", addresses[1], "--json")[1])
    assert [one["name"] for one in found if one["kind"] == "dataset"] == ["patients", "scans"]
    assert "patients, scans" in types("status", addresses[2])[1]
