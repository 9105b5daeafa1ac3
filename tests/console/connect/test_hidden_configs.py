"""Settings of connectors: which are hidden, and how a form keeps them."""

import pytest

from headrace.console.connect.hidden_configs import HIDDEN, hidden, restored


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("topics", "orders", "orders"),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter", None),
        ("primary.key.fields", "id", "id"),
        ("connection.password", "pw", HIDDEN),
        ("declared", "pw", HIDDEN),
        ("value.converter.basic.auth.user.info", "alice:pw", HIDDEN),
        ("producer.override.sasl.jaas.config", "... password=pw;", HIDDEN),
        ("aws.secret.access.key", "pw", HIDDEN),
        ("api.key", "pw", HIDDEN),
        ("connection.password", "${file:/etc/secrets:pw}", "${file:/etc/secrets:pw}"),
        ("connection.password", "pw${env:X}", HIDDEN),
        ("connection.password", "", ""),
        (
            "connection.url",
            "jdbc:postgresql://alice:pw@db/shop",
            f"jdbc:postgresql://{HIDDEN}@db/shop",
        ),
        ("urls", "http://a:b@one,http://two", f"http://{HIDDEN}@one,http://two"),
    ],
)
def test_secrets_are_hidden_and_references_to_secrets_are_not(
    name: str, value: str, shown: str | None
) -> None:
    expected = value if shown is None else shown
    assert hidden({name: value}, {"declared"}) == {name: expected}


def test_a_form_that_sends_back_what_it_was_shown_changes_no_secret() -> None:
    stored = {"topics": "a", "password": "pw", "url": "http://u:p@one", "removed": "x"}
    form = {**hidden(stored, ()), "topics": "b", "added": "y"}
    del form["removed"]
    assert restored(form, stored, ()) == {
        "topics": "b",
        "password": "pw",
        "url": "http://u:p@one",
        "added": "y",
    }


def test_a_new_secret_replaces_the_stored_one() -> None:
    assert restored({"password": "new"}, {"password": "old"}, ()) == {"password": "new"}
    assert restored({"password": HIDDEN}, {}, ()) == {"password": HIDDEN}
