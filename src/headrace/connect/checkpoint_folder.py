"""The identity of the folder with checkpoints: workers that share the folder read the same one.

A checkpoint is valid only where it was written last. The config topic records the folder of each
connector's checkpoint; a worker with another folder begins a new checkpoint.
"""

import os
import uuid
from pathlib import Path

FILE = ".headrace-folder"


def folder_id(folder: str) -> str:
    """The id in the folder; a new one if it has none."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    found = place / FILE
    if not found.exists():
        own = place / f"{FILE}-{uuid.uuid4().hex}"
        own.write_text(uuid.uuid4().hex)
        try:
            # Fails if another worker was faster.
            os.link(own, found)
        except FileExistsError:
            pass
        finally:
            own.unlink()
    return found.read_text()
