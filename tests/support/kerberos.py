"""A Kerberos realm of the tests' own: a database and a KDC in a temporary folder.

Nothing outside the folder is read or written: programs find the realm by the environment variables
of `Realm.environment`, and Java by `Realm.java_options`.
"""

import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.ports import free_port

REALM = "EXAMPLE.TEST"
PACKAGES = {
    "krb5kdc": "krb5-kdc",
    "kdb5_util": "krb5-kdc",
    "kadmin.local": "krb5-admin-server",
    "kinit": "krb5-user",
}
"""Programs, and the Debian packages that have them."""
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@cache
def missing() -> str | None:
    """None when a realm can be made, else a sentence naming what is missing."""
    absent = {package for name, package in PACKAGES.items() if not shutil.which(name, path=_PATH)}
    return f"no KDC: install the Debian packages {', '.join(sorted(absent))}" if absent else None


class Realm:
    """A realm with its KDC; a context manager that stops it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._undo = ExitStack()
        self._known: set[str] = set()

    @property
    def environment(self) -> dict[str, str]:
        """For programs that use the realm."""
        return {
            "KRB5_CONFIG": str(self.folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": str(self.folder / "tickets"),
            "KRB5RCACHEDIR": str(self.folder),
        }

    @property
    def java_options(self) -> tuple[str, ...]:
        """For programs in Java."""
        return (f"-Djava.security.krb5.conf={self.folder / 'krb5.conf'}",)

    def __enter__(self) -> Self:
        (self.folder / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\n"
            "dns_canonicalize_hostname = false\nrdns = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\nkdc = 127.0.0.1:{self.port}\n}}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{self.port}\n"
            f"kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n{REALM} = {{\ndatabase_name = {self.folder}/principal\n"
            f"key_stash_file = {self.folder}/stash\nmax_life = 1h\n}}\n"
            f"[logging]\nkdc = FILE:{self.folder}/kdc.log\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the KDC; returns when it can be asked."""
        kdc = subprocess.Popen([_found("krb5kdc"), "-n"], env=self.environment)
        self._undo.callback(kdc.wait, 60)
        self._undo.callback(kdc.terminate)
        deadline = time.monotonic() + 60
        while True:
            assert kdc.poll() is None, (self.folder / "kdc.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, "the KDC does not answer"
                time.sleep(0.01)
            else:
                return

    def stop(self) -> None:
        """Stop the KDC; the database stays."""
        self._undo.close()

    def keytab(self, name: str, *principals: str) -> str:
        """A file with new keys of these principals, which are made if there are none."""
        path = self.folder / f"{name}.keytab"
        for principal in principals:
            if principal not in self._known:
                self._run("kadmin.local", "addprinc", "-randkey", principal)
                self._known.add(principal)
            self._run("kadmin.local", "ktadd", "-k", str(path), principal)
        return str(path)

    def kinit(self, principal: str, keytab: str, cache: Path) -> str:
        """Get a ticket into a cache."""
        self._run("kinit", "-k", "-t", keytab, "-c", str(cache), principal)
        return str(cache)

    def _run(self, *words: str) -> None:
        done = subprocess.run(
            [_found(words[0]), *words[1:]],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def _found(program: str) -> str:
    path = shutil.which(program, path=_PATH)
    assert path is not None, missing()
    return path
