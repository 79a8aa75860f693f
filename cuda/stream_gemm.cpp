#include "stream_gemm.hpp"

#include <fmt/format.h>

#include <bit>

#include "emulated_model.hpp"
#include "fp8lab/core/error.hpp"
#include "host_arguments.hpp"

namespace fp8lab::cuda {
namespace {

constexpr int kLeastCapability = 80;
constexpr std::size_t kAlignment = 16;
constexpr std::uintptr_t kLegacyStream = 1;  // cudaStreamLegacy

/// The device during a call; the caller's afterwards.
class DeviceScope {
 public:
  DeviceScope(const DeviceCalls& calls, int device)
      : calls_(calls), before_(calls.current_device()), changed_(before_ != device) {
    if (changed_) calls_.set_device(device);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope() {
    if (!changed_) return;
    try {
      calls_.set_device(before_);
    } catch (const Error&) {  // it was current before: the next checked call says what is wrong
    }
  }

 private:
  const DeviceCalls& calls_;
  int before_;
  bool changed_;
};

bool is_aligned(const void* address, std::size_t alignment) {
  return std::bit_cast<std::uintptr_t>(address) % alignment == 0;
}

std::int64_t item_bytes(const CodeMatrix& m) { return format(m.format).storage_bits / 8; }

std::int64_t padded_row_count(const CodeMatrix& m) {
  return (m.rows + kPaddedRows - 1) / kPaddedRows * kPaddedRows;
}

bool is_read_in_place(const CodeMatrix& m, int row_bytes) {
  return m.k_stride == 1 && m.row_stride == m.k && m.k * item_bytes(m) == row_bytes &&
         m.rows % kPaddedRows == 0 && is_aligned(m.data, kAlignment);
}

/// A multiple of the alignment, since a row is one of kPaddedBytes.
std::size_t packed_bytes(const CodeMatrix& m) {
  const int row_bytes = padded_row_bytes(m);
  if (is_read_in_place(m, row_bytes)) return 0;
  return static_cast<std::size_t>(padded_row_count(m)) * static_cast<std::size_t>(row_bytes);
}

void check_addresses(const GemmProblem& p, const StreamGemm& gemm) {
  const auto check = [](std::string_view name, const void* address, std::size_t alignment) {
    require(is_aligned(address, alignment), name,
            fmt::format("an address that is a multiple of {}", alignment),
            fmt::format("{}", address));
  };
  check("a", p.a.data, static_cast<std::size_t>(item_bytes(p.a)));
  check("b", p.b.data, static_cast<std::size_t>(item_bytes(p.b)));
  check("scale_a", p.scale_a.values.data(), sizeof(float));
  check("scale_b", p.scale_b.values.data(), sizeof(float));
  check("d", gemm.d.data(), sizeof(float));
  check("workspace", gemm.workspace.data(), kAlignment);
  const std::size_t needed = workspace_bytes(p);
  require(gemm.workspace.size() >= needed, "workspace", fmt::format("{} bytes", needed),
          fmt::format("{}", gemm.workspace.size()));
}

/// Throws `Error` for a device that is too old.
void check_device(const StreamPlace& place, const DeviceCalls& calls) {
  const int capability = calls.capability(place.device);
  require(capability >= kLeastCapability, "device", "one of compute capability 8.0 or later",
          fmt::format("{}.{}", capability / 10, capability % 10));
}

/// Where the kernel reads the operand; what must be copied there is queued.
const std::uint8_t* placed(const CodeMatrix& m, int row_bytes, std::span<std::uint8_t>& free,
                           const DeviceCalls& calls, Stream stream) {
  const auto* data = static_cast<const std::uint8_t*>(m.data);
  const std::size_t bytes = packed_bytes(m);
  if (bytes == 0) return data;
  PackArguments pack{data,
                     free.data(),
                     m.rows,
                     m.k,
                     m.row_stride,
                     m.k_stride,
                     padded_row_count(m),
                     row_bytes,
                     static_cast<int>(item_bytes(m))};
  calls.pack(pack, stream);
  free = free.subspan(bytes);
  return pack.to;
}

}  // namespace

Stream stream_of(std::uintptr_t name) {
  return std::bit_cast<Stream>(name == 0 ? kLegacyStream : name);
}

std::size_t workspace_bytes(const GemmProblem& p) { return packed_bytes(p.a) + packed_bytes(p.b); }

void gemm_on_stream(const StreamGemm& gemm, const StreamPlace& place, const DeviceCalls& calls) {
  const GemmProblem& p = gemm.problem;
  // First: what follows reads scales that an instruction applies, and these are not on the host.
  emulated_model(p.model);
  emulated_format(p.a.format);
  emulated_format(p.b.format);
  validate(p, gemm.d.size());
  require(p.c == nullptr, "c", "none in a product on a stream", "one");
  require(p.a.k > 0, "k", "1 or more", p.a.k);
  if (gemm.d.empty()) return;
  check_addresses(p, gemm);
  GemmArguments arguments = shape_arguments(p);
  const DeviceScope scope(calls, place.device);
  check_device(place, calls);

  const Stream stream = stream_of(place.stream);
  std::span<std::uint8_t> free = gemm.workspace;
  arguments.a = placed(p.a, arguments.row_bytes, free, calls, stream);
  arguments.b = placed(p.b, arguments.row_bytes, free, calls, stream);
  arguments.d = gemm.d.data();
  if (!p.scale_a.empty()) arguments.scale_a.values = p.scale_a.values.data();
  if (!p.scale_b.empty()) arguments.scale_b.values = p.scale_b.values.data();
  calls.multiply(arguments, p.model, p.a.format, p.b.format, stream);
}

void sum_columns_on_stream(const ColumnSums& sums, const StreamPlace& place,
                           const DeviceCalls& calls) {
  require(sums.rows >= 0 && sums.columns >= 0, "x", "rows >= 0 and columns >= 0",
          fmt::format("[{}, {}]", sums.rows, sums.columns));
  require(sums.rows < 2 || sums.row_stride >= sums.columns, "row_stride",
          fmt::format("{} or more", sums.columns), sums.row_stride);
  if (sums.columns == 0) return;
  const DeviceScope scope(calls, place.device);
  check_device(place, calls);
  calls.sum_columns(sums, stream_of(place.stream));
}

}  // namespace fp8lab::cuda
