"""No skipped test hides a failure: planted failures, and recordings that are wrong or missing.

Usage: skip_test.py PATH_OF_FP8LAB_TESTS BUILD GOLDEN    (GOLDEN: tests/golden)
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TESTS, BUILD, GOLDEN = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
HERE = pathlib.Path(__file__).resolve().parent
failures = 0


def check(holds, what):
    global failures
    if not holds:
        failures += 1
        print("FAILED:", what)


def run(command, variables=None):
    environment = {k: v for k, v in os.environ.items() if k not in ("FP8LAB_SILICON_DIR", "CI")}
    done = subprocess.run(list(map(str, command)), env=environment | (variables or {}), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def expect(code, command, *texts, **variables):
    got, said = run(command, variables)
    check(got == code, f"{command} {variables}: expected exit code {code}, got {got}:\n{said}")
    for text in texts:
        check(text in said, f"{command} {variables}: expected '{text}', got:\n{said}")
    return said


def planted():
    """Exit codes of the program of tests."""
    expect(0, [TESTS, "planted: passes"])
    expect(77, [TESTS, "planted: skipped"], "SKIPPED: on purpose")
    expect(77, [TESTS, "planted: skipped,planted: passes"])
    expect(1, [TESTS, "planted: skipped*"], "FAILED")
    expect(1, [TESTS, "planted: as many failures*"], "77 failed")
    expect(1, [TESTS, "planted: checks nothing"])
    expect(1, [TESTS, "there is no such test"])
    expect(2, [TESTS, "--no-such-option"])
    expect(2, [TESTS, "\"planted: passes, or not\""], "Invalid Filter")
    expect(0, [TESTS, "--list-tests", "planted: passes"])


def drawn():
    """What the draws of test cases run and say."""
    script = [sys.executable, HERE / "drawn.py", TESTS]
    expect(0, [*script, "planted: passes"], "1 of 1 test cases ran")
    expect(1, [*script, "planted: as many failures*"], "77 failed", "FAILED")
    expect(2, [*script, "there is no such test"], "no test matches")
    everything = expect(0, [*script, "[metrics]", "--one-in", "3"], FP8LAB_SWEEP_SHARE="1")
    count = int(everything.split(" of ")[0])
    check(count > 3, f"all run without a share: {everything}")
    expect(0, [*script, "[metrics]", "--one-in", "3"], f"{-(-count // 3)} of {count} test cases ran, FP8LAB_SEED=5",
           FP8LAB_SWEEP_SHARE="128", FP8LAB_SEED="5")
    said = expect(0, [*script, "[metrics]", "--seconds", "0"], FP8LAB_SEED="5")
    ran, in_all = map(int, said.split(" test cases")[0].split(" of "))
    check(0 < ran < in_all, f"no case starts after the time: {said}")


def wrong_row(folder):
    """The kept recordings, one bit of the first one's first output changed."""
    shutil.copytree(GOLDEN / "silicon", folder)
    path = sorted(folder.glob("*.txt"))[0]
    lines = path.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    lines[first] = lines[first][:-1] + ("1" if lines[first][-1] == "0" else "0")
    path.chmod(0o644)
    path.write_text("\n".join(lines) + "\n")
    return path.name


def recordings(root):
    """What [silicon] does with each kind of folder, and what CTest makes of it."""
    changed = wrong_row(root / "wrong")
    (root / "empty").mkdir()
    (root / "text").mkdir()
    (root / "text" / "a.txt").write_text("no vectors\n")
    (root / "model").mkdir()
    (root / "model" / "a.txt").write_text(
        "# fp8lab vectors 1\n# model: sm1.mma.e4m3\n# input: e4m3\n# terms: 1\n38 38 00000000 3f800000\n")
    # CTest in a folder of its own: the one that runs this test keeps its logs in BUILD.
    (root / "CTestTestfile.cmake").write_text(f'subdirs("{BUILD.as_posix()}/tests")\n')
    ctest = ["ctest", "--test-dir", root, "-R", "^silicon$", "--output-on-failure"]

    expect(77, [TESTS, "[silicon]"], "SKIPPED: FP8LAB_SILICON_DIR")
    expect(0, ctest, "***Skipped")
    expect(1, [TESTS, "[silicon]"], "FP8LAB_SILICON_DIR: expected a folder", CI="true")
    expect(8, ctest, "***Failed", CI="true")
    for name, text in (("empty", "vector files (*.txt)"), ("nowhere", "vector files (*.txt)"), ("text", "a.txt"),
                       ("model", "sm1.mma.e4m3"), ("wrong", changed)):
        folder = str(root / name)
        expect(1, [TESTS, "[silicon]"], text, FP8LAB_SILICON_DIR=folder)
        expect(8, ctest, "***Failed", FP8LAB_SILICON_DIR=folder)
    expect(0, [TESTS, "[silicon]"], FP8LAB_SILICON_DIR=str(GOLDEN / "silicon"))
    said = expect(0, ctest, "Passed", FP8LAB_SILICON_DIR=str(GOLDEN / "silicon"))
    check("Skipped" not in said, "recordings are there and the test is skipped")


def listed(root):
    """Only what is listed may be skipped."""
    junit, names = root / "tests.xml", root / "skips.txt"
    junit.write_text(
        '<testsuite><testcase name="a" status="run"/><testcase name="b" status="notrun"><skipped/>'
        "<system-out>SKIPPED: no b</system-out></testcase>"
        '<testcase name="p" status="run"><system-out>SKIPPED [2] ../tests/test_x.py:11: no x</system-out></testcase>'
        "</testsuite>")
    command = [sys.executable, HERE / "skipped.py", junit, names]
    for code, text, said in ((0, "b why\np/test_x.py why\n", "skipped: b: why"), (1, "b why\n", "p/test_x.py was skipped: no x"),
                             (1, "p/test_x.py why\n", "b was skipped: SKIPPED: no b"),
                             (1, "b why\np/test_x.py why\nc why\n", "c is listed, but no test"),
                             (1, "b\np/test_x.py why\n", "expected a name and a reason")):  # fmt: skip
        names.write_text("# a comment\n" + text)
        expect(code, command, said)
    junit.write_text("<testsuite/>")
    names.write_text("")
    expect(1, command, "no test ran")


def main():
    planted()
    drawn()
    with tempfile.TemporaryDirectory() as folder:
        recordings(pathlib.Path(folder))
        listed(pathlib.Path(folder))
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
