"""File systems of a test's own, which need root: one whose power can be cut, and a small one."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_EXT4_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING_THE_JOURNAL = (2).to_bytes(4, "little")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"`{' '.join(command)}` is not possible here: {done.stderr.strip()}")


def _needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount file systems")


class PowerCutDisk:
    """An ext4 in a file. `cut` loses what was not synced; `mount` brings the rest back."""

    def __init__(self, folder: Path, megabytes: int = 128) -> None:
        _needs_root()
        self._image = folder / "disk.img"
        self.path = folder / "disk"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def cut(self) -> None:
        """From now on nothing reaches the disk, not even what the kernel has already taken."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_SHUTDOWN, _WITHOUT_FLUSHING_THE_JOURNAL)
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Take the disk away. What is mounted next is a copy of what is on it: a test that has
        made a namespace meanwhile still has the disk mounted, and the kernel would use it again,
        with its power cut."""
        subprocess.run(["umount", str(self.path)], check=False, capture_output=True)
        copy = self._image.with_suffix(".copy")
        shutil.copyfile(self._image, copy)
        copy.replace(self._image)


@contextmanager
def power_cut_disk(folder: Path) -> Iterator[PowerCutDisk]:
    disk = PowerCutDisk(folder)
    try:
        yield disk
    finally:
        disk.unmount()


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of that size, in memory."""
    _needs_root()
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=False, capture_output=True)
