"""Runs a command in a network of its own, where there is a loopback interface and nobody else; for root as another account.

    alone.py UID GID COMMAND...

The server's suites start servers that ask nobody for a password, and some of them (replication) need ports. In a network
namespace the ports are for this command alone. Root makes one directly, others through a user namespace in which they
stay themselves; where the system allows neither, `possible` says so.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def wrapped(uid: int, gid: int, command: list[str]) -> list[str]:
    """The command line that runs this file."""
    return [sys.executable, str(Path(__file__).resolve()), str(uid), str(gid), *command]


def possible(uid: int, gid: int) -> bool:
    """Whether this machine lets us."""
    return subprocess.run(wrapped(uid, gid, ["true"]), capture_output=True, check=False).returncode == 0


def _leave_network() -> None:
    """Into a network namespace; without root into a user namespace too, as the same user and group."""
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET | (CLONE_NEWUSER if uid else 0)) != 0:
        raise OSError(ctypes.get_errno(), "no network namespace")
    if uid:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _become(uid: int, gid: int) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


if __name__ == "__main__":
    _leave_network()
    _become(int(sys.argv[1]), int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
