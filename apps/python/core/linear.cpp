// Linear layers for frameworks: casts and products without state, and the library's own layer to
// compare with.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "bindings.hpp"
#include "coded_operand.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/linear/layer_rule.hpp"
#include "fp8lab/linear/linear.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "fp8lab/linear/products.hpp"

namespace fp8lab::python {
namespace {

using FloatArray = Matrix<const float>;
using Past = Vector<const float>;
using train::GemmSettings;
using train::LinearRecipe;

FloatMatrix matrix_of(const FloatArray& x) {
  return {span_of(x), static_cast<std::int64_t>(x.shape(0)), static_cast<std::int64_t>(x.shape(1))};
}

nb::dict to_dict(const GemmSettings& s) {
  nb::dict d;
  d["arithmetic"] = to_string(s.arithmetic);
  d["accumulator"] = python::to_dict(s.accumulator);
  d["promotion_interval"] = s.promotion_interval;
  d["scale_order"] = to_string(s.scale_order);
  return d;
}

nb::object to_dict(const std::optional<Recipe>& recipe) {
  return recipe ? nb::object(python::to_dict(*recipe)) : nb::none();
}

nb::dict to_dict(const LinearRecipe& r) {
  nb::dict d;
  d["name"] = r.name;
  d["activation"] = python::to_dict(r.activation);
  d["weight"] = python::to_dict(r.weight);
  d["gradient"] = python::to_dict(r.gradient);
  d["weight_for_dgrad"] = to_dict(r.weight_for_dgrad);
  d["activation_for_wgrad"] = to_dict(r.activation_for_wgrad);
  d["gradient_for_wgrad"] = to_dict(r.gradient_for_wgrad);
  d["fprop"] = to_dict(r.forward);
  d["dgrad"] = to_dict(r.dgrad);
  d["wgrad"] = to_dict(r.wgrad);
  d["bf16_outputs"] = r.bf16_outputs;
  return d;
}

GemmSettings make_settings(std::string_view arithmetic, const AccumulatorModel& accumulator,
                           std::int64_t promotion_interval, std::string_view scale_order) {
  return {train::find_arithmetic(arithmetic), accumulator, promotion_interval,
          find_scale_order(scale_order)};
}

LinearRecipe make_recipe(std::string name, const Recipe& activation, const Recipe& weight,
                         const Recipe& gradient, const std::optional<Recipe>& weight_for_dgrad,
                         const std::optional<Recipe>& activation_for_wgrad,
                         const std::optional<Recipe>& gradient_for_wgrad, const GemmSettings& fprop,
                         const GemmSettings& dgrad, const GemmSettings& wgrad, bool bf16_outputs) {
  LinearRecipe r{.name = std::move(name),
                 .activation = activation,
                 .weight = weight,
                 .gradient = gradient,
                 .weight_for_dgrad = weight_for_dgrad,
                 .activation_for_wgrad = activation_for_wgrad,
                 .gradient_for_wgrad = gradient_for_wgrad,
                 .forward = fprop,
                 .dgrad = dgrad,
                 .wgrad = wgrad,
                 .bf16_outputs = bf16_outputs};
  return r;
}

/// A quantizer that goes on from a past; an empty one is a fresh start.
Quantizer quantizer_of(const Recipe& recipe, const Past& past) {
  Quantizer quantizer(recipe);
  if (past.size() > 0) quantizer.set_past(span_of(past));
  return quantizer;
}

OwnedArray<float> past_array(const Quantizer& quantizer) {
  std::vector<float> past = quantizer.past();
  const std::size_t size = past.size();
  return array_of(std::move(past), {size});
}

/// Codes, and the inverse scales as `linear_product` takes them: one a tile, row by row, and the
/// tensor's after them where the recipe has two levels.
nb::object coded(const Recipe& recipe, QuantizedTensor&& q) {
  const auto rows = static_cast<std::size_t>(q.rows);
  const auto k = static_cast<std::size_t>(q.k);
  std::vector<float> scales = std::move(q.inverse_scales);
  if (is_two_level(recipe.rule)) scales.push_back(q.tensor_inverse_scale);
  const std::size_t count = scales.size();
  return nb::make_tuple(array_of(std::move(q.codes), {rows, k}),
                        array_of(std::move(scales), {count}));
}

/// The codes of an operand for its two products, and the pasts that follow; in the order of
/// `train::TwoCasts`, whose second cast exists only where its recipe is another.
nb::tuple linear_cast(const Recipe& first, const std::optional<Recipe>& second, const FloatArray& x,
                      bool for_first, bool for_second, const Past& past, const Past& second_past,
                      int threads) {
  Quantizer quantizer = quantizer_of(first, past);
  std::optional<Quantizer> other;
  if (second) other = quantizer_of(*second, second_past);
  QuantizedTensor q;
  {
    const nb::gil_scoped_release release;
    if (!other) {
      q = quantizer.quantize(matrix_of(x), for_second, threads);
    } else {
      if (for_first) q = quantizer.quantize(matrix_of(x), false, threads);
      if (for_second) q.transposed = other->quantize(matrix_of(x), true, threads).transposed;
    }
  }
  const std::shared_ptr<QuantizedTensor> turned = q.transposed;
  return nb::make_tuple(
      for_first ? coded(first, std::move(q)) : nb::none(),
      for_second ? coded(second ? *second : first, std::move(*turned)) : nb::none(),
      past_array(quantizer), other ? nb::cast(past_array(*other)) : nb::none());
}

void linear_product(const GemmSettings& settings, const Recipe& a_recipe,
                    const Matrix<const std::uint8_t>& a, const ScaleVector& scale_a,
                    const Recipe& b_recipe, const Matrix<const std::uint8_t>& b,
                    const ScaleVector& scale_b, const Matrix<float>& d, int threads) {
  fp8_product(settings, coded_operand(a_recipe, a, scale_a), coded_operand(b_recipe, b, scale_b),
              span_of(d), threads);
}

train::Matrix<float> copy_of(const FloatArray& x) {
  train::Matrix<float> copy(static_cast<std::int64_t>(x.shape(0)),
                            static_cast<std::int64_t>(x.shape(1)));
  std::copy_n(x.data(), x.size(), copy.values.begin());
  return copy;
}

void plain_product(const LinearRecipe& recipe, const GemmSettings& settings, const FloatArray& a,
                   bool a_transposed, const FloatArray& b, bool b_transposed,
                   const Matrix<float>& d, int threads) {
  const std::size_t k = a.shape(a_transposed ? 0 : 1);
  require(k == b.shape(b_transposed ? 0 : 1), "b", fmt::format("a summed dimension of {}", k),
          fmt::format("{}", b.shape(b_transposed ? 0 : 1)));
  train::Matrix<float> product(static_cast<std::int64_t>(d.shape(0)),
                               static_cast<std::int64_t>(d.shape(1)));
  train::plain_product(recipe, settings, copy_of(a), a_transposed, copy_of(b), b_transposed,
                       product, team_size(threads));
  std::copy(product.values.begin(), product.values.end(), d.data());
}

/// The library's own layer over one forward and one backward pass: y, dx, dw.
class Layer {
 public:
  explicit Layer(const LinearRecipe& recipe) : products_("layer", recipe, {}) {}

  nb::tuple step(const FloatArray& x, const FloatArray& w, const FloatArray& dy, int threads) {
    const auto tokens = static_cast<std::int64_t>(x.shape(0));
    const auto in = static_cast<std::int64_t>(x.shape(1));
    const auto out = static_cast<std::int64_t>(w.shape(0));
    train::Matrix<float> y(tokens, out);
    train::Matrix<float> dx(tokens, in);
    train::Matrix<float> dw(out, in);
    const train::PassContext context{.threads = team_size(threads), .on_cast = {}};
    const train::Matrix<float> weight = copy_of(w);
    products_.forward(copy_of(x), weight, y, context);
    products_.backward(copy_of(dy), weight, dx, dw, context);
    return nb::make_tuple(array_of(std::move(y.values), {x.shape(0), w.shape(0)}),
                          array_of(std::move(dx.values), {x.shape(0), x.shape(1)}),
                          array_of(std::move(dw.values), {w.shape(0), w.shape(1)}));
  }

 private:
  train::LinearProducts<float> products_;
};

/// d [rows, columns] += bias [columns] in binary32, to nearest even.
void add_to_rows(const Matrix<float>& d, const Vector<const float>& bias) {
  const FloatEnvironment environment;
  require(bias.size() == d.shape(1), "bias", fmt::format("{} values", d.shape(1)),
          fmt::format("{}", bias.size()));
  for (std::size_t r = 0; r < d.shape(0); ++r)
    for (std::size_t c = 0; c < d.shape(1); ++c) d.data()[r * d.shape(1) + c] += bias.data()[c];
}

/// a += b in binary32, to nearest even.
void add_into(const Matrix<float>& a, const FloatArray& b) {
  const FloatEnvironment environment;
  require(a.shape(0) == b.shape(0) && a.shape(1) == b.shape(1), "b",
          fmt::format("[{}, {}]", a.shape(0), a.shape(1)),
          fmt::format("[{}, {}]", b.shape(0), b.shape(1)));
  for (std::size_t i = 0; i < a.size(); ++i) a.data()[i] += b.data()[i];
}

/// To BF16 and back, to nearest even; NaN is NVIDIA's.
void round_to_bf16(const Matrix<float>& d, int threads) {
  train::round_to_bf16(span_of(d), team_size(threads));
}

/// The sum of each column in binary32, in the order of the rows.
OwnedArray<float> column_sums(const FloatArray& x) {
  const FloatEnvironment environment;
  std::vector<float> sums(x.shape(1), 0.0F);
  for (std::size_t r = 0; r < x.shape(0); ++r)
    for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += x.data()[r * sums.size() + c];
  const std::size_t columns = sums.size();
  return array_of(std::move(sums), {columns});
}

/// Tells contents apart: four interleaved multiplicative hashes of 64-bit words.
std::uint64_t fingerprint(const Vector<const std::uint8_t>& bytes) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ULL;
  constexpr std::size_t kStride = 32;
  std::uint64_t lanes[4] = {1, 2, 3, bytes.size()};
  const std::uint8_t* data = bytes.data();
  std::size_t i = 0;
  const auto take = [&](const std::uint8_t* from) {
    for (std::size_t l = 0; l < 4; ++l) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + 8 * l, 8);
      lanes[l] = std::rotl(lanes[l] ^ word, 29) * kOdd;
    }
  };
  for (; i + kStride <= bytes.size(); i += kStride) take(data + i);
  std::uint8_t last[kStride] = {};
  std::copy(data + i, data + bytes.size(), last);
  take(last);
  std::uint64_t hash = 0;
  for (const std::uint64_t lane : lanes) hash = std::rotl(hash ^ lane ^ (lane >> 32), 23) * kOdd;
  return hash ^ (hash >> 32);
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::class_<GemmSettings>(m, "GemmSettings")
      .def(nb::new_(&make_settings), nb::kw_only(), "arithmetic"_a, "accumulator"_a,
           "promotion_interval"_a, "scale_order"_a);
  nb::class_<LinearRecipe>(m, "LinearRecipe")
      .def(nb::new_(&make_recipe), nb::kw_only(), "name"_a, "activation"_a, "weight"_a,
           "gradient"_a, "weight_for_dgrad"_a.none(), "activation_for_wgrad"_a.none(),
           "gradient_for_wgrad"_a.none(), "fprop"_a, "dgrad"_a, "wgrad"_a, "bf16_outputs"_a);
  m.def("linear_recipe_names", [] {
    nb::list names;
    for (const std::string& name : train::linear_recipe_names()) names.append(name);
    return names;
  });
  m.def(
      "find_linear_recipe",
      [](std::string_view name) { return to_dict(train::find_linear_recipe(name)); }, "name"_a);
  m.def(
      "on_hardware",
      [](const LinearRecipe& recipe, std::string_view hardware) {
        return to_dict(train::on_hardware(recipe, hardware));
      },
      "recipe"_a, "hardware"_a);
  m.def(
      "product_on_hardware",
      [](const GemmSettings& product, const Recipe& operands, std::string_view hardware) {
        return to_dict(train::on_hardware(product, operands, hardware));
      },
      "product"_a, "operands"_a, "hardware"_a);
  m.def(
      "initial_past", [](const Recipe& recipe) { return past_array(Quantizer(recipe)); },
      "recipe"_a);
  m.def(
      "observed_past",
      [](const Recipe& recipe, const FloatArray& x, const Past& past) {
        Quantizer quantizer = quantizer_of(recipe, past);
        quantizer.observe(matrix_of(x));
        return past_array(quantizer);
      },
      "recipe"_a, "x"_a.noconvert(), "past"_a.noconvert());
  m.def("linear_cast", linear_cast, "first"_a, "second"_a.none(), "x"_a.noconvert(), "for_first"_a,
        "for_second"_a, "past"_a.noconvert(), "second_past"_a.noconvert(), "threads"_a);
  m.def("linear_product", linear_product, "settings"_a, "a_recipe"_a, "a"_a.noconvert(),
        "scale_a"_a.noconvert(), "b_recipe"_a, "b"_a.noconvert(), "scale_b"_a.noconvert(),
        "d"_a.noconvert(), "threads"_a, WithoutGil());
  m.def("plain_product", plain_product, "recipe"_a, "settings"_a, "a"_a.noconvert(),
        "a_transposed"_a, "b"_a.noconvert(), "b_transposed"_a, "d"_a.noconvert(), "threads"_a,
        WithoutGil());
  nb::class_<Layer>(m, "LinearLayer")
      .def(nb::init<LinearRecipe>(), "recipe"_a)
      .def("step", &Layer::step, "x"_a.noconvert(), "w"_a.noconvert(), "dy"_a.noconvert(),
           "threads"_a);
  m.def("add_to_rows", add_to_rows, "d"_a.noconvert(), "bias"_a.noconvert(), WithoutGil());
  m.def("add_into", add_into, "a"_a.noconvert(), "b"_a.noconvert(), WithoutGil());
  m.def("round_to_bf16", round_to_bf16, "d"_a.noconvert(), "threads"_a, WithoutGil());
  m.def("column_sums", column_sums, "x"_a.noconvert());
  m.def("fingerprint", fingerprint, "bytes"_a.noconvert(), WithoutGil());
  m.def("layer_rules", [] {
    nb::dict rules;
    for (const LayerRule& rule : layer_rules())
      rules[nb::str(rule.name.data(), rule.name.size())] = rule.used_by;
    return rules;
  });
  m.def(
      "why_not_converted",
      [](std::string_view rule, std::string_view name, std::int64_t rows, std::int64_t columns) {
        const std::array<std::int64_t, 2> shape{rows, columns};
        return decide(find_layer_rule(rule), name, shape).reason;
      },
      "rule"_a, "name"_a, "rows"_a, "columns"_a);
}

}  // namespace fp8lab::python
