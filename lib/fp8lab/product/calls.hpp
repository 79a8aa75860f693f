#pragma once
// Library calls by name: how a known kernel computes a product. A name sets the instruction,
// promotion, scale order, possible splits of K and the usual output.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/product/split_k.hpp"

namespace fp8lab {

/// One row of `fp8lab list calls`.
struct LibraryCall {
  std::string_view name;   ///< `cublaslt.h100.fast`
  std::string_view model;  ///< for E4M3 operands; other FP8 operands have the same accumulator
  std::int64_t promotion_interval = 0;
  ScaleOrder scale_order = ScaleOrder::product_then_fma;      ///< per tensor, or tiles along K
  ScaleOrder row_scale_order = ScaleOrder::product_then_fma;  ///< for one scale per row or column
  std::string_view scales;  ///< the tiles that it accepts: `1, rows`, `1x128 x 128x128` ...
  FormatId output = FormatId::bf16;  ///< the usual output
  std::int64_t split_tile = 0;       ///< terms in a tile if it splits K; 0: it does not
  std::span<const std::pair<SplitCut, SplitOrder>> splits{};  ///< the splits that are known
  std::string_view epilogue;  ///< the operations after the sum, in order
  Standing standing = Standing::assumed;
  std::string_view source;  ///< with the details of what is known
};

std::span<const LibraryCall> library_calls();

/// The call named `name`. Throws `Error` that lists the names.
const LibraryCall& find_library_call(std::string_view name);

/// The registered instruction that has the accumulator of `model` and reads these operands. Throws
/// `Error` that names `caller` and lists the operands.
std::string_view model_reading(std::string_view model, std::string_view caller, FormatId a,
                               FormatId b);

/// The registered instruction that has the call's accumulator and reads these operands. Float A
/// and B have the formats that `recipe` gives them; without one those of the call's own
/// instruction. Throws `Error` that lists the instructions.
std::string_view model_of(const LibraryCall& call, ElementType a, ElementType b,
                          std::string_view recipe = {});

/// Throws `Error` where a call whose scales are tiles gets none for an operand. Calls with one
/// scale, or one per row, take a scale of 1 where none is given.
void require_scales(const LibraryCall& call, bool of_a, bool of_b);

/// Throws `Error` for neither or both of a model and a call, for a name that no call has, and for a
/// promotion or scale order beside a call, which sets them.
void require_model_or_call(const GemmSpec& spec);

/// `spec` with what its call decides for these operands, and without the call; `spec` itself if it
/// has none. Throws `Error` as the functions above and below.
GemmSpec with_call(const GemmOperands& operands, GemmSpec spec);

/// `spec` with the model, promotion, scale order and split tile of a call, for these operands.
/// Output, C and epilogue do not change. Throws `Error` for a split that the call does not use.
GemmSpec with_call(const LibraryCall& call, const GemmOperands& operands, GemmSpec spec);

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

/// `FILE.csv:fast`, or `slow`, then `FIELD=VALUE` with commas between: `output`, which of the
/// observed calls is meant, and choices for fields of candidates that the observation leaves open.
struct TableCall {
  std::string text;  ///< as the user wrote it
  std::string file;
  bool fast = true;
  std::optional<FormatId> output{};
  std::vector<std::pair<std::string, std::string>> choices{};
};

/// Whether a call is a table: `.csv` at its end or before a `:`.
bool is_table_call(std::string_view text);
/// Reads such a text. Throws `Error` that names the part.
TableCall parse_table_call(std::string_view text);

/// The one candidate of this call that gives what was observed and that the choices leave. Throws
/// `Error` for a shape that was not observed, calls that no candidate explains, choices that no
/// candidate has, and, with the fields that differ and their values, for more than one candidate:
/// no field has a default.
CallModel candidate_of(const CallTable& table, const TableCall& call, const CallShape& shape);

/// `spec` with the model, promotion, split and scale order of a call in `table` with these
/// operands, which have one scale each at most. Throws `Error` as above, for other scales, for a
/// split of its own in `spec`, and for a candidate that rounds twice, which products do not.
GemmSpec with_call(const CallTable& table, const TableCall& call, const GemmOperands& operands,
                   GemmSpec spec);

}  // namespace fp8lab
