"""Names of subjects and contexts.

A subject can be in a context: `:.context:subject`. Other subjects are in the default context, whose
name is a dot. `:.context:` alone names the context, for its settings.
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
    """The canonical name of a subject in a context."""
    return rest if context == DEFAULT_CONTEXT else f":{context}:{rest}"


def normal(name: str) -> str:
    """The canonical name: `:.:orders` becomes `orders`."""
    return join(*split(name))


def within(parent: str, name: str) -> str:
    """A name in a reference of subject `parent`: in the parent's context unless it names one."""
    context, rest = split(name)
    return join(context_of(parent) if context == DEFAULT_CONTEXT else context, rest)


def context_name(text: str) -> str:
    """The context named in a path, with or without colons and the leading dot."""
    name = text.removeprefix(":").removesuffix(":")
    if ":" in name:
        raise failures.invalid_subject(text, "the name of a context must not contain a colon")
    return name if name.startswith(".") else f".{name}"


def check_subject(name: str, *, context_alone: bool = False) -> str:
    """The canonical name of the subject; raises RegistryError 42208 if it is invalid."""
    context, rest = split(name)
    if len(name) > LONGEST_NAME:
        raise failures.invalid_subject(name, f"it has more than {LONGEST_NAME} characters")
    if not all(map(str.isprintable, name)):
        raise failures.invalid_subject(name, "it contains a character that is not printable")
    if not rest and not (context_alone and name):
        raise failures.invalid_subject(name, "it is empty")
    if rest in RESERVED or context == ".__GLOBAL":
        raise failures.invalid_subject(name, "the name is reserved")
    return join(context, rest)
