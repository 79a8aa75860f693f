#include "fp8lab/io/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/tensors/packed.hpp"

namespace fp8lab {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr std::string_view kMetadata = "__metadata__";

json parse_header(std::string_view text, const std::string& file) {
  constexpr int kDepth = 3;  // {"name": {"shape": [...]}}
  return parse_json<json>(text, file + ": header", kDepth);
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
    const std::uint64_t width = element_bits(result.tensor.type);
    const std::uint64_t have = offsets[1] - offsets[0];
    // At most 2^59 bytes can be mapped, so that their bits can be counted.
    if (have * 8 % width != 0 || have * 8 / width != count)
      fail(fmt::format("expected {} for shape {}, got {}", elements_text(count, result.tensor.type),
                       shape_text(result.tensor.shape), counted(have, "byte")));
    result.tensor.bytes = data_.subspan(offsets[0], have);
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(fmt::format("{}: '{}': {}", file_, name_, reason));
  }
  ElementType dtype(const json& value) const {
    if (!value.is_string()) fail("dtype: expected a string");
    if (const auto type = element_type_in_safetensors(value.get_ref<const std::string&>()))
      return *type;
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
        fail(fmt::format("{}: expected integers from 0 to 2^62, got {}", key, json_text(item)));
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

void check_names(const std::vector<TensorSpec>& tensors) {
  std::set<std::string_view> names;
  for (const TensorSpec& item : tensors) {
    const std::string argument = "tensor '" + item.name + "'";
    require(item.name != kMetadata && names.insert(item.name).second, argument, "a unique name",
            item.name);
    require(!safetensors_name(item.type).empty(), argument, "a type that the format has a name for",
            to_string(item.type));
  }
}

void check_writable(const NamedTensor& item) {
  const std::string argument = "tensor '" + item.name + "'";
  require(!item.tensor.fortran_order || item.tensor.shape.size() < 2, argument, "row-major order",
          "Fortran order");
  const std::size_t bytes = storage_bytes(item.tensor.type, item.tensor.size(), argument);
  require(item.tensor.bytes.size() == bytes, argument, counted(bytes, "byte"),
          counted(item.tensor.bytes.size(), "byte"));
}

void sort_by_width(std::vector<TensorSpec>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const std::size_t wide_a = element_bits(a.type);
    const std::size_t wide_b = element_bits(b.type);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
}

/// Length and text of the header of tensors that lie in this order.
std::string preamble(const std::vector<TensorSpec>& tensors,
                     const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json::object_t header;
  if (!metadata.empty()) header.emplace_back(std::string(kMetadata), metadata);
  std::uint64_t offset = 0;
  for (const TensorSpec& item : tensors) {
    const std::uint64_t end = offset + item.bytes();
    header.emplace_back(item.name, nlohmann::ordered_json{{"dtype", safetensors_name(item.type)},
                                                          {"shape", item.shape},
                                                          {"data_offsets", {offset, end}}});
    offset = end;
  }
  std::string text = exact_json_text(nlohmann::ordered_json(std::move(header)), "header");
  text.resize((text.size() + 7) / 8 * 8, ' ');
  require(text.size() <= kMaxHeader, "header", fmt::format("at most {} bytes", kMaxHeader),
          fmt::format("{}", text.size()));
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
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
  // Stable: empty tensors share their place.
  std::ranges::stable_sort(tensors_, {}, [](const NamedTensor& t) {
    return std::pair(t.tensor.bytes.data(), t.tensor.bytes.data() + t.tensor.bytes.size());
  });
  check_cover(tensors_, data, name_);
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorView& SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found != index_.end()) return tensors_[found->second].tensor;
  std::string known;
  for (const NamedTensor& item : tensors_) {
    if (known.size() >= 200) {
      known += ", ...";
      break;
    }
    known += (known.empty() ? "" : ", ") + item.name;
  }
  throw Error(name_ + ": tensor",
              known.empty() ? "a name (the file holds none)" : "one of " + known,
              "'" + std::string(name) + "'");
}

std::uint64_t TensorSpec::bytes() const {
  const std::string argument = "tensor '" + name + "'";
  return storage_bytes(type, element_count(shape, argument), argument);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : name_(path.string()), file_(path) {
  check_names(tensors);
  sort_by_width(tensors);
  const std::string start = preamble(tensors, metadata);
  file_.write_at(0, start);
  file_bytes_ = start.size();
  for (const TensorSpec& item : tensors) {
    places_.emplace(item.name, Place{file_bytes_, item.bytes()});
    file_bytes_ += item.bytes();
    missing_ += item.bytes();
  }
}

void SafetensorsWriter::write(std::string_view name, std::uint64_t offset,
                              std::span<const std::byte> bytes) {
  const auto found = places_.find(std::string(name));
  require(found != places_.end(), name_, "a tensor of its header", name);
  const Place& place = found->second;
  require(offset <= place.size && bytes.size() <= place.size - offset,
          "tensor '" + std::string(name) + "'", fmt::format("at most {} bytes", place.size),
          fmt::format("{} from {} on", bytes.size(), offset));
  file_.write_at(place.begin + offset, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  missing_ -= bytes.size();
}

void SafetensorsWriter::commit() {
  require(missing_ == 0, name_, "all bytes of its tensors", fmt::format("{} fewer", missing_));
  file_.commit();
}

std::uint64_t safetensors_bytes(std::vector<TensorSpec> tensors,
                                const std::map<std::string, std::string>& metadata) {
  check_names(tensors);
  sort_by_width(tensors);
  std::uint64_t bytes = preamble(tensors, metadata).size();
  for (const TensorSpec& item : tensors) bytes += item.bytes();
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& item : tensors) {
    check_writable(item);
    specs.push_back({item.name, item.tensor.type, item.tensor.shape});
  }
  check_names(specs);
  sort_by_width(specs);
  std::map<std::string_view, std::span<const std::byte>> bytes;
  for (const NamedTensor& item : tensors) bytes[item.name] = item.tensor.bytes;
  const std::string start = preamble(specs, metadata);
  // In order: the file may be a pipe.
  write_file(path, [&](std::ostream& out) {
    out << start;
    for (const TensorSpec& item : specs) {
      const std::span<const std::byte> data = bytes.at(item.name);
      out.write(reinterpret_cast<const char*>(data.data()),
                static_cast<std::streamsize>(data.size()));
    }
  });
}

}  // namespace fp8lab
