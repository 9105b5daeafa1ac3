"""The users of HTTP interfaces from a file: names, roles, and verifiers of passwords.

Each line is a user, in the form of Jetty's property files, which Confluent's services read:

    alice: SCRAM-SHA-256$100000:SALT$STORED-KEY:SERVER-KEY,write
    orders: *,read

The verifier of a password has PostgreSQL's form, its parts in base64. A user with `*` has no
password: it logs in with a token or a certificate, and the file gives its role. `headrace users
add NAME --file FILE` writes such lines. The file is read again when it changes.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.errors import SettingError
from headrace.security.passwords import PasswordChecks
from headrace.security.roles import ROLE_NAMES, Role
from headrace.security.scram import (
    DIGESTS,
    MIN_ITERATIONS,
    SALT_BYTES,
    ChallengeForm,
    challenge_form,
    credential_from_password,
    invented_choice,
    invented_credential,
)
from headrace.security.state import ScramCredential

logger = logging.getLogger(__name__)

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 100_000
"""Iterations for new passwords: more than for broker users, because no client computes them."""
MOST_ITERATIONS = 10_000_000
NO_PASSWORD = "*"
_BASE64 = "([A-Za-z0-9+/]+=*)"
_VERIFIER = re.compile(
    rf"(SCRAM-SHA-256|SCRAM-SHA-512)\$([0-9]{{1,8}}):{_BASE64}\${_BASE64}:{_BASE64}"
)


class HttpUser(NamedTuple):
    """One line of the file."""

    role: Role
    mechanism: str = ""
    credential: ScramCredential | None = None
    """None: the user has no password."""


def verifier_text(password: str) -> str:
    """The verifier of a new password; takes some time."""
    made = credential_from_password(MECHANISM, password, ITERATIONS)
    salt, stored, server = (
        base64.b64encode(part).decode() for part in (made.salt, made.stored_key, made.server_key)
    )
    return f"{MECHANISM}${made.iterations}:{salt}${stored}:{server}"


def parse_users(text: str) -> dict[str, HttpUser]:
    """The users of a file; ValueError with the number of the first invalid line."""
    users: dict[str, HttpUser] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, rest = line.partition(":")
        verifier, *roles = (part.strip() for part in rest.split(","))
        name = name.strip()
        try:
            if not name or not colon:
                raise ValueError("expected NAME: VERIFIER,ROLE")
            if name in users:
                raise ValueError(f"the user {name} is listed twice")
            users[name] = _user(verifier, roles)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return users


def _user(verifier: str, roles: list[str]) -> HttpUser:
    unknown = set(roles) - set(ROLE_NAMES)
    if not roles or unknown:
        raise ValueError(f"expected a role after the verifier: {', '.join(ROLE_NAMES)}")
    role = max(Role[one.upper()] for one in roles)
    if verifier == NO_PASSWORD:
        return HttpUser(role)
    found = _VERIFIER.fullmatch(verifier)
    if found is None:
        raise ValueError(
            "the verifier is not SCRAM-SHA-256$ITERATIONS:SALT$KEY:KEY; passwords "
            "are not accepted. `headrace users add NAME --file FILE` creates verifiers"
        )
    mechanism, iterations = found[1], int(found[2])
    if not MIN_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ValueError(f"expected {MIN_ITERATIONS} to {MOST_ITERATIONS} iterations")
    try:
        salt, stored, server = (base64.b64decode(found[at], validate=True) for at in (3, 4, 5))
    except binascii.Error:
        raise ValueError("the verifier has a part that is not base64") from None
    size = len(hmac.digest(b"", b"", DIGESTS[mechanism]))
    if len(stored) != size or len(server) != size:
        raise ValueError(f"the keys of the verifier do not have {size} bytes")
    return HttpUser(role, mechanism, ScramCredential(salt, iterations, stored, server))


def write_user(path: Path, name: str, user: str | None) -> None:
    """Set the verifier and role of a user in the file, or remove the user, atomically.

    ValueError or OSError if the file cannot be read or written.
    """
    text = path.read_text("utf-8") if path.exists() else ""
    parse_users(text)
    lines = [line for line in text.splitlines() if line.partition(":")[0].strip() != name]
    if user is not None:
        lines.append(f"{name}: {user}")
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


class HttpUsers:
    """The users of one HTTP interface."""

    def __init__(self, setting: str, path: str) -> None:
        """SettingError if the file is not valid. `setting` is the name of its setting."""
        self._setting = setting
        self._path = Path(path)
        self._checks = PasswordChecks()
        self._stamp = self._look()
        self._users: Mapping[str, HttpUser] = self._read()
        self._warn_of_readers()

    def role(self, name: str) -> Role | None:
        """The role of a user; None if the file does not have the user."""
        user = self._users.get(name)
        return None if user is None else user.role

    async def check(self, name: str, password: str) -> None:
        """LoginRefused unless the password is correct by the present file."""
        self.renew()
        user = self._users.get(name)
        if user is None or user.credential is None:
            mechanism, credential = self._invented(name)
        else:
            mechanism, credential = user.mechanism, user.credential
        await self._checks.check(mechanism, credential, password)

    def renew(self) -> None:
        """Read the file again if it has changed; an invalid file is ignored."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._users = self._read()
        except SettingError as error:
            logger.error("the users are not changed: %s", error)
            return
        logger.info("%s has %d users now", self._path, len(self._users))

    def close(self) -> None:
        """Stop the thread that checks passwords."""
        self._checks.close()

    def _invented(self, name: str) -> tuple[str, ScramCredential]:
        """A credential for an unknown user, whose check takes the same time as for others."""
        known = [
            (one.mechanism, one.credential)
            for one in self._users.values()
            if one.credential is not None
        ]
        # The same secret in all processes that use the file, also after a restart.
        secret = hashlib.sha256(known[0][1].server_key if known else b"").digest()
        forms = Counter((one, challenge_form(credential)) for one, credential in known)
        default = {(MECHANISM, ChallengeForm(SALT_BYTES, ITERATIONS)): 1}
        mechanism, form = invented_choice(forms or default, name, secret)
        return mechanism, invented_credential(mechanism, name, secret, form)

    def _read(self) -> Mapping[str, HttpUser]:
        try:
            users = parse_users(self._path.read_text("utf-8"))
        except OSError as error:
            raise SettingError(
                f"{self._setting}={self._path}: cannot be read: {error.strerror}; create it with "
                f"`headrace users add NAME --file {self._path}`"
            ) from error
        except ValueError as error:
            raise SettingError(f"{self._setting}={self._path}: {error}") from error
        if not users:
            raise SettingError(
                f"{self._setting}={self._path}: it has no users; add one with "
                f"`headrace users add NAME --file {self._path}`"
            )
        return users

    def _look(self) -> tuple[int, int, int]:
        try:
            state = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (state.st_ino, state.st_size, state.st_mtime_ns)

    def _warn_of_readers(self) -> None:
        if os.stat(self._path).st_mode & 0o004:
            logger.warning(
                "every user of this machine may read %s and try passwords: chmod 600 %s",
                self._path, self._path,
            )  # fmt: skip
