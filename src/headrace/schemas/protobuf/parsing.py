"""Parses Protobuf schemas: .proto text, or a file descriptor in base64 as some clients send it.

protoc, from the wheel of grpcio-tools, parses the text. It reads files, so the schema and its
imports are written to a temporary folder for the call; no code is executed.
"""

import ast
import base64
import binascii
import re
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import cast

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from grpc_tools import _protoc_compiler

from headrace.schemas.comparison import Sides
from headrace.schemas.errors import InvalidSchema, unknown_form
from headrace.schemas.interface import ParsedSchema, SchemaDependency
from headrace.schemas.protobuf.comparison import ProtobufComparison, Types
from headrace.schemas.protobuf.descriptor import elements_of
from headrace.schemas.protobuf.known_files import file_descriptor, known_imports
from headrace.schemas.protobuf.normal import normalized
from headrace.schemas.protobuf.source import CannotRead, read_file, tokens
from headrace.schemas.protobuf.text import proto_text

MAIN = "headrace-main.proto"
WELL_KNOWN = Path(str(grpc_tools.__file__)).parent / "_proto"
# protoc's Python output holds each file's descriptor as one literal.
_LITERAL = re.compile(rb"AddSerializedFile\((b'(?:[^'\\]|\\.)*')\)")
_PLAIN_NAME = re.compile(r"[\w.+-]+(/[\w.+-]+)*\Z", re.ASCII)
# The first statement of a file, after comments.
_SYNTAX = re.compile(r"(?:\s++|//[^\n]*+|/\*.*?\*/)*+(?:syntax|edition)\b", re.DOTALL)
_IMPORT = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?["']([^"']+)["']""")
BRACKET_DEPTH = 100
"""The limit of nested brackets; protoc recurses into them without a limit."""
DEEPEST = 30
"""The limit of nested messages."""


class ProtobufSchema:
    """A valid file."""

    kind = "PROTOBUF"

    def __init__(self, text: str, file: FileDescriptorProto, types: Types) -> None:
        self._text = text
        self.file = file
        self.types = types

    @cached_property
    def canonical(self) -> str:
        try:
            return proto_text(read_file(self._text))
        except CannotRead:
            # protoc supports more than the reader, for example later editions.
            return self._text.strip()

    def normalized(self) -> str:
        try:
            return proto_text(normalized(read_file(self._text), self.types))
        except CannotRead:
            return self._text.strip()

    def formatted(self, form: str) -> str:
        if form == "serialized":
            return base64.b64encode(self.file.SerializeToString()).decode()
        if form in ("ignore_extensions", "no_meta"):
            return self.canonical
        raise unknown_form(form, "serialized")

    def problems(self, writer: ParsedSchema, sides: Sides) -> list[str]:
        other = cast(ProtobufSchema, writer)
        return ProtobufComparison(sides, self.types, other.types).problems(self.file, other.file)


def parse(text: str, dependencies: Sequence[SchemaDependency]) -> ProtobufSchema:
    """Parse a file that may import the files of its dependencies."""
    for dependency in dependencies:
        if not _PLAIN_NAME.match(dependency.name) or ".." in dependency.name:
            raise InvalidSchema(
                f"Invalid Protobuf schema: {dependency.name[:100]!r} is not the name of a file "
                "to import"
            )
    given = _from_base64(text)
    if given is not None:
        text = proto_text(elements_of(given))
    texts = {each.name: _as_text(each.text) for each in dependencies}
    files = _compile(text, texts)
    main = files.pop()
    main.name = "" if given is None else given.name
    _check_depth(main)
    return ProtobufSchema(text, main, Types(main, files))


def _as_text(text: str) -> str:
    given = _from_base64(text)
    return text if given is None else proto_text(elements_of(given))


def _from_base64(text: str) -> FileDescriptorProto | None:
    """The descriptor, if the text is one in base64."""
    try:
        raw = base64.b64decode(text, validate=True)
        file = file_descriptor(raw)
    except (binascii.Error, ValueError, DecodeError):
        return None
    if not (file.name or file.message_type or file.enum_type or file.extension or file.service):
        return None
    _check_depth(file)
    return file


def _compile(text: str, others: dict[str, str]) -> list[FileDescriptorProto]:
    """Descriptors of all needed files, each after its imports; the schema is last."""
    for each in (text, *others.values()):
        _check_brackets(each)
    with tempfile.TemporaryDirectory(prefix="headrace-proto-") as name:
        folder = Path(name)
        for path, content in _with_known({**others, MAIN: text}).items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            # protoc assumes proto2 without a syntax statement, but warns on standard error.
            said = "" if _SYNTAX.match(content) else 'syntax = "proto2"; '
            target.write_text(said + content, "utf-8")
        include = [str(folder).encode(), str(WELL_KNOWN).encode()]
        try:
            outputs = _protoc_compiler.get_protos(MAIN.encode(), include)
        except Exception as error:
            raise InvalidSchema(f"Invalid Protobuf schema: {_reason(error)}") from None
    files = []
    for _, source in outputs:
        found = _LITERAL.search(source)
        assert found, "protoc writes every descriptor as a literal"
        files.append(FileDescriptorProto.FromString(ast.literal_eval(found[1].decode())))
    return files


def _with_known(texts: dict[str, str]) -> dict[str, str]:
    """The files by their names, including those that need no reference."""
    imports = [path for text in texts.values() for path in _IMPORT.findall(text)]
    found = {
        file.name: proto_text(elements_of(file))
        for file in known_imports(imports)
        if file.name not in texts
    }
    return {**texts, **found}


def _reason(error: Exception) -> str:
    """protoc's message, without the name of the temporary file."""
    text = str(error) or type(error).__name__
    return text.replace(f"{MAIN}:", "line ").replace(MAIN, "the schema").strip()[:500]


def _check_brackets(text: str) -> None:
    """Refuse deep nesting: protoc crashes on some ten thousand levels."""
    if sum(map(text.count, "{[<(")) <= BRACKET_DEPTH:
        return
    depth = 0
    for token in tokens(text):
        if token in "{[<(":
            depth += 1
            if depth > BRACKET_DEPTH:
                raise InvalidSchema(
                    "Invalid Protobuf schema: brackets are nested more than "
                    f"{BRACKET_DEPTH} levels deep"
                )
        elif token in "}]>)":
            depth -= 1


def _check_depth(file: FileDescriptorProto) -> None:
    waiting = [(message, 1) for message in file.message_type]
    while waiting:
        message, depth = waiting.pop()
        if depth > DEEPEST:
            raise InvalidSchema(
                f"Invalid Protobuf schema: messages are nested more than {DEEPEST} levels deep"
            )
        waiting += [(inner, depth + 1) for inner in message.nested_type]
