"""Hatch's build hook: a wheel or an sdist contains the pages of the web console.

An editable installation does not need them; `make console` builds them. An sdist has them already.
"""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsolePages(BuildHookInterface[Any]):
    """Builds the pages if they are missing; without them the build fails."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        index = root / "src/headrace/console/assets/index.html"
        if version == "editable" or index.is_file():
            return
        built = subprocess.run([str(root / "scripts/build-console")], check=False)
        if built.returncode or not index.is_file():
            raise RuntimeError(
                "the pages of the web console could not be built, and a package without them has "
                "no console; run `make console` to see why"
            )
