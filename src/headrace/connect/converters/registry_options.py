"""The options of Confluent's converters as options of typed topics (docs/typed-topics.md)."""

from collections.abc import Mapping

from headrace.connect.converters.options import (
    PARTS,
    REGISTRY_FORMATS,
    PartConverter,
    converter_of,
)
from headrace.connect.plugin import OptionError
from headrace.pipelines.typed.options import RAW_RECORDS, REGISTER, TOKEN, URL, USER_INFO


def reading_options(config: Mapping[str, str]) -> dict[str, str]:
    """The options of the Spark source for keys and values with a schema in the registry."""
    found: dict[str, str] = {}
    for part in PARTS:
        converter = converter_of(config, part)
        if converter.class_name in REGISTRY_FORMATS:
            _add_common(found, converter)
            # A transform or the target may refuse any record later.
            found[RAW_RECORDS] = "all"
    return found


def writing_options(config: Mapping[str, str], part: str, topic: str) -> dict[str, str]:
    """The options with which keys or values of a topic are encoded."""
    converter = converter_of(config, part)
    found: dict[str, str] = {}
    _add_common(found, converter)
    found.setdefault(f"{part}.subject", f"{topic}-{part}")
    register = converter.flag("auto.register.schemas")
    if converter.flag("use.latest.version") and not register:
        found[f"{part}.subject.version"] = "latest"
    elif not register:
        found[REGISTER] = "false"
    return found


def _add_common(found: dict[str, str], converter: PartConverter) -> None:
    part = converter.part
    found[f"{part}.format"] = REGISTRY_FORMATS[converter.class_name]
    for option, name in (("subject", f"{part}.subject"), ("message", f"{part}.message")):
        if value := converter.text(option):
            found[name] = value
    user_info = converter.text("basic.auth.user.info") or converter.text(
        "schema.registry.basic.auth.user.info"
    )
    shared = {
        URL: ",".join(_urls(converter)),
        USER_INFO: user_info,
        TOKEN: converter.text("bearer.auth.token"),
    }
    for name, value in shared.items():
        if value is None:
            continue
        if found.setdefault(name, value) != value:
            raise OptionError(
                f"{part}.converter.schema.registry.url",
                "key.converter and value.converter have different registries or logins; "
                "set the same for both",
            )


def _urls(converter: PartConverter) -> list[str]:
    text = converter.given.get("schema.registry.url", "")
    urls = [url.strip() for url in text.split(",") if url.strip()]
    if not urls:
        option = f"{converter.part}.converter.schema.registry.url"
        raise OptionError(
            option, f'Missing required configuration "{option}" which has no default value.'
        )
    return urls
