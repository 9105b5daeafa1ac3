"""MIT Kerberos through its GSSAPI library and ctypes (decision 0048).

Credentials and security contexts of both sides of a login, without SASL or Kafka. The
calls block, for milliseconds on an acceptor and for as long as the KDC takes on an initiator. The
library is loaded by the first call, so that a process without Kerberos does not need it.
"""

import ctypes
import re
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from functools import cache

DEBIAN_PACKAGE = "libgssapi-krb5-2"
_LIBRARY = "libgssapi_krb5.so.2"
_KRB5_LIBRARY = "libkrb5.so.3"

_INDEFINITE = 0xFFFFFFFF
_INITIATE, _ACCEPT = 1, 2
_ERRORS = 0xFFFF0000
"""The bits of a major status that mean a failure."""
_CONTINUE_NEEDED = 1
_MUTUAL, _INTEGRITY = 2, 32
_GSS_CODE, _MECHANISM_CODE = 1, 2
_KDC_UNREACHABLE = -1765328228 & 0xFFFFFFFF
"""KRB5_KDC_UNREACH as a minor status."""
_NO_TEXT = "Success"
"""The library's text for an unknown status of a mechanism."""
_UNPRINTABLE = re.compile(r"[^ -~]")
_LONGEST_TEXT = 400


class GssError(Exception):
    """A call of the library failed; the message is the library's."""


class LibraryMissing(GssError):
    """MIT's library is not installed."""


class KdcUnreachable(GssError):
    """No KDC responded; retriable."""


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", c_char_p))


class _OidSet(ctypes.Structure):
    _fields_ = (("count", c_size_t), ("elements", POINTER(_Oid)))


class _KeyValue(ctypes.Structure):
    _fields_ = (("key", c_char_p), ("value", c_char_p))


class _KeyValueSet(ctypes.Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_KeyValue)))


def _oid(encoded: str) -> _Oid:
    octets = bytes.fromhex(encoded)
    return _Oid(len(octets), octets)


_KERBEROS = _oid("2a864886f712010202")
_HOST_BASED_SERVICE = _oid("2a864886f71201020104")
_PRINCIPAL_NAME = _oid("2a864886f71201020201")

_STATUS = POINTER(c_uint32)
_HANDLE = POINTER(c_void_p)
_BUFFER = POINTER(_Buffer)
_FUNCTIONS = {
    "gss_import_name": (_STATUS, _BUFFER, POINTER(_Oid), _HANDLE),
    "gss_display_name": (_STATUS, c_void_p, _BUFFER, c_void_p),
    "gss_release_name": (_STATUS, _HANDLE),
    "gss_acquire_cred_from": (
        _STATUS, c_void_p, c_uint32, POINTER(_OidSet), c_int, POINTER(_KeyValueSet), _HANDLE,
        c_void_p, c_void_p,
    ),
    "gss_release_cred": (_STATUS, _HANDLE),
    "gss_accept_sec_context": (
        _STATUS, _HANDLE, c_void_p, _BUFFER, c_void_p, _HANDLE, c_void_p, _BUFFER, c_void_p,
        c_void_p, c_void_p,
    ),
    "gss_init_sec_context": (
        _STATUS, c_void_p, _HANDLE, c_void_p, POINTER(_Oid), c_uint32, c_uint32, c_void_p, _BUFFER,
        c_void_p, _BUFFER, c_void_p, c_void_p,
    ),
    "gss_delete_sec_context": (_STATUS, _HANDLE, c_void_p),
    "gss_wrap": (_STATUS, c_void_p, c_int, c_uint32, _BUFFER, c_void_p, _BUFFER),
    "gss_unwrap": (_STATUS, c_void_p, _BUFFER, _BUFFER, c_void_p, c_void_p),
    "gss_display_status": (_STATUS, c_uint32, c_int, POINTER(_Oid), POINTER(c_uint32), _BUFFER),
    "gss_release_buffer": (_STATUS, _BUFFER),
}  # fmt: skip
"""The functions that are used, and the types of their arguments."""


@cache
def _library() -> ctypes.CDLL:
    library = _load(_LIBRARY)
    for name, types in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = types
        function.restype = c_uint32
    return library


def _load(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise LibraryMissing(
            f"GSSAPI needs MIT's Kerberos library {name}, which cannot be loaded ({error}); "
            f"on Debian: apt-get install {DEBIAN_PACKAGE}"
        ) from error


def _call(name: str, *arguments: object) -> int:
    """Call a function of the library; returns the major status, GssError on a failure."""
    minor = c_uint32()
    major = int(getattr(_library(), name)(byref(minor), *arguments))
    if major & _ERRORS:
        text = ""
        if minor.value:
            text = _status_text(minor.value, _MECHANISM_CODE)
        if not text or text == _NO_TEXT:
            text = _status_text(major, _GSS_CODE)
        kind = KdcUnreachable if minor.value == _KDC_UNREACHABLE else GssError
        # Some messages contain names that the other side chose.
        raise kind(_UNPRINTABLE.sub("?", text)[:_LONGEST_TEXT])
    return major


def _status_text(status: int, kind: int) -> str:
    minor, more, text = c_uint32(), c_uint32(), _Buffer()
    failed = _library().gss_display_status(
        byref(minor), status, kind, byref(_KERBEROS), byref(more), byref(text)
    )
    return f"status {status:#x}" if failed else _taken(text).decode(errors="replace")


def _taken(buffer: _Buffer) -> bytes:
    """The bytes of a buffer of the library, which is then released."""
    data = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
    _library().gss_release_buffer(byref(c_uint32()), byref(buffer))
    return data


def _given(data: bytes) -> _Buffer:
    return _Buffer(len(data), ctypes.cast(c_char_p(data), c_void_p))


class _Name:
    """A name in the library's form."""

    def __init__(self, text: str, kind: _Oid) -> None:
        self.handle = c_void_p()
        data = text.encode()
        _call("gss_import_name", byref(_given(data)), byref(kind), byref(self.handle))

    def __del__(self) -> None:
        if self.handle.value:
            _library().gss_release_name(byref(c_uint32()), byref(self.handle))


class Credential:
    """The keys or tickets of a principal."""

    def __init__(self, principal: str, usage: int, store: Mapping[str, str]) -> None:
        self.handle = c_void_p()
        name = _Name(principal, _PRINCIPAL_NAME) if principal else None
        elements = (_KeyValue * len(store))(
            *(_KeyValue(key.encode(), value.encode()) for key, value in store.items())
        )
        _call(
            "gss_acquire_cred_from",
            name.handle if name is not None else None,
            _INDEFINITE,
            byref(_OidSet(1, ctypes.pointer(_KERBEROS))),
            usage,
            byref(_KeyValueSet(len(store), elements)),
            byref(self.handle),
            None,
            None,
        )

    def __del__(self) -> None:
        if self.handle.value:
            _library().gss_release_cred(byref(c_uint32()), byref(self.handle))


def acceptor_credential(principal: str, keytab: str) -> Credential:
    """The keys of a service; GssError if the keytab has no key of this principal."""
    return Credential(principal, _ACCEPT, {"keytab": f"FILE:{keytab}"})


def initiator_credential(
    principal: str = "", keytab: str = "", ticket_cache: str = ""
) -> Credential:
    """The tickets of a user; GssError without any.

    With a keytab, the library gets them from the KDC and keeps them in `ticket_cache`.
    """
    store = {}
    if keytab:
        store["client_keytab"] = f"FILE:{keytab}"
    if ticket_cache:
        store["ccache"] = ticket_cache
    return Credential(principal, _INITIATE, store)


class _Context:
    """One side of a security context."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential
        self._handle = c_void_p()
        self.complete = False

    def __del__(self) -> None:
        if self._handle.value:
            _library().gss_delete_sec_context(byref(c_uint32()), byref(self._handle), None)

    def wrap(self, message: bytes) -> bytes:
        """A message with its integrity protected."""
        wrapped = _Buffer()
        _call("gss_wrap", self._handle, 0, 0, byref(_given(message)), None, byref(wrapped))
        return _taken(wrapped)

    def unwrap(self, token: bytes) -> bytes:
        """The message in a token of the other side; GssError if it is of another context."""
        message = _Buffer()
        _call("gss_unwrap", self._handle, byref(_given(token)), byref(message), None, None)
        return _taken(message)


class AcceptorContext(_Context):
    """The side of the service."""

    def __init__(self, credential: Credential) -> None:
        super().__init__(credential)
        self.principal = ""
        """The user, such as `alice@EXAMPLE.COM`; known when the context is complete."""

    def accept(self, token: bytes) -> bytes:
        """The reply to a token of the user, which may be empty; GssError if it is not valid."""
        source, answer = c_void_p(), _Buffer()
        try:
            major = _call(
                "gss_accept_sec_context",
                byref(self._handle),
                self._credential.handle,
                byref(_given(token)),
                None,
                byref(source),
                None,
                byref(answer),
                None,
                None,
                None,
            )
            self.complete = not major & _CONTINUE_NEEDED
            if self.complete:
                self.principal = _displayed(source)
        finally:
            if source.value:
                _library().gss_release_name(byref(c_uint32()), byref(source))
            data = _taken(answer)
        return data


def _displayed(name: c_void_p) -> str:
    text = _Buffer()
    _call("gss_display_name", name, byref(text), None)
    return _taken(text).decode(errors="replace")


class InitiatorContext(_Context):
    """The side of the user, for the service of a host."""

    def __init__(self, credential: Credential, service: str, host: str) -> None:
        super().__init__(credential)
        self._target = _Name(f"{service}@{host}", _HOST_BASED_SERVICE)

    def step(self, token: bytes) -> bytes:
        """The next token for the service, which may be empty; GssError if the login fails."""
        answer = _Buffer()
        try:
            major = _call(
                "gss_init_sec_context",
                self._credential.handle,
                byref(self._handle),
                self._target.handle,
                byref(_KERBEROS),
                _MUTUAL | _INTEGRITY,
                0,
                None,
                byref(_given(token)),
                None,
                byref(answer),
                None,
                None,
            )
            self.complete = not major & _CONTINUE_NEEDED
        finally:
            data = _taken(answer)
        return data


def default_realm() -> str:
    """`default_realm` of krb5.conf; empty if it is not set."""
    library = _load(_KRB5_LIBRARY)
    library.krb5_init_context.argtypes = (_HANDLE,)
    library.krb5_get_default_realm.argtypes = (c_void_p, POINTER(c_char_p))
    library.krb5_free_default_realm.argtypes = (c_void_p, c_char_p)
    library.krb5_free_context.argtypes = (c_void_p,)
    context, realm = c_void_p(), c_char_p()
    if library.krb5_init_context(byref(context)):
        raise GssError("the configuration of Kerberos (krb5.conf) cannot be read")
    try:
        if library.krb5_get_default_realm(context, byref(realm)):
            return ""
        found = (realm.value or b"").decode(errors="replace")
        library.krb5_free_default_realm(context, realm)
        return found
    finally:
        library.krb5_free_context(context)
