"""The definition of a configuration key as the REST interface shows it, and its values.

Types, texts of errors and the fields of definitions are those of Kafka Connect. Options of
plug-ins (`plugin.Option`) become keys here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from headrace.connect.plugin import Option, OptionError, Password, parse

Check: TypeAlias = Callable[[str], str | None]
"""Why a value is invalid; None if it is valid."""

WHOLE_NUMBER_BITS = {"SHORT": 16, "INT": 32, "LONG": 64}
_TYPES: dict[type, str] = {
    str: "STRING",
    int: "INT",
    float: "DOUBLE",
    bool: "BOOLEAN",
    Password: "PASSWORD",
}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key, with the fields of `ConfigKeyInfo`."""

    name: str
    type: str = "STRING"
    default: str | None = None
    doc: str = ""
    required: bool = False
    importance: str = "MEDIUM"
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str = ""
    check: Check | None = None
    option: Option | None = None
    """The option of a plug-in, which parses its values itself."""

    def definition(self) -> dict[str, object]:
        """As JSON."""
        return {
            "name": self.name,
            "type": self.type,
            "required": self.required,
            "default_value": self.default,
            "importance": self.importance,
            "documentation": self.doc,
            "group": self.group,
            "width": self.width,
            "display_name": self.display_name or self.name,
            "dependents": [],
            # Kafka Connect before 4.2 writes the first name, later ones the second.
            "order": self.order,
            "order_in_group": self.order,
        }

    def prefixed(self, prefix: str, group: str, order: int) -> "ConfigKey":
        """The key below a prefix such as `transforms.a.`."""
        return replace(
            self,
            name=prefix + self.name,
            display_name=self.display_name or self.name,
            group=group,
            order=order,
        )

    def shown(self, text: str) -> str | None:
        """The value as responses show it; None if it cannot be parsed."""
        if self.type == "PASSWORD":
            return "[hidden]"
        if self.type == "LIST":
            return ",".join(_words(text))
        text = text.strip()
        if self.type == "BOOLEAN":
            return text.lower() if text.lower() in ("true", "false") else None
        if self.type in WHOLE_NUMBER_BITS:
            return str(int(text)) if _is_whole(text, WHOLE_NUMBER_BITS[self.type]) else None
        return text

    def errors(self, text: str) -> list[str]:
        """Why a value is invalid."""
        if self.option is not None:
            try:
                parse(self.option, text)
            except OptionError as error:
                return [str(error)]
            return []
        if self.shown(text) is None:
            kind = self.type
            expected = (
                "Expected value to be either true or false"
                if kind == "BOOLEAN"
                else f"Not a number of type {kind}"
            )
            return [invalid(self.name, text.strip(), expected)]
        problem = self.check(text.strip()) if self.check is not None else None
        shown = f"[{', '.join(_words(text))}]" if self.type == "LIST" else text.strip()
        return [invalid(self.name, shown, problem)] if problem else []


def invalid(name: str, value: str, problem: str) -> str:
    """Kafka's sentence for an invalid value."""
    return f"Invalid value {value} for configuration {name}: {problem}"


def missing(name: str) -> str:
    """Kafka's sentence for a missing value."""
    return f'Missing required configuration "{name}" which has no default value.'


def key_of(option: Option, default: str | None = None) -> ConfigKey:
    """The key of a plug-in's option."""
    return ConfigKey(
        name=option.name,
        type=_TYPES.get(option.type, "LIST"),
        default=default if default is not None else _text(option),
        doc=option.doc,
        required=option.required,
        importance=option.importance.upper(),
        group=option.group or None,
        option=option,
    )


def _text(option: Option) -> str | None:
    value = option.default
    if option.required or value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Password):
        return "[hidden]"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")] if text.strip() else []


def _is_whole(text: str, bits: int) -> bool:
    digits = text[1:] if text[:1] in ("-", "+") else text
    return (
        digits.isascii()
        and digits.isdecimal()
        and -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1)
    )


# ----------------------------------------------------------------------------------------- checks


def one_of(*values: str) -> Check:
    """A value of a list."""
    known = ", ".join(values)
    return lambda text: None if text in values else f"String must be one of: {known}"


def one_of_any_case(*values: str) -> Check:
    """A value of a list, in upper or lower case."""
    known = ", ".join(value.upper() for value in values)
    return lambda text: (
        None if text.lower() in values else f"String must be one of (case insensitive): {known}"
    )


def at_least(minimum: int) -> Check:
    """A number that is not smaller."""
    return lambda text: None if int(text) >= minimum else f"Value must be at least {minimum}"


def non_empty(text: str) -> str | None:
    """A text with at least one character."""
    return None if text else "String must be non-empty"


def unique(text: str) -> str | None:
    """A list without duplicates."""
    words = _words(text)
    return None if len(set(words)) == len(words) else "Duplicate alias provided."


def plain_name(text: str) -> str | None:
    """The name of a connector."""
    if not text:
        return "String may not be empty"
    bad = [f"{ord(char):#x}"[2:].upper() for char in text if ord(char) < 32 or ord(char) == 127]
    if bad:
        found = ", ".join(bad)
        return (
            f"String may not contain control sequences but had the following ASCII chars: {found}"
        )
    return None
