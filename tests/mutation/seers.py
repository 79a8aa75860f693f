"""What can see a fault: each unit test, each transcript, each experiment's kept tables, and the other tests of commands.

A seer is a command that ends with 0 where nothing is wrong. All faults stand in one build: PLANTED=N switches fault N on, and
PLANTED_REACH names a file of a byte a fault, which a process sets where it comes by. So every seer runs once without a fault,
and a fault is then shown to those that reach it alone, the quickest first.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mutate

MOST_FAULTS = 4096
# In the copy alone. A fault may be asked for before main() and in any thread.
PLANTED = f"""#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace fp8lab {{
inline volatile unsigned char* reached_faults() {{
  static unsigned char nowhere[{MOST_FAULTS}];
  const char* name = std::getenv("PLANTED_REACH");
  if (name == nullptr) return nowhere;
  const int file = ::open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0 || ::ftruncate(file, {MOST_FAULTS}) != 0) std::abort();
  void* bytes = ::mmap(nullptr, {MOST_FAULTS}, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (bytes == MAP_FAILED) std::abort();
  return static_cast<unsigned char*>(bytes);
}}

inline bool fault(int number) {{
  static const int planted = std::getenv("PLANTED") != nullptr ? std::atoi(std::getenv("PLANTED")) : 0;
  static volatile unsigned char* const reached = reached_faults();
  if (reached[number] == 0) reached[number] = 1;
  return planted == number;
}}
}}  // namespace fp8lab
using fp8lab::fault;
"""
# Tests of ctest that stand here one by one, look at no built program, take long for little, or need what is not built.
NOT_ASKED = re.compile(
    r"unit|unit_long|exhaustive|exhaustive_cuda_header|silicon|transcripts|(experiments|claims)_reproducible|report_(plots|browser)|"
    r"python_package|notebooks|install|readme_.*|docs_.*|rooms|messages|mutation_list|what_a_change_is|skips_are_honest|"
    r"explorer_.*|mpi_.*|backward_mutants|verify_speed|systems.*|triton_.*|claim_verdicts|numpy_draws|fuzz_.*|toml_.*|cuda_.*")
PASSED = {0, 77}  # or skipped


class Seer:
    def __init__(self, name, command, folder, environment=()):
        self.name, self.command, self.folder, self.environment = name, command, folder, dict(environment)
        self.seconds, self.reached = 0.0, set()

    def run(self, limit=None, **more):
        """The exit code; none where it is not done within the limit."""
        try:
            done = subprocess.run([str(word) for word in self.command], cwd=self.folder, timeout=limit, check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  env={**os.environ, **self.environment, **more})
        except subprocess.TimeoutExpired:
            return None
        if b"No tests ran" in done.stdout:
            sys.exit(f"no test is called {self.name!r}")
        return done.returncode

    def learn(self):
        """Which faults it reaches, and how long it takes. Returns the exit code."""
        with tempfile.TemporaryDirectory() as folder:
            bytes_of = Path(folder) / "reached"
            start = time.monotonic()
            code = self.run(PLANTED_REACH=str(bytes_of))
            self.seconds = time.monotonic() - start
            if bytes_of.exists():
                self.reached = {number for number, byte in enumerate(bytes_of.read_bytes()) if byte}
        return code

    def sees(self, fault):
        return self.run(60 + 10 * self.seconds, PLANTED=str(fault)) not in PASSED


def quoted(name):
    """A filter for this test alone: Catch2 takes a comma for "or", inside quotes too."""
    return '"' + re.sub(r'([\\",])', r"\\\1", name) + '"'


def every(tree):
    """The seers of a build."""
    build, tests = tree / "build", tree / "tests"
    listed = mutate.run([build / "fp8lab_tests", "--list-test-names-only", mutate.LEFT_OUT + "~[cuda-header]"]).stdout
    for name in filter(None, listed.splitlines()):
        yield Seer(name, [build / "fp8lab_tests", quoted(name)], build / "tests")
    for path in sorted((tests / "cli" / "transcripts").glob("*.txt")):
        yield Seer(f"transcript {path.stem}", [sys.executable, tests / "cli" / "transcripts.py", build / "fp8lab", path.stem], tree)
    for path in sorted((tests / "experiment" / "tables").iterdir()):
        yield Seer(f"kept tables of {path.name}", mutate.tables_of(path.name, tree), tree)
    for test in json.loads(mutate.run(["ctest", "--test-dir", build, "--show-only=json-v1"]).stdout)["tests"]:
        properties = {each["name"]: each["value"] for each in test["properties"]}
        if "command" in test and not NOT_ASKED.fullmatch(test["name"]):
            yield Seer(test["name"], test["command"], properties["WORKING_DIRECTORY"],
                       (setting.split("=", 1) for setting in properties.get("ENVIRONMENT", [])))


def learned(tree):
    """The seers that pass without a fault, the quickest first."""
    seers = list(every(tree))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        codes = list(threads.map(Seer.learn, seers))
    for seer, code in zip(seers, codes):
        if code not in PASSED:
            print(f"fails without a fault: {seer.name}", flush=True)
    return sorted((seer for seer, code in zip(seers, codes) if code == 0), key=lambda seer: seer.seconds)


def first_that_sees(fault, seers):
    """Its name; nothing where none does; and how many reach the fault."""
    reaching = [seer for seer in seers if fault in seer.reached]
    return next((seer.name for seer in reaching if seer.sees(fault)), ""), len(reaching)


def show(faults, seers, name_of):
    """Prints what sees each fault. Returns those that nothing sees."""
    lived = []
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for fault, (name, reaching) in zip(faults, threads.map(lambda fault: first_that_sees(fault, seers), faults)):
            print(f"{name_of(fault)}: {name or f'NOT SEEN, {reaching} tests come by'}", flush=True)
            lived += [] if name else [fault]
    return lived
