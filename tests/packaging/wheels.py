"""Write small wheels and source archives that serve as a package index."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["locked_line", "write_sdist", "write_wheel"]


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    extras: Sequence[str] = (),
    modules: Mapping[str, str] | None = None,
) -> Path:
    """Write `folder/name-version-py3-none-any.whl` with these modules (file name to text)."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Provides-Extra: {extra}" for extra in extras]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    files = {
        **(modules or {f"{name}.py": f"version = {version!r}\n"}),
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        record = ""
        for file, text in files.items():
            archive.writestr(file, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{file},sha256={digest},{len(text.encode())}\n"
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return path


def write_sdist(folder: Path, name: str, version: str, *, files: Mapping[str, str]) -> Path:
    """Write `folder/name-version.tar.gz` with these files (name to text) and a PKG-INFO."""
    path = folder / f"{name}-{version}.tar.gz"
    content = {**files, "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
    with tarfile.open(path, "w:gz") as archive:
        for file, text in content.items():
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def locked_line(requirement: str, file: Path) -> str:
    """Return the line of a lock file that pins `requirement` to this file's hash."""
    return f"{requirement} \\\n    --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"
