#include "fp8lab/io/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <unordered_set>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/json_text.hpp"

namespace fp8lab {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr std::string_view kMetadata = "__metadata__";

struct Dtype {
  std::string_view name;
  ElementType type;
};

// The FNUZ names are newer than the others: older readers refuse such files.
constexpr Dtype kDtypes[] = {{"F64", ElementType::f64},
                             {"F32", ElementType::f32},
                             {"F16", ElementType::f16},
                             {"BF16", ElementType::bf16},
                             {"F8_E4M3", ElementType::e4m3fn},
                             {"F8_E5M2", ElementType::e5m2},
                             {"F8_E8M0", ElementType::e8m0fnu},
                             {"U8", ElementType::u8},
                             {"U16", ElementType::u16},
                             {"U32", ElementType::u32},
                             {"U64", ElementType::u64},
                             {"I8", ElementType::i8},
                             {"I16", ElementType::i16},
                             {"I32", ElementType::i32},
                             {"I64", ElementType::i64},
                             {"BOOL", ElementType::boolean},
                             {"F8_E4M3FNUZ", ElementType::e4m3fnuz},
                             {"F8_E5M2FNUZ", ElementType::e5m2fnuz}};

std::string_view dtype_name(ElementType type) {
  for (const Dtype& dtype : kDtypes)
    if (dtype.type == type) return dtype.name;
  return "";
}

/// Refuses what the format does not allow at any depth: a key that appears twice, and nesting
/// beyond {"name": {"shape": [...]}}. A pass of its own: the library's parser with a callback
/// looks through all earlier keys at the end of every object.
class HeaderCheck final : public json::json_sax_t {
 public:
  explicit HeaderCheck(const std::string& file) : file_(file) {}

  bool start_object(std::size_t) override {
    go_down();
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    go_down();
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second)
      throw Error(fmt::format("{}: header: the key '{}' appears twice", file_, key.substr(0, 80)));
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    throw Error(fmt::format("{}: header is not JSON: {}", file_, json_reason(error)));
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

 private:
  void go_down() {
    if (++depth_ > 3) throw Error(file_ + ": header: nested too deeply");
  }

  const std::string& file_;
  std::vector<std::unordered_set<std::string>> keys_;
  int depth_ = 0;
};

json parse_header(std::string_view text, const std::string& file) {
  HeaderCheck check(file);
  json::sax_parse(text.begin(), text.end(), &check);
  return parse_json<json>(text, file + ": header");
}

class EntryParser {
 public:
  EntryParser(std::string file, std::span<const std::byte> data)
      : file_(std::move(file)), data_(data) {}

  NamedTensor parse(const std::string& name, const json& entry) {
    name_ = name.substr(0, 80);
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
        !entry.contains("shape") || !entry.contains("data_offsets"))
      fail("expected exactly dtype, shape and data_offsets");
    NamedTensor result{name, {}};
    result.tensor.type = dtype(entry["dtype"]);
    for (const std::uint64_t dimension : integers(entry["shape"], "shape", kMostDimensions))
      result.tensor.shape.push_back(static_cast<std::int64_t>(dimension));
    const std::vector<std::uint64_t> offsets = integers(entry["data_offsets"], "data_offsets", 2);
    if (offsets.size() != 2) fail("data_offsets: expected [begin, end]");
    if (offsets[0] > offsets[1] || offsets[1] > data_.size())
      fail(fmt::format("data_offsets [{}, {}] lie outside the {} bytes of data", offsets[0],
                       offsets[1], data_.size()));
    const auto count = static_cast<std::uint64_t>(
        element_count(result.tensor.shape, fmt::format("{}: '{}': shape", file_, name_)));
    const std::uint64_t width = element_bytes(result.tensor.type);
    const std::uint64_t have = offsets[1] - offsets[0];
    if (have % width != 0 || have / width != count)
      fail(fmt::format("expected {} elements of {} bytes for shape {}, got {} bytes", count, width,
                       shape_text(result.tensor.shape), have));
    result.tensor.bytes = data_.subspan(offsets[0], have);
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(fmt::format("{}: '{}': {}", file_, name_, reason));
  }
  ElementType dtype(const json& value) const {
    if (!value.is_string()) fail("dtype: expected a string");
    for (const Dtype& known : kDtypes)
      if (known.name == value.get_ref<const std::string&>()) return known.type;
    fail(fmt::format("unknown dtype '{}'", value.get<std::string>().substr(0, 40)));
  }
  std::vector<std::uint64_t> integers(const json& value, std::string_view key,
                                      std::size_t most) const {
    if (!value.is_array()) fail(fmt::format("{}: expected a list of integers", key));
    if (value.size() > most)
      fail(fmt::format("{}: expected at most {} integers, got {}", key, most, value.size()));
    std::vector<std::uint64_t> result;
    for (const json& item : value) {
      if (!item.is_number_unsigned() || item.get<std::uint64_t>() > (std::uint64_t{1} << 62))
        fail(fmt::format("{}: expected integers from 0 to 2^62, got {}", key, item.dump()));
      result.push_back(item.get<std::uint64_t>());
    }
    return result;
  }

  std::string file_;
  std::span<const std::byte> data_;
  std::string name_;
};

std::map<std::string, std::string> parse_metadata(const json& entry, const std::string& file) {
  std::map<std::string, std::string> result;
  if (!entry.is_object()) throw Error(file + ": __metadata__: expected an object of strings");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) throw Error(file + ": __metadata__: expected an object of strings");
    result[key] = value.get<std::string>();
  }
  return result;
}

/// Every byte of the data belongs to exactly one tensor.
void check_cover(const std::vector<NamedTensor>& tensors, std::span<const std::byte> data,
                 const std::string& file) {
  const std::byte* next = data.data();
  for (const NamedTensor& item : tensors) {
    if (item.tensor.bytes.data() != next)
      throw Error(
          fmt::format("{}: '{}': {} the tensor before it", file, item.name.substr(0, 80),
                      item.tensor.bytes.data() < next ? "overlaps" : "leaves a hole after"));
    next += item.tensor.bytes.size();
  }
  if (next != data.data() + data.size())
    throw Error(fmt::format("{}: {} bytes of data belong to no tensor", file,
                            data.data() + data.size() - next));
}

void check_writable(const std::vector<NamedTensor>& tensors) {
  std::set<std::string> names;
  for (const NamedTensor& item : tensors) {
    const std::string argument = "tensor '" + item.name + "'";
    require(item.name != kMetadata && names.insert(item.name).second, argument, "a unique name",
            item.name);
    require(!item.tensor.fortran_order || item.tensor.shape.size() < 2, argument, "row-major order",
            "Fortran order");
    const std::size_t bytes =
        static_cast<std::size_t>(item.tensor.size()) * element_bytes(item.tensor.type);
    require(item.tensor.bytes.size() == bytes, argument, fmt::format("{} bytes", bytes),
            fmt::format("{} bytes", item.tensor.bytes.size()));
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : name_(path.string()), file_(std::make_unique<MappedFile>(path)) {
  const std::span<const std::byte> bytes = file_->bytes();
  if (bytes.size() < 8) throw Error(name_ + ": truncated: no header length");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeader)
    throw Error(
        fmt::format("{}: a header of {} bytes; at most {} are allowed", name_, length, kMaxHeader));
  if (length > bytes.size() - 8)
    throw Error(fmt::format("{}: truncated: a header of {} bytes in a file of {}", name_, length,
                            bytes.size()));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (!text.starts_with('{')) throw Error(name_ + ": header does not start with '{'");
  const std::span<const std::byte> data = bytes.subspan(8 + length);
  const json header = parse_header(text, name_);
  EntryParser parser(name_, data);
  for (const auto& [key, entry] : header.items()) {
    if (key == kMetadata)
      metadata_ = parse_metadata(entry, name_);
    else
      tensors_.push_back(parser.parse(key, entry));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const auto end = [](const NamedTensor& t) {
      return t.tensor.bytes.data() + t.tensor.bytes.size();
    };
    return std::pair(a.tensor.bytes.data(), end(a)) < std::pair(b.tensor.bytes.data(), end(b));
  });
  check_cover(tensors_, data, name_);
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorView& SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found != index_.end()) return tensors_[found->second].tensor;
  std::string known;
  for (const NamedTensor& item : tensors_)
    if (known.size() < 200) known += (known.empty() ? "" : ", ") + item.name;
  throw Error(name_ + ": tensor",
              known.empty() ? "a name (the file holds none)" : "one of " + known,
              "'" + std::string(name) + "'");
}

void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  check_writable(tensors);
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const std::size_t wide_a = element_bytes(a.tensor.type);
    const std::size_t wide_b = element_bytes(b.tensor.type);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  std::uint64_t offset = 0;
  for (const NamedTensor& item : tensors) {
    const std::uint64_t end = offset + item.tensor.bytes.size();
    header[item.name] = {{"dtype", dtype_name(item.tensor.type)},
                         {"shape", item.tensor.shape},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  require(text.size() <= kMaxHeader, "header", fmt::format("at most {} bytes", kMaxHeader),
          fmt::format("{}", text.size()));
  write_file(path, [&](std::ostream& out) {
    const std::uint64_t length = text.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << text;
    for (const NamedTensor& item : tensors)
      out.write(reinterpret_cast<const char*>(item.tensor.bytes.data()),
                static_cast<std::streamsize>(item.tensor.bytes.size()));
  });
}

}  // namespace fp8lab
