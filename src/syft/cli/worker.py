"""`syft worker`: serve data, and computations on it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from syft.cli.config import refuse_late
from syft.cli.logs import LogFormat, set_up
from syft.cli.metrics import served_metrics
from syft.cli.owner_socket import served
from syft.cli.tls import certificate_files, default_address

_log = logging.getLogger("syft.worker")

#: NB: no line breaks within a paragraph: they would be shown.
HELP = (
    "Serve data, and computations on it, until Ctrl-C.\n\n"
    "Try it on one machine:\n\n"
    "    syft worker --id hospital --data ./data\n\n"
    "For others, with encryption and proof of who they are:\n\n"
    "    syft cert make --host hospital.example\n\n"
    "    syft token new ana\n\n"
    "    syft worker --id hospital --data ./data --listen wss://0.0.0.0:8777 \\\n"
    "        --tls certificates --tokens tokens --audit audit.jsonl\n\n"
    "Nobody can fetch your data, or what is computed from it, unless the policy file says so. What users may learn "
    "with noise, and how much of it, is what you set a budget for:\n\n"
    "    syft budget create budgets\n\n"
    "    syft budget set budgets --dataset '#patients' --epsilon 2 --delta 1e-6\n\n"
    "    syft worker --id hospital --data ./data --tokens tokens --budgets budgets"
)


class Isolation(StrEnum):
    """Where users' commands run."""

    process = "process"
    none = "none"


#: How long to wait for a peer that is not there yet.
_PEER_SECONDS = 60.0


def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            callback=refuse_late,
            help="A TOML file of these options, without their dashes; what is given here as well counts.",
        ),
    ] = None,
    id: Annotated[str, typer.Option("--id", help="What the worker is called; clients see it.")] = "worker",
    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="Where to listen: ws://, wss://, tcp://, tls://HOST:PORT or unix:///PATH. May be given several times; "
            "port 0 takes a free one.",
            show_default="ws://127.0.0.1:8777, with a certificate wss://localhost:8777",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder of data to serve, each file tagged # and its name: .csv, .parquet, .arrow, .feather, .npy, "
            ".npz, .safetensors, and folders of images. What cannot be served is left out, with a line in the log; see "
            "`syft data check`."
        ),
    ] = None,
    data_limit: Annotated[
        str | None,
        typer.Option(
            help="How much memory the data may take, e.g. '8 GiB'.", show_default="half of the machine's"
        ),
    ] = None,
    offer: Annotated[
        list[str] | None,
        typer.Option(
            help="Offer files of --data for training: NAME=INPUTS,TARGET, e.g. scans=images.npy,labels.npy, or "
            "NAME=FOLDER for images by class. May be given several times; see also [offer] in the .toml of a file."
        ),
    ] = None,
    person_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Which column of a file names the person a row is of, for statistics by group: FILE=COLUMN, e.g. "
            "visits.csv=patient. May be given several times; see also person_column in the .toml of a file."
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="A directory in which tagged data that users send is kept over restarts and crashes."
        ),
    ] = None,
    supplies: Annotated[
        Path | None,
        typer.Option(
            help="A directory in which to keep correlations that users have dealt ahead of time, for computations on "
            "secrets; each is used once, over restarts."
        ),
    ] = None,
    supplies_key: Annotated[
        Path | None,
        typer.Option(
            help="The file with the key of --supplies, made if it is not there; beside it is the list of what was used. "
            "On another disk, a stolen or restored directory is of no use.",
            show_default="key, in the directory",
        ),
    ] = None,
    tls: Annotated[
        Path | None,
        typer.Option(
            help="The folder that `syft cert make` filled: the certificate and the key in it are for wss:// and tls://."
        ),
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="Instead of --tls: the worker's certificate.")] = None,
    key: Annotated[Path | None, typer.Option(help="The key of the certificate.")] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(help="Ask clients for a certificate of this authority; it names their user."),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(help="Ask clients for a token made with `syft token new` in this directory."),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="The policy file: who may compute, who may fetch, how much.")
    ] = None,
    budgets: Annotated[
        Path | None,
        typer.Option(
            help="The book of budgets, made with `syft budget create` and `syft budget set`: users may then ask for "
            "statistics of your data that have noise, and every one is charged to the book."
        ),
    ] = None,
    requests: Annotated[
        Path | None,
        typer.Option(
            help="Take requests, and keep them in this file, which is made if it is missing: users ask to fetch, to "
            "train or for a release, and you decide with `syft requests`, `syft approve` and `syft deny`."
        ),
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(help="Write every decision to this file, one JSON line each.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            help="Another worker to which data may be moved: ID=ADDRESS. May be given several times."
        ),
    ] = None,
    peer_token_file: Annotated[
        Path | None,
        typer.Option(
            help="The file with the token to show to peers. Without it the environment variable SYFT_PEER_TOKEN counts."
        ),
    ] = None,
    peer_ca: Annotated[Path | None, typer.Option(help="The authority to trust for peers.")] = None,
    isolation: Annotated[
        Isolation,
        typer.Option(
            help="process: each user's commands run in a process of their own, with limits on memory, time and system "
            "calls. none: all in this one."
        ),
    ] = Isolation.process,
    device: Annotated[
        str | None,
        typer.Option(
            help="Where to keep tensors and compute, e.g. cuda:0. It needs --isolation none.",
            show_default="cpu",
        ),
    ] = None,
    peer_patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds for which a peer may be out of reach before computations on secrets with it fail.",
        ),
    ] = 1.0,
    threads: Annotated[int | None, typer.Option(help="Threads that torch may use.")] = None,
    heartbeat: Annotated[float, typer.Option(help="Seconds between signs of life.")] = 10.0,
    grace: Annotated[
        float, typer.Option(help="Seconds after which what a vanished client held is freed.")
    ] = 60.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Answer Prometheus on this port of the loopback interface; 0 takes a free one, and where is printed.",
        ),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option(
            help="Make a socket here through which you, on this machine, ask the worker: see `syft sessions`."
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="How to log, on the standard error.")
    ] = LogFormat.text,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    data_on_stdin: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """See `HELP`."""
    set_up(log_format, log_level)
    import torch

    import syft as sy
    from syft.identity.tokens import TokenVerifier
    from syft.isolation.broker import Broker
    from syft.isolation.sealed import Sealed
    from syft.mpc.kernels import keep_freed_memory
    from syft.mpc.supplies import keep_supplies
    from syft.policy.audit import AuditLog
    from syft.policy.owner_policy import OwnerPolicy
    from syft.workers.network.presence import ExpectedPeers
    from syft.workers.network.server import ServerSettings
    from syft.workers.network.server_worker import NetworkServerWorker, stopped_by_signals

    if isolation is Isolation.process and device not in (None, "cpu"):
        raise ValueError(
            f"--device {device} was given, and users' commands run in processes of their own, which cannot open it. "
            "Add --isolation none: commands then run in the worker's process, checked by its policy and its table of "
            "operations."
        )
    if threads is not None:
        torch.set_num_threads(threads)
    keep_freed_memory()
    hook = sy.TorchHook(torch, verbose=False)
    rules = OwnerPolicy.load(policy) if policy is not None else OwnerPolicy.for_network()
    if audit is not None:
        rules.audit_sink = AuditLog(audit, id)
    certificate, key = certificate_files(tls, cert, key)
    sealed = Sealed() if isolation is Isolation.process else None
    contents: Any = None
    offered: tuple[Any, ...] = ()
    tensors: list[Any] = _from_stdin() if data_on_stdin else []
    if data is not None:
        contents, offered = from_folder(data, data_limit, offer or (), person_column or ())
        tensors = [one.tensor for one in contents.served] + tensors
    elif offer or person_column:
        raise ValueError(
            f"{'--offer' if offer else '--person-column'} was given, and it names files of the folder --data, which was "
            "not given. Add --data FOLDER."
        )
    if sealed is not None:
        tensors = [sealed.take(tensor) for tensor in tensors]
    worker = NetworkServerWorker(
        hook,
        listen or [default_address(certificate is not None)],
        id,
        tensors,
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        tokens=TokenVerifier.open(tokens, id) if tokens is not None else None,
        policy=rules,
        directory=keep,
        settings=ServerSettings(heartbeat=heartbeat, grace=grace),
        device=device,
    )
    if contents is not None:
        worker.name_persons(contents)
    for one in offered:
        worker.offer(one)
        _log.info("offers %s", " ".join(str(one.info).split()))
    if budgets is not None:
        _keep_budgets(worker, budgets)
    if supplies is not None:
        keep_supplies(worker, supplies, supplies_key)
    elif supplies_key is not None:
        raise ValueError("--supplies-key was given without --supplies: name the directory, too.")
    if requests is not None:
        worker.keep_requests(requests)
    broker = None if sealed is None else Broker(worker, sealed, threads)
    # Whoever asks before the peers are connected waits a moment for them.
    worker.extension(ExpectedPeers).update(named.partition("=")[0] for named in peer or ())
    with stopped_by_signals(worker):
        worker.start(block=False)
        try:
            for named in peer or ():
                worker.add_worker(
                    _connect_to_peer(hook, named, _peer_token(peer_token_file), peer_ca, peer_patience)
                )
            if broker is not None:
                broker.wait_until_ready()
            with served_metrics(worker, metrics_port) as metrics_address, served(worker, control):
                _tell_where(worker, metrics_address)
                if data_on_stdin:
                    _stop_with_whoever_started(worker)
                worker.wait()
                _log.info("%s: shutting down", id)
        finally:
            worker.stop()
            if broker is not None:
                broker.close()
    _log.info("%s: has ended", id)


def _tell_where(worker: Any, metrics_address: str | None) -> None:
    """Where the worker is, on the standard output, so that whoever started it can read it; and in the log."""
    count = len(worker._objects)
    served = f"{' '.join(worker.addresses)}, process {os.getpid()}, {count} object{'s' * (count != 1)}"
    # NB: one write each, or the lines of several workers with one standard output mix where it is not buffered.
    print(f"worker {worker.id} at {served}\n", end="", flush=True)
    if metrics_address is not None:
        print(f"metrics at {metrics_address}\n", end="", flush=True)
    _log.info("%s: serves at %s", worker.id, served)


def _keep_budgets(worker: Any, book: Path) -> None:
    from syft.dp.release import serve_book

    for name in serve_book(worker, book):
        tags = sorted({tag for obj in worker._objects.values() for tag in getattr(obj, "tags", None) or ()})
        _log.warning(
            "%s has a budget for %r, and no data here has that tag. The tags are: %s.",
            book,
            name,
            ", ".join(tags) or "none",
        )


def _peer_token(file: Path | None) -> str | None:
    """From a file or the environment: arguments of a process can be read by everybody on its machine."""
    if file is None:
        return os.environ.get("SYFT_PEER_TOKEN")
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--peer-token-file {file} cannot be read: {error}.") from error


def _connect_to_peer(
    hook: Any, named: str, token: str | None, ca: Path | None, peer_patience: float = 1.0
) -> Any:
    from syft.exceptions import WorkerUnreachableError
    from syft.workers.network.client_worker import NetworkClientWorker

    peer_id, separator, address = named.partition("=")
    if not separator:
        raise ValueError(f"--peer {named!r}: write ID=ADDRESS, e.g. clinic=wss://clinic.example:8777")
    until = time.monotonic() + _PEER_SECONDS
    while True:
        try:
            return NetworkClientWorker(
                hook,
                address,
                peer_id,
                token=token,
                ca=None if ca is None else str(ca),
                auto_add=False,
                peer_patience=peer_patience,
            )
        except WorkerUnreachableError:  # two that are each other's peers cannot both be the second to start
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def from_folder(
    folder: Path, limit: str | None = None, offers: Sequence[str] = (), persons: Sequence[str] = ()
) -> tuple[Any, Any]:
    """What can be served of a folder, and what is offered. What cannot is a line of the log each."""
    from syft.data.folder import read_folder
    from syft.data.offers import with_offers
    from syft.policy.owner_policy import as_bytes

    contents = read_folder(folder, None if limit is None else as_bytes(limit, "--data-limit"), persons)
    contents, offered = with_offers(contents, folder, offers)
    for problem in contents.problems:
        _log.warning("left out: %s", " ".join(str(problem).split()))
    for note in contents.notes:
        _log.info("data: %s", " ".join(note.split()))
    return contents, offered


def _from_stdin() -> list[Any]:
    """What `NetworkServerWorker.start(process=True)` hands over."""
    from syft import serde

    length = int.from_bytes(sys.stdin.buffer.read(8), "big")
    return list(serde.deserialize(bytearray(sys.stdin.buffer.read(length))))


def _stop_with_whoever_started(worker: Any) -> None:
    """Ask the worker to stop when the standard input is closed: whoever handed over the data is gone."""

    def wait_for_the_end() -> None:
        while sys.stdin.buffer.read(1):
            pass
        worker.ask_to_stop()

    threading.Thread(target=wait_for_the_end, name="end of stdin", daemon=True).start()
