"""Adds one of each to a copy of the sources, as docs/adding.md says: a kind of unit, a scale rule with a recipe, a named
format, a family of checkpoint layouts and an experiment. Counts the files that each addition touches in the library,
compiles these files, links them in front of a build's libraries, and uses what was added.

Usage: adding.py SOURCE_DIR BUILD_DIR SCRATCH_DIR

Skips with exit code 77 where NumPy is missing (./dev setup).

Additions stand at the end of their lists, so that all that was compiled before still fits.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup)")
    sys.exit(77)

source, build, scratch = (Path(argument).resolve() for argument in sys.argv[1:4])
tree = scratch / "tree"
units, scaling, layouts = "lib/fp8lab/accumulate/", "lib/fp8lab/scaling/", "lib/training/model_files/layouts/"

PAIR_SUM = """#include <bit>
#include <cmath>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/units/steps.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::accumulate_detail {
namespace {

float number(const Unpacked& x) {
  if (!x.is_finite()) return std::bit_cast<float>(kCanonicalNan);
  const float magnitude = std::ldexp(static_cast<float>(x.significand), x.exponent - x.mantissa_bits);
  return x.negative ? -magnitude : magnitude;
}

class PairSum final : public AccumulatorUnit {
 public:
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& /*model*/) const override {
    return {.has_steps = true, .rounds_sums = true, .cut_fraction_bits = 24};
  }
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& /*model*/) const override {
    return {};
  }
  void validate(const AccumulatorModel& m) const override {
    require(m.terms == 2, "terms", "2 (pair_sum)", m.terms);
  }
  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& /*scales*/,
                                  float c) const override {
    for_steps(model, a, [&](auto step) {
      const auto first = static_cast<std::size_t>(step.data() - a.data());
      float pair = 0.0F;
      for (std::size_t i = 0; i < step.size(); ++i) pair += number(step[i]) * number(b[first + i]);
      c += pair;
    });
    return std::isnan(c) ? std::bit_cast<float>(kCanonicalNan) : c;
  }
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override {
    for_steps(model, terms, [&](auto step) {
      sum.error += 2.0 * sum.add_exactly(step) * kFloatStep;
      sum.error += (std::abs(sum.value) + sum.error) * kFloatStep;
    });
  }
};

}  // namespace

const AccumulatorUnit& pair_sum_unit() {
  static const PairSum unit;
  return unit;
}

}  // namespace fp8lab::accumulate_detail
"""

MINE = """#include <array>
#include <nlohmann/json.hpp>

#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

constexpr std::array<Layout, 1> kMineLayouts{{{.name = "mine",
                                               .method = "mine",
                                               .codes = "qcodes",
                                               .scale = "qscales",
                                               .input_scale = "",
                                               .kept_key = "left",
                                               .takes = {true, true, false},
                                               .groups = {},
                                               .source = "tests/adding"}}};
constexpr std::array<StoredNames, 1> kMineNames{{{".qcodes", ".qscales", "", ".weight"}}};

void read_mine(const nlohmann::ordered_json& config, StoredQuantization& stored) {
  read_ignored(config, {"left"}, PatternKind::transformers, stored);
  stored.has_forms = true;
}

constexpr std::array<QuantMethod, 1> kMineMethods{{{"mine", read_mine}}};

class Mine final : public LayoutFamily {
 public:
  [[nodiscard]] std::span<const Layout> layouts() const override { return kMineLayouts; }
  [[nodiscard]] std::span<const QuantMethod> methods() const override { return kMineMethods; }
  [[nodiscard]] std::span<const StoredNames> names() const override { return kMineNames; }
  [[nodiscard]] nlohmann::ordered_json describe(const Layout& layout,
                                                const ModelSchemes& /*schemes*/,
                                                const std::vector<std::string>& kept) const override {
    return {{"quant_method", layout.method}, {"left", kept}};
  }
};

}  // namespace

const LayoutFamily& mine_family() {
  static const Mine kFamily;
  return kFamily;
}

}  // namespace fp8lab
"""

EXPERIMENT = """#include "lab/experiment/experiment.hpp"

#include <cmath>
#include <tuple>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/formats/format.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

struct ShareSettings {
  std::size_t elements = 0;
  std::vector<const Format*> formats;

  static constexpr auto fields() {
    return std::tuple{field("elements", &ShareSettings::elements),
                      field("formats", &ShareSettings::formats, find_format)};
  }
};

struct SharePoint {
  const Format* format = nullptr;
  double share = 0.0;
};

}  // namespace

Results exact_share(const RunContext& context) {
  const auto settings = read_parameters<ShareSettings>(context.parameters);
  const RandomStream random = context.random("elements");
  std::vector<SharePoint> points;
  for (const Format* one : settings.formats) {
    double exact = 0.0;
    for (std::size_t i = 0; i < settings.elements; ++i) {
      const auto x = static_cast<float>(std::round(64.0 * random.normal(i)) / 64.0);
      exact += round_trip(*one, kMlDtypes, x) == static_cast<double>(x) ? 1.0 : 0.0;
    }
    points.push_back({one, exact / static_cast<double>(settings.elements)});
  }
  const Table table = row_table<SharePoint>(
      "shares", "Numbers that a cast leaves alone",
      {{"format", "", "cast into", [](const SharePoint& p) { return p.format->name; }},
       {"share", "1", "of all elements", &SharePoint::share}},
      points);
  return {.tables = {table}, .plots = {}, .heat_maps = {}, .findings = {"A sentence."}};
}

}  // namespace fp8lab::experiments
"""

TOML = """question = "How many numbers does a cast leave alone?"

elements = 1000
formats = ["e4m3fn", "bf16"]

[quick]
elements = 100

[range]
elements = "[1, 100000]"
formats = "1 to 8"
"""

# Text before which an addition stands, or a whole new file.
ADDITIONS = {
    "a kind of unit": (4, {
        units + "model.hpp": ("};\nstd::string_view to_string(AccumulationKind kind);", "  pair_sum,  ///< two products, then their sum with c\n"),
        units + "units/pair_sum.cpp": (None, PAIR_SUM),
        units + "kinds.cpp": [
            ("\n}  // namespace accumulate_detail\nnamespace {", "const AccumulatorUnit& pair_sum_unit();\n"),
            ("};\n\nconstexpr bool in_order()", '    AccumulatorKind{pair_sum, "pair_sum", "", "my.pair", pair_sum_unit},\n'),
        ],
        units + "registry.cpp": [
            ("constexpr auto kModels = ", 'constexpr std::array<InstructionModel, 1> kMine{InstructionModel{"my.pair", FormatId::e4m3fn, FormatId::e4m3fn, {.kind = AccumulationKind::pair_sum, .terms = 2}, from_literature, "tests/adding"}};\n\n'),
            ("));\n\n}  // namespace\n\nstd::span<const InstructionModel> instruction_models()", ", kMine"),
        ],
    }),
    "a scale rule": (2, {
        scaling + "scale_rule.hpp": [
            ("};\n", "  half_amax,  ///< inverse = amax / M / 2: the upper half saturates\n", "enum class ScaleRule"),
            ("  });\n}();\n\nconstexpr const ScaleRuleTraits& traits", '      {.rule = half_amax, .name = "half_amax"},\n'),
        ],
        scaling + "scale_rule.cpp": (
            "    case ScaleRule::te:\n",
            "    case ScaleRule::half_amax:\n      return each([&](float amax) {\n        const float inverse = amax / max_finite_ / 2.0F;\n        return TileScale{1.0F / inverse, inverse, 0};\n      });\n",
        ),
    }),
    "a recipe": (1, {
        scaling + "serving_presets.cpp": ("      plain_static(),\n", '      served("half-amax", per_row(half_amax), per_row(half_amax), ao),\n'),
    }),
    "a named format": (1, {
        "lib/fp8lab/formats/definition.cpp": ("}};\n", '    {"e2m3mine", "float:e=2,m=3,bias=3", "tests/adding"},\n', "kNamed{{"),
    }),
    "a family of layouts": (2, {
        layouts + "mine.cpp": (None, MINE),
        layouts + "family.cpp": [
            ("\nnamespace {", "const LayoutFamily& mine_family();\n"),
            ("};\n  return kFamilies;", ",\n      &mine_family()"),
        ],
    }),
    "an experiment": (3, {
        "experiments/exact-share/experiment.cpp": (None, EXPERIMENT),
        "experiments/exact-share/default.toml": (None, TOML),
        "experiments/exact-share/README.md": (None, "# exact-share\n"),
    }),
}


def insert(text, anchor, addition, behind=""):
    """`text` with the addition before the first anchor that stands behind `behind`."""
    at = text.index(anchor, text.index(behind))
    return text[:at] + addition + text[at:]


def edit(name, change):
    path = tree / name
    if isinstance(change, tuple) and change[0] is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change[1])
        return
    text = path.read_text()
    for one in change if isinstance(change, list) else [change]:
        text = insert(text, *one)
    # An array with its size beside it grows by one.
    if name.endswith("definition.cpp"):
        text = re.sub(r"std::array<NamedFormat, (\d+)> kNamed", lambda m: f"std::array<NamedFormat, {int(m[1]) + 1}> kNamed", text)
    path.write_text(text)


def commands():
    """The command of each source of the build, without its output and the precompiled header."""
    subprocess.run([sys.executable, source / ".ci/lint_commands.py", build], check=True)
    known = {}
    for entry in json.loads((build / "lint/compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        at = arguments.index("-o")
        del arguments[at : at + 2]
        known[str(Path(entry["file"]).resolve())] = arguments
    return known


def compiled(name, known):
    """The object of a source of the changed tree; a new one is compiled as a source beside it is."""
    own = str(source / name)
    folder = str(Path(own).parent)
    like = own if own in known else min(file for file in known if file.startswith((folder, str(Path(folder).parent))))
    path = tree / name
    arguments = [str(path) if one == like else one for one in known[like]]
    # The headers of the changed tree first.
    arguments[1:1] = [f"-I{tree / 'lib'}", f"-I{tree / 'experiments'}", f"-I{tree}"]
    out = scratch / (name.replace("/", "_") + ".o")
    done = subprocess.run([*arguments, "-O1", "-o", str(out)], cwd=build, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name} does not compile:\n{done.stderr[:3000]}")
    return out


def registry_of_experiments():
    """What CMake makes of the folders: the list of experiments with the new one at its end."""
    text = (build / "experiments/registry.cpp").read_text()
    text = insert(text, "Results ", "Results exact_share(const RunContext& context);\n")
    return insert(text, "  };\n  return kExperiments;", f'      {{"exact-share", R"toml({TOML})toml", exact_share}},\n')


def linked(objects):
    """The tool with the new objects in front of the libraries, whose older ones then come second."""
    steps = subprocess.run(["ninja", "-C", build, "-t", "commands", "fp8lab"], check=True, capture_output=True, text=True)
    link = steps.stdout.strip().splitlines()[-1].removeprefix(": && ").removesuffix(" && :")
    arguments = shlex.split(link)
    at = arguments.index("-o")
    tool = scratch / "fp8lab"
    arguments[at + 1] = str(tool)
    first = next(i for i, argument in enumerate(arguments) if argument.endswith(".o"))
    arguments[first:first] = [str(one) for one in objects]
    subprocess.run([*arguments, "-Wl,--allow-multiple-definition"], cwd=build, check=True)
    return tool


def run(tool, *arguments):
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, cwd=scratch)
    if done.returncode:
        sys.exit(f"fp8lab {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def count_files():
    """Makes all additions; what each touches, in the library and the applications."""
    touched = []
    for what, (most, changes) in ADDITIONS.items():
        print(f"{what}: {len(changes)} of at most {most} files: {', '.join(changes)}")
        if len(changes) > most:
            sys.exit(f"{what} touches {len(changes)} files, which is more than {most}")
        for name, change in changes.items():
            edit(name, change)
        touched += changes
    return touched


def pair_sums(a, b):
    """FP32 sums of two products each, then with what was before: the made-up unit in NumPy."""
    total = np.float32(0)
    for first in range(0, len(a), 2):
        total = np.float32(total + np.float32(a[first] * b[first] + a[first + 1] * b[first + 1]))
    return total


def use_unit(tool):
    draws = np.random.default_rng(1)
    # Normal E4M3 numbers: products have 8 bits, sums of two are rounded.
    codes = [draws.integers(0x08, 0x70, (n, 64), dtype=np.uint8) for n in (5, 7)]
    values = [np.ldexp((8 + (c & 7)).astype(np.float32), (c >> 3).astype(np.int32) - 10) for c in codes]
    for name, array in zip("ab", codes):
        np.save(scratch / f"{name}.npy", array)
    expected = np.array([[pair_sums(x, y) for y in values[1]] for x in values[0]], np.float32)
    for model in ("my.pair", "pair_sum"):
        run(tool, "gemm", "a.npy", "b.npy", "--dtype", "e4m3fn", "--model", model, "-o", "d.npy")
        np.testing.assert_array_equal(np.load(scratch / "d.npy"), expected)
    run(tool, "verify", "d.npy", "--inputs", "a.npy", "b.npy", "--dtype", "e4m3fn", "--model", "my.pair")


def floats_of(path):
    """The F32 tensors of a safetensors file by name."""
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    found = {}
    for name, one in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__" or one["dtype"] != "F32":
            continue
        begin, end = one["data_offsets"]
        found[name] = np.frombuffer(data[8 + size + begin : 8 + size + end], np.float32).reshape(one["shape"])
    return found


def use_recipe(tool):
    x = np.random.default_rng(2).standard_normal((4, 96)).astype(np.float32)
    np.save(scratch / "x.npy", x)
    run(tool, "quantize", "x.npy", "--recipe", "half-amax", "-o", "q.safetensors")
    scales = floats_of(scratch / "q.safetensors")["x.scale_inv"]
    expected = np.abs(x).max(1) / np.float32(448) / np.float32(2)
    np.testing.assert_array_equal(scales.reshape(-1), expected)


def use_format(tool):
    table = json.loads(run(tool, "table", "e2m3mine", "--json"))
    values = {row["value"] for row in table["codes"] if isinstance(row["value"], (int, float))}
    assert {0.0, 0.03125, 0.9375} <= values, sorted(values)


def use_layout(tool):
    """A folder in the new layout and back, against code times scale."""
    folder = scratch / "model"
    folder.mkdir(exist_ok=True)
    weight = np.random.default_rng(3).standard_normal((32, 64)).astype(np.float32)
    name = "model.layers.0.mlp.up_proj.weight"
    header = json.dumps({name: {"dtype": "F32", "shape": [32, 64], "data_offsets": [0, weight.nbytes]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + weight.tobytes())
    (folder / "config.json").write_text('{"model_type": "llama", "dtype": "float32"}')
    run(tool, "quantize", folder, "-o", "mine", "--recipe", "half-amax", "--layout", "mine", "--rule", "linear")
    assert json.loads((scratch / "mine/config.json").read_text())["quantization_config"]["quant_method"] == "mine"
    assert b"up_proj.qcodes" in (scratch / "mine/model.safetensors").read_bytes()
    run(tool, "dequantize", "mine", "-o", "again")
    again = floats_of(scratch / "again/model.safetensors")[name]
    limit = np.abs(weight).max(1, keepdims=True) / 2
    error = np.abs(again - np.clip(weight, -limit, limit))
    assert (error <= limit / 16).all() and (error > 0).any(), error.max()


def use_experiment(tool):
    run(tool, "run", "exact-share", "--quick", "--out", "runs")
    rows = [line.split(",") for line in (scratch / "runs/exact-share/shares.csv").read_text().splitlines() if not line.startswith("#")]
    shares = {row[0]: float(row[1]) for row in rows[1:]}
    assert 0 < shares["e4m3fn"] < shares["bf16"] <= 1, shares


def main():
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in ("lib", "experiments"):
        shutil.copytree(source / folder, tree / folder)
    sources = [name for name in count_files() if name.endswith(".cpp")]
    known = commands()
    (tree / "experiments/registry.cpp").write_text(registry_of_experiments())
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda name: compiled(name, known), [*sources, "experiments/registry.cpp"]))
    tool = linked(objects)
    for use in (use_unit, use_recipe, use_format, use_layout, use_experiment):
        use(tool)
        print(f"{use.__name__}: works")


main()
