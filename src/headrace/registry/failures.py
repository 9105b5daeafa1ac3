"""The registry's errors: HTTP status, error code and message.

The codes are those of Confluent's registry; clients rely on them, not on the messages.
"""

from collections.abc import Sequence

from headrace.service.errors import HttpError

INVALID_SCHEMA = 42201


class RegistryError(HttpError):
    """An error with one of the registry's codes: an HTTP status, or one and two digits."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code if code < 1000 else code // 100, message, code=code)


class TooLargeToCompare(RegistryError):
    """The schemas have more pairs of types than the check may compare."""

    def __init__(self, message: str) -> None:
        super().__init__(INVALID_SCHEMA, message)


def invalid_schema(message: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, message)


def unprocessable(message: str) -> RegistryError:
    return RegistryError(422, message)


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(what: object = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if what is None else f"Schema {what} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40404,
        f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. "
        "Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being "
        "permanently deleted",
    )


def no_subject_config(subject: str) -> RegistryError:
    return RegistryError(
        40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, level: str, problems: Sequence[str]) -> RegistryError:
    return RegistryError(
        409,
        f"Schema being registered is incompatible with an earlier schema for subject "
        f'"{subject}" (compatibility level {level}): {"; ".join(problems)}',
    )


def invalid_version(text: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{text}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )


def invalid_level(text: object) -> RegistryError:
    return RegistryError(
        42203,
        f"Invalid compatibility level {text!r}. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode(text: object) -> RegistryError:
    return RegistryError(
        42204,
        f"Invalid mode {text!r}. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and "
        "IMPORT",
    )


def not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(42206, f"One or more references exist to the schema {key}.")


def id_does_not_match(wanted: int) -> RegistryError:
    return RegistryError(42207, f"Overwriting schema with id {wanted} is not permitted")


def invalid_subject(subject: str, reason: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject {subject[:100]!r} is not valid: {reason}")


def too_large(length: int, limit: int) -> RegistryError:
    return RegistryError(42209, f"The schema has {length} characters; the limit is {limit}")


def needs_too_much(limit: int) -> RegistryError:
    return RegistryError(42209, f"The schema and its references have more than {limit} characters")


def record_too_large(length: int, limit: int) -> RegistryError:
    return RegistryError(
        42209, f"The schema makes a record of {length} bytes; the limit is {limit}"
    )


def store_timed_out(message: str) -> RegistryError:
    return RegistryError(50002, f"The write to the Kafka topic timed out: {message}")
