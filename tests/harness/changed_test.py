"""`.ci/changed.py` in repositories made here: what counts as a change, and what it has looked at.

Usage: changed_test.py PATH_OF_CHANGED_PY
"""

import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(sys.argv[1]).resolve()
HOUR = 3600
NOW = 1_700_000_000
failures = 0


def git(root, *arguments, when=NOW):
    date = f"{when} +0000"
    environment = os.environ | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=root, env=environment, check=True, capture_output=True)


def commit(root, when, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} {when}\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "a change", when=when)


def asked(root, *arguments, code=0, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "FP8LAB_BASE"} | variables
    done = subprocess.run([sys.executable, SCRIPT, *arguments], cwd=root, env=environment, capture_output=True, text=True)
    check(done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stderr}")
    return done.stdout.split() if code == 0 else done.stderr


def check(holds, what):
    global failures
    if not holds:
        failures += 1
        print("FAILED:", what)


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "main"
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        rooms = ("cast", "gemm", "io", "scaling", "verify", "experiments")
        old = [f"tests/{room}/x_test.cpp" for room in rooms] + ["lib/fp8lab/cast/old.cpp", "README.md"]
        old += [f"tests/verify/{i}_test.cpp" for i in range(139)]  # too many beside others
        commit(root, NOW - 30 * HOUR, *old)
        check(set(asked(root, "files")) == set(old), "a young history changes everything")
        commit(root, NOW - 20 * HOUR, "lib/fp8lab/gemm/older.cpp")
        commit(root, NOW - 2 * HOUR, "lib/fp8lab/io/npy.cpp")
        commit(root, NOW, "lib/fp8lab/scaling/rule.cpp")
        new = ["lib/fp8lab/scaling/rule.cpp", "lib/fp8lab/io/npy.cpp"]
        check(asked(root, "files") == new, f"the last twelve hours, the newest first: {asked(root, 'files')}")
        check(asked(root, "files", FP8LAB_BASE="HEAD~1") == new[:1], "from FP8LAB_BASE")
        check("expected a commit" in asked(root, "files", code=1, FP8LAB_BASE="nothing"), "a base that is none")
        found = asked(root, "rooms")
        check(found == ["io", "scaling"], f"the rooms of the change: {found}")
        commit(root, NOW, "lib/fp8lab/verify/new.cpp")
        found = asked(root, "rooms")
        check(found == ["verify"], f"the newest room is taken whatever it needs, and no other fits: {found}")
        git(root, "reset", "-q", "--hard", "HEAD~1")
        commit(root, NOW, "experiments/one/experiment.cpp")
        found = asked(root, "rooms")
        check({"io", "scaling"} <= set(found) and "experiments" not in found, f"beside others it is left out: {found}")
        found = asked(root, "rooms", FP8LAB_BASE="HEAD~1")
        check("experiments" in found, f"alone it is taken: {found}")
        commit(root, NOW, "lib/training/gemm/a.cpp")
        found = asked(root, "rooms", FP8LAB_BASE="HEAD~1")
        check(found == ["gemm"], f"a room of another library: {found}")
        git(root, "reset", "-q", "--hard", "HEAD~1")
        git(root, "reset", "-q", "--hard", "HEAD~1")

        # Long tests of what the change touches run, others do not, whoever asks and however often.
        left = asked(root, "tests")
        check(left == asked(root, "tests"), "the same change has other tests when asked again")
        check(not {"recipes_oracle", "lost_output"} & set(left), f"a test of what changed is left out: {left}")
        check({"report_plots", "notebooks", "mpi_sweep"} <= set(left), f"a test of what did not change runs: {left}")

        # A clone of main is main; a branch is what was done since it left.
        clone = pathlib.Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", root, clone], check=True)
        check(asked(clone, "files") == new, "a clone of main")
        commit(clone, NOW + HOUR, "lib/fp8lab/cast/new.cpp")
        (clone / "untracked.cpp").write_text("\n")
        check(asked(clone, "files") == ["untracked.cpp", "lib/fp8lab/cast/new.cpp"],
              f"a branch, and what is not committed: {asked(clone, 'files')}")
        (clone / "README.md").write_text("changed\n")
        git(clone, "rm", "-q", "lib/fp8lab/cast/old.cpp")
        check("README.md" in asked(clone, "files") and "lib/fp8lab/cast/old.cpp" not in asked(clone, "files"),
              "edited files count, deleted ones do not")
        shallow = pathlib.Path(folder) / "shallow"
        subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{root}", shallow], check=True)
        check(len(asked(shallow, "files")) == len(old) + 3, "a shallow clone changes everything")
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
