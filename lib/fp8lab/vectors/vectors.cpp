#include "fp8lab/vectors/vectors.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <array>
#include <bit>
#include <boost/crc.hpp>
#include <charconv>
#include <sstream>
#include <string_view>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/vectors/vector_files.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kMagic = "# fp8lab vectors 1";
constexpr std::string_view kChecksum = "# crc32: ";

/// The binary32 bits of an FP16 code; a NaN keeps its payload.
std::uint32_t widened(std::uint32_t code) {
  const Format& half = format(FormatId::f16);
  if (unpack(half, code).value_class == ValueClass::nan)
    return (code & half.sign_mask()) << 16 | 0x7f800000u | (code & 0x3ffu) << 13;
  return std::bit_cast<std::uint32_t>(static_cast<float>(decode(half, code)));
}

/// Reads one file and knows where it is, so that every message can say so.
class Reader {
 public:
  Reader(std::istream& in, std::string name) : in_(in), name_(std::move(name)) {}

  VectorFile read() {
    read_header();
    do {
      if (text_.starts_with(kChecksum)) {
        check_end();
        break;
      }
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
    before_.process_bytes(text_.data(), text_.size());
    before_.process_bytes(ending_.data(), ending_.size());
    std::getline(in_, text_);
    if (in_.bad()) fail("cannot be read");
    if (in_.eof() && text_.empty()) return false;
    ++line_;
    const bool ended = !in_.eof();
    const std::size_t length = text_.find_last_not_of('\r') + 1;
    ending_ = text_.substr(length) + "\n";
    text_.resize(length);
    if (!ended) fail("truncated: the last line does not end in a newline");
    return true;
  }

  /// The line is a checksum. Files of older versions, of other programs and of pipes have none.
  void check_end() {
    const std::string_view expected = std::string_view(text_).substr(kChecksum.size());
    const std::string got = fmt::format("{:08x}", before_.checksum());
    if (got != expected)
      fail(fmt::format("crc32: expected {} as recorded in the file (the file was changed), got {}",
                       expected, got));
    if (next()) fail("text after the checksum");
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
      const std::string key = text_.substr(2, colon - 2);
      if (file_.header.contains(key))
        fail(fmt::format("a second header line '# {}: ...', after line {}", key.substr(0, 40),
                         header_lines_.at(key)));
      file_.header[key] = text_.substr(colon + 2);
      header_lines_[key] = line_;
    }
    for (const std::string_view key : kRequiredKeys)
      if (!file_.header.contains(std::string(key)))
        fail(fmt::format("missing header line '# {}: ...'", key));
    for (const std::string_view key : kRequiredKeys) apply(std::string(key));
    for (const std::string_view key : kOptionalKeys) apply(std::string(key));
    if (!more) fail("no cases after the header");
  }

  /// Reads the header line of `key`, if there is one; a message names that line.
  void apply(const std::string& key) {
    const auto found = file_.header.find(key);
    if (found == file_.header.end()) return;
    try {
      apply_header_line(file_, key, found->second);
    } catch (const Error& error) {
      line_ = header_lines_.at(key);
      fail(error.what());
    }
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
      fail(fmt::format("field {}: expected {} of {} = {} hex digits, got {}", field_name,
                       counted(terms, "element"), f.name, terms * width, digits.size()));
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

  std::vector<std::uint8_t> parse_scales(std::string_view digits,
                                         std::string_view field_name) const {
    const std::size_t count = file_.scale_count();
    if (digits.size() != 2 * count)
      fail(fmt::format("field {}: expected {} of {} = {} hex digits, got {}", field_name,
                       counted(count, "scale"), to_string(file_.scales->format), 2 * count,
                       digits.size()));
    std::vector<std::uint8_t> codes(count);
    for (std::size_t i = 0; i < count; ++i)
      codes[i] = static_cast<std::uint8_t>(parse_word(digits.substr(2 * i, 2), field_name));
    return codes;
  }

  /// Binary32 bits; FP16 bits are widened where the file holds FP16 outputs.
  std::uint32_t parse_float(std::string_view digits, std::string_view field_name) const {
    const bool half = file_.output_format == FormatId::f16;
    if (half && digits.size() == 4) {
      return widened(parse_word(digits, field_name));
    }
    if (digits.size() != 8)
      fail(fmt::format("field {}: expected 8 hex digits{}, got {}", field_name,
                       half ? ", or 4 of an FP16 code" : "", digits.size()));
    return parse_word(digits, field_name);
  }

  VectorCase parse_case() const {
    constexpr std::array<std::string_view, 6> kNames{"a", "b", "sa", "sb", "c", "d"};
    std::vector<std::string_view> fields;
    const std::string_view text = text_;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = text.find_first_not_of(' ', at);
      if (begin == std::string_view::npos) break;
      const std::size_t end = std::min(text.find(' ', begin), text.size());
      fields.push_back(text.substr(begin, end - begin));
      at = end;
    }
    const bool scaled = file_.scales.has_value();
    if (fields.size() != (scaled ? 6u : 4u))
      fail(fmt::format("expected {}, got {}",
                       scaled ? "6 fields 'a b sa sb c d'" : "4 fields 'a b c d'", fields.size()));
    VectorCase result;
    result.a = parse_operand(fields[0], kNames[0], file_.a_format);
    result.b = parse_operand(fields[1], kNames[1], file_.b_format);
    if (scaled) {
      result.scales_a = parse_scales(fields[2], kNames[2]);
      result.scales_b = parse_scales(fields[3], kNames[3]);
    }
    result.c = parse_float(fields[fields.size() - 2], kNames[4]);
    result.d = parse_float(fields.back(), kNames[5]);
    try {
      require_output_value(file_, result.d);
    } catch (const Error& error) {
      fail(fmt::format("field {}", error.what()));
    }
    result.line = line_;
    return result;
  }

  std::istream& in_;
  std::string name_;
  VectorFile file_;
  std::map<std::string, int> header_lines_;
  std::string text_;
  std::string ending_;           ///< of the line in text_
  boost::crc_32_type before_{};  ///< of all lines before it
  int line_ = 0;
};

void write_operand(std::ostream& out, const Format& f, const std::vector<std::uint32_t>& codes) {
  for (const std::uint32_t code : codes) {
    const std::uint32_t word = f.storage_bits == 32 ? code << (23 - f.mantissa_bits) : code;
    fmt::print(out, "{:0{}x}", word, f.storage_bits / 4);
  }
}

void write_scales(std::ostream& out, const std::vector<std::uint8_t>& codes) {
  for (const std::uint8_t code : codes) fmt::print(out, "{:02x}", code);
  out << ' ';
}

bool is_nan_word(std::uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

/// Whether FP16 has this binary32 number or infinity.
bool is_half_value(std::uint32_t bits) {
  const Unpacked u = unpack(format(FormatId::f32), bits);
  if (!u.is_finite() || u.value_class == ValueClass::zero) return true;
  const Format& half = format(FormatId::f16);
  const int below = std::max(half.min_exponent() - u.exponent, 0);
  const int dropped = u.mantissa_bits - half.mantissa_bits + below;
  return u.exponent <= half.bias && dropped <= u.mantissa_bits &&
         u.significand % (std::uint32_t{1} << dropped) == 0;
}

}  // namespace

bool is_same_result(const VectorFile& file, std::uint32_t expected, std::uint32_t got) {
  if (expected == got || !is_nan_word(expected) || !is_nan_word(got)) return expected == got;
  return file.any_nan || (file.output_format == FormatId::f16 && expected >> 13 == got >> 13);
}

void require_scales(const VectorFile& file, const VectorCase& one) {
  const auto check = [&](const char* name, const std::vector<std::uint8_t>& codes) {
    require(codes.size() == file.scale_count(), name,
            fmt::format("{} scales per case", file.scale_count()), fmt::format("{}", codes.size()));
  };
  check("scales_a", one.scales_a);
  check("scales_b", one.scales_b);
}

void require_output_value(const VectorFile& file, std::uint32_t d) {
  if (file.output_format != FormatId::f16 || is_nan_word(d)) return;
  require(is_half_value(d), "d", "an FP16 value in binary32 bits", fmt::format("{:08x}", d));
}

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
  std::map<std::string, std::string> header = header_of(file);
  fmt::print(out, "{}\n", kMagic);
  for (const std::string_view key : kRequiredKeys)
    fmt::print(out, "# {}: {}\n", key, header.extract(std::string(key)).mapped());
  for (const auto& [key, value] : header) fmt::print(out, "# {}: {}\n", key, value);
  for (const VectorCase& one : file.cases) {
    write_operand(out, a, one.a);
    out << ' ';
    write_operand(out, b, one.b);
    out << ' ';
    require_scales(file, one);
    if (file.scales) {
      write_scales(out, one.scales_a);
      write_scales(out, one.scales_b);
    }
    fmt::print(out, "{:08x} {:08x}\n", one.c, one.d);
  }
}

}  // namespace fp8lab
