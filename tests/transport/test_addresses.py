"""Addresses, the registry, limits, and what is particular to one transport."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from syft import transport
from syft.transport import CannotConnect, CannotListen, FrameLimits
from syft.transport.memory import allocate
from syft.transport.stream import coalesce


@pytest.mark.parametrize(
    "address",
    [
        "", "tcp", "tcp:", "tcp://", "://x", "tcp://localhost", "tcp://localhost:", "tcp://:80", "tcp://h:99999",
        "tcp://h:-1", "tcp://h:١", "tcp://::1:80", "tcp://[::g]:80", "tcp://[::1:80", "tls://h:80/path",
        "ws://user@h:80", "wss://h:80?x", "ws://h h:80", "unix://relative", "unix:///", "unix:///a/" + "b" * 200,
        "inproc://" + "n" * 300, "inproc://a\nb", None, 80,
    ],
)  # fmt: skip
def test_a_bad_address_is_refused_with_a_sentence(address: Any) -> None:
    for call in (transport.connect, transport.listen):
        with pytest.raises(ValueError, match=r"[.:]"):
            call(address)


def test_an_unknown_scheme_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'http'.*inproc://, tcp://, tls://, unix://, ws://, wss://"):
        transport.connect("http://localhost:80")


def test_a_transport_is_registered_once_under_a_plain_name() -> None:
    for scheme in ("tcp", "TCP", "a b", ""):
        with pytest.raises(ValueError, match="register"):
            transport.register(scheme, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tls://127.8.9.1:1", True),
        ("ws://localhost:1", True),
        ("wss://[::1]:1", True),
        ("tcp://[::ffff:127.0.0.1]:1", True),
        ("unix:///run/x", True),
        ("inproc://x", True),
        ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False),
        ("ws://example.org:1", False),
        ("ws://localhost.example.org:1", False),
        ("tcp://10.0.0.1:1", False),
    ],
)
def test_is_loopback(address: str, expected: bool) -> None:
    assert transport.is_loopback(address) is expected


@pytest.mark.network
def test_ipv6(make_wires: Any) -> None:
    wires = make_wires("tcp")
    try:
        listener = wires.keep(transport.listen("tcp://[::1]:0"))
    except CannotListen:
        pytest.skip("this machine has no IPv6")
    assert listener.address.startswith("tcp://[::1]:")
    ours = wires.connect(listener)
    ours.send([b"six"])
    theirs = wires.keep(listener.accept(5))
    assert theirs.receive(5) == b"six"
    assert theirs.is_local and theirs.peer.startswith("tcp://[::1]:")


@pytest.mark.network
def test_a_name_nobody_has_and_a_port_nobody_listens_at() -> None:
    with pytest.raises(CannotConnect, match="Nobody answers"):
        transport.connect("tcp://127.0.0.1:1", timeout=2)
    with pytest.raises(CannotConnect, match="Nobody answers"):
        transport.connect("ws://no-such-host.invalid:80", timeout=5)
    with pytest.raises(CannotListen, match="failed"):
        transport.listen("tcp://192.0.2.1:0")


@pytest.mark.network
def test_a_taken_port_is_refused(make_wires: Any) -> None:
    for scheme in ("tcp", "ws"):
        listener = make_wires(scheme).listen()
        with pytest.raises(CannotListen, match="another port"):
            transport.listen(listener.address)


def test_limits_are_checked() -> None:
    for wrong in (
        dict(max_frame_bytes=0),
        dict(max_first_bytes=0),
        dict(stall_timeout=-1),
        dict(handshake_timeout=0),
        dict(min_rate=-1),
    ):
        with pytest.raises(ValueError, match="FrameLimits"):
            FrameLimits(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        transport.connect("tcp://127.0.0.1:1", timeout=0)


def test_memory_that_nobody_has_is_a_refusal_and_not_a_crash() -> None:
    with pytest.raises(transport.FrameRefused, match="no memory"):
        allocate(1 << 62)


def test_small_neighbours_are_joined_and_large_parts_are_not_copied() -> None:
    large = bytes(100_000)
    parts = [b"a", b"", b"b", large, b"c", large, *[b"d" * 10_000] * 20]
    joined = coalesce(parts)
    assert b"".join(joined) == b"".join(parts)
    assert joined[0] == b"ab" and joined[1] is large and joined[3] is large
    assert all(0 < len(part) <= 100_000 for part in joined) and len(joined) < 10


# -- unix ------------------------------------------------------------------------------------------------


@pytest.mark.network
def test_a_unix_socket_is_the_owners_and_is_removed(make_wires: Any) -> None:
    listener = make_wires("unix").listen()
    path = listener.address.removeprefix("unix://")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with pytest.raises(CannotListen, match="listens there already"):
        transport.listen(listener.address)
    listener.close()
    assert not os.path.exists(path)


@pytest.mark.network
def test_a_unix_socket_of_a_dead_process_is_replaced(make_wires: Any, run_python: Any) -> None:
    wires = make_wires("unix")
    address = wires.place()
    process: subprocess.Popen[str] = run_python(
        "listener = transport.listen(sys.argv[1]); print('ready', flush=True); sys.stdin.read()", address
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait()
    assert os.path.exists(address.removeprefix("unix://"))
    listener = wires.keep(transport.listen(address))
    wires.connect(listener).send([b"hello"])
    assert wires.keep(listener.accept(5)).receive(5) == b"hello"


@pytest.mark.network
def test_a_file_that_is_no_socket_is_left_alone(socket_folder: Path) -> None:
    path = socket_folder / "precious"
    path.write_text("data")
    with pytest.raises(CannotListen, match="another kind"):
        transport.listen(f"unix://{path}")
    assert path.read_text() == "data"


# -- inproc ----------------------------------------------------------------------------------------------


def test_a_name_is_free_again_after_close() -> None:
    with transport.listen("inproc://again"), pytest.raises(CannotListen, match="already"):
        transport.listen("inproc://again")
    transport.listen("inproc://again").close()
    with pytest.raises(CannotConnect, match="Nobody listens at inproc://again"):
        transport.connect("inproc://again")


# -- the room --------------------------------------------------------------------------------------------


@pytest.mark.network
def test_the_room_works_where_torch_cannot_be_imported(run_python: Any) -> None:
    process = run_python(
        """
        with transport.listen("ws://127.0.0.1:0") as listener, transport.connect(listener.address) as ours:
            ours.send([b"no torch"])
            with listener.accept(5) as theirs:
                print(bytes(theirs.receive(5)).decode(), any(name.startswith("torch.") for name in sys.modules))
        """
    )
    out, _error = process.communicate(timeout=800)
    assert out == "no torch False\n"
