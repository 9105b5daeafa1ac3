"""Reads the text of a .proto file into its parts.

protoc decides whether a file is valid; this reader only parses files that protoc has accepted, and
raises `CannotRead` for syntax that it does not support.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from headrace.schemas.protobuf.elements import (
    HIGHEST_ENUM,
    HIGHEST_FIELD,
    SPECIAL_ORDER,
    ProtoEnum,
    ProtoEnumValue,
    ProtoExtend,
    ProtoField,
    ProtoFile,
    ProtoGroup,
    ProtoMessage,
    ProtoMethod,
    ProtoNumbers,
    ProtoOneOf,
    ProtoOption,
    ProtoRange,
    ProtoService,
    ProtoWord,
    Value,
)

T = TypeVar("T")
END = ""
"""Follows the last token."""
LABELS = ("required", "optional", "repeated")
# A word is an identifier or a number; adjacent strings are one.
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
      | ( "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+'
        | \.?\d(?:[eE][+-](?=\d)|[\w.])*+ | [A-Za-z_]\w*+ | . )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(
    rb"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))",
    re.DOTALL,
)
_SIMPLE = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


class CannotRead(ValueError):
    """Syntax that this reader does not support."""


def tokens(text: str) -> list[str]:
    """The words, strings and signs of the text, without comments."""
    return list(filter(None, _TOKEN.findall(text)))


def read_file(text: str) -> ProtoFile:
    """The parts of a file that protoc accepts."""
    return _Reader(tokens(text)).file()


class _Reader:
    """Parses the tokens in one pass."""

    def __init__(self, found: list[str]) -> None:
        self._tokens = [*found, END]
        self._next = 0

    # ------------------------------------------------------------------------------- tokens

    def _peek(self) -> str:
        return self._tokens[self._next]

    def _take(self) -> str:
        token = self._tokens[self._next]
        if token == END:
            raise CannotRead("the text ends too early")
        self._next += 1
        return token

    def _skip(self, token: str) -> bool:
        """Consume the next token if it is this one; returns whether it was."""
        if self._tokens[self._next] != token:
            return False
        self._next += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise CannotRead(f"expected {token!r}, found {self._peek()!r}")

    def _name(self) -> str:
        """A name with dots, optionally with a leading one."""
        parts = ["."] if self._skip(".") else []
        parts.append(self._take())
        while self._skip("."):
            parts += (".", self._take())
        return "".join(parts)

    def _number(self) -> int:
        sign = -1 if self._skip("-") else 1
        text = self._take()
        if text[:2] in ("0x", "0X"):
            return sign * int(text, 16)
        return sign * int(text, 8 if text.startswith("0") else 10)

    def _string(self) -> str:
        raw = b""
        while self._peek()[:1] in ('"', "'"):
            raw += unescaped(self._take()[1:-1])
        return raw.decode("utf-8", "surrogateescape")

    # ---------------------------------------------------------------------------- statements

    def file(self) -> ProtoFile:
        syntax = package = ""
        imports: dict[str, list[str]] = {"": [], "public": [], "weak": []}
        options: list[ProtoOption] = []
        messages: list[ProtoMessage] = []
        enums: list[ProtoEnum] = []
        extends: list[ProtoExtend] = []
        services: list[ProtoService] = []
        while self._peek() != END:
            match self._take():
                case ";":
                    pass
                case "syntax" | "edition" as word:
                    self._expect("=")
                    syntax = f'{word} = "{self._string()}"'
                case "package":
                    package = self._name()
                case "import":
                    kind = "" if self._peek()[:1] in ('"', "'") else self._take()
                    if kind not in imports:
                        raise CannotRead(f"import {kind}")
                    imports[kind].append(self._string())
                case "option":
                    options.append(self._option())
                case "message":
                    messages.append(self._message())
                case "enum":
                    enums.append(self._enum())
                case "extend":
                    extends.append(self._extend())
                case "service":
                    services.append(self._service())
                case word:
                    raise CannotRead(f"statement {word!r}")
        return ProtoFile(
            syntax, package, tuple(imports[""]), tuple(imports["public"]), tuple(imports["weak"]),
            tuple(options), tuple(messages), tuple(enums), tuple(extends), tuple(services),
        )  # fmt: skip

    def _message(self) -> ProtoMessage:
        name = self._take()
        self._expect("{")
        return self._body(name)

    def _body(self, name: str) -> ProtoMessage:
        """The rest of a message after its opening brace."""
        reserved: list[ProtoNumbers] = []
        options: list[ProtoOption] = []
        fields: list[ProtoField] = []
        oneofs: list[ProtoOneOf] = []
        groups: list[ProtoGroup] = []
        extensions: list[ProtoNumbers] = []
        extends: list[ProtoExtend] = []
        messages: list[ProtoMessage] = []
        enums: list[ProtoEnum] = []
        while not self._skip("}"):
            match self._peek():
                case ";":
                    self._take()
                case "message":
                    messages.append(self._behind(self._message))
                case "enum":
                    enums.append(self._behind(self._enum))
                case "extend":
                    extends.append(self._behind(self._extend))
                case "oneof":
                    oneofs.append(self._behind(self._oneof))
                case "option":
                    options.append(self._behind(self._option))
                case "reserved":
                    reserved.append(self._behind(lambda: self._numbers(HIGHEST_FIELD)))
                case "extensions":
                    extensions.append(self._behind(lambda: self._numbers(HIGHEST_FIELD)))
                case _:
                    self._field(fields, groups)
        return ProtoMessage(
            name, tuple(reserved), tuple(options), tuple(fields), tuple(oneofs), tuple(groups),
            tuple(extensions), tuple(extends), tuple(messages), tuple(enums),
        )  # fmt: skip

    def _behind(self, read: Callable[[], T]) -> T:
        """The rest of a statement after its keyword."""
        self._take()
        return read()

    def _field(self, fields: list[ProtoField], groups: list[ProtoGroup]) -> None:
        label = self._take() if self._peek() in LABELS else ""
        if self._skip("group"):
            name = self._take()
            self._expect("=")
            number = self._number()
            options = self._bracketed()
            self._expect("{")
            groups.append(ProtoGroup(label, number, options, self._body(name)))
            return
        kind = self._type()
        name = self._take()
        self._expect("=")
        number = self._number()
        fields.append(ProtoField(label, kind, name, number, _special_last(self._bracketed())))
        self._expect(";")

    def _type(self) -> str:
        name = self._name()
        if name != "map" or not self._skip("<"):
            return name
        key = self._name()
        self._expect(",")
        value = self._name()
        self._expect(">")
        return f"map<{key}, {value}>"

    def _oneof(self) -> ProtoOneOf:
        name = self._take()
        options: list[ProtoOption] = []
        fields: list[ProtoField] = []
        groups: list[ProtoGroup] = []
        self._expect("{")
        while not self._skip("}"):
            if self._skip("option"):
                options.append(self._option())
            elif not self._skip(";"):
                self._field(fields, groups)
        return ProtoOneOf(name, tuple(options), tuple(fields), tuple(groups))

    def _extend(self) -> ProtoExtend:
        name = self._name()
        fields: list[ProtoField] = []
        groups: list[ProtoGroup] = []
        self._expect("{")
        while not self._skip("}"):
            if not self._skip(";"):
                self._field(fields, groups)
        return ProtoExtend(name, tuple(fields), tuple(groups))

    def _enum(self) -> ProtoEnum:
        name = self._take()
        options: list[ProtoOption] = []
        reserved: list[ProtoNumbers] = []
        values: list[ProtoEnumValue] = []
        self._expect("{")
        while not self._skip("}"):
            if self._skip("option"):
                options.append(self._option())
            elif self._skip("reserved"):
                reserved.append(self._numbers(HIGHEST_ENUM))
            elif not self._skip(";"):
                value = self._take()
                self._expect("=")
                values.append(ProtoEnumValue(value, self._number(), self._bracketed()))
                self._expect(";")
        return ProtoEnum(name, tuple(options), tuple(reserved), tuple(values))

    def _service(self) -> ProtoService:
        name = self._take()
        options: list[ProtoOption] = []
        methods: list[ProtoMethod] = []
        self._expect("{")
        while not self._skip("}"):
            if self._skip("option"):
                options.append(self._option())
            elif not self._skip(";"):
                self._expect("rpc")
                methods.append(self._method())
        return ProtoService(name, tuple(options), tuple(methods))

    def _method(self) -> ProtoMethod:
        name = self._take()
        taken = self._streamed()
        self._expect("returns")
        given = self._streamed()
        options: list[ProtoOption] = []
        if self._skip("{"):
            while not self._skip("}"):
                if not self._skip(";"):
                    self._expect("option")
                    options.append(self._option())
        return ProtoMethod(name, taken, given, tuple(options))

    def _streamed(self) -> str:
        self._expect("(")
        stream = "stream " if self._skip("stream") else ""
        name = self._name()
        self._expect(")")
        return stream + name

    def _numbers(self, highest: int) -> ProtoNumbers:
        values: list[int | ProtoRange | str] = []
        while True:
            if self._peek()[:1] in ('"', "'"):
                values.append(self._string())
            elif self._peek()[:1].isalpha() or self._peek()[:1] == "_":
                raise CannotRead("reserved names without quotes")
            else:
                first = self._number()
                if self._skip("to"):
                    last = highest if self._skip("max") else self._number()
                    values.append(ProtoRange(first, last))
                else:
                    values.append(first)
            if not self._skip(","):
                break
        options = self._bracketed()
        self._expect(";")
        return ProtoNumbers(tuple(values), options)

    # ------------------------------------------------------------------------------- options

    def _bracketed(self) -> tuple[ProtoOption, ...]:
        options: list[ProtoOption] = []
        if self._skip("["):
            while not self._skip("]"):
                options.append(self._option())
                self._skip(",")
        return tuple(options)

    def _option(self) -> ProtoOption:
        path = [self._option_name()]
        while self._skip("."):
            path.append(self._option_name())
        self._expect("=")
        return ProtoOption(tuple(path), self._value())

    def _option_name(self) -> str:
        if not self._skip("("):
            return self._take()
        name = self._name()
        self._expect(")")
        return f"({name})"

    def _value(self) -> Value:
        match self._peek():
            case "{" | "<":
                return self._literal()
            case "[":
                return self._list()
            case token if token[:1] in ('"', "'"):
                return self._string()
            case "-":
                self._take()
                return ProtoWord(f"-{self._take()}")
        return ProtoWord(self._take())

    def _literal(self) -> dict[str, Value]:
        """A message in text format. A repeated name makes a list."""
        close = "}" if self._take() == "{" else ">"
        found: dict[str, Value] = {}
        while not self._skip(close):
            name = self._take()
            if name == "[":
                while (token := self._take()) != "]":
                    name += token
                name += "]"
            self._skip(":")
            value = self._value()
            if name not in found:
                found[name] = value
            else:
                found[name] = [*_as_list(found[name]), *_as_list(value)]
            if not self._skip(","):
                self._skip(";")
        return found

    def _list(self) -> list[Value]:
        self._expect("[")
        found: list[Value] = []
        while not self._skip("]"):
            found.append(self._value())
            self._skip(",")
        return found


def _as_list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else [value]


def _special_last(options: tuple[ProtoOption, ...]) -> tuple[ProtoOption, ...]:
    return tuple(sorted(options, key=lambda each: SPECIAL_ORDER.get(each.path[0], 0)))


def unescaped(text: str) -> bytes:
    """The content of a string literal."""
    raw = text.encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(_escaped_bytes, raw) if "\\" in text else raw


def _escaped_bytes(found: "re.Match[bytes]") -> bytes:
    hexadecimal, octal, short, long, other = found.groups()
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if other is not None:
        return _SIMPLE.get(other, other)
    return chr(int(short or long, 16)).encode("utf-8", "surrogatepass")
