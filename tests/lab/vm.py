"""Machine: one virtual machine under plain emulation: boot, run commands in it, cut its power.

The guest's agent (guest/init) listens on a virtio port whose other end is a socket of ours; a
second port collects what the guest wants to be remembered even if its power is cut right after.
"""

import base64
import contextlib
import ctypes
import itertools
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from settings import (BOOT_SECONDS_MAX, COMMAND_SECONDS_MAX, GUEST_MEMORY_MIB, LOGS, SHARE,
                      LabError)

PR_SET_PDEATHSIG = 1  # prctl(2)
KERNEL_ARGUMENTS = ("console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off tsc=reliable "
                    # A quarter of the time to boot: nobody in the guest needs these.
                    "lsm=capability audit=0 init_on_alloc=0 rcupdate.rcu_expedited=1 "
                    "no_timer_check nokaslr")


class GuestError(LabError):
    """A command in a guest failed, took too long, or its machine is gone."""


class Machine:
    """Threads: one caller at a time. Commands of one machine run one after another."""

    def __init__(self, lab, name, mac, cables=(), nvdimm=None, drive=None, image=None, cpus=1,
                 memory_map="", looks_real=False):
        """cables: to other machines, each as the names of its (own, other) end. image: the stage of
        what it boots, else the guest's usual one. memory_map: what the kernel shall take some of
        its memory for (memmap=). looks_real: its processor does not say that it is a virtual
        one, from which Perdure would conclude what the scenario wants to see found elsewhere."""
        self.lab = lab
        self.name = name
        self.mac = mac
        self.cables = list(cables)
        self.nvdimm = nvdimm
        self.drive = drive
        self.image = image or lab.guest.image
        self.cpus = cpus
        self.memory_map = f"memmap={memory_map}" if memory_map else ""
        self.processor = "max,la57=off" + (",hypervisor=off" if looks_real else "")
        self.output = lab.directory / f"{name}.output"
        self.console = lab.directory / f"{name}.console"
        self.boots = 0
        self.boot_seconds = 0.0
        self._process = None
        self._control = None
        self._received = b""
        self._ids = itertools.count(1)

    # --- power

    def start(self):
        """Switches it on, without waiting for it: several machines boot side by side."""
        assert self._process is None, f"{self.name} runs already"
        ours, theirs = socket.socketpair()
        self._begin = time.monotonic()
        for own, _ in self.cables:
            (self.lab.directory / own).unlink(missing_ok=True)
        command = self._command(theirs.fileno())
        with open(self.lab.directory / f"{self.name}.qemu", "ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.lab.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[theirs.fileno()], start_new_session=True, preexec_fn=die_with_parent)
        theirs.close()
        self._control = ours
        self._received = b""

    def await_ready(self):
        """Raises GuestError when its agent does not answer in time."""
        deadline = self._begin + BOOT_SECONDS_MAX
        while self._line(deadline, "booting") != "@@READY":
            pass
        self.boots += 1
        self.boot_seconds = time.monotonic() - self._begin

    def boot(self):
        self.start()
        self.await_ready()

    def cut_power(self):
        """The machine is gone between two instructions; its NVDIMM keeps what is persistent."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None
        self._control.close()
        self._memory_file().unlink(missing_ok=True)

    def running(self):
        return self._process is not None

    # --- commands

    def run(self, script, seconds=COMMAND_SECONDS_MAX):
        """Runs a shell script in the guest and returns its output. Raises GuestError."""
        status, output = self.try_run(script, seconds)
        if status != 0:
            raise GuestError(f"{self.name}: status {status} of: {script}\n{output[-3000:]}")
        return output

    def try_run(self, script, seconds=COMMAND_SECONDS_MAX):
        """The same, as (status, output); 137: it was killed after so many seconds."""
        number = next(self._ids)
        text = base64.b64encode(script.encode()).decode()
        try:
            self._control.sendall(f"{number} {seconds} {text}\n".encode())
        except OSError as error:
            raise GuestError(f"{self.name} is gone") from error
        deadline = time.monotonic() + 2 * seconds + 30  # the guest's clock may run behind ours
        lines = []
        while True:
            line = self._line(deadline, f"running: {script}")
            if line.startswith(f"@@END {number} "):
                break
            lines.append(line)
        output = "\n".join(lines)  # the agent put a newline before the last line
        return int(line.split()[2]), output

    def _line(self, deadline, doing):
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._control], [], [], left)[0]:
                raise GuestError(f"{self.name}: no answer in time while {doing}\n{self._end()}")
            try:
                chunk = self._control.recv(1 << 16)
            except OSError:
                chunk = b""
            if not chunk:
                raise GuestError(f"{self.name}: ended while {doing}\n{self._end()}")
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def _end(self):
        """The last lines of the console and of QEMU, for errors."""
        text = ""
        for suffix in ("console", "qemu"):
            file = self.lab.directory / f"{self.name}.{suffix}"
            if file.exists():
                text += "".join(file.read_text(errors="replace").splitlines(True)[-8:])
        return text

    # --- QEMU's command line

    def _memory_file(self):
        return self.lab.memory / f"{self.name}.ram"

    def _command(self, control):
        guest = self.lab.guest
        machine = "q35,memory-backend=ram0"
        memory = f"{GUEST_MEMORY_MIB}M"
        command = [str(guest.qemu.directory / "run"), "-accel", "tcg,thread=multi",
                   "-cpu", self.processor, "-smp", str(self.cpus), "-nodefaults",
                   "-no-user-config", "-display", "none", "-no-reboot",
                   "-kernel", str(self.image.directory / "vmlinux"),
                   "-initrd", str(self.image.directory / "initrd"),
                   "-append", f"{KERNEL_ARGUMENTS} lab.name={self.name} {self.memory_map}",
                   "-serial", f"file:{self.console.name}",
                   "-device", "virtio-serial-pci",
                   "-chardev", f"socket,id=control,fd={control}",
                   "-device", "virtserialport,chardev=control,name=lab.control",
                   "-chardev", f"file,id=output,path={self.output.name},append=on",
                   "-device", "virtserialport,chardev=output,name=lab.output",
                   "-object", "rng-random,id=rng0,filename=/dev/urandom",
                   "-device", "virtio-rng-pci,rng=rng0",
                   "-fsdev", f"local,id=share,path={SHARE},security_model=none,multidevs=remap",
                   "-device", "virtio-9p-pci,fsdev=share,mount_tag=share",
                   "-object", f"memory-backend-file,id=ram0,share=on,size={memory},"
                              f"mem-path={self._memory_file()}"]
        command += self._network()
        command += ["-device", f"virtio-net-pci,netdev=net0,mac={self.mac},romfile="]
        if self.drive:
            command += self.drive.arguments()
        if self.nvdimm:
            machine += f",nvdimm=on,nvdimm-persistence={self.nvdimm.qemu_word()}"
            memory += ",slots=2,maxmem=4G"
            command += self.nvdimm.arguments(self._memory_file())
        return command + ["-machine", machine, "-m", memory]

    def _network(self):
        """One network interface; several cables meet in a hub inside of this QEMU."""
        if not self.cables:
            return ["-netdev", "user,id=net0,restrict=on"]
        names = ["net0"] if len(self.cables) == 1 else [f"end{n}" for n in range(len(self.cables))]
        words = []
        for name, (own, other) in zip(names, self.cables):
            words += ["-netdev", f"dgram,id={name},local.type=unix,local.path={own},"
                                 f"remote.type=unix,remote.path={other}"]
            if name != "net0":
                words += ["-netdev", f"hubport,id=hub.{name},hubid=0,netdev={name}"]
        if names != ["net0"]:
            words += ["-netdev", "hubport,id=net0,hubid=0"]
        return words


def die_with_parent(signum=signal.SIGKILL):
    """This process gets the signal when the one that started it is gone, however it went."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signum)


class Lab:
    """The machines of one run, and the directory of their files. `with Lab(guest) as lab:` ends
    every machine, however the block is left."""

    def __init__(self, guest):
        self.guest = guest
        self.machines = []

    def __enter__(self):
        SHARE.mkdir(parents=True, exist_ok=True)
        # Short: a UNIX socket's path has 107 characters at most.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="perdure-lab-"))
        shared = pathlib.Path("/dev/shm")
        self.memory = (pathlib.Path(tempfile.mkdtemp(prefix="perdure-lab-", dir=shared))
                       if os.access(shared, os.W_OK) else self.directory)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, interrupted)
        return self

    def machine(self, name, **options):
        number = len(self.machines) + 1
        machine = Machine(self, name, f"52:54:00:00:00:{number:02x}", **options)
        self.machines.append(machine)
        return machine

    def __exit__(self, kind, value, trace):
        for machine in self.machines:
            machine.cut_power()
        if kind is not None:
            self.keep_logs()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.memory != self.directory:
            shutil.rmtree(self.memory, ignore_errors=True)

    def release(self, *machines):
        """Ends machines that are not needed any more."""
        for machine in machines:
            machine.cut_power()
            self.machines.remove(machine)

    def keep_logs(self):
        """Copies consoles and QEMU's words to build/lab/logs, for people."""
        LOGS.mkdir(parents=True, exist_ok=True)
        for file in self.directory.iterdir():
            if file.suffix in (".console", ".qemu", ".output"):
                with contextlib.suppress(OSError):
                    shutil.copy(file, LOGS)


def interrupted(signum, _frame):
    """A signal that asks to end leaves every `with Lab` block."""
    raise KeyboardInterrupt(f"signal {signum}")
