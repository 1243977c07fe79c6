"""The disk cache: hits, misses for every changed part, damage, many processes, eviction, the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mimw.runtime import cache as cache_module
from mimw.runtime.cache import DiskCache, cache_key, default_cache, package_fingerprint

KEY = "ab" + "0" * 62
FILES: dict[str, str | bytes] = {"ptx": "// text ü\n", "cubin": b"\x7fELF\x00", "tile": ""}
PARTS: list[tuple[str, str | bytes | int | None]] = [
    ("source", "def f(): pass"),
    ("constants", "N=4"),
    ("warps", 4),
    ("target", "sm_90a"),
    ("assembler", "13.0.88"),
    ("package", b"digest"),
    ("none", None),
]


@pytest.fixture
def disk(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "cache"))


def entry_folder(disk: DiskCache, key: str = KEY) -> Path:
    return Path(disk.folder) / cache_module.FORMAT / key[:2] / key


# Keys


def test_key_is_stable_and_every_part_counts():
    key = cache_key(PARTS)
    assert key == cache_key(list(PARTS))
    assert len(key) == 64
    others = {key}
    for i, (name, value) in enumerate(PARTS):
        changed = value + b"x" if isinstance(value, bytes) else f"{value}x"
        others.add(cache_key([*PARTS[:i], (name, changed), *PARTS[i + 1 :]]))
        others.add(cache_key([*PARTS[:i], (name + "x", value), *PARTS[i + 1 :]]))
        others.add(cache_key([*PARTS[:i], *PARTS[i + 1 :]]))
    assert len(others) == 1 + 3 * len(PARTS)


def test_parts_do_not_run_together():
    assert cache_key([("a", "bc"), ("d", "")]) != cache_key([("a", "b"), ("d", "c")])
    assert cache_key([("a", "b\0c")]) != cache_key([("a", "b"), ("c", "")])
    assert cache_key([("a", 1)]) != cache_key([("a", "1")]) != cache_key([("a", b"1")])
    assert cache_key([("a", None)]) != cache_key([("a", "None")])
    assert cache_key([("a", "\ud800")])  # source text may hold what UTF-8 cannot


# Entries


def test_miss_then_hit(disk: DiskCache):
    assert disk.get(KEY) is None
    assert disk.put(KEY, {"name": "add", "n": [1, 2]}, FILES)
    found = disk.get(KEY)
    assert found is not None
    assert found.meta == {"name": "add", "n": [1, 2]}
    assert found.files == FILES
    assert disk.get(KEY.replace("b", "c")) is None
    assert DiskCache(disk.folder).get(KEY) is not None


def test_second_put_loses(disk: DiskCache):
    assert disk.put(KEY, {"who": 1}, FILES)
    assert not disk.put(KEY, {"who": 2}, FILES)
    found = disk.get(KEY)
    assert found is not None
    assert found.meta == {"who": 1}
    assert [path.name for path in entry_folder(disk).parent.iterdir()] == [KEY]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "no meta": lambda folder: (folder / "meta.json").unlink(),
    "cut meta": lambda folder: _cut(folder / "meta.json"),
    "empty meta": lambda folder: (folder / "meta.json").write_bytes(b""),
    "meta is a list": lambda folder: (folder / "meta.json").write_text("[]"),
    "meta of another key": lambda folder: (folder / "meta.json").write_text(
        json.dumps({"key": "x", "meta": {}, "files": {}})
    ),
    "no cubin": lambda folder: (folder / "cubin").unlink(),
    "cut cubin": lambda folder: _cut(folder / "cubin"),
    "flipped cubin": lambda folder: _flip(folder / "cubin"),
    "flipped text": lambda folder: _flip(folder / "ptx"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_entry_is_a_miss_and_can_be_replaced(disk: DiskCache, damage: str):
    disk.put(KEY, {"who": 1}, FILES)
    DAMAGE[damage](entry_folder(disk))
    assert disk.get(KEY) is None
    assert not entry_folder(disk).exists()
    assert disk.put(KEY, {"who": 2}, FILES)
    found = disk.get(KEY)
    assert found is not None
    assert found.meta == {"who": 2}


def test_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    disk = DiskCache(str(tmp_path / "file"))
    assert not disk.put(KEY, {}, FILES)
    assert disk.get(KEY) is None
    assert disk.size() == 0


@pytest.mark.parametrize("name", ["meta.json", "a/b", "..", "", "/etc/x"])
def test_bad_file_names(disk: DiskCache, name: str):
    with pytest.raises(ValueError, match="not a file name for the cache"):
        disk.put(KEY, {}, {name: "x"})
    assert list(entry_folder(disk).parent.iterdir()) == []


@pytest.mark.parametrize("key", ["", "a", "../../x", "ab/cd"])
def test_bad_keys(disk: DiskCache, key: str):
    with pytest.raises(ValueError, match="not a cache key"):
        disk.get(key)


def test_clear(disk: DiskCache):
    disk.put(KEY, {}, FILES)
    assert disk.size() > 0
    disk.clear()
    assert disk.size() == 0
    assert disk.get(KEY) is None


# Many processes

WORKER = """
import sys
from mimw.runtime.cache import DiskCache, cache_key
disk = DiskCache(sys.argv[1], limit_bytes=40_000)
for round in range(60):
    key = cache_key([("round", round % 12)])
    found = disk.get(key)
    text = f"text {round % 12} " * 500
    if found is None:
        disk.put(key, {"round": round % 12}, {"ptx": text, "cubin": text.encode()})
        continue
    assert found.meta == {"round": round % 12}, found.meta
    assert found.files == {"ptx": text, "cubin": text.encode()}
    if round % 7 == 0:
        disk._remove(disk._path(key))
"""


def test_two_processes_at_once(disk: DiskCache):
    """Both write, read, remove and evict the same keys: each read is whole, nothing is left behind."""
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, disk.folder], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
    names = [path.name for shelf in (Path(disk.folder) / "v1").iterdir() for path in shelf.iterdir()]
    assert names
    assert not [name for name in names if name.startswith(".")]


# Eviction


def keys(count: int) -> list[str]:
    return [cache_key([("n", n)]) for n in range(count)]


def test_the_longest_unused_goes_first(tmp_path: Path):
    disk = DiskCache(str(tmp_path), limit_bytes=10**9)
    names = keys(6)
    for age, key in enumerate(names):
        disk.put(key, {}, {"cubin": bytes(10_000)})
        os.utime(entry_folder(disk, key) / "meta.json", ns=(10**9 * age, 10**9 * age))
    assert disk.get(names[0]) is not None  # its use makes it the newest
    disk.limit_bytes = 35_000
    disk.evict()
    assert [disk.get(key) is not None for key in names] == [True, False, False, False, True, True]


def test_puts_keep_the_limit(tmp_path: Path):
    disk = DiskCache(str(tmp_path), limit_bytes=100_000)
    for key in keys(60):
        disk.put(key, {}, {"cubin": bytes(5_000)})
    assert 60_000 < disk.size() < 100_000 * 9 / 8 + 6_000


def test_an_entry_larger_than_the_limit_stays_while_it_is_the_newest(tmp_path: Path):
    disk = DiskCache(str(tmp_path), limit_bytes=1000)
    first, second = keys(2)
    disk.put(first, {}, {"cubin": bytes(5_000)})
    assert disk.get(first) is not None
    disk.put(second, {}, {"cubin": bytes(5_000)})
    assert disk.get(first) is None
    assert disk.get(second) is not None


def test_left_overs_are_swept_when_old(disk: DiskCache):
    disk.put(KEY, {}, FILES)
    shelf = entry_folder(disk).parent
    for name, age in ((".new-dead", 7200), (".new-alive", 0)):
        (shelf / name).mkdir()
        (shelf / name / "cubin").write_bytes(b"x")
        stamp = (shelf / name).stat().st_mtime - age
        os.utime(shelf / name, (stamp, stamp))
    disk.evict()
    assert sorted(path.name for path in shelf.iterdir()) == [".new-alive", KEY]


# The environment


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("MIMW_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.delenv("MIMW_CACHE", raising=False)
    monkeypatch.setenv("MIMW_CACHE_SIZE", "3")
    disk = default_cache()
    assert disk is not None
    assert (disk.folder, disk.limit_bytes) == (str(tmp_path / "here"), 3 << 20)
    monkeypatch.delenv("MIMW_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    disk = default_cache()
    assert disk is not None
    assert disk.folder == str(tmp_path / ".cache" / "mimw")
    monkeypatch.setenv("MIMW_CACHE", "0")
    assert default_cache() is None


def test_size_that_is_no_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("MIMW_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("MIMW_CACHE", raising=False)
    monkeypatch.setenv("MIMW_CACHE_SIZE", "2G")
    with pytest.raises(ValueError, match="MIMW_CACHE_SIZE is a number of MiB, not '2G'"):
        default_cache()


# The package's fingerprint


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "package"
    (root / "sub").mkdir(parents=True)
    (root / "a.py").write_text("a = 1\n")
    (root / "sub" / "b.py").write_text("b = 1\n")
    monkeypatch.setattr(cache_module, "_fingerprints", {})
    return root


def fingerprint(disk: DiskCache | None, root: Path) -> str:
    cache_module._fingerprints.clear()  # as a new process
    return package_fingerprint(disk, str(root))


def test_fingerprint_follows_contents(package: Path):
    first = fingerprint(None, package)
    (package / "notes.txt").write_text("no source")
    os.utime(package / "a.py", (1, 1))
    assert fingerprint(None, package) == first
    (package / "sub" / "b.py").write_text("b = 2\n")
    second = fingerprint(None, package)
    (package / "sub" / "b.py").rename(package / "sub" / "c.py")
    assert len({first, second, fingerprint(None, package)}) == 3


def test_contents_are_read_only_when_the_manifest_is_new(
    package: Path, disk: DiskCache, monkeypatch: pytest.MonkeyPatch
):
    reads: list[str] = []
    read = cache_module._read
    monkeypatch.setattr(cache_module, "_read", lambda path: (reads.append(path), read(path))[1])
    first = fingerprint(disk, package)
    assert len(reads) == 2
    assert fingerprint(disk, package) == first
    assert len(reads) == 2
    os.utime(package / "a.py", (1, 1))
    assert fingerprint(disk, package) == first
    assert len(reads) == 4


def test_fingerprint_of_mimw_itself_is_computed_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache_module, "_fingerprints", {})
    first = package_fingerprint()
    monkeypatch.setattr(cache_module, "_sources", lambda top: pytest.fail("asked again"))
    assert package_fingerprint() == first
