"""Settings that promise protection and that this version does not honour: they are refused.

A broker that starts without encryption, logins, permissions or limits although its file asks for
them is worse than one that does not start. So such a setting is an error wherever settings are
parsed: at the start, and when they are changed while the broker runs. A value that asks for nothing
beyond the default, such as `ssl.client.auth=none`, is accepted.
"""

from collections.abc import Mapping

from headrace.errors import SettingError
from headrace.settings.listeners import LISTENER_PREFIX, Listeners
from headrace.settings.no_effect import BROKER_NO_EFFECT
from headrace.settings.security_table import SECURITY_ROWS
from headrace.settings.setting import Setting, format_value, parse_value

_CLIENT_AUTH = "ssl.client.auth"

_NOT_HONOURED = BROKER_NO_EFFECT & {row.name for row in SECURITY_ROWS}

_JAVA_CLASS = "it names a Java class that decides what clients may do, and Headrace loads none"
_JAVA_LOGIN = "it configures Java's login classes, and Headrace loads none"
_JAVA_TLS = "it configures Java's TLS, and Headrace uses OpenSSL"

_NAMES = {
    "alter.config.policy.class.name": _JAVA_CLASS,
    "client.quota.callback.class": _JAVA_CLASS,
    "create.topic.policy.class.name": _JAVA_CLASS,
    "delegation.token.master.key": "Kafka 4.0 removed it; set delegation.token.secret.key",
    "principal.builder.class": _JAVA_CLASS,
    "sasl.mechanism.controller.protocol": "Headrace has no KRaft controllers",
    "security.providers": _JAVA_TLS,
    "ssl.engine.factory.class": _JAVA_TLS,
    "ssl.keymanager.algorithm": _JAVA_TLS,
    "ssl.provider": _JAVA_TLS,
    "ssl.secure.random.implementation": _JAVA_TLS,
    "ssl.trustmanager.algorithm": _JAVA_TLS,
}

_PREFIXES = {
    "sasl.client.": _JAVA_LOGIN,
    "sasl.kerberos.": "the Kerberos library gets and renews tickets",
    "sasl.login.": _JAVA_LOGIN,
    "sasl.oauthbearer.assertion.": "Headrace has no logins with signed assertions",
    "sasl.oauthbearer.client.": "give clientId and clientSecret in sasl.jaas.config instead",
    "sasl.oauthbearer.jwt.": "it names a Java class, and Headrace loads none",
    "sasl.server.callback.": _JAVA_LOGIN,
}


def why_refused(name: str) -> str:
    """Why a security setting without a row in the table is refused; empty for other names."""
    why = _NAMES.get(name)
    if why is None:
        why = next((why for prefix, why in _PREFIXES.items() if name.startswith(prefix)), "")
    return why


def refused_names() -> list[tuple[str, str]]:
    """All such names and, with a star, families of names, each with its reason; for the docs."""
    families = ((f"{prefix}*", why) for prefix, why in _PREFIXES.items())
    return sorted([*_NAMES.items(), *families])


def check_honoured(name: str, row: Setting | None, text: str) -> None:
    """SettingError if the setting asks for protection that this version does not give.

    `row` is the setting's row in the table, also where `name` gives it for one listener only.
    """
    if row is None:
        why = why_refused(name) if text.strip() else ""
    elif row.name in _NOT_HONOURED and not _asks_for_nothing(row, text):
        why = "this version does not honour it"
    else:
        why = ""
    if why:
        shown = "" if row is None or row.secret else f"={text}"
        raise SettingError(
            f"{name}{shown}: {why}. A broker does not start without the protection that its "
            "settings ask for; remove this setting if you can do without it"
        )


def _asks_for_nothing(row: Setting, text: str) -> bool:
    """Whether the value is the default, ours or Kafka's, or no value at all."""
    value = parse_value(row, text)
    return value in ("", ()) or format_value(value) in (
        format_value(row.default),
        row.kafka_default,
    )


def check_client_certificates(given: Mapping[str, str], listeners: Listeners) -> None:
    """SettingError if client certificates are asked for where no listener asks clients for them.

    As in Kafka, the setting is for listeners with the protocol SSL; SASL_SSL needs a prefixed one.
    """
    for name, text in given.items():
        prefix, found, rest = name.partition(_CLIENT_AUTH)
        if not found or rest or text.strip() == "none":
            continue
        wanted = prefix.removeprefix(LISTENER_PREFIX).removesuffix(".")
        if wanted:
            honoured = any(one.name.lower() == wanted and one.tls for one in listeners.all)
            why = f"the listener {wanted.upper()} has none"
        else:
            honoured = any(one.tls and not one.login for one in listeners.all)
            why = "no listener has the protocol SSL"
        if not honoured:
            raise SettingError(
                f"{name}={text}: client certificates need TLS, and {why}; use a listener with the "
                f"protocol SSL, or set {LISTENER_PREFIX}NAME.{_CLIENT_AUTH} for one with SASL_SSL"
            )
