"""Rules that map a certificate's subject to a principal, compared with Kafka's own."""

import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.errors import SettingError
from headrace.security.principals import PrincipalRules
from tests.support.java import java_command

NAMES = [
    "CN=kafka-server1,OU=KAFKA",
    "CN=alice,OU=Data,O=Example,C=DE",
    "OU=x,CN=Bob",
    "CN=a/b,O=c\\, d",
    "",
]
RULES = [
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
    "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    "RULE:CN=(.*?),OU=(.*)/$1-$3-$12-$0/ , DEFAULT",
    "RULE:^CN=([^,]*).*$/\\$1 is $1/,DEFAULT",
    "RULE:(CN=)(.*)/$2/L, RULE:.*/nobody/U",
    "RULE:^$/empty/,RULE:^CN=a\\/b.*$/slash/",
]


def ours(rules: str, name: str) -> str:
    return PrincipalRules(rules).principal(name) or "none"


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a,O=b", "User:CN=a,O=b"),
        ("RULE:^CN=(.*?),.*$/$1/L", "CN=Alice,O=b", "User:alice"),
        ("RULE:^CN=(.*?),.*$/$1/", "O=b,CN=Alice", "none"),
        ("RULE:^CN=(.*?),.*$/$1/,DEFAULT", "O=b,CN=Alice", "User:O=b,CN=Alice"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(
    rules: str, name: str, principal: str
) -> None:
    assert ours(rules, name) == principal


@pytest.mark.java
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a Java compiler")
def test_rules_do_what_they_do_in_kafka(tmp_path: Path) -> None:
    (tmp_path / "Rules.java").write_text(
        "import org.apache.kafka.common.security.ssl.SslPrincipalMapper;"
        "public class Rules { public static void main(String[] words) {"
        " int count = Integer.parseInt(words[0]);"
        " for (int r = 1; r <= count; r++) for (int n = count + 1; n < words.length; n++)"
        ' try { System.out.println("User:" + '
        "SslPrincipalMapper.fromRules(words[r]).getName(words[n])); }"
        ' catch (Exception e) { System.out.println("none"); } } }'
    )
    command = java_command(
        str(tmp_path / "Rules.java"), str(len(RULES)), *RULES, *NAMES, options=("-Xmx256m",)
    )
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    asked = [(rules, name) for rules in RULES for name in NAMES]
    expected = dict(zip(asked, ran.stdout.splitlines(), strict=True))
    assert {one: ours(*one) for one in asked} == expected


@pytest.mark.parametrize("rules", ["RULE:", "RULE:a/b", "CN=a", "DEFAULT,RULE:(/x/", "RULE:a/b/X"])
def test_what_is_not_a_rule_is_refused(rules: str) -> None:
    with pytest.raises(SettingError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)
