// The words of each source on which a claim rests, and the line where they stand.

#include <algorithm>
#include <array>
#include <string>

#include "claims/claim.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

constexpr auto kQuotations = std::to_array<Quotation>({
    // clang-format off
    {"F1", 57, "A single tensor of post-LayerNorm activations does not fit into E4M3's 4.5 decades."},
    {"F1a", 57, "4.5 decades. E5M2 covers … 9 decades. BF16 covers ~78 decades."},
    {"F1b", 33, "(which Hopper's FP8 path flushes to zero for throughput)"},
    {"F1c", 25, "both clipping and underflow are not zero-mean. They are systematic."},
    {"F2", 71, "With per-tensor scaling and an outlier of magnitude 1000, the non-outlier values incur something like 80–99% relative L2 error."},
    {"F2a", 73, "The damage scales like the tile size, not like"},
    {"F2b", 199, "every small value gets divided by a scale of 22.3, lands at < 2^-6 after scaling, and rounds to zero"},
    {"F3", 90, "will either lose precision on forward (using E5M2 for both) or lose range on backward (using E4M3 for both)"},
    {"F3a", 15, "Gradient values during training regularly exceed this."},
    {"F4", 96, "Each addition of an FP8×FP8 product into that 14-bit register introduces a small rounding error."},
    {"F4a", 96, "round-to-nearest in a non-symmetric grid systematically favours certain magnitudes, and the bias compounds"},
    {"F4b", 102, "about 0.8% of the matmul's FLOPs for M = 128 and K = 16 384"},
    {"F4c", 346, "The 14-bit accumulator drifts by 2.7% over a 1024-term reduction; the FP32-promoted accumulator stays inside 0.1%."},
    {"F4d", 102, "The accuracy gain is two orders of magnitude in worst-case accumulation error."},
    {"F4e", 226, "it makes the simulator's behaviour line up with real Hopper kernels"},
    {"F5", 493, "the cumulative numerical error of an FP8 all-reduce across 256+ ranks is much worse than the intra-GPU error"},
    {"L1", 164, "There are exactly 14 × 8 = 112 positive normal E4M3 values"},
    {"L2", 177, "to_e4m3 output = [0.5, 256.0, 0.0, -0.3125]"},
    {"L3", 340, "per-tensor: scale=0.5580, crushed=3/128, rel_err=0.043"},
    {"L4", 343, "(2.70% off)"},
    {"L5", 407, "ratio = ~30-50x worse than per-tile"},
    {"L6", 135, "the next-nearest E4M3 value is 0.0176 — a relative quantisation error of 72%"},
    {"L7", 145, "Per-tile costs one extra scale per 128 values, roughly 0.05% of the activation memory."},
    {"L8", 469, "biased matmul reductions before the first checkpoint"},
    {"L9", 131, "class FP8Linear(torch.nn.Module):"},
    {"L10", 255, "def deepseek_fp8_gemm(x, weight, group_size=128):"},
    {"L11", 196, "class FP8AutoScaler:"},
    {"L12", 436, "# rounds + saturates"},
    {"A1", 47, "Two naive approaches fail:"},
    {"A2", 71, "If this proportion exceeds a threshold $\\delta = 0.001$ (0.1%):"},
    {"A3", 80, "(exponentially increase over 1000 steps)"},
    {"A4", 214, "return FP8Tensor.quantize(scaled)"},
    {"A5", 168, "cannot be reduced to FP8 without divergence"},
    {"A6", 217, "Adam with precision-decoupled FP8 states."},
    {"A7", 19, "from 16 bytes/parameter (standard Adam) to 6 bytes/parameter, and communication volume by 63–65%"},
    {"A8", 43, "below the FP8 minimum representable value"},
    {"A9", 124, "66.1 GB | 57.7 GB (13% reduction)"},
    {"S1", 397, "| Gaussian (no outliers) | 1.2e-5 | 1.8e-5 | 0.67x (INT8 wins) |"},
    {"S1a", 400, "| Real LLM activations | 2.1e-3 | 6.2e-4 | 3.4x |"},
    {"S2", 349, "FP8 E4M3 has 240 values with logarithmic spacing"},
    {"S3", 403, "Delayed scaling uses a stale scale factor that is too small, causing overflow."},
    {"S4", 101, "if amax_from_history == 0:"},
    {"S5", 128, "relies on the amax history taking the max over recent steps to handle transients"},
    {"S6", 173, "# Cast weight to E4M3 (cache if scale unchanged)"},
    {"S7", 65, "Two full memory reads where there should be one."},
    {"S8", 24, "This backend automatically handles per-tensor scaling"},
    {"S9", 63, "(default length 16 in the TE backend)"},
    {"S10", 252, "BF16 for the backward pass. DeepSeek chose not to use E5M2 for gradients."},
    {"S11", 34, "Of the 14 operations, 8 are GEMMs that run in FP8."},
    {"S12", 485, "E5M2 does not saturate — it has IEEE-style Inf and NaN."},
    {"S13", 405, "the accumulation of many small quantization errors can be significant"},
    {"S14", 251, "Attention QKV projections, output projections, MoE expert layers, and gating layers all use FP8 E4M3."},
    {"S15", 82, "NVIDIA's FP8 GEMM kernels operate on 16x16 tiles"},
    {"S16", 84, "reducing communication volume by 2x compared to BF16"},
    {"T1", 471, "looks like a healthy BF16 curve for ~150–300 steps, then begins to diverge super-linearly"},
    {"T2", 17, "explain why each one needs a different mitigation"},
    {"T3", 473, "The leading indicators are: (1) gradient amax growing faster than BF16 reference"},
    {"T4", 485, "rolls back to the previous optimizer state if any gradient is non-finite is cheap insurance"},
    {"T5", 497, "FP8 training generally cannot"},
    {"T6", 471, "Restarting from a recent checkpoint does not help — the bias is structural, not stochastic."},
    {"T7", 471, "Lowering the learning rate delays divergence but does not prevent it."},
    {"T8", 489, "emerges around step 1k for 7B models, step 5k for 70B+"},
    {"P1", 245, "| GPT-3 175B | 256x H100 | ~12,000 | ~20,400 | 1.70x |"},
    {"P2", 286, "FP8 training reduced the cost by an estimated 40% compared to BF16 training"},
    {"P3", 158, "27% training speed improvement"},
    {"P4", 159, "32% weight memory reduction, 62% optimizer memory reduction"},
    {"P5", 230, "After K = 1024 even unbiased rounding has accumulated an RMS error of ~32 ulps"},
    {"P6", 481, "pays a 5–15% throughput tax"},
    {"P7", 146, "Measured MFU: 34.2% for FP8 vs. 24.9% for TE (37.4% improvement over NVIDIA Transformer Engine)"},
    {"P8", 122, "8-bit all-gather (34% reduction)"},
    {"P9", 153, "Enables training 175B model on 32 H100s (80GB) with 4K context — impossible with BF16 TE"},
    // clang-format on
});

}  // namespace

const Quotation& find_quotation(std::string_view id) {
  const auto found = std::ranges::find(kQuotations, id, &Quotation::id);
  if (found == kQuotations.end())
    throw Error("claim", "words of its source in quotations.cpp", "'" + std::string(id) + "'");
  return *found;
}

}  // namespace fp8lab::experiments
