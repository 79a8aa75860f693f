"""Compares `torch._scaled_mm` on this machine's GPU with `fp8lab.torch.scaled_mm`, on the GPU and the CPU.

usage: scaled_mm_on_gpu.py [--platform h100] [--table cublaslt.csv] [--shapes 256x512x1024,...]

For each call one line: the share of outputs with equal bits, and that of the first rows computed on
the CPU. Where the chip differs, the nearest of some other ways to sum is named: another promotion,
order of scales or split of k. Needs a build with CUDA.
"""

import argparse
import itertools
import time

import torch
import torch.nn.functional as F

import fp8lab.torch
from fp8lab._registry import find_model
from fp8lab.torch import _device, _device_mm
from fp8lab.torch._observed import part_ranges
from fp8lab.torch._platforms import FORMAT_OF, find_platform

SHAPES = "256x512x1024,128x4096x4096,16x4096x11008,16x1024x16384,1024x1024x1008,2048x4096x4096,4096x4096x1024"
ORDERS = ("product_then_fma", "b_then_fma_a", "a_then_fma_b", "product_then_add", "a_then_b_then_add")
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", E4M3: "e4m3", E5M2: "e5m2"}


def bits(x):
    return x.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])


def share(x, y):
    """Of equal bits, in percent; all of them alone are 100."""
    equal = int((bits(x) == bits(y)).sum())
    return 100.0 if equal == x.numel() else min(100 * equal / x.numel(), 99.9999)


def operands(m, n, k, a_dtype=E4M3, b_dtype=E4M3):
    """Normal values scaled into the range, as a cast with a scale of the tensor leaves them."""
    generator = torch.Generator("cuda").manual_seed(m + n + k)
    made = []
    for rows, dtype in ((m, a_dtype), (n, b_dtype)):
        x = torch.randn(rows, k, generator=generator, device="cuda")
        made.append((x * (torch.finfo(dtype).max / x.abs().max())).to(dtype))
    return made[0], made[1].t()


def positive(*shape):
    generator = torch.Generator("cuda").manual_seed(len(shape))
    return torch.rand(*shape, generator=generator, device="cuda") * 2e-3 + 1e-3


def nearest(chip, given, out, theirs, fast):
    """The other way to sum whose bits are the nearest."""
    a, b, *scales, bias = given
    scale_a, scale_b = (s.reshape(-1) for s in scales)
    k = a.shape[1]
    formats = f"{FORMAT_OF[a.dtype]} {FORMAT_OF[b.dtype]} {FORMAT_OF[out]}"
    ways = [(i, order, 1, 128, True) for i, order in itertools.product((0, 64, 128, 256), ORDERS)]
    default = "product_then_fma" if scale_a.numel() == 1 else "b_then_fma_a"
    interval = 0 if fast else chip.slow_promotion
    for parts in (2, 3, 4, 5, 6, 7, 8):
        if parts <= -(-k // 128):
            ways += [(interval, default, parts, 128, whole) for whole in (True, False)]
    best = (-1.0, "")
    for interval, order, parts, tile, contiguous in ways:
        ranges = part_ranges(k, parts, tile, contiguous)
        chain = _device_mm.Chain(interval, order, [r for r in ranges if r], "serial")
        try:
            d = _device_mm.scaled_mm(
                chip, a.view(torch.uint8), b.view(torch.uint8).t(), scale_a, scale_b,
                bias=bias, scale_result=None, formats=formats, chain=chain,
            )
        except ValueError:
            continue
        cut = f", {parts} {'neighbouring' if contiguous else 'dealt'} parts" if parts > 1 else ""
        best = max(best, (share(d.view(out), theirs), f"promotion {interval}, {order}{cut}"))
        if best[0] == 100:
            break
    return f"nearest {best[0]:.4f} %: {best[1]}"


def nearest_of_tiles(chip, a, b, scales, square, out, theirs):
    """The order of scales of tiles whose bits are the nearest."""
    blocks = a.shape[1] // 128
    values = scales[0], scales[1][:blocks].t() if square else scales[1]
    left, right = (_device.DeviceScales(x, rows, 128) for x, rows in zip(values, (1, 128 if square else 1)))
    best = (-1.0, "")
    for order in ORDERS:
        d = _device.product(
            a.view(torch.uint8), b.view(torch.uint8).t(), formats=("e4m3fn", "e4m3fn"),
            model=find_model(chip.model).accumulator, promotion_interval=128, scale_order=order,
            scale_a=left, scale_b=right,
        )
        best = max(best, (share(_device_mm._words(d, FORMAT_OF[out]).view(out), theirs), order))
    return f"nearest {best[0]:.4f} %: {best[1]}"


class Table:
    def __init__(self, options):
        self.options = options
        self.lines = []
        self.left = {"equal": 0, "different": 0, "refused": 0}

    def compare(self, what, theirs, ours, on_cpu, explain=None):
        """Runs the calls; an error is a line as well."""
        start = time.monotonic()
        try:
            chip = theirs()
        except Exception as error:
            self.add("refused", f"{what:<64} torch refuses: {str(error).splitlines()[0][:90]}")
            return
        try:
            mine = ours()
            equal = share(mine, chip)
            rows = on_cpu()
            on_host = share(rows, chip[: len(rows)].cpu())
            same = share(rows, mine[: len(rows)].cpu())
            line = f"{what:<64} gpu {equal:8.4f} %  cpu {on_host:8.4f} %"
            if same < 100:
                line += f"  GPU AND CPU OF FP8LAB DIFFER ({same:.4f} % equal)"
            if equal < 100 and explain is not None:
                line += "  " + explain(chip)
            self.add("equal" if equal == 100 and same == 100 else "different", line + f"  {time.monotonic() - start:.1f} s")
        except Exception as error:
            self.add("different", f"{what:<64} fp8lab: {type(error).__name__} {str(error).splitlines()[0][:110]}")

    def add(self, kind, line):
        self.left[kind] += 1
        self.lines.append(line)
        print(line, flush=True)


def first_rows(given, rows=8):
    a, b, *others = (x.cpu() if isinstance(x, torch.Tensor) else x for x in given)
    if others[0].numel() > 1 and others[0].shape[0] == len(a):
        others[0] = others[0][:rows]
    return a[:rows], b, *others


def whole_scales(table, shape, rowwise, out, fast, dtypes=(E4M3, E4M3), bias=None, splitk=1):
    m, n, k = shape
    a, b = operands(m, n, k, *dtypes)
    scales = (positive(m, 1), positive(1, n)) if rowwise else (positive(1).reshape(()), positive(1).reshape(()) * 0.7)
    if out.itemsize == 1:
        scales = tuple(s * 0.1 for s in scales)
    values = None if bias is None else torch.randn(n, device="cuda").to(bias)
    given = (a, b, *scales)
    how = {"bias": values, "out_dtype": out, "use_fast_accum": fast}
    name = f"{m}x{n}x{k} {NAMES[dtypes[0]]}.{NAMES[dtypes[1]]} {'rows' if rowwise else 'tensor'} {NAMES[out]} {'fast' if fast else 'slow'}"
    platform = table.options.platform
    ours = {**how, "platform": platform, "splitk": splitk}
    table.compare(
        name + (" bias" if bias else "") + (" table" if splitk != 1 else ""),
        lambda: torch._scaled_mm(*given, **how),
        lambda: fp8lab.torch.scaled_mm(*given, **ours),
        (lambda: fp8lab.torch.scaled_mm(*first_rows(given), **{**ours, "bias": None if values is None else values.cpu()}))
        if splitk == 1
        else (lambda: fp8lab.torch.scaled_mm(*(x.cpu() for x in given), **ours)[:8])
        if m * n * k < 1 << 32
        else (lambda: fp8lab.torch.scaled_mm(*given, **ours)[:8].cpu()),
        lambda chip: nearest(find_platform(platform), (*given, values), out, chip, fast),
    )


def blocks(table, shape, b_square, out, fast):
    """Scales of 1x128 tiles of A, and of 1x128 or 128x128 tiles of B."""
    m, n, k = shape
    a, b = operands(m, n, k)
    kind = F.ScalingType
    scale_a = positive(k // 128, m).t()
    scale_b = positive(n // 128, -(-k // 512) * 4).t() if b_square else positive(k // 128, n).t()
    of_b = kind.BlockWise128x128 if b_square else kind.BlockWise1x128
    given = (a, b, scale_a, kind.BlockWise1x128, scale_b, of_b)
    how = {"output_dtype": out, "use_fast_accum": fast}
    if hasattr(F, "SwizzleType"):
        how |= {"swizzle_a": F.SwizzleType.NO_SWIZZLE, "swizzle_b": F.SwizzleType.NO_SWIZZLE}

    def rows():
        left = (a[:8].cpu(), b.cpu(), scale_a[:8].cpu().t().contiguous().t(), given[3], scale_b.cpu(), of_b)
        return fp8lab.torch.scaled_mm(*left, **how, platform=table.options.platform)

    table.compare(
        f"{m}x{n}x{k} 1x128.{'128x128' if b_square else '1x128'} {NAMES[out]} {'fast' if fast else 'slow'}",
        lambda: F.scaled_mm(*given, **how),
        lambda: fp8lab.torch.scaled_mm(*given, **how, platform=table.options.platform),
        rows,
        lambda chip: nearest_of_tiles(find_platform(table.options.platform), a, b, (scale_a, scale_b), b_square, out, chip),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", default="h100")
    parser.add_argument("--table", help="what fp8lab-cuda observe wrote here")
    parser.add_argument("--shapes", default=SHAPES)
    table = Table(parser.parse_args())
    if not torch.cuda.is_available():
        parser.error("expected a CUDA device, got none")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}, platform {table.options.platform}")
    shapes = [tuple(map(int, shape.split("x"))) for shape in table.options.shapes.split(",")]
    for shape, rowwise, out, fast in itertools.product(shapes, (False, True), (torch.bfloat16, torch.float32), (True, False)):
        whole_scales(table, shape, rowwise, out, fast)
    small = shapes[0]
    for fast in (True, False):
        whole_scales(table, small, False, torch.float16, fast)
        whole_scales(table, small, False, E4M3, fast)
        for dtypes in ((E4M3, E5M2), (E5M2, E4M3)):
            whole_scales(table, small, False, torch.float32, fast, dtypes)
        for rowwise in (False, True):
            whole_scales(table, small, rowwise, torch.bfloat16, fast, bias=torch.bfloat16)
        for b_square, out in itertools.product((True, False), (torch.bfloat16, torch.float32)):
            blocks(table, small, b_square, out, fast)
    if table.options.table:
        for shape, out, fast in itertools.product(
            ((128, 4096, 4096), (16, 4096, 11008), (128, 4096, 14336)), (torch.bfloat16, torch.float32), (True, False)
        ):
            whole_scales(table, shape, False, out, fast, splitk=table.options.table)
    print("\n" + ", ".join(f"{count} {kind}" for kind, count in table.left.items()))
    return 1 if table.left["different"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
