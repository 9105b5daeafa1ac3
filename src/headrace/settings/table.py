"""The one table of broker settings."""

from headrace.settings.broker_table import BROKER_ROWS
from headrace.settings.no_effect import marked
from headrace.settings.security_table import SECURITY_ROWS
from headrace.settings.setting import Setting

TABLE: dict[str, Setting] = {row.name: marked(row) for row in (*BROKER_ROWS, *SECURITY_ROWS)}
