"""What the tests of commands share: they run the tool, count what fails, and end with the count."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

TOOL = sys.argv[1]
_failed = []


def check(what, condition, seen=""):
    if not condition:
        _failed.append(what)
        print(f"FAILED: {what}\n{seen}")


def run(*arguments, tool=TOOL, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 300, **options}
    return subprocess.run([tool, *map(str, arguments)], **options)


def on_terminal(*arguments, stream, columns, env=None):
    """The exit code, and what the tool writes to `stream` ("stdout" or "stderr"), which is a terminal; the other goes nowhere."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: its}
    child = subprocess.Popen([TOOL, *map(str, arguments)], env=env, **streams)
    os.close(its)
    text = b""
    try:
        while part := os.read(ours, 1 << 16):
            text += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    return child.wait(), text.decode()


def expect(code, *arguments, stdout=(), stderr=()):
    """Runs the tool, which must end with `code` and print each of the texts."""
    done = run(*arguments)
    missing = [p for p in stdout if p not in done.stdout] + [p for p in stderr if p not in done.stderr]
    check(f"{' '.join(map(str, arguments))}: exit {done.returncode}, expected {code}; missing {missing}",
          done.returncode == code and not missing, done.stdout + done.stderr)
    return done


def finish(what):
    """Ends the test: with 1 if a check failed."""
    print(f"{what}: {len(_failed)} failures" if _failed else f"{what}: all as expected")
    sys.exit(1 if _failed else 0)
