"""Files with the configuration of a connector, in the forms that Kafka Connect's users have."""

import json
from pathlib import Path

from headrace.cli.failures import bad_usage
from headrace.settings.files import read_properties


def read_config(path: str, name: str | None) -> tuple[str, dict[str, object]]:
    """Name and configuration: `{"name", "config"}` or plain options as JSON, or Java properties."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise bad_usage(f"{path} cannot be read: {error.strerror}") from None
    if path.endswith(".properties"):
        found: object = {option: value for _, option, value in read_properties(text)}
    else:
        try:
            found = json.loads(text)
        except ValueError as error:
            raise bad_usage(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise bad_usage(f"{path} must have a JSON object")
    config = found.get("config", found)
    if not isinstance(config, dict):
        raise bad_usage(f"config in {path} must be a JSON object")
    given = name or found.get("name") or config.get("name")
    if not given:
        raise bad_usage(f"{path} has no name of a connector", "Give one with --name NAME.")
    return str(given), {**config, "name": str(given)}
