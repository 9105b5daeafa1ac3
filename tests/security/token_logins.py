"""A broker whose clients log in with tokens, and the properties of such clients."""

import base64
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.tokens import TokenDescription, create_token
from tests.security.issuer import AUDIENCE, ISSUER, Provider, SigningKey, claims, write_key_set
from tests.security.secured import SecuredBroker

KINDS = ("provider", "file", "delegation token")
CLIENT_SECRET = "planted-client-secret"
LOGIN_MODULE = "org.apache.kafka.common.security"


class TokenBroker:
    """A broker with OAUTHBEARER and delegation tokens, and an issuer; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = SigningKey("one")
        self.provider = Provider(self._key)
        settings = {
            "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.jwks.endpoint.url": write_key_set(folder / "keys.json", self._key),
            "headrace.sasl.oauthbearer.without.tls": "true",
            "delegation.token.secret.key": "planted-token-key",
            "group.initial.rebalance.delay.ms": "0",
        }
        self.broker = SecuredBroker(folder, {"alice": "s3cret-of-alice"}, settings)
        self.token: TokenDescription | None = None

    def __enter__(self) -> Self:
        self.provider.__enter__()
        self.broker.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.broker.__exit__(kind, error, trace)
        self.provider.__exit__(kind, error, trace)

    @property
    def plain(self) -> str:
        """An address without login, for what is not tested."""
        return self.broker.addresses["PLAINTEXT"]

    def write_token(self, lifetime_s: float = 3600) -> Path:
        """A file with a token of the issuer."""
        path = self.folder / "token"
        written = self.folder / "token.new"
        written.write_text(self._key.token(claims("alice", lifetime_s)))
        # A client that reads the file meanwhile gets the old token or the new one.
        return written.replace(path)

    def properties(self, kind: str) -> dict[str, str]:
        """The login of one of KINDS, in the names of Java's clients."""
        common = {
            "bootstrap.servers": self.broker.addresses["SASL_SSL"],
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.broker.ca,
        }
        url = "sasl.oauthbearer.token.endpoint.url"
        if kind == "delegation token":
            token = self._delegation_token()
            secret = base64.b64encode(token.hmac).decode()
            module = f"{LOGIN_MODULE}.scram.ScramLoginModule required"
            login = f'{module} username="{token.id}" password="{secret}" tokenauth="true";'
            return {**common, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login}
        if kind == "file":
            return {
                **common,
                "sasl.mechanism": "OAUTHBEARER",
                url: self.write_token().as_uri(),
            }
        module = f"{LOGIN_MODULE}.oauthbearer.OAuthBearerLoginModule required"
        return {
            **common,
            "sasl.mechanism": "OAUTHBEARER",
            url: f"{self.provider.url}/token",
            "sasl.jaas.config": f'{module} clientId="alice" clientSecret="{CLIENT_SECRET}";',
        }

    def secrets(self, kind: str) -> list[str]:
        """What must be in no log, plan or checkpoint."""
        if kind == "delegation token":
            return [base64.b64encode(self._delegation_token().hmac).decode()]
        if kind == "file":
            return [(self.folder / "token").read_text()]
        return [CLIENT_SECRET]

    def _delegation_token(self) -> TokenDescription:
        if self.token is None:
            config = client_config(
                {
                    "bootstrap.servers": self.broker.addresses["SASL_SSL"],
                    "security.protocol": "SASL_SSL",
                    "ssl.ca.location": self.broker.ca,
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": "alice",
                    "sasl.password": "s3cret-of-alice",
                }
            )
            with Cluster(config) as cluster:
                self.token = create_token(cluster, None, (), -1)
        return self.token
