"""The certificates of all listeners of a broker, and dynamic configs that name other ones.

The configs are `listener.name.<listener>.ssl.keystore.*` and `ssl.truststore.*` of this broker.
AlterConfigs checks new ones here before they are stored, and has them used for new connections
afterwards; the server uses the stored ones at its start.
"""

from collections.abc import Collection, Mapping, Sequence

from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.security.tls import ListenerTls
from headrace.settings import Settings


class ListenerCertificates:
    """The certificates of the listeners with TLS."""

    def __init__(self, settings: Settings, listeners: Sequence[ListenerTls]) -> None:
        """`settings` are those that the broker was started with."""
        self._settings = settings
        self._listeners = listeners

    def check(self, configs: Mapping[str, str], named: Collection[str]) -> None:
        """INVALID_REQUEST if certificates cannot be replaced by those of these configs.

        `named` are the listeners, in lower case, whose files are checked even if their configs are
        the present ones.
        """
        try:
            settings = self._settings.with_dynamic(configs)
            for tls in self._listeners:
                tls.check(settings, always=tls.listener.lower() in named)
        except (SettingError, OSError, ValueError) as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid dynamic configuration: {error}. The present certificate stays in use",
            ) from error

    def use(self, configs: Mapping[str, str]) -> None:
        """Use the certificates of these configs, and files that have changed."""
        settings = self._settings.with_dynamic(configs)
        for tls in self._listeners:
            tls.alter(settings)
