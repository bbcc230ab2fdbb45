"""Stages of the build: each a directory in the cache, keyed by its recipe.

A recipe is the text of the files that a stage is made by, and the keys of the stages it needs. A
changed recipe has another key and is built anew; an unchanged one costs the hashing of a few files.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil

from settings import HERE, cache_directory, say

KEEP_OLD = 2  # directories of earlier recipes that are kept of each stage


class Stage:
    """make(directory) fills an empty directory; it has the whole tree of earlier stages."""

    def __init__(self, name, make, files, needs=()):
        self.name = name
        self.make = make
        self.needs = needs
        digest = hashlib.sha256(name.encode())
        for file in ("settings.py", *files):
            digest.update((HERE / file).read_bytes())
        for stage in needs:
            digest.update(stage.key.encode())
        self.key = digest.hexdigest()[:12]

    @property
    def directory(self):
        return cache_directory() / f"{self.name}-{self.key}"

    def present(self):
        return self.directory.is_dir()

    def build(self):
        """Builds what is missing of this stage and of those it needs."""
        if self.present():
            return self.directory
        for stage in self.needs:
            stage.build()
        say(f"{self.name}: building")
        unfinished = cache_directory() / f"{self.name}-{self.key}.{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            self.make(unfinished)
            os.utime(unfinished)  # unpacking sets times of the past
            unfinished.rename(self.directory)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        self._forget_old()
        say(f"{self.name}: built")
        return self.directory

    def _forget_old(self):
        mine = [path for path in cache_directory().glob(f"{self.name}-*") if path != self.directory]
        mine.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in mine[KEEP_OLD:]:
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def only_builder():
    """One builder at a time in a cache; the next one finds everything built."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with open(cache_directory() / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another builder of this cache")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
