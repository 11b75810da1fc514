"""Files: atomic writes, checksums, memory-mapped Arrow, locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import struct
import tomllib
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa

from pipeline.core.errors import CorruptError, InputError, MdcrError, StageError
from pipeline.core.progress import say

_Json = TypeVar("_Json")

_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:64]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems refuse this for folders
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def temporary_suffix() -> str:
    """Return the end of the names of temporary files and folders of this process, for :func:`remove_abandoned`."""
    return f".{_HOST}-{os.getpid()}.tmp"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; it replaces ``path`` if the block ends without an error.

    Its name is unique to this process, also on a file system that several machines share.
    """
    temporary = path.with_name(f".{path.name}{temporary_suffix()}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def resolved(path: Path) -> Path:
    """Return an absolute path without links; a link to itself stays, where :meth:`pathlib.Path.resolve` fails."""
    return Path(os.path.realpath(path))


ZIP_ERRORS = (OSError, EOFError, RuntimeError, UnicodeDecodeError, struct.error, zlib.error, zipfile.BadZipFile)
"""What :mod:`zipfile` raises for archives that are damaged, encrypted, or of another method."""


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; None if it is missing or not JSON."""
    try:
        return json.loads(path.read_bytes()) if path.is_file() else None
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def once(record: Path, make: Callable[[], _Json]) -> _Json:
    """Return the JSON of ``record``, or that of ``make()``, which is recorded last: what is made has its record."""
    made: _Json | None = read_json(record)
    if made is None:
        made = make()
        write_text(record, json.dumps(made))
    return made


def given(path: Path) -> Path:
    """Return the path of a file from outside, which may be missing.

    Raises:
        InputError: it is a folder, a broken link, or a pipe or a device, which may have no end.
    """
    try:
        path.stat()
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            raise InputError(f"{str(path)!r:.80} cannot be the name of a file", "Name a file") from error
    if not path.is_file() and os.path.lexists(path):
        raise InputError(f"{path} must be a file, got a folder, a pipe, a device or a broken link", "Name a file")
    return path


def given_toml(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """Return the content of a TOML file from outside; InputError, which says ``what`` it is, if it cannot be read."""
    try:
        return tomllib.loads(given(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # bad TOML or encoding, huge numbers, deep nesting
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{what} {path} cannot be read ({reason})", remedy) from error


def given_json(path: Path, content: bytes | None = None) -> Any:
    """Return the value of a JSON file from outside; raise InputError if it is not JSON or repeats a key.

    ``content`` is that of the file, if it was read (and unpacked) already.
    """

    def distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(members)
        if len(values) < len(members):
            key = next(key for key, count in Counter(key for key, _ in members).items() if count > 1)
            raise InputError(f"{path} must have each key once, got {key!r} twice", "Keep one of them")
        return values

    try:
        content = given(path).read_bytes() if content is None else content
        value = json.loads(content, object_pairs_hook=distinct)
        if b"\\u" in content:
            json.dumps(value, ensure_ascii=False).encode()  # refuses lone surrogates
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} must be a JSON file ({str(error)[:200]})", "Fetch or write it again") from error
    return value


def write_arrow(path: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """Write an uncompressed Arrow IPC file and return its number of rows.

    A file of one batch can be memory-mapped as a whole.
    """
    rows = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def read_arrow(path: Path) -> pa.Table:
    """Return an Arrow IPC file memory-mapped; raise CorruptError if it is not Arrow or truncated."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{path} cannot be read as Arrow ({error})", "Run the stage again with --repair") from error


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise StageError for a full disk, a file size limit and refused access."""
    try:
        yield
    except MdcrError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
            raise StageError(
                f"the disk is full at {path} ({free_bytes(path) / 2**30:.1f} GiB free); nothing was published",
                "Free some space and run the same command again: finished shards are kept",
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise StageError(f"{error.filename or path} may not be written", "Choose another folder") from error
        raise


def free_bytes(path: Path) -> int:
    """Return the free bytes of the file system of ``path`` or its nearest existing parent."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def remove_abandoned(folder: Path) -> None:
    """Remove what is named by :func:`temporary_suffix` in a folder and whose processes on this machine have ended."""
    for temporary in sorted(folder.glob(f".*.{_HOST}-*.tmp")):
        process = temporary.name.removesuffix(".tmp").rpartition("-")[2]
        if not re.fullmatch("[0-9]{1,9}", process) or Path(f"/proc/{process}").exists():
            continue
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the build lock of an artifact. The system frees it when the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = lock_file(path)
    handle = lock.open("a")
    try:
        while not _acquire(handle, lock):
            handle.close()
            handle = lock.open("a")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        handle.close()


def lock_file(path: Path) -> Path:
    """Return the lock file of an artifact; beside a published artifact, a build is running or was killed."""
    return path.with_name(f".{path.name}.lock")


def _acquire(handle: IO[str], lock: Path) -> bool:
    """Lock an open file; return False if its last holder has removed it, so a new one must be opened."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another process is building {lock.stem.removeprefix('.')}: waiting for it")
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        say(f"no locks on {lock.parent} ({error.strerror}): run one builder at a time there")
        return True
    try:
        return os.fstat(handle.fileno()).st_ino == lock.stat().st_ino
    except FileNotFoundError:
        return False
