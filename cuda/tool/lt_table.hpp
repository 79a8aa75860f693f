#pragma once
// What was observed of cuBLASLt, call by call, as a table in a text file:
//
//   # fp8lab cublaslt 1
//   # gpu: NVIDIA H100 80GB HBM3     (`# key: value` lines: device, driver, versions, date)
//   m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,rounding
//   16,4096,4096,e4m3fn,e4m3fn,bf16,fast,65536,1,0,4,128,contiguous,serial,b_then_fma_a,once
//   16,4096,4096,e4m3fn,e4m3fn,f16,fast,65536,0,-,-,-,-,-,-,-
//
// One scale for A and one for B. `outputs`: how many were compared. `fitting`: the candidates that
// give all of them. Another field is what all of these have, or `-` where they differ or there is
// none: a narrow output hides differences that an FP32 output of the same shape shows.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "tool/lt_model.hpp"

namespace fp8lab::cuda {

/// A product that cuBLASLt is asked for.
struct LtCall {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  FormatId a = FormatId::e4m3fn;
  FormatId b = FormatId::e4m3fn;
  FormatId output = FormatId::bf16;
  bool fast = true;  ///< accumulation

  friend bool operator==(const LtCall&, const LtCall&) = default;
};

struct LtRow {
  LtCall call;
  std::uint64_t outputs = 0;
  std::uint64_t fitting = 0;
  LtKnown known{};

  friend bool operator==(const LtRow&, const LtRow&) = default;
};

struct LtTable {
  std::map<std::string, std::string> header;  ///< `# key: value` lines
  std::vector<LtRow> rows;

  /// The row of a call, or null.
  [[nodiscard]] const LtRow* find(const LtCall& call) const;
};

LtRow row_of(const LtCall& call, const LtFinding& finding);

std::string to_text(const LtTable& table);
/// Throws `Error` with `name`, line and field for text that is not such a table, values outside
/// their range, and two rows of one call.
LtTable parse_lt_table(const std::string& text, const std::string& name);
LtTable read_lt_table(const std::filesystem::path& file);

/// Adds a row to the table in `file`, which is made with this header if it does not exist.
void add_to_lt_table(const std::filesystem::path& file,
                     const std::map<std::string, std::string>& header, const LtRow& row);

}  // namespace fp8lab::cuda
