"""What the kernel says about a process: CPU time, memory, open files."""

import os
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BUSY_CORES = 0.2
"""With more than this at work beside it, a row is reported without a verdict."""


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S


def cpu_nanoseconds(pid: int) -> int:
    """Time on a processor of all threads so far; exact, where `cpu_seconds` counts ticks."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


class Rate(float):
    """A rate, with the CPU of the broker's process for one request in microseconds."""

    cpu_us: float

    def __new__(cls, rate: float, cpu_us: float) -> "Rate":
        new = super().__new__(cls, rate)
        new.cpu_us = cpu_us
        return new


def resident_mb(pid: int) -> float:
    """Resident memory in megabytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"/proc/{pid}/status has no VmRSS")


def tree_cpu_seconds(first: int) -> float:
    """CPU time so far of a process and of its descendants, with those that have ended."""
    total = 0.0
    for pid in _tree(first):
        try:
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        total += sum(int(ticks) for ticks in after_name[11:15]) / TICKS_PER_S
    return total


def tree_memory_mb(first: int) -> float:
    """Memory of a process and of its descendants; shared pages are divided among them."""
    kilobytes = 0
    for pid in _tree(first):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes * 1024 / 1e6


def _tree(first: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = [first]
    for pid in found:
        found += children.get(pid, [])
    return found


def busy_cores(seconds: float = 2.0) -> float:
    """How many cores are at work now; close to 0 when nothing disturbs a measurement."""

    def used() -> int:
        user, nice, system, _, _, irq, softirq = (
            int(word) for word in Path("/proc/stat").read_text().split()[1:8]
        )
        return user + nice + system + irq + softirq

    before = used()
    time.sleep(seconds)
    return (used() - before) / TICKS_PER_S / seconds


def machine() -> str:
    """One line about the machine: processor, cores, memory, kernel."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    kilobytes = int(Path("/proc/meminfo").read_text().split()[1])
    kernel = os.uname()
    return (
        f"{model}, {os.cpu_count()} cores, {kilobytes * 1024 / 1e9:.0f} GB memory, "
        f"{kernel.sysname} {kernel.release.split('-')[0]}"
    )
