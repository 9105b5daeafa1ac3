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
    return _Reader(_Tokens(tokens(text))).file()


class _Tokens:
    """The tokens of a file, and how many of them have been read."""

    def __init__(self, found: list[str]) -> None:
        self._tokens = [*found, END]
        self._next = 0

    def peek(self) -> str:
        """The next token, which is not read."""
        return self._tokens[self._next]

    def take(self) -> str:
        """Read the next token."""
        token = self._tokens[self._next]
        if token == END:
            raise CannotRead("the text ends too early")
        self._next += 1
        return token

    def skip(self, token: str) -> bool:
        """Read the next token if it is this one; returns whether it is."""
        if self._tokens[self._next] != token:
            return False
        self._next += 1
        return True

    def expect(self, token: str) -> None:
        """Read this token; CannotRead if another one follows."""
        if not self.skip(token):
            raise CannotRead(f"expected {token!r}, found {self.peek()!r}")

    def name(self) -> str:
        """Read a name with dots, optionally with a leading one."""
        parts = ["."] if self.skip(".") else []
        parts.append(self.take())
        while self.skip("."):
            parts += (".", self.take())
        return "".join(parts)

    def number(self) -> int:
        """Read an integer."""
        sign = -1 if self.skip("-") else 1
        text = self.take()
        if text[:2] in ("0x", "0X"):
            return sign * int(text, 16)
        return sign * int(text, 8 if text.startswith("0") else 10)

    def string(self) -> str:
        """Read a string; adjacent literals are one."""
        raw = b""
        while self.next_is_string():
            raw += unescaped(self.take()[1:-1])
        return raw.decode("utf-8", "surrogateescape")

    def next_is_string(self) -> bool:
        """Whether a string literal follows."""
        return self.peek()[:1] in ('"', "'")


class _Reader:
    """Parses the tokens in one pass, with one method for each kind of statement."""

    def __init__(self, found: _Tokens) -> None:
        self._tokens = found

    # ---------------------------------------------------------------------------- statements

    def file(self) -> ProtoFile:
        syntax = package = ""
        imports: dict[str, list[str]] = {"": [], "public": [], "weak": []}
        options: list[ProtoOption] = []
        messages: list[ProtoMessage] = []
        enums: list[ProtoEnum] = []
        extends: list[ProtoExtend] = []
        services: list[ProtoService] = []
        while self._tokens.peek() != END:
            match self._tokens.take():
                case ";":
                    pass
                case "syntax" | "edition" as word:
                    self._tokens.expect("=")
                    syntax = f'{word} = "{self._tokens.string()}"'
                case "package":
                    package = self._tokens.name()
                case "import":
                    kind = "" if self._tokens.next_is_string() else self._tokens.take()
                    if kind not in imports:
                        raise CannotRead(f"import {kind}")
                    imports[kind].append(self._tokens.string())
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
        name = self._tokens.take()
        self._tokens.expect("{")
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
        while not self._tokens.skip("}"):
            match self._tokens.peek():
                case ";":
                    self._tokens.take()
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
        self._tokens.take()
        return read()

    def _field(self, fields: list[ProtoField], groups: list[ProtoGroup]) -> None:
        label = self._tokens.take() if self._tokens.peek() in LABELS else ""
        if self._tokens.skip("group"):
            name = self._tokens.take()
            self._tokens.expect("=")
            number = self._tokens.number()
            options = self._bracketed()
            self._tokens.expect("{")
            groups.append(ProtoGroup(label, number, options, self._body(name)))
            return
        kind = self._type()
        name = self._tokens.take()
        self._tokens.expect("=")
        number = self._tokens.number()
        fields.append(ProtoField(label, kind, name, number, _special_last(self._bracketed())))
        self._tokens.expect(";")

    def _type(self) -> str:
        name = self._tokens.name()
        if name != "map" or not self._tokens.skip("<"):
            return name
        key = self._tokens.name()
        self._tokens.expect(",")
        value = self._tokens.name()
        self._tokens.expect(">")
        return f"map<{key}, {value}>"

    def _oneof(self) -> ProtoOneOf:
        name = self._tokens.take()
        options: list[ProtoOption] = []
        fields: list[ProtoField] = []
        groups: list[ProtoGroup] = []
        self._tokens.expect("{")
        while not self._tokens.skip("}"):
            if self._tokens.skip("option"):
                options.append(self._option())
            elif not self._tokens.skip(";"):
                self._field(fields, groups)
        return ProtoOneOf(name, tuple(options), tuple(fields), tuple(groups))

    def _extend(self) -> ProtoExtend:
        name = self._tokens.name()
        fields: list[ProtoField] = []
        groups: list[ProtoGroup] = []
        self._tokens.expect("{")
        while not self._tokens.skip("}"):
            if not self._tokens.skip(";"):
                self._field(fields, groups)
        return ProtoExtend(name, tuple(fields), tuple(groups))

    def _enum(self) -> ProtoEnum:
        name = self._tokens.take()
        options: list[ProtoOption] = []
        reserved: list[ProtoNumbers] = []
        values: list[ProtoEnumValue] = []
        self._tokens.expect("{")
        while not self._tokens.skip("}"):
            if self._tokens.skip("option"):
                options.append(self._option())
            elif self._tokens.skip("reserved"):
                reserved.append(self._numbers(HIGHEST_ENUM))
            elif not self._tokens.skip(";"):
                value = self._tokens.take()
                self._tokens.expect("=")
                values.append(ProtoEnumValue(value, self._tokens.number(), self._bracketed()))
                self._tokens.expect(";")
        return ProtoEnum(name, tuple(options), tuple(reserved), tuple(values))

    def _service(self) -> ProtoService:
        name = self._tokens.take()
        options: list[ProtoOption] = []
        methods: list[ProtoMethod] = []
        self._tokens.expect("{")
        while not self._tokens.skip("}"):
            if self._tokens.skip("option"):
                options.append(self._option())
            elif not self._tokens.skip(";"):
                self._tokens.expect("rpc")
                methods.append(self._method())
        return ProtoService(name, tuple(options), tuple(methods))

    def _method(self) -> ProtoMethod:
        name = self._tokens.take()
        taken = self._streamed()
        self._tokens.expect("returns")
        given = self._streamed()
        options: list[ProtoOption] = []
        if self._tokens.skip("{"):
            while not self._tokens.skip("}"):
                if not self._tokens.skip(";"):
                    self._tokens.expect("option")
                    options.append(self._option())
        return ProtoMethod(name, taken, given, tuple(options))

    def _streamed(self) -> str:
        self._tokens.expect("(")
        stream = "stream " if self._tokens.skip("stream") else ""
        name = self._tokens.name()
        self._tokens.expect(")")
        return stream + name

    def _numbers(self, highest: int) -> ProtoNumbers:
        values: list[int | ProtoRange | str] = []
        while True:
            if self._tokens.next_is_string():
                values.append(self._tokens.string())
            elif self._tokens.peek()[:1].isalpha() or self._tokens.peek()[:1] == "_":
                raise CannotRead("reserved names without quotes")
            else:
                first = self._tokens.number()
                if self._tokens.skip("to"):
                    last = highest if self._tokens.skip("max") else self._tokens.number()
                    values.append(ProtoRange(first, last))
                else:
                    values.append(first)
            if not self._tokens.skip(","):
                break
        options = self._bracketed()
        self._tokens.expect(";")
        return ProtoNumbers(tuple(values), options)

    # ------------------------------------------------------------------------------- options

    def _bracketed(self) -> tuple[ProtoOption, ...]:
        options: list[ProtoOption] = []
        if self._tokens.skip("["):
            while not self._tokens.skip("]"):
                options.append(self._option())
                self._tokens.skip(",")
        return tuple(options)

    def _option(self) -> ProtoOption:
        path = [self._option_name()]
        while self._tokens.skip("."):
            path.append(self._option_name())
        self._tokens.expect("=")
        return ProtoOption(tuple(path), self._value())

    def _option_name(self) -> str:
        if not self._tokens.skip("("):
            return self._tokens.take()
        name = self._tokens.name()
        self._tokens.expect(")")
        return f"({name})"

    def _value(self) -> Value:
        match self._tokens.peek():
            case "{" | "<":
                return self._literal()
            case "[":
                return self._list()
            case token if token[:1] in ('"', "'"):
                return self._tokens.string()
            case "-":
                self._tokens.take()
                return ProtoWord(f"-{self._tokens.take()}")
        return ProtoWord(self._tokens.take())

    def _literal(self) -> dict[str, Value]:
        """A message in text format. A repeated name makes a list."""
        close = "}" if self._tokens.take() == "{" else ">"
        found: dict[str, Value] = {}
        while not self._tokens.skip(close):
            name = self._tokens.take()
            if name == "[":
                while (token := self._tokens.take()) != "]":
                    name += token
                name += "]"
            self._tokens.skip(":")
            value = self._value()
            if name not in found:
                found[name] = value
            else:
                found[name] = [*_as_list(found[name]), *_as_list(value)]
            if not self._tokens.skip(","):
                self._tokens.skip(";")
        return found

    def _list(self) -> list[Value]:
        self._tokens.expect("[")
        found: list[Value] = []
        while not self._tokens.skip("]"):
            found.append(self._value())
            self._tokens.skip(",")
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
