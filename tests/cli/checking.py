"""What the tests of commands share: they run the tool, count what fails, and end with the count."""

import subprocess
import sys

TOOL = sys.argv[1]
_failed = []


def check(what, condition, seen=""):
    if not condition:
        _failed.append(what)
        print(f"FAILED: {what}\n{seen}")


def run(*arguments, tool=TOOL, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 300, **options}
    return subprocess.run([tool, *map(str, arguments)], **options)


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
