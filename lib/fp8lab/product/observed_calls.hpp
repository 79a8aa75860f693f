#pragma once
// What was observed of a library's calls on a chip, as `fp8lab-cuda observe` writes it:
//
//   # fp8lab cublaslt 2
//   # crc32: 0f1e2d3c                (of all text below this line)
//   # gpu: NVIDIA H100 80GB HBM3     (`# key: value` lines: device, driver, versions, date)
//   # model: sm90.wgmma.e4m3         (the instruction whose products were compared)
//   m,n,k,a,b,output,accumulation,outputs,fitting,interval,parts,tile,cut,order,scale_order,rounding
//   16,4096,4096,e4m3fn,e4m3fn,bf16,fast,2048,1,0,4,128,contiguous,serial,b_then_fma_a,once
//   16,4096,4096,e4m3fn,e4m3fn,f16,fast,2048,0,-,-,-,-,-,-,-
//
// One scale for A and one for B. `outputs`: how many were compared. `fitting`: the number of
// candidates that give all of them, each in a row of its own; without any, one row with `-`. A
// table without the line of the checksum is read as well.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/product/split_k.hpp"

namespace fp8lab {

/// A product that a library is asked for, with one scale for A and one for B.
struct CallShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  FormatId a = FormatId::e4m3fn;
  FormatId b = FormatId::e4m3fn;
  FormatId output = FormatId::bf16;
  bool fast = true;  ///< accumulation

  friend bool operator==(const CallShape&, const CallShape&) = default;
};
/// For people: `16x4096x4096 of e4m3fn and e4m3fn to bf16, fast`.
std::string to_string(const CallShape& call);

/// Where a sum is rounded on its way from FP32 to the output format.
enum class CallRounding : std::uint8_t {
  once,          ///< only the scaled FP32 sum
  sum_too,       ///< the sum before its scales, to the FP16 or BF16 output format
  parts_too,     ///< each part of a split K, to the FP16 or BF16 output format
  through_bf16,  ///< the scaled sum to BF16, and that to FP8
  through_f16,   ///< the scaled sum to FP16, and that to FP8
};
std::string_view to_string(CallRounding rounding);
/// The rounding called `name`. Throws `Error` that lists the names.
CallRounding find_call_rounding(std::string_view name);

/// How a call makes its output: a candidate.
struct CallModel {
  std::int64_t interval = 0;  ///< terms between two promotions; 0: one chain
  SplitK split{};
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
  CallRounding rounding = CallRounding::once;

  friend bool operator==(const CallModel&, const CallModel&) = default;
};
/// For people: `N_C 128, split 4 contiguous serial tile 128, b_then_fma_a, once`.
std::string to_string(const CallModel& model);

/// A name and the text of each field of a candidate, as columns of the table have them.
std::vector<std::pair<std::string_view, std::string>> fields_of(const CallModel& model);

/// One call and the candidates that give its outputs.
struct ObservedCall {
  CallShape call;
  std::uint64_t outputs = 0;
  std::vector<CallModel> fitting{};

  friend bool operator==(const ObservedCall&, const ObservedCall&) = default;
};

struct CallTable {
  std::string model;                          ///< the instruction
  std::map<std::string, std::string> header;  ///< the other `# key: value` lines
  std::vector<ObservedCall> calls;

  /// What was observed of a call, or null.
  [[nodiscard]] const ObservedCall* find(const CallShape& call) const;
};

std::string to_text(const CallTable& table);
/// Throws `Error` with `name`, line and field for text that is not such a table, a checksum that
/// does not match, values outside their range, another number of rows of a call than `fitting`
/// says, and rows of one call that are not neighbours.
CallTable parse_call_table(const std::string& text, const std::string& name);
CallTable read_call_table(const std::filesystem::path& file);

}  // namespace fp8lab
