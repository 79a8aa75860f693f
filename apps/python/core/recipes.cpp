#include <fmt/format.h>

#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/statistics.hpp"
#include "fp8lab/tensors/packed.hpp"

namespace fp8lab::python {
namespace {

using FloatArray = Matrix<const float>;

FloatMatrix matrix_of(const FloatArray& x) {
  return {span_of(x), static_cast<std::int64_t>(x.shape(0)), static_cast<std::int64_t>(x.shape(1))};
}

auto fields(const CastPolicy& p) {
  return std::tie(p.rounding, p.overflow, p.subnormals, p.infinity, p.nan, p.unsigned_target,
                  p.max_magnitude);
}

std::string_view profile_of(const CastPolicy& policy) {
  for (const CastProfile& profile : kCastProfiles)
    if (fields(profile.policy) == fields(policy)) return profile.name;
  throw Error("policy", "one of the named cast profiles", "another");
}

nb::list preset_list() {
  nb::list list;
  for (const Preset& preset : presets()) {
    nb::dict d;
    d["name"] = preset.name;
    d["activation"] = python::to_dict(preset.activation);
    d["weight"] = python::to_dict(preset.weight);
    d["gradient"] = python::to_dict(preset.gradient);
    d["high_precision_wgrad"] = preset.high_precision_wgrad;
    d["used_by"] = preset.used_by;
    list.append(d);
  }
  return list;
}

Recipe make_recipe(std::string_view format_name, std::string_view profile, std::string_view rule,
                   std::string_view source, std::int64_t row_block, std::int64_t k_block,
                   bool power_of_two, float amax_floor, std::int64_t rows_multiple,
                   std::int64_t k_multiple, std::int64_t history, double margin,
                   std::string_view amax_algorithm, std::string_view zero_amax,
                   std::int64_t window) {
  Recipe recipe;
  recipe.format = find_format(format_name).id;
  recipe.policy = find_cast_profile(profile).policy;
  recipe.rule = find_scale_rule(rule);
  recipe.source = find_scale_source(source);
  recipe.row_block = row_block;
  recipe.k_block = k_block;
  recipe.power_of_two = power_of_two;
  recipe.amax_floor = amax_floor;
  recipe.rows_multiple = rows_multiple;
  recipe.k_multiple = k_multiple;
  recipe.delayed = {history, margin, find_amax_algorithm(amax_algorithm),
                    find_zero_amax(zero_amax)};
  recipe.window = window;
  return recipe;
}

/// A NumPy array [rows, columns] that owns `values`.
template <typename T, typename Allocator>
OwnedArray<T> matrix_array(std::vector<T, Allocator>&& values, std::int64_t rows,
                           std::int64_t columns) {
  return array_of(std::move(values),
                  {static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)});
}

/// Keyword arguments of the Python class; the tensor gives its memory away.
nb::dict to_dict(QuantizedTensor&& q) {
  nb::dict d;
  d["format"] = format(q.format).name;
  d["row_block"] = q.row_block;
  d["k_block"] = q.k_block;
  const std::int64_t rows = q.tile_rows();
  const std::int64_t columns = q.tile_columns();
  d["codes"] = matrix_array(std::move(q.codes), q.rows, q.k);
  d["scales"] = matrix_array(std::move(q.scales), rows, columns);
  d["inverse_scales"] = matrix_array(std::move(q.inverse_scales), rows, columns);
  d["e8m0"] =
      q.e8m0.empty() ? nb::none() : nb::cast(matrix_array(std::move(q.e8m0), rows, columns));
  d["ue4m3"] =
      q.ue4m3.empty() ? nb::none() : nb::cast(matrix_array(std::move(q.ue4m3), rows, columns));
  d["tensor_inverse_scale"] = q.tensor_inverse_scale;
  d["transposed"] = q.transposed ? nb::object(to_dict(QuantizedTensor(*q.transposed))) : nb::none();
  return d;
}

void require_tiles(const QuantizedTensor& q, std::string_view argument, const FloatArray& scales) {
  require(static_cast<std::int64_t>(scales.shape(0)) == q.tile_rows() &&
              static_cast<std::int64_t>(scales.shape(1)) == q.tile_columns(),
          argument,
          fmt::format("[ceil({}/{}), ceil({}/{})] = [{}, {}]", q.rows, q.row_block, q.k, q.k_block,
                      q.tile_rows(), q.tile_columns()),
          fmt::format("[{}, {}]", scales.shape(0), scales.shape(1)));
}

/// The bytes of formats of fewer than 8 bits must be codes.
void require_narrow(FormatId id, const Matrix<const std::uint8_t>& codes) {
  if (format(id).is_padded()) require_narrow_codes(id, std::as_bytes(span_of(codes)), "codes");
}

/// The library's tensor from the arrays of the Python class; it owns copies.
QuantizedTensor tensor_of(std::string_view format_name, const Matrix<const std::uint8_t>& codes,
                          const FloatArray& scales, const FloatArray& inverse_scales,
                          float tensor_inverse_scale, std::int64_t row_block,
                          std::int64_t k_block) {
  QuantizedTensor q;
  q.format = find_format(format_name).id;
  q.rows = static_cast<std::int64_t>(codes.shape(0));
  q.k = static_cast<std::int64_t>(codes.shape(1));
  q.row_block = row_block;
  q.k_block = k_block;
  q.tensor_inverse_scale = tensor_inverse_scale;
  require_narrow(q.format, codes);
  require(row_block > 0, "row_block", "a positive number", fmt::format("{}", row_block));
  require(k_block > 0, "k_block", "a positive number", fmt::format("{}", k_block));
  require_tiles(q, "scales", scales);
  require_tiles(q, "inverse_scales", inverse_scales);
  q.codes.assign(codes.data(), codes.data() + codes.size());
  q.scales.assign(scales.data(), scales.data() + scales.size());
  q.inverse_scales.assign(inverse_scales.data(), inverse_scales.data() + inverse_scales.size());
  return q;
}

nb::dict to_dict(const QuantizationStatistics& s) {
  nb::dict d;
  d["count"] = s.count;
  d["underflow_percent"] = s.underflow_percent;
  d["overflow_percent"] = s.overflow_percent;
  d["saturated_percent"] = s.saturated_percent;
  d["nan_percent"] = s.nan_percent;
  d["relative_l2"] = s.relative_l2;
  d["sqnr_db"] = s.sqnr_db;
  d["scale_min"] = s.scale_min;
  d["scale_max"] = s.scale_max;
  d["tile_range_mean"] = s.tile_range_mean;
  d["tile_range_max"] = s.tile_range_max;
  d["scale_overhead_percent"] = s.scale_overhead_percent;
  return d;
}

}  // namespace

nb::dict to_dict(const Recipe& r) {
  nb::dict d;
  d["format"] = format(r.format).name;
  d["profile"] = profile_of(r.policy);
  d["rule"] = to_string(r.rule);
  d["source"] = to_string(r.source);
  d["row_block"] = r.row_block;
  d["k_block"] = r.k_block;
  d["power_of_two"] = r.power_of_two;
  d["amax_floor"] = r.amax_floor;
  d["rows_multiple"] = r.rows_multiple;
  d["k_multiple"] = r.k_multiple;
  d["history"] = r.delayed.history;
  d["margin"] = r.delayed.margin;
  d["amax_algorithm"] = to_string(r.delayed.algorithm);
  d["zero_amax"] = to_string(r.delayed.zero_amax);
  d["window"] = r.window;
  return d;
}

void bind_recipes(nb::module_& m) {
  m.def("presets", preset_list);
  m.def(
      "find_recipe",
      [](std::string_view preset, std::string_view role) {
        return python::to_dict(find_preset(preset).recipe(find_tensor_role(role)));
      },
      "preset"_a, "role"_a);
  m.def(
      "is_two_level", [](std::string_view rule) { return is_two_level(find_scale_rule(rule)); },
      "rule"_a);
  nb::class_<Recipe>(m, "Recipe")
      .def(nb::new_(&make_recipe), nb::kw_only(), "format"_a, "profile"_a, "rule"_a, "source"_a,
           "row_block"_a, "k_block"_a, "power_of_two"_a, "amax_floor"_a, "rows_multiple"_a,
           "k_multiple"_a, "history"_a, "margin"_a, "amax_algorithm"_a, "zero_amax"_a, "window"_a);
  nb::class_<Quantizer>(m, "Quantizer")
      .def(nb::init<Recipe>(), "recipe"_a)
      .def(
          "observe", [](Quantizer& self, const FloatArray& x) { self.observe(matrix_of(x)); },
          "x"_a.noconvert(), WithoutGil())
      .def(
          "set_past",
          [](Quantizer& self, const Vector<const float>& past) { self.set_past(span_of(past)); },
          "past"_a.noconvert())
      .def("past",
           [](const Quantizer& self) {
             std::vector<float> past = self.past();
             const std::size_t size = past.size();
             return array_of(std::move(past), {size});
           })
      .def(
          "quantize",
          [](Quantizer& self, const FloatArray& x, bool with_transpose, int threads) {
            QuantizedTensor q;
            {
              const nb::gil_scoped_release release;
              q = self.quantize(matrix_of(x), with_transpose, threads);
            }
            return to_dict(std::move(q));
          },
          "x"_a.noconvert(), "with_transpose"_a, "threads"_a);
  nb::class_<QuantizedTensor>(m, "QuantizedTensor")
      .def(nb::new_(&tensor_of), nb::kw_only(), "format"_a, "codes"_a.noconvert(),
           "scales"_a.noconvert(), "inverse_scales"_a.noconvert(), "tensor_inverse_scale"_a,
           "row_block"_a, "k_block"_a);
  m.def(
      "dequantize",
      [](const QuantizedTensor& q) {
        std::vector<float> values;
        {
          const nb::gil_scoped_release release;
          values = dequantize(q);
        }
        return matrix_array(std::move(values), q.rows, q.k);
      },
      "tensor"_a);
  m.def(
      "quantization_statistics",
      [](const FloatArray& x, const QuantizedTensor& q) {
        return to_dict(quantization_statistics(matrix_of(x), q));
      },
      "x"_a.noconvert(), "tensor"_a);
}

}  // namespace fp8lab::python
