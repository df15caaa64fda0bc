"""What an executor may not do, whatever runs in it: limits that the operating system sets before any user's byte is read.

Linux only. What cannot be set here is told in words by `faults`, which the broker logs at its start.

NOTE [System calls]
After the filter is on, an executor can compute, take memory, start threads of its own and use the descriptors that it was
handed. It cannot open a file, make a socket, start a program or a process, signal or look into another process. So all
that it will ever import must be imported before (`preloading`). What is not on the list fails with EPERM.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import logging
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

logger = logging.getLogger("syft.worker")

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _INSTRUCTION = 22, 2, 8
_SIGKILL = 9
#: What an executor needs beside its user's quota: stacks of threads, arenas of the allocator, torch's own.
HEADROOM = 1 << 30

#: See NOTE [System calls].
_PERMITTED = """
read write readv writev recvmsg sendmsg recvfrom sendto close fstat newfstatat lseek fcntl poll ppoll select pselect6
epoll_wait epoll_pwait epoll_ctl epoll_create1 eventfd2 shutdown getsockopt setsockopt getsockname getpeername
mmap munmap mprotect mremap madvise brk mlock munlock membarrier memfd_create ftruncate msync
futex set_robust_list get_robust_list rseq sched_yield sched_getaffinity sched_setaffinity sched_getparam
sched_getscheduler gettid getpid getppid getuid geteuid getgid getegid set_tid_address
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sigaltstack restart_syscall
nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday times time getrusage getrandom
getcpu uname sysinfo exit exit_group dup pipe2 getrlimit arch_prctl
""".split()
_CLONE_THREAD, _CLONE_VM = 0x00010000, 0x00000800


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def faults() -> list[str]:
    """What of this cannot be done on this machine, in words."""
    found = []
    if not sys.platform.startswith("linux"):
        found.append("this system is not Linux: executors have no limits of their own")
    elif _filter_library() is None:
        found.append(
            "pyseccomp or libseccomp is missing: system calls of executors are not filtered (pip install "
            "'resyft[isolation]', and the package libseccomp2 of the system)"
        )
    elif platform.machine() not in ("x86_64", "aarch64"):
        found.append(f"system calls are not filtered on {platform.machine()}")
    return found


def _filter_library() -> Any:
    try:
        return importlib.import_module("pyseccomp")
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None


def die_with_parent() -> None:
    """End when the process that forked this one ends."""
    _libc().prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def virtual_bytes() -> int:
    """The address space that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def restrict(memory: int, descriptors: int) -> None:
    """Limits on memory (so much more than there is now), descriptors, and what others may see of this process."""
    libc = _libc()
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs could not be set")
    most = virtual_bytes() + memory + HEADROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class _Program(ctypes.Structure):
    """`struct sock_fprog`: a filter, as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def compiled_filter() -> bytes | None:
    """The filter of NOTE [System calls] as a program for the kernel; None where there is none. It takes 10 ms: once."""
    library = _filter_library()
    if library is None or platform.machine() not in ("x86_64", "aarch64"):
        return None
    rules = library.SyscallFilter(defaction=library.ERRNO(errno.EPERM))
    for name in _PERMITTED:
        try:
            rules.add_rule(library.ALLOW, name)
        except (OSError, RuntimeError, ValueError, KeyError):
            continue  # there is no such call on this machine
    threads = _CLONE_THREAD | _CLONE_VM
    rules.add_rule(library.ALLOW, "clone", library.Arg(0, library.MASKED_EQ, threads, threads))
    # The flags of clone3 lie in memory, where a filter cannot look. The C library then uses clone.
    rules.add_rule(library.ERRNO(errno.ENOSYS), "clone3")
    # Limits can be read, and not raised.
    rules.add_rule(library.ALLOW, "prlimit64", library.Arg(2, library.EQ, 0))
    for operation in (15, 16):  # the name of a thread
        rules.add_rule(library.ALLOW, "prctl", library.Arg(0, library.EQ, operation))
    with os.fdopen(os.memfd_create("filter"), "w+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def filter_system_calls(program: bytes) -> None:
    """From now on, for this thread and those that it starts. !! OSError"""
    taken = _Program(len(program) // _INSTRUCTION, program)
    if _libc().prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(taken), 0, 0):
        raise OSError(ctypes.get_errno(), "The filter of system calls could not be set")
