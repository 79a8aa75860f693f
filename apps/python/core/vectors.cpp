#include "fp8lab/vectors/vector_files.hpp"

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>

#include <bit>
#include <cstring>
#include <optional>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/recording.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "fp8lab/vectors/separate.hpp"

namespace fp8lab::python {
namespace {

std::size_t checked_count(std::int64_t count) {
  require(count >= 1 && count <= 10'000'000, "count", "1 to 10000000", fmt::format("{}", count));
  return static_cast<std::size_t>(count);
}

VectorFile generate(const std::string& model, std::int64_t count, std::string_view kind,
                    std::uint64_t seed, int terms) {
  return generate_cases(find_instruction_model(model), find_case_kind(kind), checked_count(count),
                        seed, terms);
}

nb::tuple separate_models(const std::string& first, const std::string& second, std::int64_t count,
                          std::uint64_t seed, int terms) {
  Separation found;
  {
    const nb::gil_scoped_release release;
    found = separate(find_instruction_model(first), find_instruction_model(second),
                     checked_count(count), seed, terms);
  }
  return nb::make_tuple(std::move(found.file), found.tried);
}

template <typename Word>
nb::object words_of(const std::vector<std::byte>& bytes, std::size_t cases, std::size_t terms) {
  std::vector<Word> words(cases * terms);
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return nb::cast(array_of(std::move(words), {cases, terms}));
}

nb::object operand_of(FormatId id, const std::vector<std::byte>& bytes, std::size_t cases,
                      std::size_t terms) {
  switch (format(id).storage_bits) {
    case 8:
      return words_of<std::uint8_t>(bytes, cases, terms);
    case 16:
      return words_of<std::uint16_t>(bytes, cases, terms);
    default:
      return words_of<std::uint32_t>(bytes, cases, terms);
  }
}

/// The codes of row `row`, from storage words.
std::vector<std::uint32_t> codes_of(FormatId id, const Words& words, std::size_t row) {
  const CodeMatrix matrix{id,
                          words.data(),
                          static_cast<std::int64_t>(words.shape(0)),
                          static_cast<std::int64_t>(words.shape(1)),
                          words.stride(0),
                          words.stride(1)};
  std::vector<std::uint32_t> codes(words.shape(1));
  for (std::size_t k = 0; k < codes.size(); ++k)
    codes[k] = code_at(matrix, static_cast<std::int64_t>(row), static_cast<std::int64_t>(k));
  return codes;
}

void require_words(std::string_view name, const Words& words, FormatId id, std::size_t cases,
                   std::size_t terms) {
  require(words.shape(0) == cases && words.shape(1) == terms, name,
          fmt::format("[n, terms] = [{}, {}]", cases, terms),
          fmt::format("[{}, {}]", words.shape(0), words.shape(1)));
  require(words.itemsize() * 8 == static_cast<std::size_t>(format(id).storage_bits), name,
          fmt::format("words of {} bits, as {} has", format(id).storage_bits, format(id).name),
          fmt::format("{} bits", words.itemsize() * 8));
}

/// Scale codes, [n, blocks].
using Codes = Matrix<const std::uint8_t>;

/// One row of scale codes for each case; nothing without block scales.
void set_scales(VectorFile& file, const char* name, const std::optional<Codes>& scales,
                std::vector<std::uint8_t> VectorCase::*codes) {
  const std::size_t blocks = file.scale_count();
  require(scales.has_value() == file.scales.has_value(), name,
          file.scales ? "the scales that the header states" : "none: the header states no scales",
          scales ? "scales" : "None");
  if (!scales) return;
  require(scales->shape(0) == file.cases.size() && scales->shape(1) == blocks, name,
          fmt::format("[n, blocks] = [{}, {}]", file.cases.size(), blocks),
          fmt::format("[{}, {}]", scales->shape(0), scales->shape(1)));
  for (std::size_t i = 0; i < file.cases.size(); ++i)
    (file.cases[i].*codes).assign(scales->data() + i * blocks, scales->data() + (i + 1) * blocks);
}

/// The arrays of the Python class as the library's cases: what they hold now, not what they
/// were made from.
VectorFile file_of(const std::string& model, std::string_view a_format, std::string_view b_format,
                   const std::map<std::string, std::string>& header, const Words& a, const Words& b,
                   const Vector<const float>& c, const Vector<const float>& d,
                   const std::optional<Codes>& scales_a, const std::optional<Codes>& scales_b) {
  VectorFile file;
  file.model = model;
  file.a_format = find_format(a_format).id;
  file.b_format = find_format(b_format).id;
  file.terms = static_cast<int>(a.shape(1));
  file.header = header;
  const std::size_t cases = d.size();
  require(c.size() == cases, "c", fmt::format("[n] = [{}]", cases), fmt::format("[{}]", c.size()));
  require_words("a", a, file.a_format, cases, a.shape(1));
  require_words("b", b, file.b_format, cases, a.shape(1));
  for (std::size_t i = 0; i < cases; ++i)
    file.cases.push_back({codes_of(file.a_format, a, i), codes_of(file.b_format, b, i),
                          std::bit_cast<std::uint32_t>(c.data()[i]),
                          std::bit_cast<std::uint32_t>(d.data()[i]), static_cast<int>(i) + 1});
  for (const std::string_view key : kOptionalKeys)
    if (const auto found = header.find(std::string(key)); found != header.end())
      apply_header_line(file, key, found->second);
  file.header = header_of(file);
  set_scales(file, "scales_a", scales_a, &VectorCase::scales_a);
  set_scales(file, "scales_b", scales_b, &VectorCase::scales_b);
  return file;
}

/// Keyword arguments of the Python class: words, which it shows as its formats' dtypes.
nb::dict fields_of(const VectorFile& file) {
  VectorArrays arrays = arrays_of(file);
  const std::size_t cases = file.cases.size();
  const auto terms = static_cast<std::size_t>(file.terms);
  nb::dict d;
  d["model"] = file.model;
  d["a_format"] = format(file.a_format).name;
  d["b_format"] = format(file.b_format).name;
  d["header"] = header_of(file);
  d["a"] = operand_of(file.a_format, arrays.a, cases, terms);
  d["b"] = operand_of(file.b_format, arrays.b, cases, terms);
  if (file.scales) {
    d["scales_a"] = array_of(std::move(arrays.scales_a), {cases, file.scale_count()});
    d["scales_b"] = array_of(std::move(arrays.scales_b), {cases, file.scale_count()});
  }
  d["c"] = array_of(std::move(arrays.c), {cases});
  d["d"] = array_of(std::move(arrays.d), {cases});
  return d;
}

nb::dict replay_cases(const VectorFile& file, const std::string& model) {
  ReplayReport report;
  {
    const nb::gil_scoped_release release;
    report = replay(file, model);
  }
  nb::list shown;
  for (const ReplayMismatch& mismatch : report.shown) shown.append(describe(mismatch));
  nb::dict d;
  d["model"] = report.model;
  d["cases"] = report.cases;
  d["mismatches"] = report.mismatches;
  d["shown"] = nb::tuple(shown);
  return d;
}

}  // namespace

void bind_vectors(nb::module_& m) {
  nb::class_<VectorFile>(m, "VectorFile")
      .def_static(
          "load", [](const std::string& path) { return read_cases(path); }, "path"_a, WithoutGil())
      .def_static("generate", generate, "model"_a, "count"_a, "kind"_a, "seed"_a, "terms"_a,
                  WithoutGil())
      .def_static("of", file_of, nb::kw_only(), "model"_a, "a_format"_a, "b_format"_a, "header"_a,
                  "a"_a.noconvert(), "b"_a.noconvert(), "c"_a.noconvert(), "d"_a.noconvert(),
                  "scales_a"_a.noconvert().none(), "scales_b"_a.noconvert().none())
      .def("fields", fields_of)
      .def(
          "save", [](const VectorFile& self, const std::string& path) { save_vectors(path, self); },
          "path"_a, WithoutGil())
      .def("replay", replay_cases, "model"_a);
  m.def("separate", separate_models, "first"_a, "second"_a, "count"_a, "seed"_a, "terms"_a);
}

}  // namespace fp8lab::python
