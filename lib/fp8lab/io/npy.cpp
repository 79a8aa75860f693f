#include "fp8lab/io/npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>
#include <string>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/output_file.hpp"
#include "fp8lab/tensors/packed.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Parses the one Python literal that NumPy writes:
/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  Header parse() {
    expect('{');
    for (skip_space(); !accept('}'); skip_space()) {
      const std::string key = quoted();
      expect(':');
      parse_value(key);
      skip_space();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("bytes after the header's closing brace");
    if (!has_descr_ || !has_order_ || !has_shape_)
      fail("expected the keys 'descr', 'fortran_order' and 'shape'");
    return header_;
  }

 private:
  [[noreturn]] void fail(std::string_view reason) const {
    throw Error(fmt::format("{}: header byte {}: {}", file_, at_, reason));
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool accept(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}'", c));
  }
  void once(bool& seen, std::string_view key) {
    if (seen) fail(fmt::format("the key '{}' appears twice", key));
    seen = true;
  }

  std::string quoted() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
      fail("expected a quoted string");
    const char quote = text_[at_++];
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail("a string that does not end");
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }

  void parse_value(const std::string& key) {
    if (key == "descr") {
      once(has_descr_, key);
      skip_space();
      if (at_ < text_.size() && text_[at_] == '[') fail("structured arrays are not supported");
      header_.descr = quoted();
    } else if (key == "fortran_order") {
      once(has_order_, key);
      header_.fortran_order = accept("True");
      if (!header_.fortran_order && !accept("False")) fail("expected True or False");
    } else if (key == "shape") {
      once(has_shape_, key);
      parse_shape();
    } else {
      fail(fmt::format("unknown key '{}'", key.substr(0, 40)));
    }
  }

  void parse_shape() {
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t dimension = 0;
      const char* first = text_.data() + at_;
      const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), dimension);
      if (error != std::errc{} || dimension < 0) fail("expected a dimension from 0 to 2^63 - 1");
      at_ += static_cast<std::size_t>(end - first);
      header_.shape.push_back(dimension);
      if (header_.shape.size() > kMostDimensions)
        fail(fmt::format("more than {} dimensions", kMostDimensions));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0;
  Header header_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

struct Descr {
  std::string_view text;
  ElementType type;
};

constexpr Descr kDescrs[] = {
    {"<f8", ElementType::f64}, {"<f4", ElementType::f32}, {"<f2", ElementType::f16},
    {"|u1", ElementType::u8},  {"<u2", ElementType::u16}, {"<u4", ElementType::u32},
    {"<u8", ElementType::u64}, {"|i1", ElementType::i8},  {"<i2", ElementType::i16},
    {"<i4", ElementType::i32}, {"<i8", ElementType::i64}, {"|b1", ElementType::boolean}};

bool is_one_byte_float(ElementType type) {
  return is_packed(type) || (element_bits(type) == 8 && format_of(type).has_value());
}

bool is_two_byte_float(ElementType type) {
  return !is_packed(type) && element_bits(type) == 16 && format_of(type).has_value();
}

/// What the elements are, from the header and what the caller knows.
ElementType resolve(const std::string& descr, std::optional<ElementType> interpret_as,
                    const std::string& file) {
  const auto fail = [&](std::string_view reason) {
    throw Error(fmt::format("{}: dtype '{}': {}", file, descr.substr(0, 40), reason));
  };
  if (descr == "|V1" || descr == "<V1")
    fail(
        "opaque bytes, NumPy did not keep which FP8 format they are; save x.view(np.uint8) and "
        "name the dtype (e4m3fn, e5m2), or write .safetensors");
  if (descr == "<V2" || descr == "|V2") {
    if (!interpret_as || (*interpret_as != ElementType::bf16 && *interpret_as != ElementType::f16))
      fail("opaque words, as NumPy saves bfloat16; name the dtype (bf16)");
    return *interpret_as;
  }
  if (!descr.empty() && descr[0] == '>')
    fail("big endian; save x.astype(x.dtype.newbyteorder('<'))");
  if (descr.find('O') != std::string::npos) fail("pickled objects are not supported");
  for (const Descr& known : kDescrs) {
    if (known.text != descr) continue;
    if (!interpret_as || *interpret_as == known.type) return known.type;
    const bool fits = (known.type == ElementType::u8 && is_one_byte_float(*interpret_as)) ||
                      (known.type == ElementType::u16 && is_two_byte_float(*interpret_as));
    if (!fits) fail(fmt::format("cannot be read as {}", to_string(*interpret_as)));
    return *interpret_as;
  }
  fail("not supported; expected <f2, <f4, <f8, |u1, <u2 or an integer type");
  return ElementType::f32;
}

std::string_view descr_of(ElementType type) {
  for (const Descr& known : kDescrs)
    if (known.type == type) return known.text;
  if (type == ElementType::bf16) return "<V2";
  return is_two_byte_float(type) ? "<u2" : "|u1";
}

}  // namespace

TensorView parse_npy(std::span<const std::byte> bytes, const std::string& name,
                     std::optional<ElementType> interpret_as) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) throw Error(name + ": not an .npy file (no \\x93NUMPY magic)");
  if (text.size() < 10) throw Error(name + ": truncated in the first 10 bytes");
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(bytes[i]); };
  if ((byte(6) != 1 && byte(6) != 2) || byte(7) != 0)
    throw Error(fmt::format("{}: expected version 1.0 or 2.0, got {}.{}", name, byte(6), byte(7)));
  std::size_t start = 10;
  std::size_t length = byte(8) + 256U * byte(9);
  if (byte(6) == 2) {
    if (text.size() < 12) throw Error(name + ": truncated in the first 12 bytes");
    length += 65536U * byte(10) + (std::size_t{byte(11)} << 24);
    start = 12;
  }
  if (length > text.size() - start)
    throw Error(fmt::format("{}: truncated: a header of {} bytes in a file of {}", name, length,
                            text.size()));
  const Header header = HeaderParser(text.substr(start, length), name).parse();
  TensorView tensor{
      resolve(header.descr, interpret_as, name), header.shape, {}, header.fortran_order};
  const std::size_t have = text.size() - start - length;
  const ElementType stored = is_packed(tensor.type) ? ElementType::u8 : tensor.type;
  const auto count = static_cast<std::size_t>(element_count(header.shape, name + ": shape"));
  const std::size_t width = element_bytes(stored);
  if (have % width != 0 || have / width != count)
    throw Error(fmt::format("{}: {}: expected {} for {}, got {}", name,
                            have / width < count ? "truncated; copy or save it again" : "too long",
                            elements_text(count, stored), shape_text(header.shape),
                            counted(have, "byte")));
  if (is_packed(tensor.type)) {
    require(
        !header.fortran_order || header.shape.size() < 2, name,
        fmt::format("row-major order of {} (save np.ascontiguousarray(x))", to_string(tensor.type)),
        "Fortran order");
    tensor.shape = shape_of_packed(tensor.type, header.shape, name + ": shape");
  }
  tensor.bytes = bytes.subspan(start + length);
  return tensor;
}

std::string npy_preamble(const TensorView& tensor) {
  const std::size_t expected = storage_bytes(tensor.type, tensor.size(), "tensor");
  const std::vector<std::int64_t> shape =
      is_packed(tensor.type) ? shape_in_bytes(tensor.type, tensor.shape, "shape") : tensor.shape;
  require(tensor.bytes.size() == expected, "tensor", counted(expected, "byte"),
          counted(tensor.bytes.size(), "byte"));
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}{}), }}",
                                   descr_of(tensor.type), tensor.fortran_order ? "True" : "False",
                                   fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const bool long_header = header.size() + 1 + kAlignment > 0xffff;
  const std::size_t start = long_header ? 12 : 10;
  const std::size_t padding = (kAlignment - (start + header.size() + 1) % kAlignment) % kAlignment;
  header += std::string(padding, ' ') + '\n';
  std::string preamble(kMagic);
  preamble += long_header ? '\2' : '\1';
  preamble += '\0';
  for (std::size_t i = 0; i < start - 8; ++i)
    preamble += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return preamble + header;
}

NpyFile::NpyFile(const std::filesystem::path& path, std::optional<ElementType> interpret_as)
    : file_(std::make_unique<MappedFile>(path)),
      tensor_(parse_npy(file_->bytes(), path.string(), interpret_as)) {}

std::unique_ptr<OutputFile> prepare_npy(const std::filesystem::path& path,
                                        const TensorView& tensor) {
  const std::string preamble = npy_preamble(tensor);
  auto file = std::make_unique<OutputFile>(path);
  file->write(preamble);
  file->write({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
  file->finish();
  return file;
}

void write_npy(const std::filesystem::path& path, const TensorView& tensor) {
  prepare_npy(path, tensor)->commit();
}

}  // namespace fp8lab
