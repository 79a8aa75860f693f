#pragma once
// SageAttention 2 and 3: attention whose kernels quantize Q, K and V by their own rules. The rules
// are in `docs/specification/attention.md`, section SageAttention.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/attention/shape.hpp"
#include "fp8lab/attention/variant.hpp"
#include "fp8lab/attention/verify.hpp"

namespace fp8lab {

/// Which rows of a tile of Q or K share an INT8 scale.
enum class SageGranularity : std::uint8_t {
  thread,  ///< those that one thread of a warp holds: rows of equal r mod 8 of Q, of equal
           ///< (r mod 8) / 2 of K
  warp,    ///< all rows of a warp's part of Q's tile, all rows of K's tile
};
std::string_view to_string(SageGranularity granularity);
/// The one called `name`: per_thread or per_warp. Throws `Error`.
SageGranularity find_sage_granularity(std::string_view name);

/// A kernel by name.
struct SageKernel {
  std::string_view name;
  bool nvfp4 = false;  ///< SageAttention 3; else INT8 Q and K, and P and V in E4M3
  std::int64_t q_tile = 128;
  std::int64_t q_rows = 32;  ///< of a warp; INT8 only
  std::int64_t kv_tile = 64;
  float v_limit = 448.0F;  ///< the largest code of V; INT8 only
  std::string_view qk_model;
  std::string_view pv_model;
  std::string_view source;
};
std::span<const SageKernel> sage_kernels();
/// The kernel called `name`. Throws `Error` that lists them.
const SageKernel& find_sage_kernel(std::string_view name);

struct SageOptions {
  FormatId input = FormatId::bf16;  ///< bf16 or f16: Q, K and V are rounded to it first
  float softmax_scale = 0.0F;       ///< 0: 1 / sqrt(d)
  bool causal = false;              ///< row i sees columns j <= i; needs m = n
  bool smooth = true;               ///< K's mean over its rows is removed
  SageGranularity granularity = SageGranularity::thread;  ///< INT8 only
  int threads = 0;
};

/// Floats of Q [heads, m, d], K [kv_heads, n, d] and V [kv_heads, n, d_v], row-major.
struct SageInputs {
  std::span<const float> q;
  std::span<const float> k;
  std::span<const float> v;
  AttentionShape shape;
};

/// Codes of one head, one per byte, and what their scales are.
struct SageCodes {
  std::vector<std::uint8_t> codes;  ///< [rows, columns]: INT8 (two's complement), E4M3 or E2M1
  std::vector<float> scales;        ///< inverse scales, see `quantize_sage`
};

/// What a kernel reads of the heads that belong to one head of K.
struct SageOperands {
  std::vector<SageCodes> q;  ///< of each head of Q
  SageCodes k;
  SageCodes v;
  std::vector<std::vector<float>> added;  ///< NVFP4, of each head of Q: [blocks of 128 rows, n],
                                          ///< the product of Q's mean and K, which S starts from
};

/// What a kernel does otherwise, for checks of an output. By default nothing.
struct SageVariant {
  std::int64_t q_scale_shift = 0;  ///< a row has the scale of the group this many later
  std::int64_t k_scale_shift = 0;  ///< the same of K
  std::int64_t v_scale_shift = 0;  ///< a channel has the scale of one that many later
  bool even_ties = false;          ///< INT8 codes are rounded to even at ties, not away
  bool cut = false;                ///< INT8 codes are cut
  bool no_v_scale = false;         ///< V's scales are 1
  bool plain_p = false;            ///< P is cast without a factor
  bool one_level = false;          ///< P V is summed in the unit over all tiles
  bool sum_after_cast = false;     ///< the row sum adds P after its cast
  bool no_q_mean = false;          ///< NVFP4: what Q's mean contributes is left out
  bool same_q_mean = false;        ///< NVFP4: every block of Q has the first one's contribution
  bool repaired_p_scale = false;   ///< NVFP4: P is divided by its scale after the scale's cast
};

/// The codes that the heads of K's head `kv_head` have. Scales are [rows] of INT8 (each row's, that
/// of its group), [d_v] of V in E4M3, and blocks of 16 of NVFP4: [rows, d / 16] of Q and K, [d_v,
/// rows / 16] of V, whose codes are [d_v, rows]. Rows of NVFP4 are padded to multiples of 128 by
/// zeros.
SageOperands quantize_sage(const SageInputs& inputs, const SageKernel& kernel,
                           const SageOptions& options, std::int64_t kv_head,
                           const SageVariant& variant = {});

/// O [heads, m, d_v] before its cast. Sums of INT8 products are exact; P V is summed by
/// `pv_model` in each tile and added to O in binary32; means, exp2 and 1 / sum are *assumed* to be
/// rounded once. Throws `Error` for sizes that do not fit, values that are not finite, d above 128
/// (NVFP4: other than 64 and 128), and causal with m other than n.
std::vector<float> sage_attention(const SageInputs& inputs, const SageKernel& kernel,
                                  const SageOptions& options, const SageVariant& variant = {});

/// Some rows of it, each part within `q_tile` rows of a head: [rows, d_v] of one part after the
/// other.
std::vector<float> sage_rows(const SageInputs& inputs, const SageKernel& kernel,
                             const SageOptions& options, const SageVariant& variant,
                             std::span<const AttentionRows> rows);

/// Exact attention on the floats in FP64, without any rounding of them.
std::vector<double> sage_reference(const SageInputs& inputs, const SageOptions& options);

/// As `verify_attention`: compares `got` [heads, m, d_v], values of `output`, with
/// `sage_attention`, and explains a wrong one by the mistakes of `SageVariant`, by other options of
/// the kernel, and by what needs the output alone (not written, other places, factors).
AttentionVerdict verify_sage_attention(const SageInputs& inputs, const SageKernel& kernel,
                                       const SageOptions& options, std::span<const float> got,
                                       FormatId output, double tolerance = 0.0);

}  // namespace fp8lab
