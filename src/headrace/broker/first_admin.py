"""The first user of a broker, from the environment: HEADRACE_ADMIN_PASSWORD_FILE.

In a container `headrace users add` cannot be run before the first start. The variable names a file
with a password. The user `admin` is created with it and gets all permissions. An existing user of
that name is not changed.
"""

import logging

from headrace.cluster.metadata import Metadata
from headrace.errors import SettingError
from headrace.security.admin import admin_acls, read_password_file, with_password
from headrace.security.state import SecurityState

logger = logging.getLogger(__name__)

NAME = "admin"
_VARIABLE = "HEADRACE_ADMIN_PASSWORD_FILE"


def make_first_admin(metadata: Metadata, file: str) -> None:
    """Create the user `admin` unless it exists; SettingError if the file cannot be read."""
    try:
        password = read_password_file(file)
    except (OSError, ValueError) as error:
        raise SettingError(f"{_VARIABLE}={file}: {error}") from error

    def decide(state: SecurityState) -> tuple[list[bool], SecurityState]:
        if NAME in state.users:
            return [False], state
        made = with_password(state, NAME, password).with_acls(admin_acls(f"User:{NAME}"))
        return [True], made

    if metadata.alter_security(decide) == [True]:
        logger.info("created the user %s with the password in %s", NAME, file)
