"""Protobuf: the canonical text, and which change of a message old readers and records survive."""

import base64

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from headrace.registry import formats
from headrace.registry.failures import InvalidSchema
from headrace.registry.formats.parsed import Dependency, Parsed, Sides

SIDES = Sides(reader="the reader", writer="the writer")


def proto(body: str, *, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; package shop; message M {{ {body} }}'


def problems(reader: str, writer: str, *, syntax: str = "proto3") -> list[str]:
    parsed = [formats.parse("PROTOBUF", proto(each, syntax=syntax)) for each in (reader, writer)]
    return parsed[0].problems(parsed[1], SIDES)


READABLE = [
    ("int32 a = 1;", ""), ("", "int32 a = 1;"), ("int32 b = 1;", "int32 a = 1;"),
    ("int64 a = 1;", "int32 a = 1;"), ("bool a = 1;", "uint64 a = 1;"),
    ("sint64 a = 1;", "sint32 a = 1;"), ("fixed32 a = 1;", "sfixed32 a = 1;"),
    ("string a = 1;", "bytes a = 1;"), ("repeated string a = 1;", "string a = 1;"),
    ("enum E { X = 0; } int32 a = 1;", "enum E { X = 0; } E a = 1;"),
    ("enum E { X = 0; Y = 1; } E a = 1;", "enum E { X = 0; } E a = 1;"),
    ("oneof o { int32 a = 1; }", "int32 a = 1;"),
    ("oneof o { int32 a = 1; string b = 2; }", "oneof o { int32 a = 1; }"),
    ("int32 a = 1; int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }"),
    ("message N { int32 x = 1; } N a = 1;", "message O { int32 x = 1; } O a = 1;"),
    ("map<string, int32> a = 1;",
     "message E { string key = 1; int32 value = 2; } repeated E a = 1;"),
    ("M next = 1; int32 v = 2;", "M next = 1;"),
    ("optional int32 a = 1;", "int32 a = 1;"),
]  # fmt: skip
UNREADABLE = [
    ("string a = 1;", "int32 a = 1;", "field 'M.a' (1)"),
    ("sint32 a = 1;", "int32 a = 1;", "sint32"),
    ("fixed64 a = 1;", "fixed32 a = 1;", "fixed64"),
    ("float a = 1;", "double a = 1;", "double"),
    ("repeated int32 a = 1;", "int32 a = 1;", "repeated"),
    ("message N { int32 x = 1; } N a = 1;", "bytes a = 1;", "shop.M.N"),
    ("message N { string x = 1; } N a = 1;", "message N { int32 x = 1; } N a = 1;", "M.a.x"),
    ("map<string, string> a = 1;", "map<string, int32> a = 1;", "M.a.value"),
    ("oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;", "oneof 'M.o'"),
    ("oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 b = 2; }", "field 'M.b' (2)"),
    ("message N { string x = 1; }", "message N { int32 x = 1; }", "M.N.x"),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer"), READABLE)
def test_a_change_that_the_wire_does_not_notice_is_allowed(reader: str, writer: str) -> None:
    assert problems(reader, writer) == []


@pytest.mark.parametrize(("reader", "writer", "says"), UNREADABLE)
def test_a_change_that_breaks_records_is_refused_with_the_field(
    reader: str, writer: str, says: str
) -> None:
    found = problems(reader, writer)
    assert any(says in each for each in found), found


def test_a_required_field_can_only_be_read_where_it_was_required() -> None:
    required, optional = "required int32 a = 1;", "optional int32 a = 1;"
    assert problems(required, "", syntax="proto2") != []
    assert problems(required, optional, syntax="proto2") != []
    assert problems(optional, required, syntax="proto2") == []


def test_a_message_that_is_gone_cannot_be_read() -> None:
    one = formats.parse("PROTOBUF", proto(""))
    two = formats.parse("PROTOBUF", proto("") + " message Other {}")
    assert "message 'Other'" in one.problems(two, SIDES)[0]
    assert two.problems(one, SIDES) == []


EVERYTHING = """
// a comment
syntax = "proto2";
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "com.example";
message Order {
  option deprecated = true;
  reserved 10 to 12, 20; reserved "old";
  extensions 100 to max;
  required string id = 1;
  optional Status status = 2 [default = OPEN, deprecated = true];
  repeated int32 numbers = 3 [packed = true];
  map<string, .shop.v1.Order.Line> lines = 4;
  oneof payment { string card = 5; bytes token = 6 [json_name = "tok"]; }
  optional google.protobuf.Timestamp at = 7;
  optional group Extra = 8 { optional string note = 1; }
  optional string text = 9 [default = "a \\"b\\" \\\\ c"];
  message Line { optional double price = 1; }
  enum Status { option allow_alias = true; OPEN = 0; NEW = 0; reserved 5 to 7; }
}
extend Order { optional string tag = 100; }
service Orders {
  rpc Get (Order) returns (stream Order);
  rpc Put (Order) returns (Order) { option deprecated = true; }
}
"""


def test_the_canonical_text_says_everything_and_is_its_own_canonical_text() -> None:
    parsed = formats.parse("PROTOBUF", EVERYTHING)
    again = formats.parse("PROTOBUF", parsed.canonical)
    assert again.canonical == parsed.canonical

    def descriptor(schema: Parsed) -> descriptor_pb2.FileDescriptorProto:
        raw = base64.b64decode(schema.formatted("serialized"))
        return descriptor_pb2.FileDescriptorProto.FromString(raw)

    assert descriptor(again) == descriptor(parsed)
    assert "comment" not in parsed.canonical


def test_a_descriptor_in_base64_is_the_same_schema_as_its_text() -> None:
    file = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(file)
    given = formats.parse("PROTOBUF", base64.b64encode(file.SerializeToString()).decode())
    assert formats.parse("PROTOBUF", given.canonical).canonical == given.canonical
    assert "message Timestamp {" in given.canonical


def test_custom_options_are_kept_as_they_were_written() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/descriptor.proto";'
        " extend google.protobuf.FieldOptions { string owner = 50000; }"
        ' message M { int32 a = 1 [(owner) = "ann"]; }'
    )
    assert '(owner) = "ann"' in formats.parse("PROTOBUF", text).canonical


def test_imports_come_from_the_references() -> None:
    text = 'syntax = "proto3"; import "shop/part.proto"; message A { shop.M m = 1; }'
    with pytest.raises(InvalidSchema, match=r"part\.proto"):
        formats.parse("PROTOBUF", text)
    parsed = formats.parse("PROTOBUF", text, [Dependency("shop/part.proto", proto("int32 a = 1;"))])
    other = formats.parse("PROTOBUF", text, [Dependency("shop/part.proto", proto("bytes a = 1;"))])
    assert "'A.m.a'" in parsed.problems(other, SIDES)[0]


@pytest.mark.parametrize(
    "text",
    [
        "nonsense", "{}", 'syntax = "proto3"; message M { int32 a = 1 }',
        proto("int32 a = 1; int32 b = 1;"), proto("Nowhere a = 1;"), proto("int32 a = 0;"),
        'syntax = "proto9"; message M {}', 'import "/etc/passwd"; message M {}',
        'import "../../../etc/passwd"; message M {}', "AAAA", "\x00\x01",
        proto("message N {" * 60 + "}" * 60), proto("message N {" * 5000),
        'syntax = "proto3"; import "headrace-main.proto"; message M {}',
    ],
)  # fmt: skip
def test_text_that_is_no_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        formats.parse("PROTOBUF", text)
    assert "headrace-main" not in caught.value.message


@pytest.mark.parametrize("name", ["../x.proto", "/etc/x.proto", "a/../../x.proto", "", "a\x00b"])
def test_a_reference_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(InvalidSchema, match="no name of a file"):
        formats.parse("PROTOBUF", proto(""), [Dependency(name, proto(""))])
