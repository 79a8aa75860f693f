"""Counts the instructions of the emulated product of E4M3, by part, in the machine code for sm_90.

Usage: count_instructions.py CUOBJDUMP OBJECT [MOST]
OBJECT: gemm_emulated.cu.o of a build. A step of 32 terms is followed on the shortest way that runs both its loops and
calls nothing: no NaN, no promotion. Exits 1 if a product has more than MOST instructions.
"""

import collections
import re
import subprocess
import sys

TERMS = 32
ROWS, COLUMNS, THREADS = 64, 128, 128  # of a block, as in gemm_e4m3_kernel.cuh
OUTPUTS = ROWS * COLUMNS // THREADS  # of a thread
PRODUCTS = TERMS * OUTPUTS


def instructions(cuobjdump, path):
    said = subprocess.run([cuobjdump, "--dump-sass", "-arch", "sm_90", path], capture_output=True, text=True, check=True).stdout
    function, found = "", []
    for line in said.splitlines():
        if named := re.search(r"Function : (\S+)", line):
            function = named[1]
        one = re.match(r"\s+/\*([0-9a-f]{4,5})\*/\s+(@!?U?P\d\s+)?(.*?);", line)
        if one and "multiply_e4m3" in function and "ILi32E" in function:
            found.append((int(one[1], 16), one[2] is not None, one[3]))
    return found


def shortest(code, loops, begin, end):
    """Instructions from `begin` to `end`, through every loop once; all as places in `code`."""
    at = {address: place for place, (address, _, _) in enumerate(code)}
    wanted = (1 << len(loops)) - 1
    queue, seen = collections.deque([(begin, 0, 1)]), set()
    while queue:
        place, through, steps = queue.popleft()
        for bit, (_, last) in enumerate(loops):
            through |= (place == last) << bit
        if place == end and through == wanted:
            return steps
        if (place, through) in seen:
            continue
        seen.add((place, through))
        _, conditional, text = code[place]
        target = re.match(r"BRA\S*\s.*?(0x[0-9a-f]+)", text)
        ends = text.startswith(("EXIT", "CALL", "RET", "BRX", "JMP"))
        if target and int(target[1], 16) in at:
            queue.append((at[int(target[1], 16)], through, steps + 1))
        if conditional or not (target or ends):
            queue.append((place + 1, through, steps + 1))
    raise SystemExit("no way through a step without a call")


def main():
    code = instructions(*sys.argv[1:3])
    loops = []
    for last, (address, _, text) in enumerate(code):
        target = re.match(r"BRA\S*\s.*?(0x[0-9a-f]+)", text)
        if target and int(target[1], 16) < address:
            first = next(i for i, (at, _, _) in enumerate(code) if at == int(target[1], 16))
            loops.append((first, last))

    def count(loop, name):
        return sum(text.startswith(name) for _, _, text in code[loop[0] : loop[1] + 1])

    step = max((loop for loop in loops if count(loop, "FFMA.RZ")), key=lambda loop: loop[1] - loop[0])
    # Half of a thread's rows each: four terms at a time.
    halves = [loop for loop in loops if step[0] < loop[0] and loop[1] < step[1] and count(loop, "FFMA.RZ")]
    assert len(halves) == 2 and all(count(loop, "FFMA.RZ") == 4 * OUTPUTS // 2 for loop in halves), halves
    split = next(place for place in range(step[0], step[1]) if code[place][2].startswith("BAR")) - step[0]
    powers = halves[0][0] - step[0] - split
    rest = shortest(code, halves, *step) - sum(loop[1] - loop[0] + 1 for loop in halves) - split - powers
    sums = sum(loop[1] - loop[0] + 1 for loop in halves) * TERMS // 4
    fmas = TERMS * OUTPUTS
    total = sums + split + powers + rest
    for what, number in (("FMAs", fmas), ("their loads, and lost units", sums - fmas), ("splitting", split), ("exponents and begins", powers),
                         ("ends of steps", rest), ("in all", total)):
        print(f"{what}: {number / PRODUCTS:.2f} instructions a product")
    return int(len(sys.argv) > 3 and total / PRODUCTS > float(sys.argv[3]))


sys.exit(main())
