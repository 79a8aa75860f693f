#include "bindings.hpp"
#include "fp8lab/cast/encode.hpp"

namespace fp8lab::python {
namespace {

EncodeOptions make_options(std::string_view format_name, std::string_view profile,
                           std::optional<std::string_view> rounding, float scale,
                           std::optional<std::uint64_t> seed, std::uint64_t first_draw,
                           bool statistics, int threads) {
  EncodeOptions options;
  options.format = find_format(format_name).id;
  options.policy = find_cast_profile(profile).policy;
  if (rounding) options.policy.rounding = find_rounding_mode(*rounding);
  options.scale = scale;
  options.statistics = statistics ? GatherStatistics::all : GatherStatistics::none;
  if (seed) options.random = RandomStream(*seed, "cast");
  options.first_draw = first_draw;
  options.threads = threads;
  return options;
}

}  // namespace

void bind_casts(nb::module_& m) {
  nb::class_<EncodeStatistics>(m, "EncodeStatistics")
      .def_ro("amax", &EncodeStatistics::amax)
      .def_ro("overflowed", &EncodeStatistics::overflowed)
      .def_ro("underflowed", &EncodeStatistics::underflowed)
      .def_ro("nan", &EncodeStatistics::nan);
  nb::class_<EncodeOptions>(m, "EncodeOptions")
      .def(nb::new_(&make_options), nb::kw_only(), "format"_a, "profile"_a, "rounding"_a.none(),
           "scale"_a, "seed"_a.none(), "first_draw"_a, "statistics"_a, "threads"_a);

  m.def(
      "encode",
      [](const Vector<const float>& in, const Vector<std::uint8_t>& out,
         const EncodeOptions& options) { return encode(span_of(in), span_of(out), options); },
      "x"_a.noconvert(), "out"_a.noconvert(), "options"_a, WithoutGil());
  m.def(
      "encode",
      [](const Vector<const float>& in, const Vector<std::uint16_t>& out,
         const EncodeOptions& options) { return encode(span_of(in), span_of(out), options); },
      "x"_a.noconvert(), "out"_a.noconvert(), "options"_a, WithoutGil());
  m.def(
      "encode_half",
      [](const Vector<const std::uint16_t>& in, std::string_view input,
         const Vector<std::uint8_t>& out, const EncodeOptions& options) {
        return encode(span_of(in), find_format(input).id, span_of(out), options);
      },
      "x"_a.noconvert(), "input"_a, "out"_a.noconvert(), "options"_a, WithoutGil());
  m.def(
      "decode",
      [](const Vector<const std::uint8_t>& in, const Vector<float>& out,
         std::string_view format_name, float inverse_scale, int threads) {
        decode(span_of(in), span_of(out),
               {.format = find_format(format_name).id,
                .inverse_scale = inverse_scale,
                .threads = threads});
      },
      "codes"_a.noconvert(), "out"_a.noconvert(), "format"_a, "inverse_scale"_a, "threads"_a,
      WithoutGil());
}

}  // namespace fp8lab::python
