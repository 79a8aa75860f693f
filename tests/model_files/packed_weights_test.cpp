// Weights of every number of bytes a row, codes of every element type, and matrices of every shape
// under every recipe that a layout takes.

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "model_files/models.hpp"
#include "training/model_files/dequantize_model.hpp"
#include "training/model_files/layout.hpp"
#include "training/model_files/layouts/family.hpp"
#include "training/model_files/quantize_model.hpp"
#include "training/model_files/stored_weight.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

namespace fs = std::filesystem;

/// What is said of a weight of 3 rows of so many bytes under scales of `columns` groups.
std::string shapes_of(FormatId format, ScaleKind kind, std::int64_t bytes, std::int64_t columns) {
  StoredWeight weight;
  const bool packs = format != FormatId::e4m3fn;
  const bool two_level = kind == ScaleKind::two_level;
  weight.codes = {"w", packs ? ElementType::u8 : ElementType::e4m3fn, {3, bytes}};
  weight.scale.spec = {"s", two_level ? ElementType::e4m3fn : ElementType::u8, {3, columns}};
  if (two_level) weight.tensor_scale = StoredTensor{{"u", ElementType::f32, {}}, 0};
  weight.names = &stored_names()[0];
  StoredQuantization stored;
  stored.form = {format, kind, 1, two_level ? 16 : 32, {}};
  const std::string refused = test::message_of([&] { set_shapes(weight, stored); }, "");
  if (!refused.empty()) return refused;
  return fmt::format("{} x {}, written {}, tiles {} x {}", weight.rows, weight.k,
                     shape_text(weight.written.shape), weight.row_block, weight.k_block);
}

}  // namespace

TEST_CASE("rows of any number of bytes hold whole groups of codes, or are refused",
          "[model_files]") {
  struct Kind {
    FormatId format;
    ScaleKind scales;
    std::int64_t codes;  ///< in `bytes`
    std::int64_t bytes;
    std::int64_t group;
  };
  for (const Kind& kind : {Kind{FormatId::e4m3fn, ScaleKind::e8m0, 1, 1, 32},
                           Kind{FormatId::e2m1, ScaleKind::e8m0, 2, 1, 32},
                           Kind{FormatId::e2m3, ScaleKind::e8m0, 4, 3, 32},
                           Kind{FormatId::e2m1, ScaleKind::two_level, 2, 1, 16}}) {
    std::string wrong;
    int right = 0;
    for (std::int64_t bytes = 1; bytes <= 99; ++bytes)
      for (const std::int64_t more : {0, 1, -1}) {
        const bool whole = bytes % kind.bytes == 0;
        const std::int64_t k = bytes / kind.bytes * kind.codes;
        const std::int64_t columns = k / kind.group + more;
        const std::string got = shapes_of(kind.format, kind.scales, bytes, columns);
        bool fits = false;
        if (!whole)
          fits = got.starts_with("tensor 'w': expected a last dimension divisible by 3") &&
                 got.find("of bytes that hold") != got.npos;
        else if (k % kind.group != 0)
          fits = got.starts_with(fmt::format(
              "tensor 'w': expected a multiple of {} elements per row, got {}", kind.group, k));
        else if (more != 0)
          fits = got.starts_with(
              fmt::format("tensor 's': expected [3, {}], got [3, {}]", k / kind.group, columns));
        else
          fits = got == fmt::format("3 x {0}, written [3, {0}], tiles 1 x {1}", k, kind.group);
        right += whole && k % kind.group == 0 && more == 0 ? 1 : 0;
        if (!fits) wrong += fmt::format("{} bytes, {} groups: {}\n", bytes, columns, got);
      }
    INFO(format(kind.format).name << ", groups of " << kind.group);
    INFO(wrong.substr(0, 1000));
    CHECK(wrong.empty());
    CHECK(right == 99 / (kind.group * kind.bytes / kind.codes));
  }
}

TEST_CASE("packed codes are bytes of two dimensions; what else has their name is refused",
          "[model_files]") {
  struct Kind {
    const char* layout;
    const char* preset;
    const char* codes;
    const char* scale;
    const char* tensor_scale;
    std::vector<std::int64_t> grid;  ///< of 8 rows of 96 bytes
    ElementType scale_type;
  };
  const TemporaryFolder folder("packed_types");
  fs::create_directory(folder / "in");
  const Bytes bytes(8 * 96, 0x11);
  const float one = 1.0F;
  using enum ElementType;
  for (const Kind& kind :
       {Kind{"compressed-tensors",
             "nvfp4",
             "weight_packed",
             "weight_scale",
             "weight_global_scale",
             {8, 12},
             e4m3fn},
        Kind{"compressed-tensors", "mxfp6-e2m3", "weight_packed", "weight_scale", "", {8, 4}, u8},
        Kind{"modelopt", "modelopt-mxfp8", "weight", "weight_scale", "", {8, 3}, u8},
        Kind{"torchao",
             "torchao-mxfp4-rceil",
             "_weight_qdata",
             "_weight_scale",
             "",
             {32, 32},
             e8m0fnu}}) {
    const bool packs = std::string(kind.preset) != "modelopt-mxfp8";
    const auto size = static_cast<std::size_t>(kind.grid[0] * kind.grid[1]);
    const Bytes scales(size, 0x38);
    const auto converted = [&](ElementType type, const std::vector<std::int64_t>& shape) {
      std::vector<NamedTensor> tensors;
      // A second weight, so that there is one in any case.
      for (const std::string& module : {std::string("m."), std::string("z.")}) {
        const bool second = module == "z.";
        const std::vector<std::int64_t> usual{8, 96};
        tensors.push_back({module + kind.codes, bytes_view(second ? (packs ? u8 : e4m3fn) : type,
                                                           second ? usual : shape, bytes)});
        tensors.push_back({module + kind.scale, bytes_view(kind.scale_type, kind.grid, scales)});
        if (*kind.tensor_scale != 0)
          tensors.push_back({module + kind.tensor_scale, view_of(f32, {}, std::span(&one, 1))});
      }
      write_safetensors(folder / "in/model.safetensors", tensors);
      write_text(folder / "in/config.json", config_of(kind.layout, kind.preset));
      fs::remove_all(folder / "out");
      return message_of(
          [&] { dequantize_model(ModelDirectory(folder / "in"), {}, folder / "out"); }, "");
    };
    const auto expected = [&](ElementType type) {
      const bool is_fp8 = type == e4m3fn || type == e5m2;
      const bool is_byte = type == u8 || type == i8;
      if (packs ? is_byte : is_fp8) return std::string();
      // Codes of another size need other scales; what is no code leaves the scales alone.
      return std::string("tensor 'm.");
    };
    for (const ElementType type : {u8, i8, boolean, e4m3fn, e5m2, e8m0fnu, bf16, i16}) {
      INFO(kind.layout << " " << kind.preset << ", " << to_string(type));
      const bool wide = type == bf16 || type == i16;
      const std::string said = converted(type, {8, wide ? 48 : 96});
      const std::string start = expected(type);
      INFO(said);
      CHECK((start.empty() ? said.empty() : said.starts_with(start)));
    }
    const ElementType own = packs ? u8 : e4m3fn;
    INFO(kind.layout << " " << kind.preset << ", one dimension or four");
    CHECK(converted(own, {768}).starts_with("tensor 'm."));
    CHECK(converted(own, {1, 1, 8, 96}).starts_with("tensor 'm."));
  }
}

TEST_CASE("a matrix whose sides a recipe cannot divide is refused or stays, in every layout",
          "[model_files]") {
  const TemporaryFolder folder("sides");
  fs::create_directory(folder / "in");
  const std::vector<float> values(128 * 128, 0.5F);
  using Sides = std::pair<std::int64_t, std::int64_t>;
  const std::vector<Sides> shapes{{128, 96}, {96, 128}, {128, 112}, {48, 64}, {128, 100}};
  // Recipes that differ in nothing that decides here are looked at once.
  std::set<std::string> seen;
  std::set<std::string> kinds;
  for (const Layout& layout : layouts())
    for (const Preset& preset : presets()) {
      if (layout.fuses_experts) continue;
      WeightScheme scheme;
      if (test::message_of([&] { scheme = make_scheme(layout, preset, false); }, "") != "")
        continue;
      // deepseek-v4 has FP4 for experts alone.
      if (layout.blocks_are_e8m0 && scheme.tiles == WeightTiles::group) continue;
      const Recipe& recipe = preset.weight;
      if (takes_bf16(recipe.rule)) continue;
      if (!seen.insert(fmt::format("{} {} {} {} {} {} {}", layout.name, to_string(scheme.tiles),
                                   scheme.row_block, scheme.k_block,
                                   static_cast<int>(scheme.scales), recipe.rows_multiple,
                                   recipe.k_multiple))
               .second)
        continue;
      for (const char* other : {"config.json", "params.json"}) fs::remove(folder / "in" / other);
      write_text(folder / "in" / layout.family->config_file(), R"({"dtype": "float32"})");
      for (const auto& [rows, k] : shapes) {
        std::vector<NamedTensor> tensors;
        const std::span<const float> all(values);
        // Another weight that every recipe takes.
        for (const auto& [name, shape] :
             {std::pair{"m.weight", Sides{rows, k}}, std::pair{"z.weight", Sides{128, 128}}})
          tensors.push_back(
              {name, view_of(ElementType::f32, {shape.first, shape.second},
                             all.first(static_cast<std::size_t>(shape.first * shape.second)))});
        write_safetensors(folder / "in/model.safetensors", tensors);
        fs::remove_all(folder / "out");
        std::string got;
        got += test::message_of(
            [&] {
              const QuantizedModel done = quantize_model(ModelDirectory(folder / "in"),
                                                         {.preset = std::string(preset.name),
                                                          .layout = std::string(layout.name),
                                                          .rule = "all",
                                                          .calibration = {}},
                                                         folder / "out");
              for (const TensorSpec& one : done.converted) got += one.name + " ";
              for (const KeptTensor& one : done.kept) got += one.tensor.name + ": " + one.reason;
            },
            "");
        std::string reason;
        const bool group = scheme.tiles == WeightTiles::group;
        const bool block = scheme.tiles == WeightTiles::block;
        const auto ragged = [](std::int64_t size, std::int64_t side) {
          return size > side && size % side != 0;
        };
        if (group && k % scheme.k_block != 0)
          reason = fmt::format("{} is not a multiple of the group's {}", k, scheme.k_block);
        else if (scheme.scales == ScaleKind::two_level && layout.name == "torchao" &&
                 rows % 16 != 0)
          reason = fmt::format("{} rows are not a multiple of 16", rows);
        else if (block && layout.name == "compressed-tensors" && k % scheme.k_block != 0)
          reason = fmt::format("{} is not a multiple of the block's {}", k, scheme.k_block);
        else if (block && layout.name == "hf-fp8" && ragged(rows, scheme.row_block))
          reason = fmt::format("{} is not a multiple of the block's {}", rows, scheme.row_block);
        else if (block && layout.name == "hf-fp8" && ragged(k, scheme.k_block))
          reason = fmt::format("{} is not a multiple of the block's {}", k, scheme.k_block);
        std::string expected = "m.weight z.weight ";
        if (!reason.empty())
          expected = "z.weight m.weight: " + reason;
        else if (rows % recipe.rows_multiple != 0 || k % recipe.k_multiple != 0)
          expected = fmt::format(
              "tensor 'm.weight' under recipe {}: expected multiples of {} x {}, got [{}, {}]",
              preset.name, recipe.rows_multiple, recipe.k_multiple, rows, k);
        INFO(layout.name << ", " << preset.name << ", " << rows << " x " << k);
        CHECK(got == expected);
        kinds.insert(expected.substr(0, 10));
      }
    }
  CHECK(seen.size() > 10);
  CHECK(kinds.size() == 3);
}
