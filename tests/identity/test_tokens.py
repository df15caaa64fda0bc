"""Tokens tell who somebody is, and nothing else passes for one."""

from __future__ import annotations

import base64
import datetime
import json
import stat
import string
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from syft.exceptions import (
    AuthenticationError,
    ExpiredTokenError,
    InvalidTokenError,
    RevokedTokenError,
    SyftError,
)
from syft.identity.names import check_user_name, is_user_name
from syft.identity.revocation import RevocationList
from syft.identity.tokens import (
    CLOCK_SKEW,
    MAX_LENGTH,
    TokenAuthority,
    TokenVerifier,
    read_token_file,
    token_id_of,
)

KEY = Ed25519PrivateKey.generate()
AUTHORITY = TokenAuthority(KEY, RevocationList())
VERIFIER = AUTHORITY.verifier("hospital")


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(payload: bytes) -> str:
    """A genuine signature over whatever we like."""
    body = f"syft1.{encoded(payload)}"
    return f"{body}.{encoded(KEY.sign(body.encode()))}"


def payload(**changes: Any) -> bytes:
    now = int(time.time())
    whole = {"id": "a" * 32, "user": "ana", "worker": None, "issued": now, "expires": now + 60, "scopes": []}
    return json.dumps(
        {key: value for key, value in (whole | changes).items() if value != "left out"}
    ).encode()


# -- what a token is ---------------------------------------------------------------------------------


def test_a_token_names_its_user() -> None:
    now = time.time()
    text = AUTHORITY.issue("ana", 60, worker="hospital", scopes=["search"])
    found = VERIFIER.verify(text)
    assert found.user == "ana" and found.scopes == ("search",)
    assert now + 58 <= found.expires <= now + 62
    assert text.startswith("syft1.") and len(text) < 400
    assert set(text) <= set(string.ascii_letters + string.digits + "-_.")


def test_every_token_has_an_id_of_its_own() -> None:
    ids = {VERIFIER.verify(AUTHORITY.issue("ana", 60)).token_id for _ in range(50)}
    assert len(ids) == 50 and all(len(token_id) == 32 for token_id in ids)


def test_the_worker_is_checked() -> None:
    VERIFIER.verify(AUTHORITY.issue("ana", 60))  # for any worker
    with pytest.raises(InvalidTokenError, match="made for worker 'bank'"):
        VERIFIER.verify(AUTHORITY.issue("ana", 60, worker="bank"))
    assert AUTHORITY.verifier(0).verify(AUTHORITY.issue("ana", 60, worker=0)).user == "ana"


def test_time_runs_out_with_some_allowance_for_clocks() -> None:
    text = AUTHORITY.issue("ana", datetime.timedelta(minutes=1))
    now = time.time()

    def at(later: float) -> TokenVerifier:
        return TokenVerifier(AUTHORITY.public_key, None, "hospital", clock=lambda: now + later)

    assert at(60 + CLOCK_SKEW - 3).verify(text).user == "ana"
    with pytest.raises(ExpiredTokenError, match="'ana' expired"):
        at(60 + CLOCK_SKEW + 3).verify(text)
    assert at(-CLOCK_SKEW + 3).verify(text).user == "ana"
    with pytest.raises(InvalidTokenError, match="in the future"):
        at(-CLOCK_SKEW - 3).verify(text)


def test_another_authority_is_not_believed() -> None:
    other = TokenAuthority(Ed25519PrivateKey.generate(), RevocationList())
    with pytest.raises(InvalidTokenError, match="signature"):
        VERIFIER.verify(other.issue("ana", 60))


@pytest.mark.parametrize("lifetime", [0, -1, 0.5, float("nan"), float("inf"), True, "60", 1e12, None])
def test_a_lifetime_is_a_number_of_seconds(lifetime: Any) -> None:
    with pytest.raises(ValueError, match="lifetime"):
        AUTHORITY.issue("ana", lifetime)


@pytest.mark.parametrize(
    "name", ["", " ana", "ana ", "a\nb", "a\tb", "a\x00", "x" * 129, "\u202eana", None, 5, b"ana"]
)
def test_what_is_no_name_of_a_user(name: Any) -> None:
    assert not is_user_name(name)
    with pytest.raises(ValueError, match="name of a user"):
        AUTHORITY.issue(name, 60)


@pytest.mark.parametrize("name", ["a", "x" * 128, "ána müller", "ana@example.org", "O'Brien; --", "李"])
def test_what_is(name: str) -> None:
    assert check_user_name(name) == name
    assert VERIFIER.verify(AUTHORITY.issue(name, 60)).user == name


def test_a_token_that_would_be_too_long_is_not_made() -> None:
    with pytest.raises(ValueError, match=f"{MAX_LENGTH} is the most"):
        AUTHORITY.issue("ana", 60, scopes=["x" * MAX_LENGTH])
    with pytest.raises(ValueError, match="list of words"):
        AUTHORITY.issue("ana", 60, scopes="search")


# -- what is none ------------------------------------------------------------------------------------


def refused(text: Any) -> str:
    """Refused as no token, in words that do not quote it."""
    with pytest.raises(InvalidTokenError) as caught:
        VERIFIER.verify(text)
    if isinstance(text, str) and len(text) > 20:
        assert text not in str(caught.value) and text[-20:] not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "text", [None, 5, b"syft1.a.b", "", "syft1", "syft1..", "syft1.e30.", "x" * 10_000_000, ["a"]]
)
def test_other_things(text: Any) -> None:
    refused(text)


def test_every_single_change_of_a_character_is_noticed() -> None:
    text = AUTHORITY.issue("ana", 60)
    for position in range(len(text)):
        for other in "A_.":
            if text[position] != other:
                refused(text[:position] + other + text[position + 1 :])
        refused(text[:position])
        refused(text[:position] + text[position + 1 :])
    for extra in (" ", "=", "\n", ".", "A"):
        refused(text + extra)
        refused(extra + text)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 2000,
        payload(user=""),
        payload(user=" ana"),
        payload(user=None),
        payload(user=5),
        payload(user="left out"),
        payload(id="x"),
        payload(id="left out"),
        payload(expires="left out"),
        payload(expires="soon"),
        payload(expires=None),
        payload(expires=1 << 70),
        payload(worker=5),
        payload(scopes="all"),
        payload(admin=True),
        payload() + b"x",
    ],
    ids=lambda body: str(len(body)),  # their text has the time in it
)
def test_a_good_signature_over_something_else(body: bytes) -> None:
    """The key of the authority signs tokens only; but if it ever signed more, that would be no token."""
    refused(signed(body) if body else "syft1.." + "A" * 86)


def test_the_signature_covers_what_was_written() -> None:
    VERIFIER.verify(signed(payload()))
    header, body, signature = AUTHORITY.issue("eve", 60).split(".")
    refused(f"{header}.{encoded(payload(user='ana'))}.{signature}")
    refused(f"syft2.{body}.{signature}")


@settings(max_examples=400)
@given(st.text() | st.binary() | st.builds("syft1.{}.{}".format, st.text(), st.text()))
def test_no_text_brings_the_verifier_down(text: Any) -> None:
    refused(text)


@settings(max_examples=120)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["id", "user", "expires", "x"]), inner)
        ),
    )
)
def test_no_signed_content_brings_it_down(content: Any) -> None:
    text = signed(json.dumps(content).encode())
    if len(text) <= MAX_LENGTH:
        refused(text)


@settings(max_examples=300)
@given(st.data())
def test_mutated_tokens(data: st.DataObject) -> None:
    text = AUTHORITY.issue("ana", 60)
    alphabet = string.ascii_letters + string.digits + "-_.=+/ é\n\x00"
    characters = list(text)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(characters)))
        cut = data.draw(st.integers(0, 3))
        characters[position : position + cut] = data.draw(st.text(alphabet, max_size=3))
    changed = "".join(characters)
    if changed != text:
        refused(changed)


# -- revoking ----------------------------------------------------------------------------------------


def test_revoked_tokens_are_refused_at_once_by_verifiers_elsewhere(tmp_path: Path) -> None:
    authority = TokenAuthority.create(tmp_path)
    verifier = TokenVerifier.open(tmp_path, "hospital")
    tokens = [authority.issue("ana", 60) for _ in range(3)]
    for text in tokens:
        verifier.verify(text)
    authority.revoke(tokens[0])
    authority.revoke(verifier.verify(tokens[1]).token_id)
    for text in tokens[:2]:
        with pytest.raises(RevokedTokenError, match="'ana' was taken back"):
            verifier.verify(text)
    assert verifier.verify(tokens[2]).user == "ana"
    again = TokenVerifier.open(tmp_path, "hospital")
    with pytest.raises(RevokedTokenError):
        again.verify(tokens[0])


def test_revoking_twice_and_revoking_nonsense(tmp_path: Path) -> None:
    authority = TokenAuthority.create(tmp_path)
    token_id = authority.revoke(authority.issue("ana", 60))
    before = (tmp_path / "revoked.txt").read_text()
    authority.revoke(token_id)
    assert (tmp_path / "revoked.txt").read_text() == before
    with pytest.raises(InvalidTokenError):
        authority.revoke("ana")
    with pytest.raises(ValueError, match="32 hexadecimal"):
        authority.revoked.add("ana")


def test_the_list_is_a_file_people_can_edit(tmp_path: Path) -> None:
    path = tmp_path / "revoked.txt"
    path.write_text(f"# lost laptop\n  {'AB' * 16}  # ana's\n\n")
    listed = RevocationList(path)
    assert "ab" * 16 in listed and "cd" * 16 not in listed
    with path.open("a") as file:
        file.write("cd" * 16)  # no line break
    assert "cd" * 16 in listed
    listed.add("ef" * 16)
    assert listed.ids() == {"ab" * 16, "cd" * 16, "ef" * 16}


def test_nobody_is_let_in_while_the_list_cannot_be_read(tmp_path: Path) -> None:
    authority = TokenAuthority.create(tmp_path)
    verifier = TokenVerifier.open(tmp_path, None)
    text = authority.issue("ana", 60)
    verifier.verify(text)
    path = tmp_path / "revoked.txt"
    for content in (b"not an id\n", b"\xff\xfe", b"ab" * 15 + b"\n"):
        path.write_bytes(content)
        with pytest.raises(AuthenticationError, match="until it is mended"):
            verifier.verify(text)
    path.write_text("\n\n\n")
    verifier.verify(text)
    path.unlink()
    with pytest.raises(AuthenticationError, match="disappeared"):
        verifier.verify(text)


# -- keys --------------------------------------------------------------------------------------------


def test_keys_on_disk(tmp_path: Path) -> None:
    authority = TokenAuthority.create(tmp_path / "keys")
    assert stat.S_IMODE((tmp_path / "keys" / "token.key").stat().st_mode) == 0o600
    text = TokenAuthority.open(tmp_path / "keys").issue("ana", 60)
    assert authority.verifier("x").verify(text).user == "ana"
    with pytest.raises(FileExistsError, match="overwrite=True"):
        TokenAuthority.create(tmp_path / "keys")
    assert authority.verifier("x").verify(text).user == "ana"
    TokenAuthority.create(tmp_path / "keys", overwrite=True)
    with pytest.raises(InvalidTokenError):
        TokenVerifier.open(tmp_path / "keys", "x").verify(text)


def test_a_worker_needs_no_secret(tmp_path: Path) -> None:
    text = TokenAuthority.create(tmp_path).issue("ana", 60)
    (tmp_path / "token.key").unlink()
    assert TokenVerifier.open(tmp_path, "x").verify(text).user == "ana"
    with pytest.raises(AuthenticationError, match="cannot be read"):
        TokenAuthority.open(tmp_path)


def test_files_that_are_no_keys(tmp_path: Path) -> None:
    for name in ("token.key", "token.pub"):
        (tmp_path / name).write_text("junk")
    with pytest.raises(AuthenticationError, match="not a signing key"):
        TokenAuthority.open(tmp_path)
    with pytest.raises(AuthenticationError, match="not a public key"):
        TokenVerifier.open(tmp_path, "x")
    assert issubclass(AuthenticationError, (SyftError,)) and issubclass(AuthenticationError, PermissionError)


def test_raw_public_keys_are_taken() -> None:
    raw = AUTHORITY.public_key.public_bytes_raw()
    assert TokenVerifier(raw).verify(AUTHORITY.issue("ana", 60)).user == "ana"


# -- tokens in files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", ["{}", "{}\n", "{}\r\n", "  {}\n\n", "\ufeff{}\n"])
def test_a_file_holds_a_token_whatever_blanks_are_around_it(tmp_path: Path, around: str) -> None:
    authority = TokenAuthority.create(tmp_path / "keys")
    token = authority.issue("ana", 60)
    (tmp_path / "ana.token").write_text(around.format(token), encoding="utf-8")
    assert read_token_file(tmp_path / "ana.token") == token
    assert authority.revoke(f"{token}\n") == token_id_of(token)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"my password", "something else than one token"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"syft1." + b"A" * 9000, "something else than one token"),
    ],
)
def test_a_file_without_a_token_is_named_and_not_quoted(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.token").write_bytes(content)
    with pytest.raises(InvalidTokenError, match=words) as caught:
        read_token_file(tmp_path / "x.token")
    assert "x.token" in str(caught.value) and "password" not in str(caught.value)


def test_a_file_with_two_tokens_or_none_at_all_is_refused(tmp_path: Path) -> None:
    token = TokenAuthority.create(tmp_path / "keys").issue("ana", 60)
    (tmp_path / "two").write_text(f"{token}\n{token}\n")
    with pytest.raises(InvalidTokenError, match="something else than one token"):
        read_token_file(tmp_path / "two")
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InvalidTokenError, match="cannot be read"):
            read_token_file(path)
