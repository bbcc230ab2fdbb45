"""The guest's kernel: Debian's, and the software RNICs: siw, which Debian does not build, and rxe,
each with repairs."""

import pathlib
import re
import shutil
import subprocess

from archive import Suite, write_packages
from programs import find, run
from settings import ARCHITECTURE, KERNEL_SUITE, LabError, say

COMPRESSIONS = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\x00", "xz"))
MODULES_SECONDS_MAX = 600


def version(directory):
    return (directory / "version").read_text().strip()


def make_kernel(suite_name):
    """Returns the maker of a kernel's stage: version, vmlinux (an uncompressed ELF file),
    lib/modules."""

    def make(into):
        suite = Suite(suite_name)
        package = suite.dependency(f"linux-image-{ARCHITECTURE}", r"linux-image-\S+")
        name = package[len("linux-image-"):]
        unpacked = into / "unpacked"
        write_packages(into, suite, suite.unpack([package], unpacked))
        (into / "version").write_text(name + "\n")
        image = next(unpacked.glob("boot/vmlinuz-*"))
        (into / "vmlinux").write_bytes(uncompressed(image.read_bytes()))
        modules = next(path for path in (unpacked / "lib/modules", unpacked / "usr/lib/modules")
                       if path.is_dir())
        (into / "lib").mkdir()
        modules.rename(into / "lib" / "modules")
        shutil.rmtree(unpacked)

    return make


def uncompressed(image):
    """The ELF kernel inside a bzImage: QEMU boots it through PVH, without unpacking in the guest
    (1 s less under emulation)."""
    for magic, program in COMPRESSIONS:
        at = image.find(magic)
        while at >= 0:
            # What follows the kernel makes the program complain; what it wrote until then counts.
            out = subprocess.run([find(program), "-dcq"], input=image[at:], capture_output=True,
                                 check=False, timeout=120).stdout
            if out[:4] == b"\x7fELF":
                return out
            at = image.find(magic, at + 1)
    raise LabError("no compressed ELF kernel in Debian's image; the recipe must learn another form")


def make_rnics(kernel_directory):
    """Returns the maker of the rnics stage: siw.ko and rdma_rxe.ko, or a file `reason` that says
    why not."""

    def make(into):
        try:
            build_rnics(into, version(kernel_directory()))
        except LabError as error:
            reason = f"the software RNICs could not be built: {error}"
            say(reason)
            for left in into.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            (into / "reason").write_text(reason + "\n")

    return make


def build_rnics(into, kernel_version):
    suite = Suite(KERNEL_SUITE)
    base = kernel_version[:-len(f"-{ARCHITECTURE}")]
    number = re.match(r"\d+\.\d+", kernel_version).group(0)
    headers = into / "headers"
    files = suite.unpack([f"linux-headers-{kernel_version}", f"linux-headers-{base}-common",
                          f"linux-kbuild-{base}"], headers)
    tree = headers / "usr/src" / f"linux-headers-{kernel_version}"
    makefile = tree / "Makefile"
    makefile.write_text(makefile.read_text().replace(
        "include /usr/src", f"include {headers.resolve()}/usr/src"))

    sources, deb = extract_rnics(suite, f"linux-source-{number}", into)
    write_packages(into, suite, files + [deb])
    mend_accept(sources / "siw/siw_cm.c")
    mend_retry(sources / "rxe/rxe_req.c")
    mend_removal(sources)
    for directory, module, option in (("siw", "siw.ko", "CONFIG_RDMA_SIW=m"),
                                      ("rxe", "rdma_rxe.ko", "CONFIG_RDMA_RXE=m")):
        say(f"{module}: compiling")
        source = (sources / directory).resolve()
        run(["make", "-s", "-C", tree, f"M={source}", option, "CONFIG_DEBUG_INFO_BTF_MODULES=",
             "modules"], MODULES_SECONDS_MAX)
        run(["strip", "-g", source / module, "-o", into / module])
    for used in (headers, into / "drivers"):
        shutil.rmtree(used)


def extract_rnics(suite, package, into):
    """The sources of the software RNICs alone out of the package with all of the kernel's; returns
    them, and the name of the package's file."""
    debs = into / "source"
    deb = suite.download([package], debs)[0]
    inside = f"{package}/drivers/infiniband/sw"
    pipe = (f"dpkg-deb --fsys-tarfile '{deb}' | tar xO ./usr/src/{package}.tar.xz | xz -dc | "
            f"tar x --strip-components=1 -C '{into}' {inside}")
    run(["bash", "-c", "set -o pipefail; " + pipe], MODULES_SECONDS_MAX)
    shutil.rmtree(debs)
    return into / "drivers/infiniband/sw", deb.name


def mend_accept(file):
    """siw_accept() replies before it routes the socket's data_ready callback to the queue pair.

    Data that come in between (a slow first accept, a fast peer) raise no second callback, and the
    connection hangs. So it is made to look once for such data when the callback is in place.
    """
    lines = pathlib.Path(file).read_text().split("\n")
    established = next((n for n, line in enumerate(lines)
                        if "rv = siw_cm_upcall(cep, IW_CM_EVENT_ESTABLISHED, 0);" in line), None)
    if established is None:
        raise LabError("siw_accept() is not as it was; the repair must be looked at again")
    failed = next(n for n in range(established, len(lines)) if "goto error;" in lines[n])
    lines[failed + 1:failed + 1] = ["\tlock_sock(cep->sock->sk);",
                                    "\tcep->sock->sk->sk_data_ready(cep->sock->sk);",
                                    "\trelease_sock(cep->sock->sk);"]
    pathlib.Path(file).write_text("\n".join(lines))


def mend_retry(file):
    """req_retry() gives each request its address again, but 0 to FLUSH and ATOMIC WRITE.

    So one lost packet ends the connection: the responder refuses access at address 0.
    """
    text = pathlib.Path(file).read_text()
    before = "(mask & WR_READ_OR_WRITE_MASK) ?"
    if text.count(before) != 1 or "WR_ATOMIC_WRITE_MASK" in text:
        raise LabError("req_retry() is not as it was; the repair must be looked at again")
    after = "(mask & (WR_READ_OR_WRITE_MASK | WR_FLUSH_MASK | WR_ATOMIC_WRITE_MASK)) ?"
    pathlib.Path(file).write_text(text.replace(before, after))


def mend_removal(sources):
    """Both are removed only when no program has them open: `rdma link delete` waits. They learn to
    part from their users as RNICs do (disassociate_ucontext).

    rxe's queues outlive it then, mapped by the program: what unmaps one must not ask the context
    whose it was, unless it is on the list of what is still to be mapped.
    """
    for file, name, table in ((sources / "rxe/rxe_verbs.c", "rxe", "rxe_dev_ops"),
                              (sources / "siw/siw_main.c", "siw", "siw_device_ops")):
        operations = f"static const struct ib_device_ops {table} = {{\n"
        replace_once(file, operations,
                     f"static void {name}_disassociate_ucontext(struct ib_ucontext *context)\n"
                     "{\n}\n\n"
                     f"{operations}\t.disassociate_ucontext = {name}_disassociate_ucontext,\n")
    file = sources / "rxe/rxe_mmap.c"
    replace_once(file, "\tstruct rxe_dev *rxe = to_rdev(ip->context->device);\n\n"
                 "\tspin_lock_bh(&rxe->pending_lock);\n\n"
                 "\tif (!list_empty(&ip->pending_mmaps))\n"
                 "\t\tlist_del(&ip->pending_mmaps);\n\n"
                 "\tspin_unlock_bh(&rxe->pending_lock);\n",
                 "\n\tif (!list_empty(&ip->pending_mmaps)) {\n"
                 "\t\tstruct rxe_dev *rxe = to_rdev(ip->context->device);\n\n"
                 "\t\tspin_lock_bh(&rxe->pending_lock);\n"
                 "\t\tlist_del(&ip->pending_mmaps);\n"
                 "\t\tspin_unlock_bh(&rxe->pending_lock);\n"
                 "\t}\n")


def replace_once(file, before, after):
    text = pathlib.Path(file).read_text()
    if text.count(before) != 1:
        raise LabError(f"{file} is not as it was; the repair must be looked at again")
    pathlib.Path(file).write_text(text.replace(before, after))
