"""Names of subjects and contexts.

A subject may stand in a context: `:.context:subject`. Subjects without one are in the default
context, whose name is a dot. `:.context:` alone names the context, for its settings.
"""

from headrace.registry import failures

DEFAULT_CONTEXT = "."
ALL_CONTEXTS = ":*:"
LONGEST_NAME = 1024
RESERVED = frozenset({"__GLOBAL", "__EMPTY"})


def split(name: str) -> tuple[str, str]:
    """Context and the rest of a subject's name."""
    if not name.startswith(":."):
        return DEFAULT_CONTEXT, name
    context, colon, rest = name[1:].partition(":")
    return context, rest if colon else ""


def context_of(name: str) -> str:
    return split(name)[0]


def join(context: str, rest: str) -> str:
    """The one spelling of a subject in a context."""
    return rest if context == DEFAULT_CONTEXT else f":{context}:{rest}"


def normal(name: str) -> str:
    """`:.:orders` is `orders`; everything else is as it was."""
    return join(*split(name))


def within(parent: str, name: str) -> str:
    """A name as a schema of subject `parent` means it: in its context, unless it says otherwise."""
    context, rest = split(name)
    return join(context_of(parent) if context == DEFAULT_CONTEXT else context, rest)


def context_name(text: str) -> str:
    """A context as it stands in a path: with or without colons and the leading dot."""
    name = text.removeprefix(":").removesuffix(":")
    if ":" in name:
        raise failures.invalid_subject(text, "a context's name holds no colon")
    return name if name.startswith(".") else f".{name}"


def check_subject(name: str, *, context_alone: bool = False) -> str:
    """The subject in its normal spelling, or RegistryError 42208."""
    context, rest = split(name)
    if len(name) > LONGEST_NAME:
        raise failures.invalid_subject(name, f"it has more than {LONGEST_NAME} characters")
    if not all(map(str.isprintable, name)):
        raise failures.invalid_subject(name, "it holds a character that cannot be printed")
    if not rest and not (context_alone and name):
        raise failures.invalid_subject(name, "it is empty")
    if rest in RESERVED or context == ".__GLOBAL":
        raise failures.invalid_subject(name, "the name is reserved")
    return join(context, rest)
