"""The settings of a service: values from a file, the command line and the defaults of its table."""

from collections.abc import Mapping

from headrace.settings.resolve import unknown
from headrace.settings.setting import Setting, Value, parse_value

KEY_STORES = ("ssl.keystore.location", "ssl.keystore.key")
"""Settings that have no effect without HTTPS."""


def check_setting(table: Mapping[str, Setting], name: str, text: str) -> None:
    """Raises SettingError unless `name` is in the table and accepts this value."""
    row = table.get(name)
    if row is None:
        raise unknown(name, table, "setting of this service")
    parse_value(row, text)


class ServiceSettings:
    """The values of all settings in a service's table; those that are not given have defaults."""

    def __init__(self, table: Mapping[str, Setting], given: Mapping[str, str]) -> None:
        """Raises SettingError for an unknown name or an invalid value."""
        self._table = table
        self._values: dict[str, Value] = {name: row.default for name, row in table.items()}
        for name, text in given.items():
            check_setting(table, name, text)
            self._values[name] = parse_value(table[name], text)

    def text(self, name: str) -> str:
        """The value of a text setting; empty if there is none."""
        value = self._values[name]
        assert value is None or isinstance(value, str), name
        return value or ""

    def is_changed(self, name: str) -> bool:
        """Whether the value is another one than the default."""
        return self._values[name] != self._table[name].default

    def integer(self, name: str) -> int:
        value = self._values[name]
        assert type(value) is int, name
        return value

    def boolean(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """The value of a list setting."""
        value = self._values[name]
        assert isinstance(value, tuple), name
        return value

    @property
    def listen(self) -> tuple[str, int]:
        """Host and port of `listeners`."""
        host, _, port = self.text("listeners").partition("://")[2].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def tls(self) -> bool:
        """Whether the service speaks HTTPS."""
        return self.text("listeners").startswith("https://")
