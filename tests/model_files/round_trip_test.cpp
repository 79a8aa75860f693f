// A model to every layout under every recipe that it takes, and back: each weight is what its
// recipe makes of it alone, or of those that it is joined with, and all else is as it was.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/scaling/two_level.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"
#include "model_files/models.hpp"
#include "training/model_files/blocked_scales.hpp"
#include "training/model_files/dequantize_model.hpp"
#include "training/model_files/layouts/family.hpp"
#include "training/model_files/quantize_model.hpp"
#include "training/model_files/weight_outputs.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

namespace fs = std::filesystem;

/// A matrix in the type of its file.
struct TripTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  ElementType type;
  std::vector<std::byte> bytes;

  TripTensor(std::string of, std::vector<std::int64_t> sides, ElementType element, double size)
      : name(std::move(of)), shape(std::move(sides)), type(element) {
    const RandomStream draws(4, name);
    std::vector<float> values;
    for (std::int64_t i = 0; i < element_count(shape, name); ++i)
      values.push_back(static_cast<float>(size * draws.normal(static_cast<std::uint64_t>(i))));
    bytes = in_type(values, type);
  }
  static std::vector<std::byte> in_type(const std::vector<float>& values, ElementType to) {
    std::vector<std::byte> result(values.size() * element_bytes(to));
    if (to == ElementType::f32) {
      std::memcpy(result.data(), values.data(), result.size());
      return result;
    }
    std::vector<std::uint16_t> codes(values.size());
    encode(values, std::span(codes), {.format = *format_of(to), .policy = kMlDtypes});
    std::memcpy(result.data(), codes.data(), result.size());
    return result;
  }
  [[nodiscard]] TensorView view() const { return {type, shape, bytes, false}; }
};

/// Codes times scales of a weight, in binary32. `known`: the amax of the tensors that it shares a
/// tensor scale with.
std::vector<float> expected_values(const Layout& layout, const Recipe& recipe,
                                   const TripTensor& weight, std::optional<float> known) {
  const std::vector<float> x = to_float(weight.view());
  const FloatMatrix matrix{x, weight.shape[0], weight.shape[1]};
  const bool two_level = is_two_level(recipe.rule);
  const float own = amax(x, amax_ignores_nan(recipe.rule));
  QuantizedTensor q;
  if (two_level && known) {
    Recipe calibrated = recipe;
    calibrated.source = ScaleSource::calibration;
    calibrated.rows_multiple = calibrated.k_multiple = 1;
    Quantizer quantizer(calibrated);
    quantizer.observe({{&*known, 1}, 1, 1});
    q = quantizer.quantize(matrix);
  } else {
    q = quantize(recipe, matrix);
  }
  const std::span<const float> codes = decode_table(q.format);
  const std::span<const float> e8m0 = decode_table(FormatId::e8m0fnu);
  const std::span<const float> ue4m3 = decode_table(FormatId::e4m3fn);
  const TensorScale tensor =
      two_level ? tensor_scale(recipe.rule, known.value_or(own)) : TensorScale{};
  std::vector<float> values;
  for (std::int64_t r = 0; r < q.rows; ++r)
    for (std::int64_t c = 0; c < q.k; ++c) {
      const auto tile =
          static_cast<std::size_t>(r / q.row_block * q.tile_columns() + c / q.k_block);
      float scale = q.inverse_scales[tile];
      if (!q.e8m0.empty()) scale = e8m0[q.e8m0[tile]];
      if (two_level && layout.name == "compressed-tensors")
        scale = ue4m3[q.ue4m3[tile]] / tensor.scale;
      else if (two_level)
        scale = ue4m3[q.ue4m3[tile]] * tensor.inverse_scale;
      values.push_back(codes[q.codes[static_cast<std::size_t>(r * q.k + c)]] * scale);
    }
  return values;
}

}  // namespace

TEST_CASE("weights of every layout and recipe come back as codes times scales", "[model_files]") {
  const TemporaryFolder folder("round_trip");
  int trips = 0;
  std::array<std::vector<TripTensor>, 2> all_weights;
  std::array<std::vector<TripTensor>, 2> all_others;
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    const std::size_t at = type == ElementType::f32 ? 0 : 1;
    // Sides that every recipe divides. The first two are one matrix when served.
    all_weights[at] = {{"a.q_proj.weight", {128, 128}, type, 0.02},
                       {"a.v_proj.weight", {256, 128}, type, 3.0},
                       {"b.mlp.down_proj.weight", {128, 256}, type, 0.5}};
    all_others[at] = {{"a.norm.weight", {128}, type, 1.0},
                      {"b.embed_tokens.weight", {8, 128}, type, 1.0}};
  }
  std::set<
      std::tuple<std::string_view, std::string_view, FormatId, std::int64_t, std::int64_t, bool>>
      seen;
  for (const Layout& layout : layouts())
    for (const Preset& preset : presets()) {
      if (layout.fuses_experts) continue;
      WeightScheme scheme;
      if (!test::message_of([&] { scheme = make_scheme(layout, preset, false); }, "").empty())
        continue;
      // deepseek-v4 has FP4 for experts alone.
      if (layout.blocks_are_e8m0 && scheme.tiles == WeightTiles::group) continue;
      // Presets that differ in activations only have the same weights.
      const Recipe& weight = preset.weight;
      if (!seen.insert({layout.name, to_string(weight.rule), weight.format, weight.row_block,
                        weight.k_block, weight.power_of_two})
               .second)
        continue;
      const bool narrow = takes_bf16(preset.weight.rule);
      const ElementType type = narrow ? ElementType::bf16 : ElementType::f32;
      const std::vector<TripTensor>& weights = all_weights[narrow ? 1 : 0];
      const std::vector<TripTensor>& others = all_others[narrow ? 1 : 0];
      const fs::path in = folder / "in";
      const fs::path out = folder / "out";
      const fs::path back = folder / "back";
      for (const fs::path& one : {in, out, back}) fs::remove_all(one);
      fs::create_directory(in);
      const std::string first = "model-00001-of-00002.safetensors";
      const std::string second = "model-00002-of-00002.safetensors";
      const auto named = [](const TripTensor& one) { return NamedTensor{one.name, one.view()}; };
      write_safetensors(in / first, {named(weights[0]), named(others[0])});
      write_safetensors(in / second, {named(others[1]), named(weights[1]), named(weights[2])});
      std::string map;
      for (const auto& [name, file] : {std::pair{weights[0].name, first},
                                       {others[0].name, first},
                                       {others[1].name, second},
                                       {weights[1].name, second},
                                       {weights[2].name, second}})
        map += fmt::format("{}\"{}\": \"{}\"", map.empty() ? "" : ", ", name, file);
      write_text(in / kIndexFile, fmt::format("{{\"weight_map\": {{{}}}}}", map));
      write_text(
          in / layout.family->config_file(),
          fmt::format("{{\"dtype\": \"{}\"}}", type == ElementType::bf16 ? "bfloat16" : "float32"));
      INFO(layout.name << ", " << preset.name);
      const QuantizedModel written = quantize_model(ModelDirectory(in),
                                                    {.preset = std::string(preset.name),
                                                     .layout = std::string(layout.name),
                                                     .rule = "all",
                                                     .calibration = {}},
                                                    out);
      CHECK(written.converted.size() == 3);
      const ElementType to = trips++ % 2 == 0 ? ElementType::f32 : ElementType::bf16;
      dequantize_model(ModelDirectory(out), {.layout = "", .type = to}, back);
      const ModelDirectory read(back);
      CHECK(read.shards().size() == 2);
      std::map<std::string, std::vector<std::byte>> got;
      for (std::size_t s = 0; s < read.shards().size(); ++s) {
        const auto file = read.open(s);
        for (const NamedTensor& item : file->tensors())
          got[item.name] = {item.tensor.bytes.begin(), item.tensor.bytes.end()};
      }
      CHECK(got.size() == 5);
      for (const TripTensor& one : others) CHECK((got[one.name] == one.bytes));
      const bool joined = scheme.scales == ScaleKind::two_level && layout.name != "torchao";
      std::optional<float> known;
      if (joined) {
        const bool drops = amax_ignores_nan(preset.weight.rule);
        known = std::max(amax(to_float(weights[0].view()), drops),
                         amax(to_float(weights[1].view()), drops));
      }
      for (std::size_t i = 0; i < weights.size(); ++i) {
        INFO(weights[i].name);
        const std::vector<float> values =
            expected_values(layout, preset.weight, weights[i], i < 2 ? known : std::nullopt);
        CHECK((got[weights[i].name] == TripTensor::in_type(values, to)));
      }
    }
  CHECK(trips > 20);
}
