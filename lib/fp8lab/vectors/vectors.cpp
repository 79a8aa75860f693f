#include "fp8lab/vectors/vectors.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <array>
#include <charconv>
#include <sstream>
#include <string_view>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kMagic = "# fp8lab vectors 1";

/// Reads one file and knows where it is, so that every message can say so.
class Reader {
 public:
  Reader(std::istream& in, std::string name) : in_(in), name_(std::move(name)) {}

  VectorFile read() {
    read_header();
    do {
      file_.cases.push_back(parse_case());
    } while (next());
    return std::move(file_);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(fmt::format("{}:{}: {}", name_, line_, reason));
  }

  /// Moves to the next line; false at the end of the file.
  bool next() {
    std::getline(in_, text_);
    if (in_.bad()) fail("cannot be read");
    if (in_.eof() && text_.empty()) return false;
    ++line_;
    const bool ended = !in_.eof();
    if (!text_.empty() && text_.back() == '\r') text_.pop_back();
    if (!ended) fail("truncated: the last line does not end in a newline");
    return true;
  }

  void read_header() {
    if (!next()) {
      line_ = 1;
      fail("empty file, expected '" + std::string(kMagic) + "'");
    }
    if (text_ != kMagic) fail(fmt::format("expected '{}', got '{}'", kMagic, text_.substr(0, 60)));
    bool more = next();
    for (; more && text_.starts_with('#'); more = next()) {
      const std::size_t colon = text_.find(": ");
      if (colon == std::string::npos || colon < 3) continue;  // a plain comment
      file_.header[text_.substr(2, colon - 2)] = text_.substr(colon + 2);
    }
    file_.model = field("model");
    parse_formats(field("input"));
    parse_terms(field("terms"));
    if (!more) fail("no cases after the header");
  }

  const std::string& field(const std::string& key) const {
    const auto found = file_.header.find(key);
    if (found == file_.header.end()) fail(fmt::format("missing header line '# {}: ...'", key));
    return found->second;
  }

  void parse_formats(const std::string& input) {
    std::istringstream names(input);
    std::string a;
    std::string b;
    names >> a >> b;
    try {
      file_.a_format = find_format(a).id;
      file_.b_format = b.empty() ? file_.a_format : find_format(b).id;
    } catch (const Error& error) {
      fail(fmt::format("header 'input': {}", error.what()));
    }
  }

  void parse_terms(const std::string& text) {
    const auto* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, file_.terms);
    if (error != std::errc{} || stop != end || file_.terms < 1 || file_.terms > 1 << 20)
      fail(fmt::format("header 'terms': expected a number from 1 to 2^20, got '{}'", text));
  }

  std::uint32_t parse_word(std::string_view digits, std::string_view field_name) const {
    std::uint32_t word = 0;
    const auto* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, word, 16);
    if (error != std::errc{} || stop != end)
      fail(fmt::format("field {}: expected hex digits, got '{}'", field_name, digits));
    return word;
  }

  std::vector<std::uint32_t> parse_operand(std::string_view digits, std::string_view field_name,
                                           FormatId id) const {
    const Format& f = format(id);
    const auto terms = static_cast<std::size_t>(file_.terms);
    const auto width = static_cast<std::size_t>(f.storage_bits / 4);
    if (digits.size() != terms * width)
      fail(fmt::format("field {}: expected {} elements of {} = {} hex digits, got {}", field_name,
                       terms, f.name, terms * width, digits.size()));
    std::vector<std::uint32_t> codes(terms);
    for (std::size_t i = 0; i < terms; ++i) {
      const std::uint32_t word = parse_word(digits.substr(i * width, width), field_name);
      codes[i] = code_of_storage(f, word);
      if (f.storage_bits == 8 && word >> f.code_bits() != 0)
        fail(fmt::format("field {}: element {}: 0x{:02x} is not a code of {} ({} bits)", field_name,
                         i, word, f.name, f.code_bits()));
    }
    return codes;
  }

  std::uint32_t parse_float(std::string_view digits, std::string_view field_name) const {
    if (digits.size() != 8)
      fail(fmt::format("field {}: expected 8 hex digits, got {}", field_name, digits.size()));
    return parse_word(digits, field_name);
  }

  VectorCase parse_case() const {
    std::array<std::string_view, 4> fields;
    std::size_t count = 0;
    const std::string_view text = text_;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = text.find_first_not_of(' ', at);
      if (begin == std::string_view::npos) break;
      const std::size_t end = std::min(text.find(' ', begin), text.size());
      if (count < fields.size()) fields[count] = text.substr(begin, end - begin);
      ++count;
      at = end;
    }
    if (count != fields.size()) fail(fmt::format("expected 4 fields 'a b c d', got {}", count));
    VectorCase result;
    result.a = parse_operand(fields[0], "a", file_.a_format);
    result.b = parse_operand(fields[1], "b", file_.b_format);
    result.c = parse_float(fields[2], "c");
    result.d = parse_float(fields[3], "d");
    result.line = line_;
    return result;
  }

  std::istream& in_;
  std::string name_;
  VectorFile file_;
  std::string text_;
  int line_ = 0;
};

void write_operand(std::ostream& out, const Format& f, const std::vector<std::uint32_t>& codes) {
  for (const std::uint32_t code : codes) {
    const std::uint32_t word = f.storage_bits == 32 ? code << (23 - f.mantissa_bits) : code;
    fmt::print(out, "{:0{}x}", word, f.storage_bits / 4);
  }
}

}  // namespace

VectorFile read_vectors(std::istream& in, const std::string& name) {
  return Reader(in, name).read();
}

VectorFile read_vectors(const std::filesystem::path& path) {
  std::istringstream in(read_file(path));
  return read_vectors(in, path.string());
}

void write_vectors(std::ostream& out, const VectorFile& file) {
  const Format& a = format(file.a_format);
  const Format& b = format(file.b_format);
  fmt::print(out, "{}\n# model: {}\n# input: {}\n# terms: {}\n", kMagic, file.model,
             a.id == b.id ? std::string(a.name) : fmt::format("{} {}", a.name, b.name), file.terms);
  for (const auto& [key, value] : file.header)
    if (key != "model" && key != "input" && key != "terms")
      fmt::print(out, "# {}: {}\n", key, value);
  for (const VectorCase& one : file.cases) {
    write_operand(out, a, one.a);
    out << ' ';
    write_operand(out, b, one.b);
    fmt::print(out, " {:08x} {:08x}\n", one.c, one.d);
  }
}

}  // namespace fp8lab
