"""The security of a broker in a test: TLS, the user admin, and the configuration of clients."""

import secrets
from pathlib import Path

from headrace.security.client_login import ClientLogin
from headrace.security.secured_folder import ADMIN, LOCAL_HOSTS, SecuredFolder


class BrokerSecurity:
    """The certificates and settings of a broker, and client logins."""

    def __init__(self, folder: Path, host: str) -> None:
        self._folder = SecuredFolder(folder)
        self._folder.make_certificates(list(dict.fromkeys([host, *LOCAL_HOSTS])))
        self._folder.write_broker_file(
            {
                "listeners": f"SASL_SSL://{host}:0",
                **self._folder.broker_settings(secrets.token_urlsafe(24)),
            }
        )
        self._bootstrap = ""
        self._password = secrets.token_urlsafe(24)
        password_file = folder / "admin.password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password)
        self.environment = {"HEADRACE_ADMIN_PASSWORD_FILE": str(password_file)}
        """The environment of the broker, from which it creates the user admin."""
        self.config = self._folder.broker_file
        """The broker's settings."""

    def started(self, bootstrap: str) -> None:
        """Store the address of the started broker."""
        self._bootstrap = bootstrap
        self._folder.write_client_file(self.login())

    @property
    def client_config(self) -> Path:
        """The file for `headrace ... --client-config`, with the login of the user admin."""
        return self._folder.path / f"{ADMIN}.properties"

    def login(self, username: str = ADMIN, password: str | None = None) -> ClientLogin:
        """The login of a user (admin by default), as the properties of each client library."""
        return ClientLogin(
            self._bootstrap,
            str(self._folder.ca_file),
            username,
            self._password if password is None else password,
        )
