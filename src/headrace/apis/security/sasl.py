"""SaslHandshake (17), versions 0-1, and SaslAuthenticate (36), versions 0-2.

`broker/setup/login.py` handles them on connections that authenticate. On all others, and after
a complete authentication, they are refused.
"""

from headrace.apis.context import RequestContext, Services
from headrace.errors import ErrorCode, KafkaError


def refuse_login(_services: Services, _request: object, _context: RequestContext) -> object:
    """ILLEGAL_SASL_STATE."""
    raise KafkaError(
        ErrorCode.ILLEGAL_SASL_STATE, "this connection needs no login, or has logged in already"
    )
