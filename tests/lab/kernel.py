"""The guest's kernel: Debian's, and siw.ko, which Debian does not build."""

import pathlib
import re
import shutil
import subprocess

from archive import Suite
from programs import find, run
from settings import ARCHITECTURE, KERNEL_SUITE, LabError, say

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SIW_SECONDS_MAX = 600


def version(directory):
    return (directory / "version").read_text().strip()


def make_kernel(into):
    """version, vmlinux (an uncompressed ELF file), lib/modules."""
    suite = Suite(KERNEL_SUITE)
    package = suite.dependency(f"linux-image-{ARCHITECTURE}", r"linux-image-\S+")
    name = package[len("linux-image-"):]
    unpacked = into / "unpacked"
    suite.unpack([package], unpacked)
    (into / "version").write_text(name + "\n")
    image = next(unpacked.glob("boot/vmlinuz-*"))
    (into / "vmlinux").write_bytes(uncompressed(image.read_bytes()))
    modules = next(path for path in (unpacked / "lib/modules", unpacked / "usr/lib/modules")
                   if path.is_dir())
    (into / "lib").mkdir()
    modules.rename(into / "lib" / "modules")
    shutil.rmtree(unpacked)


def uncompressed(image):
    """The ELF kernel inside a bzImage: QEMU boots it through PVH, without unpacking in the guest
    (1 s less under emulation)."""
    at = image.find(ZSTD_MAGIC)
    while at >= 0:
        # What follows the compressed kernel makes zstd complain; what it wrote until then counts.
        out = subprocess.run([find("zstd"), "-dcq"], input=image[at:], capture_output=True,
                             check=False, timeout=120).stdout
        if out[:4] == b"\x7fELF":
            return out
        at = image.find(ZSTD_MAGIC, at + 1)
    raise LabError("no zstd-compressed ELF kernel in Debian's image; the recipe must learn another")


def make_siw(kernel_directory):
    """Returns the maker of the siw stage: siw.ko, or a file `reason` that says why not."""

    def make(into):
        try:
            build_siw(into, version(kernel_directory()))
        except LabError as error:
            say(f"siw.ko could not be built: {error}")
            for left in into.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            (into / "reason").write_text(f"siw.ko could not be built: {error}\n")

    return make


def build_siw(into, kernel_version):
    suite = Suite(KERNEL_SUITE)
    base = kernel_version[:-len(f"-{ARCHITECTURE}")]
    number = re.match(r"\d+\.\d+", kernel_version).group(0)
    headers = into / "headers"
    suite.unpack([f"linux-headers-{kernel_version}", f"linux-headers-{base}-common",
                  f"linux-kbuild-{base}"], headers)
    tree = headers / "usr/src" / f"linux-headers-{kernel_version}"
    makefile = tree / "Makefile"
    makefile.write_text(makefile.read_text().replace(
        "include /usr/src", f"include {headers.resolve()}/usr/src"))

    source = extract_siw(suite, f"linux-source-{number}", into)
    mend_accept(source / "siw_cm.c")
    say("siw.ko: compiling")
    run(["make", "-s", "-C", tree, f"M={source.resolve()}", "CONFIG_RDMA_SIW=m",
         "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"], SIW_SECONDS_MAX)
    run(["strip", "-g", source / "siw.ko", "-o", into / "siw.ko"])
    for used in (headers, into / "drivers"):
        shutil.rmtree(used)


def extract_siw(suite, package, into):
    """The sources of siw alone out of the package with all of the kernel's."""
    debs = into / "source"
    deb = suite.download([package], debs)[0]
    inside = f"{package}/drivers/infiniband/sw/siw"
    pipe = (f"dpkg-deb --fsys-tarfile '{deb}' | tar xO ./usr/src/{package}.tar.xz | xz -dc | "
            f"tar x --strip-components=1 -C '{into}' {inside}")
    run(["bash", "-c", "set -o pipefail; " + pipe], SIW_SECONDS_MAX)
    shutil.rmtree(debs)
    return into / "drivers/infiniband/sw/siw"


def mend_accept(file):
    """siw_accept() replies before it routes the socket's data_ready callback to the queue pair.

    Data that come in between (a slow first accept, a fast peer) raise no second callback, and the
    connection hangs. So it is made to look once for such data when the callback is in place.
    """
    lines = pathlib.Path(file).read_text().split("\n")
    established = next((n for n, line in enumerate(lines)
                        if "rv = siw_cm_upcall(cep, IW_CM_EVENT_ESTABLISHED, 0);" in line), None)
    if established is None:
        raise LabError("siw_accept() is not as it was; the mend must be looked at again")
    failed = next(n for n in range(established, len(lines)) if "goto error;" in lines[n])
    lines[failed + 1:failed + 1] = ["\tlock_sock(cep->sock->sk);",
                                    "\tcep->sock->sk->sk_data_ready(cep->sock->sk);",
                                    "\trelease_sock(cep->sock->sk);"]
    pathlib.Path(file).write_text("\n".join(lines))
