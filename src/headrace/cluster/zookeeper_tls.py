"""TLS to ZooKeeper by Kafka's settings `zookeeper.ssl.*`."""

from headrace.errors import SettingError
from headrace.security.tls import ClientTls
from headrace.settings import Settings

_ENABLE = "zookeeper.ssl.client.enable"
_SOCKET = "zookeeper.clientCnxnSocket"
_NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_NAMES = {
    "ssl.keystore.location": "zookeeper.ssl.keystore.location",
    "ssl.keystore.password": "zookeeper.ssl.keystore.password",
    "ssl.key.password": "zookeeper.ssl.keystore.password",
    "ssl.keystore.type": "zookeeper.ssl.keystore.type",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.truststore.password": "zookeeper.ssl.truststore.password",
    "ssl.truststore.type": "zookeeper.ssl.truststore.type",
    "ssl.protocol": "zookeeper.ssl.protocol",
    "ssl.enabled.protocols": "zookeeper.ssl.enabled.protocols",
    "ssl.cipher.suites": "zookeeper.ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm": "zookeeper.ssl.endpoint.identification.algorithm",
}
"""The names of the settings of TLS, and of those for ZooKeeper."""
_TYPES = {"pem": "PEM", "p12": "PKCS12", "pfx": "PKCS12", "jks": "JKS"}
"""The types of files by their suffix, as in ZooKeeper, if no type is given."""


class _ZookeeperValues:
    """The settings for ZooKeeper under the names of other TLS settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def text(self, name: str) -> str:
        value = self._settings.text(_NAMES[name]) if name in _NAMES else ""
        if name.endswith(".type") and not value:
            path = self.text(name.replace(".type", ".location"))
            return _TYPES.get(path.rpartition(".")[2].lower(), "PEM")
        return value

    def words(self, name: str) -> tuple[str, ...]:
        return self._settings.words(_NAMES[name])

    def integer(self, name: str) -> int:
        return self._settings.integer(_NAMES[name])

    def boolean(self, name: str) -> bool:
        return self._settings.boolean(_NAMES[name])


def zookeeper_tls(settings: Settings) -> ClientTls | None:
    """What the settings ask for; None without TLS. SettingError if it cannot be done."""
    if not settings.boolean(_ENABLE):
        for name in ("zookeeper.ssl.keystore.location", "zookeeper.ssl.truststore.location"):
            if settings.text(name):
                raise SettingError(
                    f"{name} has no effect without TLS to ZooKeeper; set {_ENABLE}=true"
                )
        return None
    kind = settings.text(_SOCKET)
    if kind not in ("", _NETTY):
        raise SettingError(f"{_ENABLE}=true: ZooKeeper has TLS only with {_SOCKET}={_NETTY}")
    try:
        return ClientTls("the connection to ZooKeeper", _ZookeeperValues(settings))
    except SettingError as error:
        raise SettingError(_renamed(str(error))) from error


def _renamed(text: str) -> str:
    """A message with the names of the settings for ZooKeeper."""
    for name, own in sorted(_NAMES.items(), reverse=True):
        text = text.replace(f"zookeeper.{name}", name).replace(name, own)
    return text
