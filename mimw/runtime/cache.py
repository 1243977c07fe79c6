"""The disk cache: compiled kernels that outlive the process.

Owns: keys, the fingerprint of the mimw package, the folder's form, eviction. Assumes: a file system whose renames are
atomic. Must not know what is stored: an entry is a dict of JSON values and named files (text or bytes). What lives in
memory is `kernel_code`'s.

The folder is ``MIMW_CACHE_DIR``, else ``~/.cache/mimw``; ``MIMW_CACHE=0`` turns the cache off; ``MIMW_CACHE_SIZE`` is
its limit in MiB. An entry is a directory ``v1/ab/abcd.../`` with ``meta.json`` and the files. It is written beside its
place and renamed into it, and renamed away before it is deleted, so that another process sees all of it or nothing;
whoever comes second drops his own. ``meta.json`` holds each file's digest: an entry that does not fit them is a miss
and is removed. A cache that cannot be written is no error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import Any

FORMAT = "v1"
DEFAULT_LIMIT_MIB = 2048
# Left-overs of processes that died while writing or deleting are swept after this many seconds.
_STALE_SECONDS = 3600.0

_fingerprints: dict[str, str] = {}


class Entry:
    """What `DiskCache.get` found: `meta` as it was put, `files` by name, text or bytes as they were put."""

    __slots__ = ("files", "meta")

    def __init__(self, meta: dict[str, Any], files: dict[str, str | bytes]) -> None:
        self.meta = meta
        self.files = files


def cache_key(parts: Iterable[tuple[str, str | bytes | int | None]]) -> str:
    """The sha256, in hex, of named parts in order.

    Names and lengths are hashed too, so that no two lists of parts run together.
    """
    digest = hashlib.sha256(FORMAT.encode())
    for name, value in parts:
        kind = type(value).__name__
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        digest.update(f"\0{name}\0{kind}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


class DiskCache:
    """A cache in one folder, safe under many threads and processes, of `limit_bytes` and little more (`_account`)."""

    __slots__ = ("_written", "folder", "limit_bytes")

    def __init__(self, folder: str, limit_bytes: int = DEFAULT_LIMIT_MIB << 20) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._written: int | None = None  # bytes put since the last scan; None before the first

    def get(self, key: str) -> Entry | None:
        """The entry, or None. An entry that cannot be read or does not fit its digests is removed."""
        path = self._path(key)
        try:
            with open(os.path.join(path, "meta.json"), "rb") as file:
                record = json.loads(file.read())
            entry = _read_entry(path, key, record)
        except FileNotFoundError:
            if os.path.isdir(path):
                self._remove(path)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._remove(path)
            return None
        _touch(path)
        return entry

    def put(self, key: str, meta: Mapping[str, Any], files: Mapping[str, str | bytes]) -> bool:
        """Store an entry; False when it could not be written or another process was first."""
        path = self._path(key)
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            temporary = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(path))
        except OSError:
            return False
        try:
            size = _write_entry(temporary, key, meta, files)
            os.rename(temporary, path)
        except OSError:
            return False
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # not there any more after a rename
        self._account(size)
        return True

    def clear(self) -> None:
        """Remove all entries."""
        for _, _, path in self._scan():
            self._remove(path)

    def size(self) -> int:
        """The bytes of all entries."""
        return sum(size for _, size, _ in self._scan())

    def _path(self, key: str) -> str:
        if len(key) < 3 or not key.isalnum():
            raise ValueError(f"not a cache key: {key!r}")
        return os.path.join(self.folder, FORMAT, key[:2], key)

    def _remove(self, path: str) -> None:
        """Rename away, then delete: no reader sees half an entry."""
        try:
            grave = tempfile.mkdtemp(prefix=".old-", dir=os.path.dirname(path))
        except OSError:
            return
        with contextlib.suppress(OSError):  # another process was quicker
            os.rename(path, os.path.join(grave, "entry"))
        shutil.rmtree(grave, ignore_errors=True)

    def _account(self, size: int) -> None:
        """Evict after the first put of the process, and whenever an eighth of the limit has been written since."""
        if self._written is not None and self._written + size <= self.limit_bytes // 8:
            self._written += size
            return
        self._written = 0
        self.evict()

    def evict(self) -> None:
        """When over the limit, remove what was used longest ago until the rest is within nine tenths of it."""
        entries = sorted(self._scan(sweep=True))
        total = sum(size for _, size, _ in entries)
        if total <= self.limit_bytes:
            return
        for _, size, path in entries[:-1]:  # the newest stays, however large
            if total <= self.limit_bytes * 9 // 10:
                break
            self._remove(path)
            total -= size

    def _scan(self, sweep: bool = False) -> list[tuple[int, int, str]]:
        """(time of last use in ns, bytes, path) of each entry; with `sweep` left-overs of dead processes go."""
        out: list[tuple[int, int, str]] = []
        for shelf in _subfolders(os.path.join(self.folder, FORMAT)):
            for path in _subfolders(shelf):
                if os.path.basename(path).startswith("."):
                    if sweep:
                        _sweep(path)
                    continue
                try:
                    used = os.stat(os.path.join(path, "meta.json")).st_mtime_ns
                    size = sum(item.stat().st_size for item in os.scandir(path))
                except OSError:
                    continue  # removed meanwhile
                out.append((used, size, path))
        return out


def _read_entry(path: str, key: str, record: dict[str, Any]) -> Entry:
    if record["key"] != key:
        raise ValueError("the entry was stored under another key")
    files: dict[str, str | bytes] = {}
    for name, (kind, digest) in record["files"].items():
        with open(os.path.join(path, name), "rb") as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"{name} does not fit its digest")
        files[name] = data.decode("utf-8", "surrogatepass") if kind == "text" else data
    return Entry(record["meta"], files)


def _write_entry(folder: str, key: str, meta: Mapping[str, Any], files: Mapping[str, str | bytes]) -> int:
    """Write an entry's files; returns their bytes."""
    table: dict[str, tuple[str, str]] = {}
    size = 0
    for name, content in files.items():
        if name == "meta.json" or os.path.basename(name) != name or name in ("", ".", ".."):
            raise ValueError(f"not a file name for the cache: {name!r}")
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
        table[name] = ("text" if isinstance(content, str) else "bytes", hashlib.sha256(data).hexdigest())
        size += len(data)
    record = json.dumps({"key": key, "meta": dict(meta), "files": table}).encode()
    with open(os.path.join(folder, "meta.json"), "wb") as file:
        file.write(record)
    return size + len(record)


def _touch(path: str) -> None:
    with contextlib.suppress(OSError):  # a read-only cache serves all the same
        os.utime(os.path.join(path, "meta.json"))


def _subfolders(path: str) -> list[str]:
    try:
        return [item.path for item in os.scandir(path) if item.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _sweep(path: str) -> None:
    try:
        old = time.time() - os.stat(path).st_mtime > _STALE_SECONDS
    except OSError:
        return
    if old:
        shutil.rmtree(path, ignore_errors=True)


def default_folder() -> str | None:
    """The folder that the environment asks for; None when the cache is turned off or there is no home."""
    if os.environ.get("MIMW_CACHE", "1").strip().lower() in ("0", "off", "false", "no"):
        return None
    folder = os.environ.get("MIMW_CACHE_DIR") or os.path.expanduser("~/.cache/mimw")
    return None if folder.startswith("~") else os.path.abspath(folder)


def default_cache() -> DiskCache | None:
    """The cache that the environment asks for, None when it asks for none.

    `ValueError` for a MIMW_CACHE_SIZE that is no number.
    """
    folder = default_folder()
    if folder is None:
        return None
    limit = os.environ.get("MIMW_CACHE_SIZE", "")
    try:
        mib = int(limit) if limit else DEFAULT_LIMIT_MIB
    except ValueError:
        raise ValueError(f"MIMW_CACHE_SIZE is a number of MiB, not {limit!r}") from None
    return DiskCache(folder, mib << 20)


def package_fingerprint(cache: DiskCache | None = None, root: str | None = None) -> str:
    """A digest of the package's Python sources, for the key: another compiler is another result. Computed once a
    process.

    Reading 150 files costs more than a warm start may: so the digest of the contents is itself stored in `cache`, under
    the digest of the files' paths, sizes and modification times. `root` is the package's folder, by default mimw's own.
    """
    top = root or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = _fingerprints.get(top)
    if found is None:
        found = _fingerprints[top] = _fingerprint(cache, top)
    return found


def _fingerprint(cache: DiskCache | None, top: str) -> str:
    sources = _sources(top)
    manifest = cache_key([("root", top), *((path, f"{size} {mtime}") for path, size, mtime in sources)])
    entry = cache.get(manifest) if cache is not None else None
    if entry is not None and isinstance(entry.meta.get("contents"), str):
        return entry.meta["contents"]
    contents = cache_key((path, _read(os.path.join(top, path))) for path, _, _ in sources)
    if cache is not None:
        cache.put(manifest, {"contents": contents}, {})
    return contents


def _sources(top: str) -> list[tuple[str, int, int]]:
    """(path below `top`, size, modification time in ns) of every Python source, sorted."""
    out: list[tuple[str, int, int]] = []
    for folder, below, names in os.walk(top):
        below[:] = [name for name in below if name != "__pycache__"]
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                stat = os.stat(path)
                out.append((os.path.relpath(path, top), stat.st_size, stat.st_mtime_ns))
    return sorted(out)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
