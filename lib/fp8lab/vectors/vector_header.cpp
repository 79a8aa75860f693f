#include "fp8lab/vectors/vector_header.hpp"

#include <fmt/format.h>

#include <charconv>
#include <sstream>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr int kMostTerms = 1 << 20;

[[noreturn]] void fail(std::string_view key, const std::string& reason) {
  throw Error(fmt::format("header '{}': {}", key, reason));
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

void apply_input(VectorFile& file, const std::string& value) {
  std::vector<std::string> names = words_of(value);
  if (names.empty() || names.size() > 2)
    fail("input", fmt::format("expected one format, or those of a and b, got '{}'", value));
  try {
    file.a_format = find_format(names[0]).id;
    file.b_format = names.size() < 2 ? file.a_format : find_format(names[1]).id;
  } catch (const Error& error) {
    fail("input", error.what());
  }
}

void apply_terms(VectorFile& file, const std::string& value) {
  const auto* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, file.terms);
  if (error != std::errc{} || stop != end || file.terms < 1 || file.terms > kMostTerms)
    fail("terms", fmt::format("expected a number from 1 to 2^20, got '{}'", value));
}

void apply_scales(VectorFile& file, const std::string& value) {
  const std::vector<std::string> words = words_of(value);
  const bool known = words.size() == 2 && (words[0] == "ue8m0" || words[0] == "ue4m3") &&
                     (words[1] == "16" || words[1] == "32");
  if (!known)
    fail("scales",
         fmt::format("expected a format, ue8m0 or ue4m3, and a block, 16 or 32, got '{}'", value));
  file.scales = ScaleBlocks{find_scale_format(words[0], "scales"), words[1] == "16" ? 16 : 32};
}

/// The rest of an `output` line is free: it says where the bits come from.
void apply_output(VectorFile& file, const std::string& value) {
  const std::vector<std::string> words = words_of(value);
  const std::string name = words.empty() ? "" : words[0];
  if (name != "f16" && name != "f32")
    fail("output", fmt::format("expected f16 or f32, got '{}'", value));
  file.output_format = name == "f16" ? FormatId::f16 : FormatId::f32;
}

}  // namespace

void apply_header_line(VectorFile& file, std::string_view key, const std::string& value) {
  if (key == "model") file.model = value;
  if (key == "input") apply_input(file, value);
  if (key == "terms") apply_terms(file, value);
  if (key == "scales") apply_scales(file, value);
  if (key == "output") apply_output(file, value);
  if (key == "nan") {
    if (value != "any") fail("nan", fmt::format("expected 'any', got '{}'", value));
    file.any_nan = true;
  }
}

std::map<std::string, std::string> header_of(const VectorFile& file) {
  std::map<std::string, std::string> header = file.header;
  const std::string_view a = format(file.a_format).name;
  const std::string_view b = format(file.b_format).name;
  header["model"] = file.model;
  header["input"] = a == b ? std::string(a) : fmt::format("{} {}", a, b);
  header["terms"] = fmt::format("{}", file.terms);
  if (file.scales)
    header["scales"] = fmt::format("{} {}", to_string(file.scales->format), file.scales->block);
  if (file.any_nan) header["nan"] = "any";
  if (file.output_format == FormatId::f16) header.try_emplace("output", "f16");
  return header;
}

}  // namespace fp8lab
