"""Huge pages: which memory is collapsed, and which is left unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vedette.engine import huge_pages as large_pages
from vedette.engine.huge_pages import (
    HUGE_PAGE_BYTES,
    MIN_GROWTH_BYTES,
    MIN_PROCESS_BYTES,
    HugePages,
    collapsible_spans,
)

MIB = 1024 * 1024
SMAPS = """\
{begin:x}-{end:x} {rights} 00000000 {device} {inode}{name}
Size:              {size} kB
KernelPageSize:        4 kB
Rss:               {resident} kB
Pss:               {resident} kB
AnonHugePages:     {large} kB
VmFlags: rd wr mr mw me ac sd
"""


def mapping(
    begin_mib: float,
    size_mib: float,
    *,
    full: float = 1.0,
    large: float = 0.0,
    rights: str = "rw-p",
    inode: int = 0,
    name: str = "",
) -> str:
    begin, size = int(begin_mib * MIB), int(size_mib * MIB)
    return SMAPS.format(
        begin=begin,
        end=begin + size,
        rights=rights,
        device="00:00" if not inode else "fe:00",
        inode=inode,
        name=f"                   {name}" if name else "",
        size=size // 1024,
        resident=int(size * full) // 1024,
        large=int(size * large) // 1024,
    )


@pytest.mark.parametrize(
    ("smaps", "spans"),
    [
        (mapping(64, 32), [(64, 96)]),
        (mapping(63.5, 32), [(64, 94)]),  # whole pages only
        (mapping(64, 32, name="[heap]"), [(64, 96)]),
        (mapping(64, 8, full=0.01, name="[stack]"), []),
        (mapping(64, 8, name="[stack]"), []),
        (
            mapping(64, 8, full=0.1),
            [],
        ),  # for example the stack of a thread: collapsing would allocate unused memory
        (mapping(64, 8, full=0.49), []),
        (mapping(64, 8, full=0.51), [(64, 72)]),
        (mapping(64, 32, large=1.0), []),
        (mapping(64, 32, large=0.5), [(64, 96)]),
        (mapping(64, 1), []),
        (mapping(65, 2.5), []),  # contains no whole page
        (mapping(64, 32, rights="r--p"), []),
        (mapping(64, 32, rights="rw-s"), []),
        (mapping(64, 32, inode=7, name="/usr/lib/x.so"), []),
        (mapping(64, 32) + mapping(200, 4, full=0.1) + mapping(300, 4), [(64, 96), (300, 304)]),
        ("", []),
    ],
)
def test_full_anonymous_memory_is_collapsed(smaps: str, spans: list[tuple[int, int]]) -> None:
    assert list(collapsible_spans(smaps)) == [(begin * MIB, end * MIB) for begin, end in spans]


class Machine:
    """A process of a given size that records the calls to the kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.resident, self.asked = 0, list[int]()
        self.smaps = tmp_path / "smaps"
        self.smaps.write_text(mapping(64, 100))
        (tmp_path / "enabled").write_text("always [madvise] never\n")
        monkeypatch.setattr(large_pages, "_ENABLED", str(tmp_path / "enabled"))
        monkeypatch.setattr(large_pages, "_SMAPS", str(self.smaps))
        monkeypatch.setattr(large_pages, "_resident", lambda: self.resident)
        monkeypatch.setattr(large_pages, "_collapse", self.collapse)

    def collapse(self, start: int) -> bool:
        self.asked.append(start)
        return True


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_process_is_examined_when_large_and_grown(machine: Machine) -> None:
    pages = HugePages()
    machine.resident = MIN_PROCESS_BYTES - 1
    assert pages.look() == 0
    machine.resident = MIN_PROCESS_BYTES
    assert pages.look() == 100 * MIB
    assert machine.asked == [64 * MIB + number * HUGE_PAGE_BYTES for number in range(50)]
    machine.resident = MIN_PROCESS_BYTES + MIN_GROWTH_BYTES - 1
    assert pages.look() == 0
    machine.resident = MIN_PROCESS_BYTES + MIN_GROWTH_BYTES
    assert pages.look() == 100 * MIB


def test_growth_is_counted_again_after_shrinking(machine: Machine) -> None:
    pages = HugePages()
    machine.resident = 10 * MIN_PROCESS_BYTES
    assert pages.look()
    machine.resident = MIN_PROCESS_BYTES
    assert not pages.look()
    machine.resident = MIN_PROCESS_BYTES + MIN_GROWTH_BYTES
    assert pages.look()


def test_pauses_after_each_page_and_stops_on_request(machine: Machine) -> None:
    pages, pauses = HugePages(), list[float]()

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) == 3

    machine.resident = MIN_PROCESS_BYTES
    assert pages.look(pause) == 3 * HUGE_PAGE_BYTES
    assert len(machine.asked) == len(pauses) == 3
    assert pages.look() == 100 * MIB, "it is looked at again"


@pytest.mark.parametrize("setting", ["always madvise [never]\n", None])
def test_unsupported_kernel_is_not_called(machine: Machine, setting: str | None, tmp_path: Path) -> None:
    if setting is None:
        (tmp_path / "enabled").unlink()
    else:
        (tmp_path / "enabled").write_text(setting)
    machine.resident = MIN_PROCESS_BYTES
    assert HugePages().look() == 0
    assert machine.asked == []


def test_unreadable_memory_map_disables_collapsing(machine: Machine) -> None:
    """The thread that manages garbage collection continues."""
    pages = HugePages()
    machine.resident, kept = MIN_PROCESS_BYTES, machine.smaps.read_text()
    machine.smaps.unlink()
    assert pages.look() == 0
    machine.smaps.write_text(kept)
    assert pages.look() == 0, "it is not tried every two seconds"


def test_collapsing_keeps_the_content_of_memory() -> None:
    """On any kernel, the objects are unchanged and the process is about as large as before."""
    program = """
from vedette.engine.huge_pages import HugePages, _resident
held = [(number, str(number)) for number in range(1_800_000)]
before = _resident()
HugePages().look()
assert _resident() < 1.1 * before, (before, _resident())
assert all(text == str(number) for number, text in held)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=200)
