"""Debian packages of any suite, downloaded and unpacked; nothing is installed on this machine.

apt gets its own lists, cache and an empty status, so it neither sees nor touches what is installed.
The versions in packages.txt are taken where the archive has them, else what it has.
"""

import os
import re
import shutil
import time
import urllib.parse

from programs import run
from settings import ARCHITECTURE, HERE, LabError, cache_directory, say

LISTS_SECONDS_MAX = 24 * 3600
DOWNLOAD_SECONDS_MAX = 900
PIN_PRIORITY = 1001  # also if that means an older version (apt_preferences(5))
PINS = "packages.txt"   # lines `SUITE NAME VERSION`
PACKAGES = "packages"   # of a stage: the same of what was taken
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


def pinned():
    """(suite, name, version) of packages.txt."""
    lines = (HERE / PINS).read_text().splitlines()
    return [tuple(line.split()) for line in lines if line and not line.startswith("#")]


def write_packages(into, suite, files):
    """Notes in a stage which packages it took. files: as apt names them, NAME_VERSION_ARCH.deb."""
    lines = []
    for file in sorted(files):
        name, version, _ = file.split("_", 2)
        lines.append(f"{suite.name} {name} {urllib.parse.unquote(version)}")
    (into / PACKAGES).write_text("\n".join(lines) + "\n")


def differences(taken):
    """Sentences, one for each package that is not the pinned one; empty: all are."""
    pins = {(suite, name): version for suite, name, version in pinned()}
    return [f"{name} {version} of {suite}, pinned is {pins.get((suite, name), 'none')}"
            for suite, name, version in taken if pins.get((suite, name)) != version]


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
            "Dir::Etc::preferences": here / "preferences", "Dir::Etc::preferencesparts": "-",
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
        """Fetches the lists unless they are of today, and makes the versions known to apt that it
        is to prefer."""
        (self.directory / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (self.directory / "preferences").write_text("\n".join(
            f"Package: {name}\nPin: version {version}\nPin-Priority: {PIN_PRIORITY}\n"
            for name, version in self.pins().items()))
        stamp = self.directory / "refreshed"
        if stamp.exists() and time.time() - stamp.stat().st_mtime < LISTS_SECONDS_MAX:
            return
        say(f"package lists of {self.name}")
        (self.directory / "cache").mkdir(exist_ok=True)
        (self.directory / "status").write_text("")
        (self.directory / "sources.list").write_text(
            f"deb [signed-by={KEYRING}] {mirror()} {self.name} main\n")
        self._apt("apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update")
        stamp.touch()

    def pins(self):
        return {name: version for suite, name, version in pinned() if suite == self.name}

    def dependency(self, package, pattern):
        """The first direct dependency of a package whose name matches; the pinned one while the
        archive has it."""
        self.refresh()
        for name in self.pins():
            if re.fullmatch(pattern, name) and name != package and self._has(name):
                return name
        listing = self._apt("apt-cache", "depends", package)
        found = re.search(rf"Depends: *({pattern})", listing)
        if not found:
            raise LabError(f"{package} of {self.name} depends on nothing like {pattern}")
        return found.group(1)

    def _has(self, package):
        return re.search(r"Candidate: [^(\s]", self._apt("apt-cache", "policy", package))

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
        """Unpacks packages into a directory; returns the names of their files."""
        debs = into.with_name(into.name + ".debs")
        files = self.download(packages, debs, with_dependencies)
        into.mkdir(parents=True, exist_ok=True)
        for file in files:
            run(["dpkg-deb", "-x", file, into])
        shutil.rmtree(debs)
        return [file.name for file in files]
