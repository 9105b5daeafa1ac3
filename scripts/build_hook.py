"""Hatch's build hook: a wheel or an sdist contains the pages of the web console.

An editable installation does not need them; `make console` builds them. An sdist has them already.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsolePages(BuildHookInterface[Any]):
    """Builds the pages if they are missing."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or (root / "src/headrace/console/assets/index.html").is_file():
            return
        built = subprocess.run([str(root / "scripts/build-console")], check=False)
        if built.returncode:
            print("warning: this build has no console pages", file=sys.stderr)
