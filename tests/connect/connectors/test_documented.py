"""The page of the connectors has their options, and its examples are valid."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.connect.plugins import BUILT_IN, Plugins
from headrace.connect.validation import parsed

PAGE = (Path(__file__).parents[3] / "docs" / "connectors.md").read_text()
SECTIONS = {
    section.partition("\n")[0]: section
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}
NAMES = [path.rpartition(":")[2] for path in BUILT_IN]


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_on_the_page(name: str) -> None:
    kind = Plugins().find(name).kind
    missing = [
        option
        for option in (*(each.name for each in kind.options), *kind.ignored, *kind.aliases)
        if f"`{option}" not in SECTIONS[name] and f"`{option}`" not in PAGE
    ]
    assert missing == []


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_connector_are_valid(name: str) -> None:
    examples = re.findall(r"```json\n(.*?)```", SECTIONS[name], re.DOTALL)
    assert examples
    for text in examples:
        config = json.loads(re.sub(r"\$\{(file|env|dir):[^}]*\}", "secret", text))
        plugin = Plugins().find(config["connector.class"])
        assert plugin.name.rpartition(".")[2] == name
        assert parsed(plugin, {"name": "c", **config}).errors == []
        plugin.kind(config)


def test_listing_the_connectors_imports_neither_arrow_nor_drivers() -> None:
    program = (
        "import sys; from headrace.connect.plugins import Plugins; Plugins().all(); "
        "print([name for name in ('pyarrow', 'numpy', 'psycopg', 'pymysql', 'pyspark', 'paho', "
        "'pika') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"
