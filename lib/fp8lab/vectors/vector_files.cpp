#include "fp8lab/vectors/vector_files.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <algorithm>
#include <boost/crc.hpp>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <streambuf>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/npz.hpp"
#include "fp8lab/io/safetensors.hpp"

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

namespace {

using std::filesystem::path;
using Header = std::map<std::string, std::string>;

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(fmt::format("{}: {}", where, reason));
}

std::uint32_t storage_of(const Format& f, std::uint32_t code) {
  return f.storage_bits == 32 ? code << (23 - f.mantissa_bits) : code;
}

/// The code in a storage word; `place` is asked for the words of a message.
template <class Place>
std::uint32_t checked_code(const Format& f, std::uint64_t word, const Place& place) {
  const bool fits = f.storage_bits == 32 ? word >> 32 == 0 : word >> f.code_bits() == 0;
  if (!fits)
    throw Error(fmt::format("{}: 0x{:x} is not a code of {} ({} bits)", place(), word, f.name,
                            f.code_bits()));
  return code_of_storage(f, static_cast<std::uint32_t>(word));
}

/// A file without cases.
VectorFile from_header(const std::string& where, const Header& header) {
  VectorFile file;
  file.header = header;
  for (const std::string_view key : kRequiredKeys)
    if (!header.contains(std::string(key))) fail(where, fmt::format("the header lacks '{}'", key));
  try {
    for (const auto& [key, value] : header) apply_header_line(file, key, value);
  } catch (const Error& error) {
    fail(where, error.what());
  }
  return file;
}

Header parse_header(const std::string& where, const std::string& text) {
  const auto parsed = parse_if_json<nlohmann::json>(text, where);
  if (!parsed || !parsed->is_object()) fail(where, "expected a JSON object of strings");
  Header header;
  for (const auto& [key, value] : parsed->items()) {
    if (!value.is_string()) fail(where, fmt::format("'{}': expected a string", key.substr(0, 40)));
    header[key] = value.get<std::string>();
  }
  return header;
}

// ---- arrays ----

std::vector<std::byte> operand_bytes(const VectorFile& file, const Format& f,
                                     std::vector<std::uint32_t> VectorCase::*operand) {
  const auto width = static_cast<std::size_t>(f.bytes());
  std::vector<std::byte> bytes;
  bytes.reserve(file.cases.size() * static_cast<std::size_t>(file.terms) * width);
  for (const VectorCase& one : file.cases)
    for (const std::uint32_t code : one.*operand)
      for (std::size_t byte = 0; byte < width; ++byte)
        bytes.push_back(static_cast<std::byte>(storage_of(f, code) >> (8 * byte) & 0xffu));
  return bytes;
}

ElementType unsigned_type(const Format& f) {
  return f.storage_bits == 8    ? ElementType::u8
         : f.storage_bits == 16 ? ElementType::u16
                                : ElementType::u32;
}

/// The type that .safetensors has for a format's elements.
ElementType typed(const Format& f) {
  if (f.storage_bits == 32) return ElementType::f32;
  const ElementType type = element_type_of(f.id);
  return safetensors_name(type).empty() ? unsigned_type(f) : type;
}

std::vector<NamedTensor> tensors_of(const VectorFile& file, const VectorArrays& arrays,
                                    ElementType (*type)(const Format&)) {
  const auto cases = static_cast<std::int64_t>(file.cases.size());
  const std::vector<std::int64_t> matrix{cases, file.terms};
  const std::vector<std::int64_t> scales{cases, static_cast<std::int64_t>(file.scale_count())};
  std::vector<NamedTensor> tensors{
      {"a", {type(format(file.a_format)), matrix, arrays.a, false}},
      {"b", {type(format(file.b_format)), matrix, arrays.b, false}},
      {"c", view_of(ElementType::f32, {cases}, std::span<const std::uint32_t>(arrays.c))},
      {"d", view_of(ElementType::f32, {cases}, std::span<const std::uint32_t>(arrays.d))}};
  if (!file.scales) return tensors;
  const auto view = [&](const std::vector<std::uint8_t>& codes) {
    return view_of(ElementType::u8, scales, std::span<const std::uint8_t>(codes));
  };
  tensors.push_back({"sa", view(arrays.scales_a)});
  tensors.push_back({"sb", view(arrays.scales_b)});
  return tensors;
}

void require_tensor(const std::string& where, const TensorView& tensor, ElementType type,
                    const std::vector<std::int64_t>& shape) {
  if (tensor.type != type || tensor.shape != shape || tensor.fortran_order)
    fail(where, fmt::format("expected row-major {} {}, got {} {}{}", to_string(type),
                            shape_text(shape), to_string(tensor.type), shape_text(tensor.shape),
                            tensor.fortran_order ? " in Fortran order" : ""));
}

/// Checks the d of the case read last.
void check_output(const std::string& where, const VectorFile& file) {
  try {
    require_output_value(file, file.cases.back().d);
  } catch (const Error& error) {
    fail(where, error.what());
  }
}

/// Fills the cases of `file`, of which the header is known, from its tensors.
template <class Find>
void read_tensors(VectorFile& file, const std::string& name, ElementType (*type)(const Format&),
                  const Find& find) {
  const auto check = [&](const char* tensor, ElementType wanted,
                         const std::vector<std::int64_t>& shape) {
    TensorView view = find(tensor);
    require_tensor(fmt::format("{}: {}", name, tensor), view, wanted, shape);
    return view;
  };
  const TensorView d_any = find("d");
  if (d_any.shape.size() != 1) fail(name, "d: expected one number per case");
  const std::int64_t cases = d_any.shape[0];
  const Format& fa = format(file.a_format);
  const Format& fb = format(file.b_format);
  const TensorView a = check("a", type(fa), {cases, file.terms});
  const TensorView b = check("b", type(fb), {cases, file.terms});
  const TensorView c = check("c", ElementType::f32, {cases});
  const TensorView d = check("d", ElementType::f32, {cases});
  const auto word = [](const TensorView& tensor, std::size_t index) {
    const std::size_t width = element_bytes(tensor.type);
    std::uint32_t value = 0;
    std::memcpy(&value, tensor.bytes.data() + index * width, width);
    return value;
  };
  const auto operand = [&](const TensorView& tensor, const Format& f, std::size_t one) {
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(file.terms));
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = checked_code(f, word(tensor, one * codes.size() + i),
                              [&] { return fmt::format("{}: case {}", name, one + 1); });
    return codes;
  };
  for (std::size_t i = 0; i < static_cast<std::size_t>(cases); ++i) {
    file.cases.push_back(
        {operand(a, fa, i), operand(b, fb, i), word(c, i), word(d, i), static_cast<int>(i) + 1});
    check_output(fmt::format("{}: case {}", name, i + 1), file);
  }
  if (file.cases.empty()) fail(name, "no cases");
  if (!file.scales) return;
  const std::size_t blocks = file.scale_count();
  const auto read_scales = [&](const char* tensor, std::vector<std::uint8_t> VectorCase::*codes) {
    const TensorView view =
        check(tensor, ElementType::u8, {cases, static_cast<std::int64_t>(blocks)});
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(view.bytes.data());
    for (std::size_t i = 0; i < file.cases.size(); ++i)
      (file.cases[i].*codes).assign(bytes + i * blocks, bytes + (i + 1) * blocks);
  };
  read_scales("sa", &VectorCase::scales_a);
  read_scales("sb", &VectorCase::scales_b);
}

void save_npz(const path& where, const VectorFile& file) {
  const VectorArrays arrays = arrays_of(file);
  std::vector<NamedTensor> tensors = tensors_of(file, arrays, unsigned_type);
  const std::string header = exact_json_text(nlohmann::json(header_of(file)), where.string());
  tensors.push_back({"header", view_of(ElementType::u8, {static_cast<std::int64_t>(header.size())},
                                       std::span<const char>(header))});
  write_npz(where, tensors);
}

VectorFile load_npz(const path& where) {
  const std::string name = where.string();
  const NpzFile archive(where);
  const NpzTensor header = archive.read("header");
  if (header.tensor.type != ElementType::u8)
    fail(name, "header: expected uint8 (the bytes of a JSON object)");
  const auto* text = reinterpret_cast<const char*>(header.tensor.bytes.data());
  const std::string json(text, header.tensor.bytes.size());
  VectorFile file = from_header(name, parse_header(name + ": header", json));
  std::map<std::string, NpzTensor> read;
  read_tensors(file, name, unsigned_type, [&](const char* tensor) {
    const auto [found, is_new] = read.try_emplace(tensor);
    if (is_new) found->second = archive.read(tensor);
    return found->second.tensor;
  });
  return file;
}

void save_safetensors(const path& where, const VectorFile& file) {
  const VectorArrays arrays = arrays_of(file);
  write_safetensors(where, tensors_of(file, arrays, typed), header_of(file));
}

VectorFile load_safetensors(const path& where) {
  const SafetensorsFile archive(where);
  const std::string name = where.string();
  VectorFile file = from_header(name + ": metadata", archive.metadata());
  read_tensors(file, name, typed, [&](const char* tensor) { return archive.find(tensor); });
  return file;
}

// ---- JSON-lines ----

void save_lines(const path& where, const VectorFile& file) {
  const auto words = [](const Format& f, const std::vector<std::uint32_t>& codes) {
    std::vector<std::uint32_t> result;
    for (const std::uint32_t code : codes) result.push_back(storage_of(f, code));
    return result;
  };
  write_file(where, [&](std::ostream& out) {
    out << exact_json_text(nlohmann::json(header_of(file)), where.string()) << '\n';
    for (const VectorCase& one : file.cases) {
      require_scales(file, one);
      nlohmann::json row{{"a", words(format(file.a_format), one.a)},
                         {"b", words(format(file.b_format), one.b)},
                         {"c", one.c},
                         {"d", one.d}};
      if (file.scales) {
        row["sa"] = one.scales_a;
        row["sb"] = one.scales_b;
      }
      out << json_text(row) << '\n';
    }
  });
}

std::vector<std::uint32_t> operand_of_line(const std::string& where, const nlohmann::json& row,
                                           const char* key, const Format& f, int terms) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_array() || found->size() != static_cast<std::size_t>(terms))
    fail(where, fmt::format("'{}': expected {} storage codes", key, terms));
  std::vector<std::uint32_t> codes;
  for (const nlohmann::json& item : *found) {
    if (!item.is_number_unsigned()) fail(where, fmt::format("'{}': expected codes >= 0", key));
    codes.push_back(checked_code(f, item.get<std::uint64_t>(),
                                 [&] { return fmt::format("{}: '{}'", where, key); }));
  }
  return codes;
}

std::vector<std::uint8_t> scales_of_line(const std::string& where, const nlohmann::json& row,
                                         const char* key, const VectorFile& file) {
  if (!file.scales) return {};
  const auto found = row.find(key);
  const auto is_code = [](const nlohmann::json& item) {
    return item.is_number_unsigned() && item.get<std::uint64_t>() <= 0xff;
  };
  if (found == row.end() || !found->is_array() || found->size() != file.scale_count() ||
      !std::all_of(found->begin(), found->end(), is_code))
    fail(where, fmt::format("'{}': expected {} scale codes, 0 to 255, got {}", key,
                            file.scale_count(), found == row.end() ? "none" : json_text(*found)));
  return found->get<std::vector<std::uint8_t>>();
}

std::uint32_t bits_of_line(const std::string& where, const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() >> 32 != 0)
    fail(where, fmt::format("'{}': expected the bits of a binary32 number, 0 to 2^32 - 1", key));
  return found->get<std::uint32_t>();
}

VectorFile parse_lines(const path& where, std::string whole) {
  std::istringstream in(std::move(whole));
  std::string text;
  std::getline(in, text);
  VectorFile file = from_header(where.string() + ":1", parse_header(where.string() + ":1", text));
  for (int line = 2; std::getline(in, text); ++line) {
    const std::string at = fmt::format("{}:{}", where.string(), line);
    if (in.eof()) fail(at, "truncated: the last line does not end in a newline");
    const auto row = parse_if_json<nlohmann::json>(text, at).value_or(nullptr);
    if (!row.is_object()) fail(at, "expected a JSON object");
    file.cases.push_back({operand_of_line(at, row, "a", format(file.a_format), file.terms),
                          operand_of_line(at, row, "b", format(file.b_format), file.terms),
                          bits_of_line(at, row, "c"), bits_of_line(at, row, "d"), line,
                          scales_of_line(at, row, "sa", file),
                          scales_of_line(at, row, "sb", file)});
    check_output(at, file);
  }
  if (file.cases.empty()) fail(where.string(), "no cases after the header");
  return file;
}

/// Passes text on and keeps its checksum.
class SummedBuffer final : public std::streambuf {
 public:
  explicit SummedBuffer(std::streambuf& to) : to_(to) {}
  [[nodiscard]] std::uint32_t crc() const { return crc_.checksum(); }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    crc_.process_byte(static_cast<unsigned char>(c));
    return to_.sputc(traits_type::to_char_type(c));
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    crc_.process_bytes(text, static_cast<std::size_t>(size));
    return to_.sputn(text, size);
  }

 private:
  std::streambuf& to_;
  boost::crc_32_type crc_;
};
}  // namespace

VectorArrays arrays_of(const VectorFile& file) {
  VectorArrays arrays{operand_bytes(file, format(file.a_format), &VectorCase::a),
                      operand_bytes(file, format(file.b_format), &VectorCase::b),
                      {},
                      {},
                      {},
                      {}};
  for (const VectorCase& one : file.cases) {
    require_scales(file, one);
    arrays.scales_a.insert(arrays.scales_a.end(), one.scales_a.begin(), one.scales_a.end());
    arrays.scales_b.insert(arrays.scales_b.end(), one.scales_b.begin(), one.scales_b.end());
    arrays.c.push_back(one.c);
    arrays.d.push_back(one.d);
  }
  return arrays;
}

VectorFile load_vectors(const path& where) {
  const std::string ending = where.extension().string();
  if (ending == ".npz") return load_npz(where);
  if (ending == ".safetensors") return load_safetensors(where);
  return parse_vectors(where, read_file(where));
}

VectorFile parse_vectors(const path& where, std::string text) {
  if (where.extension() == ".jsonl") return parse_lines(where, std::move(text));
  std::istringstream in(std::move(text));
  return read_vectors(in, where.string());
}

bool holds_arrays(const path& where) {
  return where.extension() == ".npz" || where.extension() == ".safetensors";
}

void save_vectors(const path& where, const VectorFile& file) {
  const std::string ending = where.extension().string();
  if (ending == ".npz") return save_npz(where, file);
  if (ending == ".safetensors") return save_safetensors(where, file);
  if (ending == ".jsonl") return save_lines(where, file);
  write_file(where, [&](std::ostream& out) {
    SummedBuffer summed(*out.rdbuf());
    std::ostream text(&summed);
    write_vectors(text, file);
    if (!text) out.setstate(std::ios::badbit);
    fmt::print(out, "# crc32: {:08x}\n", summed.crc());
  });
}

}  // namespace fp8lab
