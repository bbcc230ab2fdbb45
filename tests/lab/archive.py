"""Debian packages of any suite, downloaded and unpacked; nothing is installed on this machine.

apt gets its own lists, cache and an empty status, so it neither sees nor touches what is installed.
"""

import os
import re
import shutil
import time

from programs import run
from settings import ARCHITECTURE, LabError, cache_directory, say

LISTS_SECONDS_MAX = 24 * 3600
DOWNLOAD_SECONDS_MAX = 900
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def mirror():
    """PERDURE_LAB_MIRROR, else the archive from which this machine gets its own packages."""
    chosen = os.environ.get("PERDURE_LAB_MIRROR")
    if chosen:
        return chosen
    listing = run(["apt-get", "indextargets", "--format", "$(LABEL)|$(REPO_URI)",
                   "Created-By: Packages"])
    for line in listing.splitlines():
        label, _, uri = line.partition("|")
        if label == "Debian":
            return uri
    raise LabError("apt knows no Debian archive here; name one in PERDURE_LAB_MIRROR")


class Unavailable(LabError):
    """The archive can not be reached, or lacks a package."""


class Suite:
    """One suite of the archive, for example `trixie`."""

    def __init__(self, name):
        self.name = name
        self.directory = cache_directory() / "apt" / name

    def _options(self):
        here = self.directory
        settings = {
            "Dir::Etc::sourcelist": here / "sources.list", "Dir::Etc::sourceparts": "-",
            "Dir::State::Lists": here / "lists", "Dir::State::status": here / "status",
            "Dir::Cache": here / "cache",
            "APT::Architecture": ARCHITECTURE, "APT::Architectures": ARCHITECTURE,
            "APT::Install-Recommends": "false", "APT::Sandbox::User": "root",
            "Acquire::Retries": "3", "Debug::NoLocking": "true",
        }
        return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]

    def _apt(self, program, *words, cwd=None):
        try:
            return run([program, *self._options(), *words], DOWNLOAD_SECONDS_MAX, cwd=cwd)
        except LabError as error:
            last = str(error).splitlines()[-1].strip()
            raise Unavailable(f"{program}, suite {self.name}: {last}") from error

    def refresh(self):
        """Fetches the lists unless they are of today."""
        stamp = self.directory / "refreshed"
        if stamp.exists() and time.time() - stamp.stat().st_mtime < LISTS_SECONDS_MAX:
            return
        say(f"package lists of {self.name}")
        (self.directory / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (self.directory / "cache").mkdir(exist_ok=True)
        (self.directory / "status").write_text("")
        (self.directory / "sources.list").write_text(
            f"deb [signed-by={KEYRING}] {mirror()} {self.name} main\n")
        self._apt("apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update")
        stamp.touch()

    def dependency(self, package, pattern):
        """The first direct dependency of a package whose name matches."""
        self.refresh()
        listing = self._apt("apt-cache", "depends", package)
        found = re.search(rf"Depends: *({pattern})", listing)
        if not found:
            raise LabError(f"{package} of {self.name} depends on nothing like {pattern}")
        return found.group(1)

    def download(self, packages, into, with_dependencies=False):
        """Fetches packages into a directory that is made for them; returns the files."""
        self.refresh()
        into.mkdir(parents=True)
        if with_dependencies:
            (into / "partial").mkdir()
            self._apt("apt-get", "-qq", "-o", f"Dir::Cache::archives={into}", "-y",
                      "--download-only", "install", *packages)
        else:
            self._apt("apt-get", "-qq", "download", *packages, cwd=into)
        return sorted(into.glob("*.deb"))

    def unpack(self, packages, into, with_dependencies=False):
        """Unpacks packages into a directory; returns the names of their files, with versions."""
        debs = into.with_name(into.name + ".debs")
        files = self.download(packages, debs, with_dependencies)
        into.mkdir(parents=True, exist_ok=True)
        for file in files:
            run(["dpkg-deb", "-x", file, into])
        shutil.rmtree(debs)
        return [file.name for file in files]
