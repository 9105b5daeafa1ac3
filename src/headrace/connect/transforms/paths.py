"""Paths to nested fields: `field.syntax.version` V1 is a name, V2 has dots and backticks."""

from headrace.connect.plugin import OptionError


def field_path(option: str, text: str, version: str) -> list[str]:
    """The names of the fields on the way; OptionError if a backtick is not closed."""
    if version == "V1":
        return [text]
    steps: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "`":
            step, at = _quoted(option, text, at)
        else:
            end = text.find(".", at)
            step, at = (text[at:], len(text)) if end < 0 else (text[at:end], end + 1)
        steps.append(step)
    if text.endswith("."):
        steps.append("")
    return steps


def _quoted(option: str, text: str, opening: int) -> tuple[str, int]:
    """The name between backticks, and where the next step begins.

    A backtick ends the name if it is the last character or a dot follows, unless a backslash
    escapes it; all others belong to the name.
    """
    name, start, at = "", opening + 1, opening + 1
    while True:
        at = text.find("`", at)
        escaped = at > 0 and text[at - 1] == "\\"
        is_last = at >= len(text) - 1
        if at < 0 or (is_last and escaped):
            raise OptionError(
                option,
                f"Incomplete backtick pair in path: [{text}], consider adding a backslash before "
                f"backtick at position {opening} to escape it",
            )
        if is_last:
            return name + text[start:at], at + 1
        if text[at + 1] != ".":
            at += 1
        elif escaped:
            name += text[start : at - 1] + "`"
            at += 1
            start = at
        else:
            return name + text[start:at], at + 2
