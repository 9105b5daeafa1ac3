"""Marks for tests of what only Linux has (`headrace/portable.py`)."""

import pytest

from headrace.portable import LINUX

linux_only = pytest.mark.skipif(not LINUX, reason="needs a call that only Linux has")
