#include "fp8lab/io/operand.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include <algorithm>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/npz.hpp"
#include "fp8lab/io/output_file.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/tensors/packed.hpp"

namespace fp8lab {
namespace {

using std::filesystem::path;

constexpr std::string_view kSidecarExample = R"({"dtype": "e4m3fn", "shape": [64, 128]})";

struct Sidecar {
  path file;
  std::optional<ElementType> dtype;
  std::optional<std::vector<std::int64_t>> shape;
};

path sidecar_path(const path& file) { return path(file) += ".json"; }

[[noreturn]] void fail(const path& file, const std::string& reason) {
  throw Error(fmt::format("{}: {}", file.string(), reason));
}

std::vector<std::int64_t> parse_shape(const path& file, const nlohmann::json& value) {
  std::vector<std::int64_t> shape;
  if (!value.is_array()) fail(file, "shape: expected a list of integers");
  if (value.size() > kMostDimensions)
    fail(file, fmt::format("shape: expected at most {} dimensions, got {}", kMostDimensions,
                           value.size()));
  for (const nlohmann::json& item : value) {
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > (std::uint64_t{1} << 62))
      fail(file, fmt::format("shape: expected integers from 0 to 2^62, got {}", json_text(item)));
    shape.push_back(item.get<std::int64_t>());
  }
  return shape;
}

/// The sidecar of `file`, or nothing where there is none.
std::optional<Sidecar> read_sidecar(const path& file) {
  Sidecar sidecar{sidecar_path(file), {}, {}};
  if (!std::filesystem::exists(sidecar.file)) return std::nullopt;
  const auto parsed = parse_json<nlohmann::json>(read_file(sidecar.file), sidecar.file.string());
  if (!parsed.is_object())
    fail(sidecar.file, fmt::format("expected an object like {}", kSidecarExample));
  for (const auto& [key, value] : parsed.items()) {
    if (key == "dtype" && value.is_string()) {
      try {
        sidecar.dtype = find_element_type(value.get<std::string>());
      } catch (const Error& error) {
        fail(sidecar.file, error.what());
      }
    } else if (key == "shape") {
      sidecar.shape = parse_shape(sidecar.file, value);
    } else {
      fail(sidecar.file, fmt::format("unknown or wrong '{}'; expected an object like {}",
                                     key.substr(0, 40), kSidecarExample));
    }
  }
  return sidecar;
}

void require_shape(const std::optional<Sidecar>& sidecar, const TensorView& tensor) {
  if (sidecar && sidecar->shape && *sidecar->shape != tensor.shape)
    fail(sidecar->file, fmt::format("shape {} disagrees with the file's {}",
                                    shape_text(*sidecar->shape), shape_text(tensor.shape)));
}

/// A path, and the name after its colon.
struct Address {
  path file;
  std::string tensor;
};

/// The last ending counts: a folder's name may hold another one.
Address split(const std::string& name) {
  std::size_t colon = 0;
  for (const std::string_view ending : {".npz:", ".safetensors:", ".npy:"}) {
    const std::size_t at = name.rfind(ending);
    if (at != std::string::npos && at > 0) colon = std::max(colon, at + ending.size() - 1);
  }
  if (colon == 0) return {name, ""};
  return {name.substr(0, colon), name.substr(colon + 1)};
}

/// The tensor to take from a file with several.
std::string choose(const Address& address, const std::vector<std::string>& names) {
  if (!address.tensor.empty()) return address.tensor;
  if (names.size() == 1) return names.front();
  fail(address.file,
       fmt::format("holds {} tensors; name one as {}:NAME, NAME one of {}", names.size(),
                   address.file.string(),
                   fmt::join(names.begin(),
                             names.begin() + std::min<std::ptrdiff_t>(
                                                 20, static_cast<std::ptrdiff_t>(names.size())),
                             ", ")));
}

std::shared_ptr<const MappedFile> map_file(const path& file) {
  return std::make_shared<const MappedFile>(file);
}

Operand load_npy(const std::string& name, const path& file, std::optional<ElementType> dtype) {
  const std::optional<Sidecar> sidecar = read_sidecar(file);
  if (!dtype && sidecar) dtype = sidecar->dtype;
  const std::shared_ptr<const MappedFile> mapped = map_file(file);
  const TensorView tensor = parse_npy(mapped->bytes(), file.string(), dtype);
  require_shape(sidecar, tensor);
  return {name, tensor, mapped, mapped};
}

Operand load_npz(const std::string& name, const Address& address,
                 std::optional<ElementType> dtype) {
  if (!std::filesystem::exists(address.file))
    fail(address.file, "cannot be opened: No such file or directory");
  const std::optional<Sidecar> sidecar = read_sidecar(address.file);
  if (!dtype && sidecar) dtype = sidecar->dtype;
  const NpzFile archive(address.file);
  const NpzTensor read = archive.read(choose(address, archive.names()), dtype);
  require_shape(sidecar, read.tensor);
  return {name, read.tensor, read.bytes};
}

Operand load_safetensors(const std::string& name, const Address& address,
                         std::optional<ElementType> dtype) {
  const auto archive = std::make_shared<const SafetensorsFile>(address.file);
  std::vector<std::string> names;
  for (const NamedTensor& item : archive->tensors()) names.push_back(item.name);
  TensorView tensor = archive->find(choose(address, names));
  if (dtype && *dtype != tensor.type) {
    const bool is_codes = tensor.type == ElementType::u8 && element_bits(*dtype) <= 8;
    const bool says_packed = *dtype == unpacked(tensor.type);
    if (!is_codes && !says_packed)
      fail(address.file, fmt::format("holds {}, which contradicts {}; leave that out",
                                     to_string(tensor.type), argument("dtype", to_string(*dtype))));
    if (is_codes && is_packed(*dtype))
      tensor.shape = shape_of_packed(*dtype, tensor.shape, name + ": shape");
    if (is_codes) tensor.type = *dtype;
  }
  return {name, tensor, archive, {archive, &archive->file()}};
}

Operand load_raw(const std::string& name, const path& file, std::optional<ElementType> dtype) {
  const std::shared_ptr<const MappedFile> mapped = map_file(file);
  const std::optional<Sidecar> sidecar = read_sidecar(file);
  if (!sidecar || !sidecar->shape)
    fail(file, fmt::format("neither .npy, .npz nor .safetensors; for raw data write {} to {}",
                           kSidecarExample, sidecar_path(file).string()));
  if (!dtype) dtype = sidecar->dtype;
  if (!dtype)
    fail(sidecar->file, "no dtype; write \"dtype\": \"e4m3fn\" or give " + argument("dtype"));
  TensorView tensor{*dtype, *sidecar->shape, mapped->bytes(), false};
  const auto count =
      static_cast<std::size_t>(element_count(tensor.shape, sidecar->file.string() + ": shape"));
  const std::size_t width = element_bits(*dtype);
  if (tensor.bytes.size() * 8 % width != 0 || tensor.bytes.size() * 8 / width != count)
    fail(file, fmt::format("has {}, but {} says {} {} = {}", counted(tensor.bytes.size(), "byte"),
                           sidecar->file.string(), to_string(*dtype), shape_text(tensor.shape),
                           elements_text(count, *dtype)));
  return {name, tensor, mapped, mapped};
}

/// The sidecar of an output, complete but not in its place; nothing where none is needed.
std::unique_ptr<OutputFile> prepare_sidecar(const path& where, const TensorView& tensor) {
  const bool opaque = element_bits(tensor.type) <= 8 || tensor.type == ElementType::bf16;
  // One that an earlier output left would now be wrong.
  const bool stale = std::filesystem::exists(where);
  if (!(opaque && format_of(unpacked(tensor.type))) && !stale) return nullptr;
  const std::string text = fmt::format(
      "{}\n", nlohmann::json{{"dtype", to_string(tensor.type)}, {"shape", tensor.shape}}.dump());
  if (stale && read_file(where) == text) return nullptr;
  auto sidecar = std::make_unique<OutputFile>(where);
  sidecar->write(text);
  sidecar->finish();
  return sidecar;
}

/// The tensor of any file, packed or not.
Operand load_stored(const std::string& name, std::optional<ElementType> dtype) {
  const Address address = split(name);
  const std::string ending = address.file.extension().string();
  if (ending == ".npy") {
    if (!address.tensor.empty()) fail(address.file, "a .npy file has no names; leave out ':NAME'");
    return load_npy(name, address.file, dtype);
  }
  if (ending == ".npz") return load_npz(name, address, dtype);
  if (ending == ".safetensors") return load_safetensors(name, address, dtype);
  if (ending == ".pt" || ending == ".pth")
    fail(address.file,
         "PyTorch's pickled files are not read; save with safetensors.torch.save_file");
  return load_raw(name, address.file, dtype);
}

}  // namespace

Operand load_operand(const std::string& name, std::optional<ElementType> dtype) {
  Operand stored = load_stored(name, dtype);
  const TensorView& tensor = stored.tensor();
  if (!is_packed(tensor.type)) return stored;
  const auto codes = std::make_shared<const std::vector<std::byte>>(unpack_codes(tensor));
  return {name, {unpacked(tensor.type), tensor.shape, *codes, false}, codes};
}

namespace {

void require_tensor_file(const path& file) {
  const std::string ending = file.extension().string();
  require(ending == ".npy" || ending == ".npz" || ending == ".safetensors", "output",
          "a file that ends in .npy, .npz or .safetensors", fmt::format("'{}'", file.string()));
  const path folder = file.parent_path();
  require(folder.empty() || std::filesystem::is_directory(folder), "output",
          "a file in an existing folder", fmt::format("'{}'", file.string()));
}

}  // namespace

void require_savable(const path& file) {
  require_tensor_file(file);
  require_writable_file(file);
}

void save_tensor(const path& file, const std::string& name, const TensorView& tensor) {
  require_tensor_file(file);
  const std::string ending = file.extension().string();
  if (ending == ".safetensors" && packed(tensor.type) != tensor.type) {
    const std::vector<std::byte> codes = pack_codes(tensor);
    return write_safetensors(file, {{name, {packed(tensor.type), tensor.shape, codes, false}}});
  }
  if (ending == ".safetensors") return write_safetensors(file, {{name, tensor}});
  const path where = sidecar_path(file);
  const std::unique_ptr<OutputFile> output =
      ending == ".npz" ? prepare_npz(file, {{name, tensor}}) : prepare_npy(file, tensor);
  // Two writers that end together leave nothing of one beside something of the other.
  const FolderLock alone(file.parent_path());
  const std::unique_ptr<OutputFile> sidecar = prepare_sidecar(where, tensor);
  // Between the two renames no file may say what the other does not hold.
  std::error_code error;
  if (sidecar && !std::filesystem::remove(where, error) && error)
    fail(where, "cannot be replaced: " + error.message());
  output->commit();
  if (sidecar) sidecar->commit();
}

}  // namespace fp8lab
