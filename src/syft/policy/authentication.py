"""`Authenticator`: who somebody is when they come, and whether what proved it still holds while they are here.

A session outlives the moment in which a name was proved. So the proof is kept with it, and is looked at again and
again: tokens expire and are taken back, certificates expire.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syft.exceptions import AuthenticationError, ExpiredTokenError, RevokedTokenError
from syft.identity.names import ANONYMOUS
from syft.identity.tokens import Identity, TokenVerifier
from syft.transport import Connection
from syft.transport import session_records as handshake

logger = logging.getLogger("syft.worker")


@dataclass(frozen=True, slots=True)
class Proof:
    """What proved the name of a user.

    token                what their token said, if they showed one
    certificate_expires  when their certificate ends, if they showed one
    """

    user: str
    token: Identity | None = None
    certificate_expires: float | None = None


class Authenticator:
    """One per worker.

    tokens              verifies the tokens that clients show; None: the worker takes none
    takes_certificates  whether clients prove their names with certificates
    serves_anonymous    whether those are let in who prove no name
    """

    def __init__(
        self,
        worker_id: Callable[[], Any],
        tokens: TokenVerifier | None,
        takes_certificates: bool,
        serves_anonymous: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._worker_id, self._tokens = worker_id, tokens
        self._takes_certificates, self._serves_anonymous = takes_certificates, serves_anonymous
        self._clock = clock
        #: What was said about a list of revoked tokens that cannot be read: once, not at every look.
        self._told: str | None = None

    def authenticate(self, hello: handshake.Hello, connection: Connection) -> Proof | None:
        """Who speaks, by what they said and how they are connected; None: somebody without a name.

        !! AuthenticationError
        """
        user = connection.peer_certificate_name if self._takes_certificates else None
        expires = connection.peer_certificate_expires if user is not None else None
        token = None
        if hello.token is not None:
            token = self._verified(hello.token)
            if user is not None and token.user != user:
                raise AuthenticationError(
                    f"The certificate names {user!r} and the token names {token.user!r}. Use a token for {user!r}."
                )
            user = token.user
        if user is None:
            if not self._serves_anonymous:
                raise AuthenticationError(
                    f"The worker {self._worker_id()!r} serves those who prove who they are. Ask its owner for a token, "
                    "put it into a file, and connect with token_file=... (or token=...)."
                )
            return None
        if user.startswith(ANONYMOUS):
            raise AuthenticationError(
                f"Nobody can be called {user!r}: such names are for those who have none."
            )
        proof = Proof(user, token, expires)
        self._check_certificate(proof)
        return proof

    def _verified(self, token: str) -> Identity:
        if self._tokens is None:
            # NB: let in, they would be somebody without a name here, and wonder what became of their permissions.
            raise AuthenticationError(
                f"A token was shown, and the worker {self._worker_id()!r} takes none, so it proves nothing here. Connect "
                "without token=... (and without SYFT_TOKEN, for `syft`), or ask its owner to verify tokens (tokens=..., "
                "`syft worker --tokens`)."
            )
        return self._tokens.verify(token)

    def check(self, proof: Proof) -> None:
        """Whether a name is still proved, now. !! AuthenticationError, ExpiredTokenError, RevokedTokenError

        While the list of revoked tokens cannot be read, nobody is let in; those who are here stay, as far as the list
        was known, and the owner is told. (Somebody may be writing it just now.)
        """
        self._check_certificate(proof)
        if proof.token is None or self._tokens is None:
            return
        try:
            self._tokens.check(proof.token)
            self._told = None
        except (ExpiredTokenError, RevokedTokenError):
            raise
        except AuthenticationError as error:
            if str(error) != self._told:
                self._told = str(error)
                logger.error("%s: %s Those who are connected stay.", self._worker_id(), error)

    def _check_certificate(self, proof: Proof) -> None:
        now, expires = self._clock(), proof.certificate_expires
        if expires is not None and expires <= now:
            raise AuthenticationError(
                f"The certificate of user {proof.user!r} expired {now - expires:.0f} seconds ago. Ask the owner of the "
                "worker for a new one."
            )
