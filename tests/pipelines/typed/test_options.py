"""The options of typed topics."""

from headrace.pipelines.typed.options import parse_typed
from headrace.schemas.client import SchemaClient


def test_urls_login_and_ca_file_reach_the_client_of_the_registry() -> None:
    given = {
        "value.format": "avro",
        "schema.registry.url": "http://a:1, https://b",
        "schema.registry.basic.auth.user.info": "ann:secret",
        "schema.registry.ssl.ca.location": "/ca.pem",
    }
    found = parse_typed(given, "t")
    assert found is not None
    assert found.client == SchemaClient(("http://a:1", "https://b"), "ann:secret", "/ca.pem")
