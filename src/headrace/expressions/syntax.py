"""RE2's syntax for regular expressions, read into a tree.

A set of characters is kept as the printable ASCII characters that are in it. One more character,
`OTHER`, stands for all characters beyond ASCII: `.` and negated sets contain it, and a literal
beyond ASCII matches nothing. What RE2 does not know (backreferences, look-around, possessive
repetition) is refused: `expression.py` relies on it to match in linear time.
"""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from string import ascii_letters, digits, punctuation
from typing import NamedTuple, TypeAlias

from headrace.errors import ErrorCode, KafkaError

OTHER = "\ufffd"
"""Stands for every character that is not printable ASCII."""
ALPHABET = frozenset(ascii_letters + digits + punctuation + " " + OTHER)
WORD = frozenset(ascii_letters + digits + "_")
MAX_COUNT = 1000
"""The largest number in a repetition, as in RE2."""
MAX_DEPTH = 100


class Chars(NamedTuple):
    """One character of a set."""

    allowed: frozenset[str]


class Assertion(NamedTuple):
    """A place between characters: "^", "$", "b" (a word's edge) or "B"."""

    kind: str


class Sequence(NamedTuple):
    """One after the other."""

    items: "tuple[Node, ...]"


class Choice(NamedTuple):
    """One of them."""

    options: "tuple[Node, ...]"


class Repeat(NamedTuple):
    """As often as `least` to `most` times; no `most` is no limit."""

    item: "Node"
    least: int
    most: int | None


Node: TypeAlias = Chars | Assertion | Sequence | Choice | Repeat

_DIGIT, _SPACE = frozenset(digits), frozenset(" ")
_PERL = {"d": _DIGIT, "s": _SPACE, "w": WORD}
_POSIX: dict[str, Callable[[str], bool]] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "ascii": str.isascii,
    "blank": lambda one: one == " ",
    "cntrl": lambda _: False,
    "digit": str.isdigit,
    "graph": lambda one: one.isascii() and one != " ",
    "lower": str.islower,
    "print": str.isascii,
    "punct": lambda one: one in punctuation,
    "space": lambda one: one == " ",
    "upper": str.isupper,
    "word": lambda one: one in WORD,
    "xdigit": lambda one: one in "0123456789abcdefABCDEF",
}
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_CATEGORIES = {
    "C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps",
}  # fmt: skip
"""Unicode's general categories: the first letter, and those that may follow."""


@dataclass(frozen=True, slots=True)
class _Flags:
    folds_case: bool = False


def parse(expression: str) -> Node:
    """The tree of an expression; INVALID_REGULAR_EXPRESSION if RE2 would not take it."""
    text = _Cursor(expression)
    tree = _Parser(text).choice(0)
    if not text.at_end():
        raise text.refusal("there is a ) without its (")
    return tree


class _Cursor:
    """The text of an expression, and the position up to which it has been read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def refusal(self, why: str) -> KafkaError:
        """The error for a syntax error at this position."""
        return KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The regular expression `{self._text}` is not valid: {why} at position {self.at}.",
        )

    def at_end(self) -> bool:
        return self.at >= len(self._text)

    def next_is(self, *options: str) -> bool:
        """Whether one of these texts follows."""
        return self._text.startswith(options, self.at)

    def peek(self, count: int = 1) -> str:
        """The next characters, which are not read; fewer at the end."""
        return self._text[self.at : self.at + count]

    def peek_until(self, end: str) -> str | None:
        """The text before `end`, which is not read; None if `end` does not follow."""
        found = self._text.find(end, self.at)
        return None if found < 0 else self._text[self.at : found]

    def take(self) -> str:
        """Read one character."""
        if self.at_end():
            raise self.refusal("it ends too early")
        self.at += 1
        return self._text[self.at - 1]

    def take_until(self, end: str) -> str | None:
        """Read the text before `end`, and `end`; None if `end` does not follow."""
        found = self.peek_until(end)
        if found is not None:
            self.at += len(found) + len(end)
        return found

    def take_rest(self) -> str:
        """Read everything that is left."""
        start, self.at = self.at, len(self._text)
        return self._text[start:]

    def skip(self, expected: str) -> bool:
        """Read this text if it follows; returns whether it does."""
        if not self._text.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True


class _Parser:
    """Builds the tree, with one method for each rule; `_flags` are those of the current group."""

    def __init__(self, text: _Cursor) -> None:
        self._text = text
        self._flags = _Flags()

    def choice(self, depth: int) -> Node:
        """Everything up to the end of the group."""
        if depth > MAX_DEPTH:
            raise self._text.refusal(f"groups are more than {MAX_DEPTH} deep")
        options = [self._sequence(depth)]
        while self._text.skip("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while not self._text.at_end() and self._text.peek() not in "|)":
            if self._text.skip("\\Q"):
                items += self._quoted()
                continue
            item = self._atom(depth)
            if item is None:
                continue
            items.append(self._repeated(item))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _quoted(self) -> list[Node]:
        text = self._text.take_until("\\E")
        if text is None:
            text = self._text.take_rest()
        quoted: list[Node] = [self._literal(one) for one in text]
        if quoted:
            quoted[-1] = self._repeated(quoted[-1])
        return quoted

    def _atom(self, depth: int) -> Node | None:
        """The next item; None for something that only sets flags or means nothing."""
        if self._text.skip("("):
            return self._group(depth)
        if self._text.skip("["):
            return Chars(self._bracket())
        if self._text.skip("."):
            return Chars(ALPHABET)
        if self._text.skip("^"):
            return Assertion("^")
        if self._text.skip("$"):
            return Assertion("$")
        if self._text.skip("\\"):
            return self._escape()
        if self._text.peek() in "*+?" or self._counts() is not None:
            raise self._text.refusal("nothing is before a repetition")
        return self._literal(self._text.take())

    # ------------------------------------------------------------------------- repetition

    def _repeated(self, item: Node) -> Node:
        start = self._text.at
        counts = self._repetition()
        if counts is None:
            return item
        if self._text.skip("?"):
            pass  # Lazy or greedy: what matches is the same.
        if self._repetition() is not None:
            self._text.at = start
            raise self._text.refusal("repetitions follow one another")
        return Repeat(item, *counts)

    def _repetition(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._text.skip(sign):
                return counts
        found = self._counts()
        if found is None:
            return None
        self._text.take_until("}")
        least, most = found
        if least > MAX_COUNT or (most or 0) > MAX_COUNT or (most is not None and most < least):
            raise self._text.refusal(f"repetition counts go up to {MAX_COUNT}, the lower one first")
        return found

    def _counts(self) -> tuple[int, int | None] | None:
        """The numbers of a {n}, {n,} or {n,m} that is next; other braces are literals."""
        text = self._text.peek_until("}")
        if text is None or not text.startswith("{"):
            return None
        least, comma, most = text[1:].partition(",")
        numbers = [one for one in (least, most) if one]
        if not least or not all(one.isascii() and one.isdigit() for one in numbers):
            return None
        if any(len(one) > 6 for one in numbers):
            raise self._text.refusal(f"repetition counts go up to {MAX_COUNT}")
        if not comma:
            return int(least), int(least)
        return int(least), int(most) if most else None

    # ----------------------------------------------------------------------------- groups

    def _group(self, depth: int) -> Node | None:
        outer = self._flags
        if self._text.skip("?"):
            if self._text.skip("P<") or (
                not self._text.next_is("<=", "<!") and self._text.skip("<")
            ):
                self._group_name()
            elif not self._group_flags():
                return None
        inner = self.choice(depth + 1)
        if not self._text.skip(")"):
            raise self._text.refusal("a ( lacks its )")
        self._flags = outer
        return inner

    def _group_name(self) -> None:
        name = self._text.peek_until(">")
        if name is None or not name.isidentifier() or not name.isascii():
            raise self._text.refusal("a group's name is not well formed")
        self._text.take_until(">")

    def _group_flags(self) -> bool:
        """Read `flags:` or `flags)`; whether a group follows."""
        on, seen = True, False
        while not self._text.at_end():
            sign = self._text.take()
            if sign == ":":
                return True
            if sign == ")" and (seen or not on):
                return False
            if sign == "-" and on:
                on = False
            elif sign in "imsU":
                seen = True
                if sign == "i":
                    self._flags = replace(self._flags, folds_case=on)
            else:
                raise self._text.refusal(f"(?{sign} is not known")
        raise self._text.refusal("a ( lacks its )")

    # ------------------------------------------------------------------------- characters

    def _literal(self, sign: str) -> Chars:
        return Chars(self._folded(frozenset(sign)) & ALPHABET)

    def _folded(self, signs: frozenset[str]) -> frozenset[str]:
        if not self._flags.folds_case:
            return signs
        return signs | {one.lower() for one in signs} | {one.upper() for one in signs}

    def _escape(self) -> Node:
        for sign, kind in (("A", "^"), ("z", "$"), ("b", "b"), ("B", "B")):
            if self._text.skip(sign):
                return Assertion(kind)
        named = self._named_class()
        if named is not None:
            return Chars(named)
        return self._literal(self._escaped())

    def _named_class(self) -> frozenset[str] | None:
        """A class such as \\d or \\pL, after its backslash."""
        if self._text.at_end():
            raise self._text.refusal("a backslash ends it")
        sign = self._text.peek()
        if sign.lower() in _PERL:
            self._text.take()
            found = _PERL[sign.lower()]
            return ALPHABET - found if sign.isupper() else found
        if sign not in "pP":
            return None
        self._text.take()
        name = self._text.take_until("}") or "" if self._text.skip("{") else self._text.take()
        negated = (sign == "P") != name.startswith("^")
        found = self._unicode_class(name.removeprefix("^"))
        return ALPHABET - found if negated else found

    def _unicode_class(self, name: str) -> frozenset[str]:
        if name == "Any":
            return ALPHABET
        general, second = name[:1], name[1:]
        if general in _CATEGORIES and (not second or second in tuple(_CATEGORIES[general])):
            ascii_only = ALPHABET - {OTHER}
            return frozenset(
                one for one in ascii_only if unicodedata.category(one).startswith(name)
            )
        if name == "Latin":
            return frozenset(ascii_letters)
        if name == "Common":
            return ALPHABET - frozenset(ascii_letters) - {OTHER}
        if name in _OTHER_SCRIPTS:
            return frozenset()
        raise self._text.refusal(f"there is no class of characters named '{name}'")

    def _escaped(self) -> str:
        """The character that an escape stands for, after its backslash."""
        sign = self._text.take()
        if sign in _CONTROL:
            return _CONTROL[sign]
        if sign == "x":
            if self._text.skip("{"):
                code = self._text.take_until("}") or ""
            else:
                code = self._text.peek(2)
                self._text.skip(code)
            return self._character(code, 16)
        if sign == "0" or (sign in "1234567" and self._text.peek() in _OCTAL):
            code = sign
            while len(code) < 3 and self._text.peek() in _OCTAL:
                code += self._text.take()
            return self._character(code, 8)
        if sign.isascii() and (sign.isalnum() or sign == "_"):
            raise self._text.refusal(f"\\{sign} is not known")
        return sign

    def _character(self, code: str, base: int) -> str:
        try:
            return chr(int(code, base))
        except (ValueError, OverflowError):
            raise self._text.refusal(f"'{code}' is no character's number") from None

    def _bracket(self) -> frozenset[str]:
        """A set in brackets, after the first one."""
        negated = self._text.skip("^")
        found: set[str] = set()
        first = True
        while first or not self._text.next_is("]"):
            first = False
            if self._text.at_end():
                raise self._text.refusal("a [ lacks its ]")
            named = self._bracket_class()
            if named is not None:
                found |= named
                continue
            low = self._bracket_character()
            high = low
            if self._text.next_is("-") and not self._text.next_is("-]"):
                self._text.take()
                high = self._bracket_character()
                if high < low:
                    raise self._text.refusal(f"the range {low}-{high} runs backwards")
            found |= self._folded(frozenset(one for one in ALPHABET if low <= one <= high))
        self._text.take()
        return ALPHABET - found if negated else ALPHABET & found

    def _bracket_class(self) -> frozenset[str] | None:
        if self._text.skip("[:"):
            name = self._text.peek_until(":]") or ""
            if name.removeprefix("^") not in _POSIX:
                raise self._text.refusal(f"there is no class of characters named '{name}'")
            self._text.take_until(":]")
            test = _POSIX[name.removeprefix("^")]
            found = frozenset(one for one in ALPHABET if test(one))
            return ALPHABET - found if name.startswith("^") else found
        start = self._text.at
        named = self._named_class() if self._text.skip("\\") else None
        if named is None:
            self._text.at = start
        return named

    def _bracket_character(self) -> str:
        return self._escaped() if self._text.skip("\\") else self._text.take()


_OCTAL = tuple("01234567")
_OTHER_SCRIPTS = frozenset({
    "Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek",
    "Han", "Hangul", "Hebrew", "Hiragana", "Katakana", "Khmer", "Lao", "Mongolian", "Tamil",
    "Telugu", "Thai", "Tibetan",
})  # fmt: skip
