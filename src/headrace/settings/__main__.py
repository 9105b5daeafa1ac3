"""Prints docs/settings.md."""

import sys

from headrace.settings.document import settings_page

sys.stdout.write(settings_page())
