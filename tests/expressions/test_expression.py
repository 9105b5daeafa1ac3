"""Regular expressions: RE2's syntax, whole names, linear time."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.expressions.expression import Expression, Search


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("order.*", ["order", "orders.eu"], ["reorder", "Order"]),
        ("^foo-[0-9]+$", ["foo-12"], ["foo-", "foo-1a"]),
        ("(a|b)*c|x", ["ababc", "c", "x"], ["ab", "xc"]),
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb"]),
        (r"a\.b", ["a.b"], ["axb"]),
        ("(?i)abc", ["abC", "ABC"], ["abd"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("a(?i)b|c", ["aB", "C"], ["Ab"]),
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("a{2}b{1,}", ["aab", "aabb"], ["aa", "ab"]),
        ("a{,2}", [], ["a", "aa"]),
        ("[[:alpha:]]+[^[:alpha:]]", ["ab1"], ["ab"]),
        ("[^a-c.]+", ["def"], ["dea", "d.f"]),
        ("[a-]+", ["a-a"], ["b"]),
        (r"[\w.]+", ["a_b.c"], ["a-b"]),
        (r"\pL\p{Nd}\P{L}", ["a1-"], ["a1a", "11-"]),
        (r"\p{Greek}", [], ["a"]),
        (r"\bfoo\b.*", ["foo-x", "foo"], ["foox"]),
        (r"foo\Bx", ["foox"], []),
        (r"\x61\x{62}\143", ["abc"], ["abd"]),
        ("(?P<name>a)(?:b)+?", ["ab", "abb"], ["a"]),
        ("a||b", ["a", "", "b"], ["ab"]),
        ("((a*)*)*b", ["b", "aab"], ["a"]),
        ("app[ /:].*", ["app 1", "app/é", "app:ü"], ["app-1"]),
        (r"a\s[[:punct:]]\S", ["a :é"], ["a: b"]),
        ("[^a]x", ["éx"], ["ax", "éé"]),
        ("[[:print:]]+", ["a b"], ["é"]),
    ],
)
def test_it_stands_for_whole_names(expression: str, matching: list[str], other: list[str]) -> None:
    compiled = Expression(expression)
    assert [name for name in matching if not compiled.matches(name)] == []
    assert [name for name in other if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "expression",
    ["(", "a)", "*a", "a**", "a*+", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)", r"(a)\1",
     "[b-a]", "[a", "a{1001}", "a{3,2}", "(?P<n", "(?P<1>a)", r"\pX", r"\p{Klingon}", "a\\",
     "[[:foo:]]", r"\y", "(?z)a", "(" * 200 + ")" * 200, "((a{1000}){1000})", "a" * 5000],
)  # fmt: skip
def test_what_re2_refuses_is_refused(expression: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        Expression(expression)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


_NAME = st.text(st.sampled_from("abcAB01._-: /éλ"), max_size=8)
_TREE = st.recursive(
    st.sampled_from(["a", "b", "c", ".", "[ab]", "[^b]", r"\d", r"\w", r"\.", "-", "^", "$"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        st.tuples(inner, inner).map(lambda pair: f"{pair[0]}{pair[1]}"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
    ),
    max_leaves=8,
)


@given(_TREE, st.lists(_NAME, max_size=20))
def test_it_agrees_with_python_where_the_two_mean_the_same(
    expression: str, names: list[str]
) -> None:
    compiled, oracle = Expression(expression), re.compile(expression, re.ASCII)
    for name in names:
        assert compiled.matches(name) == bool(oracle.fullmatch(name)), name


@given(st.text(st.sampled_from("ab()[]{}*+?|\\^$.,-1:<>Pipd"), max_size=20))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with suppress(KafkaError):
        assert Expression(text).matches("some-topic.1") in (True, False)


def test_an_expression_that_makes_others_backtrack_takes_no_longer() -> None:
    compiled = Expression("(a+)+(a|aa)*(.*a){20}b")
    compiled.matches("a" * 249)
    assert compiled.steps < 200_000


def test_a_search_can_stop_and_go_on() -> None:
    names = [f"topic{number}" for number in range(100)]
    search = Search([Expression("topic.*7"), Expression("topic1")], names)
    rounds = 1
    while not search.go_on(100):
        rounds += 1
    assert rounds > 5
    assert search.found["topic1"] == ["topic1"]
    assert len(search.found["topic.*7"]) == 10
