"""The users and ACLs of a broker that does not run, in the metadata of its data folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.failures import Failure, bad_usage, not_found
from headrace.security.state import SecurityState

if TYPE_CHECKING:
    from headrace.cluster.metadata import Metadata


class StoppedBroker:
    """The metadata in a data folder; see `open_stopped`."""

    def __init__(self, metadata: "Metadata") -> None:
        self._metadata = metadata

    @property
    def security(self) -> SecurityState:
        """The users and ACLs."""
        return self._metadata.image.security

    def alter(self, change: Callable[[SecurityState], SecurityState]) -> None:
        """Change the users and ACLs with a function."""
        self._metadata.alter_security(lambda state: ([], change(state)))


@contextmanager
def open_stopped(folder: str, *, make: bool = False) -> Iterator[StoppedBroker]:
    """The metadata of a stopped broker, which cannot start meanwhile; `make` creates them."""
    from headrace.clock import SystemClock
    from headrace.cluster.metadata import Metadata
    from headrace.cluster.sqlite_store import FILE_NAME, SqliteStore
    from headrace.cluster.store import StoreError
    from headrace.disk import RealDisk

    path = Path(folder)
    with ExitStack() as undo:
        try:
            if make:
                # Other users of the machine must not read the credentials.
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (path / FILE_NAME).exists() and not (path / "meta.properties").exists():
                if not make:
                    raise not_found(f"{folder} is not the data folder of a broker")
            elif not (path / FILE_NAME).exists():
                raise Failure(
                    f"the metadata of the broker in {folder} are not in that folder",
                    hint="Start its cluster and use --bootstrap; or use the folder of the first "
                    "broker if several share their metadata.",
                )
            undo.callback(os.close, RealDisk().lock(f"{folder}/.lock"))
            store = SqliteStore(folder)
            undo.callback(store.close)
            (path / FILE_NAME).chmod(0o600)
            metadata = Metadata(store, 0, SystemClock())
            metadata.load()
        except BlockingIOError:
            raise Failure(
                f"a broker is using {folder}",
                code="IN_USE",
                hint="Stop it, or leave out --data and change the running cluster.",
            ) from None
        except StoreError as error:
            raise Failure(f"the metadata in {folder} cannot be read: {error}") from None
        except OSError as error:
            raise bad_usage(f"--data {folder}: {error.strerror}") from None
        yield StoppedBroker(metadata)
