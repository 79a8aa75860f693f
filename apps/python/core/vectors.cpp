#include "fp8lab/io/vector_files.hpp"

#include <fmt/format.h>
#include <nanobind/stl/map.h>

#include <cstring>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/replay.hpp"
#include "fp8lab/verify/cases.hpp"
#include "fp8lab/verify/recording.hpp"
#include "fp8lab/verify/separate.hpp"

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
      .def("fields", fields_of)
      .def(
          "save", [](const VectorFile& self, const std::string& path) { save_vectors(path, self); },
          "path"_a, WithoutGil())
      .def("replay", replay_cases, "model"_a);
  m.def("separate", separate_models, "first"_a, "second"_a, "count"_a, "seed"_a, "terms"_a);
}

}  // namespace fp8lab::python
