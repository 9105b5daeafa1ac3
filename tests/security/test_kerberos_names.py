"""Rules that map a Kerberos principal to a user's name, compared with Kafka's own."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SettingError
from headrace.security.kerberos_names import KerberosRules
from headrace.security.logins import LoginRefused
from tests.support.java import java_command

REALM = "REALM.COM"
NONE = "none"
"""For a principal that no rule names."""
NAMES = [
    "alice@REALM.COM",
    "Alice@REALM.COM",
    "alice@FOO.COM",
    "alice/admin@REALM.COM",
    "App.service-name/example.com@REALM.COM",
    "App.service-name@FOO.COM",
    "TestABC/host@FOO.COM",
    "ABC_User_ABC/host@FOO.COM",
    "kafka/broker-1.example.com@REALM.COM",
    "a/b/c@REALM.COM",
    "a@b@REALM.COM",
]
RULES = [
    "DEFAULT",
    "RULE:[1:$1@$0](.*@FOO.COM)s/@.*//,DEFAULT",
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g,RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g,DEFAULT",
    "RULE:[1:$1]/L,RULE:[2:$1](Test.*)s/ABC///L,RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L,RULE:[2:$1]/L",
    "RULE:[1:$1]/U,RULE:[2:$1](Test.*)s/ABC///U,RULE:[2:$1](ABC.*)s/ABC/XYZ/g/U,DEFAULT",
    "RULE:[2:$2.$1](.*admin.*)s/(a)(l)/$2$1-\\$1-$10/,RULE:[1:x$1y]",
    "RULE:[2:$1/$2],DEFAULT",
    "RULE:[1:$1@$0],DEFAULT",
    "RULE:[3:$1$2$3],RULE:[0:$0]",
    "RULE:[1:]s/^/all/,RULE:[2:both]",
    "RULE:[1:$1](a.*)s/a/b/g/,RULE:[1:$1](A.*)s/[aeiou]//gL",
    "RULE:[1:$1]s/.*/x/g,RULE:[2:$2]s/x*/-/g",
]


def ours(rules: str, principal: str) -> str:
    try:
        return KerberosRules(rules.split(","), REALM).username(principal)
    except LoginRefused:
        return NONE


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        ("DEFAULT", "alice@REALM.COM", "alice"),
        ("DEFAULT", "kafka/host@REALM.COM", "kafka"),
        ("DEFAULT", "alice@OTHER.COM", NONE),
        ("RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//,DEFAULT", "alice@OTHER.COM", "alice"),
        ("RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//,DEFAULT", "bob@REALM.COM", "bob"),
        ("RULE:[2:$1-$2]/U", "a/b@REALM.COM", "A-B"),
        ("RULE:[1:$1]s/a/b/", "aab@REALM.COM", "bab"),
        ("RULE:[1:$1]s/a/b/g", "aab@REALM.COM", "bbb"),
        ("RULE:[1:$1](b.*)", "alice@REALM.COM", NONE),
    ],
)
def test_the_first_rule_that_applies_decides(rules: str, principal: str, name: str) -> None:
    assert ours(rules, principal) == name


@pytest.mark.java
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a Java compiler")
def test_rules_do_what_they_do_in_kafka(tmp_path: Path) -> None:
    (tmp_path / "Rules.java").write_text(
        "import java.util.Arrays; import org.apache.kafka.common.security.kerberos.*;"
        "public class Rules { public static void main(String[] words) {"
        " int count = Integer.parseInt(words[0]);"
        " for (int r = 1; r <= count; r++) for (int n = count + 1; n < words.length; n++)"
        " try { System.out.println(KerberosShortNamer.fromUnparsedRules("
        f'"{REALM}", Arrays.asList(words[r].split(","))).shortName(KerberosName.parse(words[n])));'
        f' }} catch (Exception e) {{ System.out.println("{NONE}"); }} }} }}'
    )
    command = java_command(
        str(tmp_path / "Rules.java"), str(len(RULES)), *RULES, *NAMES, options=("-Xmx256m",)
    )
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    asked = [(rules, name) for rules in RULES for name in NAMES]
    expected = dict(zip(asked, ran.stdout.splitlines(), strict=True))
    assert {one: ours(*one) for one in asked} == expected


@pytest.mark.parametrize(
    "rule",
    [
        "default", "DEFAUL", "DEFAULT/L", "DEFAULT/g", "", "alice",
        "rule:[1:$1]", "RULE:[1:$1]/L/U", "RULE:[1:$1]/LU", "RULE:[1:$1/L", "RULE:[1:$1]/l",
        "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g", "RULE:[:$1]",
        "RULE:[1:$2]", "RULE:[1:$]", "RULE:[1:$x]",
        "RULE:[1:$1](*)", "RULE:[1:$1]s/(/x/",
        "RULE:[1:$1]s/a/$1/", "RULE:[1:$1]s/(a)/$2/", "RULE:[1:$1]s/a/$/", "RULE:[1:$1]s/a/\\/",
    ],
)  # fmt: skip
def test_what_is_not_a_rule_is_refused(rule: str) -> None:
    with pytest.raises(SettingError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        KerberosRules(["DEFAULT", rule], REALM)


@pytest.mark.parametrize(
    "principal",
    [
        "", "alice", "@REALM.COM", "alice@", "alice/@REALM.COM", "a/b/c@REALM.COM",
        "admin@REALM.COM@REALM.COM", "admin\\@REALM.COM@REALM.COM", "admin\\/x@REALM.COM",
        "WELLKNOWN/ANONYMOUS@REALM.COM", "a" * 2000 + "@REALM.COM",
    ],
)  # fmt: skip
def test_an_ambiguous_principal_is_refused(principal: str) -> None:
    assert ours("RULE:[1:$1],RULE:[2:$1],DEFAULT", principal) == NONE


def test_an_empty_name_is_refused() -> None:
    assert ours("RULE:[1:$1]s/.*//,DEFAULT", "alice@REALM.COM") == NONE


PART = st.text(st.characters(codec="utf-8", exclude_characters="/@\\"), min_size=1, max_size=20)


@given(st.lists(PART, min_size=1, max_size=2), PART)
def test_no_name_leaves_its_realm_and_no_rule_makes_one_with_a_sign_of_a_principal(
    parts: list[str], realm: str
) -> None:
    principal = f"{'/'.join(parts)}@{realm}"
    if parts[0] == "WELLKNOWN":
        return
    assert ours("DEFAULT", principal) == (parts[0] if realm == REALM else NONE)
    assert ours("DEFAULT", f"{'/'.join(parts)}@{REALM}") == parts[0]
    rule = f"RULE:[{len(parts)}:" + "-".join(f"${n}" for n in range(len(parts) + 1)) + "]"
    joined = "-".join((realm, *parts))
    assert ours(rule, principal) == joined
    assert ours(rule + "/L", principal) == joined.lower()
    assert ours(rule + "/U", principal) == joined.upper()
    swapped = ours(rule + "s/(.*)-(.*)/$2\\$$1/", principal)
    assert swapped == re.sub("(.*)-(.*)", r"\2$\1", joined, count=1)
