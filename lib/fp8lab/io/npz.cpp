#include "fp8lab/io/npz.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <unordered_set>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/output_file.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kEnding = ".npy";
constexpr std::uint64_t kMostDeflated = 1032;  // bytes that one deflated byte can stand for
constexpr zip_uint16_t kFirstOfJanuary1980 = 0x21;
constexpr std::size_t kMostShown = 20;

std::string zip_message(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

zip_t* open_archive(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    throw Error(path.string() + ": cannot be read: not a regular file");
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (archive == nullptr)
    throw Error(fmt::format("{}: not a readable .npz file: {}", path.string(), zip_message(code)));
  return archive;
}

/// An archive that comes to be in memory, since the library would replace files by its own rules.
class NewArchive {
 public:
  explicit NewArchive(const std::filesystem::path& path) : path_(path.string()) {
    zip_error_t error;
    zip_error_init(&error);
    bytes_ = zip_source_buffer_create(nullptr, 0, 0, &error);
    if (bytes_ != nullptr) archive_ = zip_open_from_source(bytes_, ZIP_TRUNCATE, &error);
    if (archive_ == nullptr) {
      if (bytes_ != nullptr) zip_source_free(bytes_);
      throw Error(fmt::format("{}: cannot be written: {}", path_, zip_error_strerror(&error)));
    }
    zip_source_keep(bytes_);
  }
  ~NewArchive() {
    if (archive_ != nullptr) zip_discard(archive_);
    zip_source_free(bytes_);
  }
  NewArchive(const NewArchive&) = delete;
  NewArchive& operator=(const NewArchive&) = delete;

  /// `preamble` and the tensor's bytes must live until `write_to`.
  void add(const std::string& name, const std::string& preamble, const TensorView& tensor) {
    const auto part = [](const void* data, std::size_t size) {
      return zip_buffer_fragment_t{static_cast<zip_uint8_t*>(const_cast<void*>(data)), size};
    };
    const zip_buffer_fragment_t parts[] = {part(preamble.data(), preamble.size()),
                                           part(tensor.bytes.data(), tensor.bytes.size())};
    zip_source_t* source =
        zip_source_buffer_fragment(archive_, parts, tensor.bytes.empty() ? 1 : 2, 0);
    if (source == nullptr) fail();
    const zip_int64_t index =
        zip_file_add(archive_, (name + std::string(kEnding)).c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      fail();
    }
    const auto at = static_cast<zip_uint64_t>(index);
    if (zip_set_file_compression(archive_, at, ZIP_CM_STORE, 0) != 0 ||
        zip_file_set_dostime(archive_, at, 0, kFirstOfJanuary1980, 0) != 0)
      fail();
  }

  void write_to(OutputFile& file) {
    if (zip_close(archive_) != 0) fail();
    archive_ = nullptr;
    if (zip_source_open(bytes_) != 0) fail_reading();
    std::array<char, 1 << 16> buffer;
    zip_int64_t count = 0;
    while ((count = zip_source_read(bytes_, buffer.data(), buffer.size())) > 0)
      file.write({buffer.data(), static_cast<std::size_t>(count)});
    zip_source_close(bytes_);
    if (count < 0) fail_reading();
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(fmt::format("{}: cannot be written: {}", path_, zip_strerror(archive_)));
  }
  [[noreturn]] void fail_reading() const {
    throw Error(fmt::format("{}: cannot be written: {}", path_,
                            zip_error_strerror(zip_source_error(bytes_))));
  }

  std::string path_;
  zip_source_t* bytes_ = nullptr;
  zip_t* archive_ = nullptr;
};

}  // namespace

struct NpzFile::Archive {
  zip_t* zip;
  explicit Archive(const std::filesystem::path& path) : zip(open_archive(path)) {}
  ~Archive() { zip_discard(zip); }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
};

NpzFile::NpzFile(const std::filesystem::path& path)
    : path_(path.string()), archive_(std::make_unique<Archive>(path)) {
  const zip_int64_t count = zip_get_num_entries(archive_->zip, 0);
  std::unordered_set<std::string> unique;
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* raw = zip_get_name(archive_->zip, static_cast<zip_uint64_t>(i), 0);
    std::string name = raw == nullptr ? "" : raw;
    if (!name.ends_with(kEnding) || name.size() == kEnding.size())
      throw Error(
          fmt::format("{}: member '{}': expected NAME.npy members", path_, name.substr(0, 80)));
    name.resize(name.size() - kEnding.size());
    if (!unique.insert(name).second)
      throw Error(fmt::format("{}: member '{}' appears twice", path_, name.substr(0, 80)));
    names_.push_back(std::move(name));
  }
}

NpzFile::~NpzFile() = default;

NpzTensor NpzFile::read(std::string_view name, std::optional<ElementType> interpret_as) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    const auto shown = static_cast<std::ptrdiff_t>(std::min(kMostShown, names_.size()));
    throw Error(path_ + ": tensor",
                fmt::format("one of {}{}", fmt::join(names_.begin(), names_.begin() + shown, ", "),
                            names_.size() > kMostShown ? ", ..." : ""),
                fmt::format("'{}'", name));
  }
  const auto index = static_cast<zip_uint64_t>(found - names_.begin());
  const std::string where = fmt::format("{}: member '{}'", path_, name.substr(0, 80));
  zip_stat_t status;
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
  if (zip_stat_index(archive_->zip, index, 0, &status) != 0 || (status.valid & kNeeded) != kNeeded)
    throw Error(fmt::format("{}: {}", where, zip_strerror(archive_->zip)));
  if (status.size > kMostDeflated * (status.comp_size + 1))
    throw Error(fmt::format("{}: the header gives {} bytes in {} packed bytes, which is impossible",
                            where, status.size, status.comp_size));
  zip_file_t* member = zip_fopen_index(archive_->zip, index, 0);
  if (member == nullptr) throw Error(fmt::format("{}: {}", where, zip_strerror(archive_->zip)));
  const std::unique_ptr<zip_file_t, decltype(&zip_fclose)> closes(member, zip_fclose);
  auto bytes = std::make_shared<std::vector<std::byte>>(status.size);
  const zip_int64_t got = zip_fread(member, bytes->data(), status.size);
  std::byte beyond{};
  // The checksum is compared when the end has been read.
  const zip_int64_t more = got < 0 ? -1 : zip_fread(member, &beyond, 1);
  if (got < 0 || more < 0)
    throw Error(fmt::format("{}: damaged: {}", where, zip_file_strerror(member)));
  if (static_cast<zip_uint64_t>(got) != status.size || more != 0)
    throw Error(fmt::format("{}: damaged: does not unpack to the {} bytes in its header", where,
                            status.size));
  return {parse_npy(*bytes, where, interpret_as), bytes};
}

std::unique_ptr<OutputFile> prepare_npz(const std::filesystem::path& path,
                                        const std::vector<NamedTensor>& tensors) {
  std::set<std::string> names;
  std::deque<std::string> preambles;
  for (const NamedTensor& item : tensors) {
    const bool plain = !item.name.empty() && item.name.find('/') == std::string::npos;
    require(plain && names.insert(item.name).second, "tensor name", "a unique name without '/'",
            fmt::format("'{}'", item.name));
    preambles.push_back(npy_preamble(item.tensor));
  }
  NewArchive archive(path);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    archive.add(tensors[i].name, preambles[i], tensors[i].tensor);
  auto file = std::make_unique<OutputFile>(path);
  archive.write_to(*file);
  file->finish();
  return file;
}

void write_npz(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  prepare_npz(path, tensors)->commit();
}

}  // namespace fp8lab
