"""Protobuf: the canonical text, and which changes of messages are compatible."""

import base64
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from headrace.schemas import formats
from headrace.schemas.comparison import Sides
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.interface import ParsedSchema, SchemaDependency
from headrace.schemas.protobuf import known_files
from headrace.schemas.protobuf.parsing import BRACKET_DEPTH

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


def descriptor(schema: ParsedSchema) -> descriptor_pb2.FileDescriptorProto:
    raw = base64.b64decode(schema.formatted("serialized"))
    return descriptor_pb2.FileDescriptorProto.FromString(raw)


def meaning(schema: ParsedSchema) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor without the order of imports, fields, oneofs and nested types."""
    file = descriptor(schema)
    public = {file.dependency[index] for index in file.public_dependency}
    file.dependency.sort()
    del file.public_dependency[:]
    file.public_dependency.extend(i for i, n in enumerate(file.dependency) if n in public)
    waiting = list(file.message_type)
    while waiting:
        message = waiting.pop()
        oneofs = {each.name: each for each in message.oneof_decl}
        for field in message.field:
            if field.HasField("oneof_index"):
                name = message.oneof_decl[field.oneof_index].name
                field.oneof_index = sorted(oneofs).index(name)
        for parts, ordered in (
            (message.field, sorted(message.field, key=lambda each: each.number)),
            (message.oneof_decl, [oneofs[name] for name in sorted(oneofs)]),
            (message.nested_type, sorted(message.nested_type, key=lambda each: each.name)),
        ):
            copies = [type(each).FromString(each.SerializeToString()) for each in ordered]
            del parts[:]
            parts.extend(copies)
        waiting += message.nested_type
    return file


def test_the_canonical_text_is_complete_and_idempotent() -> None:
    parsed = formats.parse("PROTOBUF", EVERYTHING)
    again = formats.parse("PROTOBUF", parsed.canonical)
    assert again.canonical == parsed.canonical

    assert meaning(again) == meaning(parsed)
    assert "comment" not in parsed.canonical


def test_a_descriptor_in_base64_is_the_same_schema_as_its_text() -> None:
    file = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(file)
    given = formats.parse("PROTOBUF", base64.b64encode(file.SerializeToString()).decode())
    assert formats.parse("PROTOBUF", given.canonical).canonical == given.canonical
    assert "message Timestamp {" in given.canonical


GOLDEN = (
    (
        'syntax="proto3";package shop.v1;message A{int32 a=1;B b=2;} message B{}',
        """syntax = "proto3";
package shop.v1;

message A {
  int32 a = 1;
  B b = 2;
}
message B {}
""",
    ),
    (
        "message A { optional int32 a = 0x10; }",
        """
message A {
  optional int32 a = 16;
}
""",
    ),
    (
        """// about the file
        syntax = 'proto3';
        import public "google/protobuf/empty.proto"; import "google/protobuf/any.proto";
        option java_package = "a" 'b'; option optimize_for = SPEED; /* twice */
        enum E { Z = 0; option allow_alias = true; Y = 0 [deprecated = true]; reserved 2, 4 to 6; }
        message M {
          enum Inner { NONE = 0; }
          oneof choice { string s = 2; M m = 3 [json_name = "x", deprecated = true]; }
          message Nested { option deprecated = true; message Deep { int32 a = 1; } Deep d = 1; }
          reserved 9, 20 to max, 5 to 5; reserved "old", "older";
          map < string , Nested > lines = 4; ;
          optional google.protobuf.Any any = 1;
          repeated .M.Inner inner = 7 [packed = false, json_name = "in"];
        }
        service S { rpc A(M) returns (stream M); rpc B(stream .M) returns (M)
          { option deprecated = true; } }""",
        """syntax = "proto3";

import "google/protobuf/any.proto";
import public "google/protobuf/empty.proto";

option java_package = "ab";
option optimize_for = SPEED;

message M {
  reserved 9, 20 to max, 5 to 5;
  reserved "old", "older";

  map<string, Nested> lines = 4;
  optional google.protobuf.Any any = 1;
  repeated .M.Inner inner = 7 [
    packed = false,
    json_name = "in"
  ];

  oneof choice {
    string s = 2;
    M m = 3 [
      deprecated = true,
      json_name = "x"
    ];
  }

  message Nested {
    option deprecated = true;
\x20\x20
    Deep d = 1;
\x20\x20
    message Deep {
      int32 a = 1;
    }
  }
  enum Inner {
    NONE = 0;
  }
}
enum E {
  reserved 2, 4 to 6;
  option allow_alias = true;
  Z = 0;
  Y = 0 [deprecated = true];
}

service S {
  rpc A (M) returns (stream M);
  rpc B (stream .M) returns (M) {
    option deprecated = true;
  };
}
""",
    ),
    (
        r"""syntax = "proto2"; package p; import "google/protobuf/descriptor.proto";
        message O { repeated string tag = 1; optional O in = 2; optional double d = 3;
          extensions 100 to 199, 300; }
        extend google.protobuf.FieldOptions { optional O o = 50000; }
        extend google.protobuf.FieldOptions { optional bool flag = 50001; }
        message M {
          optional string s = 1 [(o).tag = "it's", (p.o).in.d = -1.5e+3, default = "\x41\n\377"];
          required int32 i = 2 [(flag) = true];
          optional int32 j = 3 [(o) = { tag: "a" tag: ["b", "c"], in < d: 2 > }];
          optional group G = 4 { optional int32 a = 1; }
          extend O { optional int32 e = 100; }
        }""",
        """syntax = "proto2";
package p;

import "google/protobuf/descriptor.proto";

message O {
  repeated string tag = 1;
  optional O in = 2;
  optional double d = 3;

  extensions 100 to 199, 300;
}
message M {
  optional string s = 1 [
    (o).tag = "it\\'s",
    (p.o).in.d = -1.5e+3,
    default = "A\\n\\377"
  ];
  required int32 i = 2 [(flag) = true];
  optional int32 j = 3 [(o) = {
    tag: [
      "a",
      "b",
      "c"
    ],
    in: {
      d: 2
    }
  }];

  optional group G = 4 {
    optional int32 a = 1;
  }

  extend O {
    optional int32 e = 100;
  }
}

extend google.protobuf.FieldOptions {
  optional O o = 50000;
}
extend google.protobuf.FieldOptions {
  optional bool flag = 50001;
}
""",
    ),
)


@pytest.mark.parametrize(("text", "canonical"), GOLDEN)
def test_the_text_has_the_layout_of_existing_registries(text: str, canonical: str) -> None:
    """Their rules: ProtobufSchemaUtils of Confluent's registry on the elements of Square's Wire."""
    parsed = formats.parse("PROTOBUF", text)
    assert parsed.canonical == canonical
    again = formats.parse("PROTOBUF", canonical)
    assert again.canonical == canonical
    assert meaning(again) == meaning(parsed)


REAL_FILES = sorted((Path(grpc_tools.__file__).parent / "_proto/google/protobuf").glob("*.proto"))


@pytest.mark.parametrize("path", REAL_FILES, ids=lambda path: path.stem)
def test_real_files_mean_the_same_in_their_canonical_and_normalized_text(path: Path) -> None:
    parsed = formats.parse("PROTOBUF", path.read_text("utf-8"))
    for text in (parsed.canonical, parsed.normalized()):
        again = formats.parse("PROTOBUF", text)
        assert again.canonical == text
        assert again.normalized() == parsed.normalized()
    assert meaning(formats.parse("PROTOBUF", parsed.canonical)) == meaning(parsed)


def test_normalizing_names_types_in_full_and_sorts_what_has_no_order() -> None:
    text = """syntax = "proto3"; package p;
      import "google/protobuf/timestamp.proto"; import "confluent/meta.proto";
      option java_package = "j"; option go_package = "g";
      message M {
        reserved "x", "a"; reserved 30 to 31, 7 to 7;
        N n = 3 [(confluent.field_meta).tags = "b", (confluent.field_meta).doc = "d",
                 (.confluent.field_meta).tags = "a"];
        map<string, M.N> m = 1; google.protobuf.Timestamp t = 2;
        oneof late { E e = 9; } oneof early { int32 i = 5; int32 h = 4; }
        message N {} enum E { ZERO = 0; TWO = 0x2; ONE = 1; MINUS = -1; }
      }"""
    expected = """syntax = "proto3";
package p;

import "confluent/meta.proto";
import "google/protobuf/timestamp.proto";

option go_package = "g";
option java_package = "j";

message M {
  reserved 7;
  reserved 30 to 31;
  reserved "a";
  reserved "x";

  map<string, .p.M.N> m = 1;
  .google.protobuf.Timestamp t = 2;
  .p.M.N n = 3 [(confluent.field_meta) = {
    doc: "d",
    tags: [
      "b",
      "a"
    ]
  }];

  oneof early {
    int32 h = 4;
    int32 i = 5;
  }
  oneof late {
    .p.M.E e = 9;
  }

  message N {}
  enum E {
    ZERO = 0;
    ONE = 1;
    TWO = 2;
    MINUS = -1;
  }
}
"""
    normalized = formats.parse("PROTOBUF", text).normalized()
    assert normalized == expected
    again = formats.parse("PROTOBUF", normalized)
    assert again.normalized() == again.canonical == normalized


def test_a_file_of_an_edition_that_the_reader_does_not_know_keeps_its_text() -> None:
    text = 'edition = "2023"; message M { reserved foo; int32 a = 1; }'
    assert formats.parse("PROTOBUF", f" {text}\n").canonical == text
    plain = formats.parse("PROTOBUF", 'edition = "2023"; message M { int32 a = 1; }')
    assert plain.canonical == 'edition = "2023";\n\nmessage M {\n  int32 a = 1;\n}\n'


KNOWN = [
    *(f"google/type/{name}.proto" for name in known_files.GOOGLE_TYPES),
    "confluent/meta.proto", "confluent/type/decimal.proto", "confluent/type/variant.proto",
]  # fmt: skip


@pytest.mark.parametrize("path", KNOWN)
def test_files_that_every_registry_knows_need_no_reference(path: str) -> None:
    text = f'syntax = "proto3"; import "{path}"; message M {{}}'
    assert f'import "{path}";' in formats.parse("PROTOBUF", text).canonical


def test_types_of_known_files_are_compared_by_their_fields() -> None:
    text = """syntax = "proto3"; import "google/type/date.proto";
        import 'google/type/timeofday.proto'; import "confluent/type/decimal.proto";
        message M { google.type.Date d = 1; google.type.TimeOfDay t = 2;
                    confluent.type.Decimal price = 3; }"""
    parsed = formats.parse("PROTOBUF", text)
    other = formats.parse("PROTOBUF", text.replace("google.type.Date d", "google.type.TimeOfDay d"))
    assert parsed.problems(other, SIDES) == []
    own = text.replace("confluent.type.Decimal price", "message P { int32 v = 1; } P price")
    assert "M.price.value" in parsed.problems(formats.parse("PROTOBUF", own), SIDES)[0]


def test_a_reference_of_the_same_name_comes_before_a_known_file() -> None:
    own = SchemaDependency("confluent/meta.proto", 'syntax = "proto3"; message Own {}')
    text = 'syntax = "proto3"; import "confluent/meta.proto"; message M { Own own = 1; }'
    assert "Own own = 1;" in formats.parse("PROTOBUF", text, [own]).canonical
    with pytest.raises(InvalidSchema, match="Own"):
        formats.parse("PROTOBUF", text)


def test_known_files_have_the_fields_that_confluents_client_knows() -> None:
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2

    for module in (meta_pb2, decimal_pb2, variant_pb2):
        theirs = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(theirs)
        ours = known_files.known_file(theirs.name)
        assert ours is not None
        numbers = [
            {
                (message.name, field.name): (field.number, field.type, field.label)
                for message in file.message_type
                for field in message.field
            }
            for file in (ours, theirs)
        ]
        assert numbers[0] == numbers[1]
        assert {(e.extendee, e.name, e.number) for e in ours.extension} == {
            (e.extendee, e.name, e.number) for e in theirs.extension
        }


def test_confluents_options_in_a_descriptor_are_printed() -> None:
    text = """syntax = "proto3"; import "confluent/meta.proto";
        message M { int32 a = 1 [(confluent.field_meta) = { doc: "d", tags: ["x", "y"],
          params: [{ key: "k", value: "v" }] }]; }"""
    raw = formats.parse("PROTOBUF", text).formatted("serialized")
    canonical = formats.parse("PROTOBUF", raw).canonical
    assert (
        canonical
        == """syntax = "proto3";

import "confluent/meta.proto";

message M {
  int32 a = 1 [(confluent.field_meta) = {
    doc: "d",
    params: [
      {
        key: "k",
        value: "v"
      }
    ],
    tags: [
      "x",
      "y"
    ]
  }];
}
"""
    )


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
    parsed = formats.parse(
        "PROTOBUF", text, [SchemaDependency("shop/part.proto", proto("int32 a = 1;"))]
    )
    other = formats.parse(
        "PROTOBUF", text, [SchemaDependency("shop/part.proto", proto("bytes a = 1;"))]
    )
    assert "'A.m.a'" in parsed.problems(other, SIDES)[0]


def nested_option(levels: int) -> str:
    return (
        'syntax = "proto2"; import "google/protobuf/descriptor.proto";'
        "message O { optional O o = 1; }"
        "extend google.protobuf.FileOptions { optional O x = 50000; }"
        f"option (x) = {'{ o ' * levels}{{}}{'}' * levels};"
    )


def test_values_of_options_cannot_be_nested_until_protoc_crashes() -> None:
    canonical = formats.parse("PROTOBUF", nested_option(BRACKET_DEPTH - 2)).canonical
    assert formats.parse("PROTOBUF", canonical).canonical == canonical
    for text in (nested_option(BRACKET_DEPTH), nested_option(80_000)):
        with pytest.raises(InvalidSchema, match="nested"):
            formats.parse("PROTOBUF", text)
        with pytest.raises(InvalidSchema, match="nested"):
            formats.parse("PROTOBUF", proto(""), [SchemaDependency("o.proto", text)])


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
    assert "headrace-main" not in str(caught.value)


@pytest.mark.parametrize("name", ["../x.proto", "/etc/x.proto", "a/../../x.proto", "", "a\x00b"])
def test_a_reference_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(InvalidSchema, match="not the name of a file"):
        formats.parse("PROTOBUF", proto(""), [SchemaDependency(name, proto(""))])
