"""TLS from PEM files, for options that name a file."""

import ssl
from pathlib import Path

from headrace.connect.plugin import Connector, OptionError


def tls_context(
    connector: Connector, trusted_option: str, own_option: str, password: str
) -> ssl.SSLContext:
    """How servers are verified, and the certificate of the client if it has one.

    OptionError names the option whose file cannot be used.
    """
    trusted, own = (_value(connector, option) for option in (trusted_option, own_option))
    option, path = trusted_option, trusted
    try:
        context = ssl.create_default_context(cafile=trusted or None)
        if own:
            option, path = own_option, own
            context.load_cert_chain(own, password=lambda: password)
    except (OSError, ssl.SSLError) as error:
        if not Path(path).is_file():
            raise OptionError(option, f"{path} is not a file.") from None
        raise OptionError(
            option,
            f"{path} cannot be used ({error}): expected a PEM file. A key store of Java can be "
            "converted with keytool and openssl.",
        ) from None
    return context


def _value(connector: Connector, option: str) -> str:
    return str(getattr(connector, option.replace(".", "_")))
