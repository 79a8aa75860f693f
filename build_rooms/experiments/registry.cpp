#include <string>

#include "fp8lab/core/named.hpp"
#include "fp8lab/experiment/experiment.hpp"

namespace fp8lab {
namespace experiments {

Results dynamic_range(const RunContext& context);
Results outlier(const RunContext& context);
Results format_asymmetry(const RunContext& context);
Results accumulator_drift(const RunContext& context);
Results walkthrough(const RunContext& context);
Results seed_listings(const RunContext& context);
Results recipes(const RunContext& context);
Results int8_vs_fp8(const RunContext& context);
Results inference_linear(const RunContext& context);
Results delayed_dynamics(const RunContext& context);
Results auto_scaling(const RunContext& context);
Results fp8_allreduce(const RunContext& context);
Results adam_states(const RunContext& context);
Results cost(const RunContext& context);
Results train(const RunContext& context);
Results optimizer_precision(const RunContext& context);
Results leading_indicators(const RunContext& context);
Results data_parallel(const RunContext& context);
Results sweep_efficiency(const RunContext& context);
Results vendors(const RunContext& context);
Results claims(const RunContext& context);
Results failure_ladder(const RunContext& context);
Results fp8_lm(const RunContext& context);

}  // namespace experiments

const std::vector<Experiment>& all_experiments() {
  using namespace experiments;
  static const std::vector<Experiment> kExperiments{
      {"dynamic-range", R"toml(question = "How many decades can one scale hold in FP8, and what happens to the elements outside?"

# Formats that tensors are cast into, and the cast policies (profiles) to do it with:
# nvidia_satfinite keeps subnormals, flush turns everything below the smallest normal into zero.
formats = ["e4m3fn", "e5m2", "bf16"]
policies = ["nvidia_satfinite", "flush"]

# Formats whose spacing is drawn.
spacing_formats = ["e4m3fn", "e5m2", "f16", "bf16"]

# Tensors: log_uniform (as many elements in every decade) and log_normal (the decades are
# the middle +-3 sigma of log10 of the magnitudes), at each of `decades`; or, once, at the decades that
# its first draw has: laplace, student_t:4, outlier_channels:60, FILE.npy, FILE.safetensors#TENSOR, ...
# Every tensor is scaled to amax 1.
distributions = ["log_uniform", "log_normal"]
decades = [3, 4, 5, 6, 7, 8, 9]
elements = 16384
# Draws of each tensor: the amax scale hangs on one element, the largest of a draw.
repeats = 5

# Scales that are tried: log10 of the first and the last, and how many a decade.
scale_from = -2.0
scale_to = 10.0
scales_per_decade = 8

# The decades of the plots against the scale; one of `decades`.
plot_decades = 7

[quick]
elements = 4096
scales_per_decade = 4

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
formats = "1 to 100"
policies = "1 to 100"
spacing_formats = "1 to 100"
distributions = "1 to 100"
decades = "1 to 64 of [1, 30]"
elements = "[1, 100000000]"
repeats = "[1, 1000]"
scale_from = "[-37, 37]"
scale_to = "[-37, 37]"
scales_per_decade = "[1, 100]"
plot_decades = "[1, 30]"
)toml", dynamic_range},
      {"outlier", R"toml(question = "What does one outlier do to all other elements, with one scale per tensor and with one per tile?"

# The format, and the cast policies (profiles): nvidia_satfinite keeps subnormals,
# flush turns everything below the smallest normal into zero.
format = "e4m3fn"
policies = ["nvidia_satfinite", "flush"]

# The bulk: this number of elements of N(0, sigma^2), drawn anew for each repeat.
elements = 16384
sigma = 0.4
repeats = 8
# Another bulk, scaled to a root mean square of sigma: laplace, student_t:4, log_normal:6,
# outlier_channels:60, FILE.npy, FILE.safetensors#TENSOR, ...; "": normal.
bulk = ""

# Outlier magnitudes: log10 of the first and the last, and how many a decade.
outlier_from = 0.0
outlier_to = 6.0
outliers_per_decade = 4

# Elements that share a scale, besides the whole tensor.
tiles = [16, 32, 64, 128, 256]

# Damage against the tile: tensors of these sizes, with an outlier of this magnitude.
containment_elements = [1024, 4096, 16384, 65536]
containment_outlier = 1e5

# Repeats of the two published examples (128 elements, and 64 x 1024 in BF16).
published_repeats = 16

# Dot products of a row with one outlier, on sm90.wgmma.e4m3: their lengths, and outputs of each.
product_k = [256, 1024, 4096, 16384]
product_outputs = 64

[quick]
elements = 4096
repeats = 3
outliers_per_decade = 2
containment_elements = [1024, 4096]
published_repeats = 4
product_k = [256, 1024, 4096]
product_outputs = 16

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
policies = "1 to 100"
elements = "[2, 100000000]"
sigma = "[1e-9, 1e9]"
repeats = "[1, 100000]"
outlier_from = "[-30, 30]"
outlier_to = "[-30, 30]"
outliers_per_decade = "[1, 100]"
tiles = "0 to 64 of [1, 100000000]"
containment_elements = "1 to 64 of [2, 100000000]"
containment_outlier = "[1e-9, 1e30]"
published_repeats = "[1, 100000]"
product_k = "0 to 16 of [2, 1048576]"
product_outputs = "[1, 4096]"
)toml", outlier},
      {"format-asymmetry", R"toml(question = "Why do forward tensors and gradients need different FP8 formats, and when is E4M3 enough for both?"

# A linear layer y = x w^T: x [tokens, inputs], w [outputs, inputs], gradient dy [tokens, outputs].
tokens = 128
inputs = 512
outputs = 128
# Layers drawn for the products, and for the losses of single tensors.
repeats = 3
tensor_repeats = 8

# Activations: N(0, sigma^2) with a few one-sided outlier channels, as LLM.int8() describes them.
activation_sigma = 1.0
outlier_channels = 6
outlier_magnitude = 60.0

# Weights: N(0, sigma^2).
weight_sigma = 0.02

# Gradients: log-normal, the decades being +-3 sigma; so much of the variance is common to a token.
gradient_decades = 8.0
gradient_row_share = 0.5

# Other activations, weights and gradients, as they come: laplace, student_t:4, log_normal:6,
# outlier_channels:60, FILE.npy, FILE.safetensors#TENSOR, ...; "": the above.
activations = ""
weights = ""
gradients = ""

# Cast policies (profiles). The products use the first.
policies = ["nvidia_satfinite", "flush"]

# Fine scales: 1 x tile for activations and gradients, tile x tile for weights.
tile = 128

# Partial sums move to FP32 after this number of terms, in every recipe; must divide `tile`.
promotion_interval = 128

# Share of a gradient that becomes zero: against its decades, and against the common variance.
sweep_decades = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
sweep_row_shares = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]

[quick]
inputs = 128
repeats = 1
tensor_repeats = 5
sweep_decades = [2, 4, 6, 8, 10, 12]
sweep_row_shares = [0.0, 0.5, 1.0]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
tokens = "[1, 65536]"
inputs = "[1, 65536]"
outputs = "[1, 65536]"
repeats = "[1, 1000]"
tensor_repeats = "[1, 1000]"
activation_sigma = "[1e-9, 1e9]"
outlier_channels = "[1, 65536]"
outlier_magnitude = "[0, 1e9]"
weight_sigma = "[1e-9, 1e9]"
gradient_decades = "[0, 20]"
gradient_row_share = "[0, 1]"
policies = "1 to 100"
tile = "[1, 65536]"
promotion_interval = "[1, 65536]"
sweep_decades = "1 to 64 of [0, 20]"
sweep_row_shares = "1 to 64 of [0, 1]"
)toml", format_asymmetry},
      {"accumulator-drift", R"toml(question = "How does the error of a long FP8 dot product grow with K under each accumulator, and how much does promotion to FP32 help?"

# Lengths of the dot products; operands are drawn anew for each.
k = [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
# Operand distributions: uniform U[0,1), normal N(0,1), correlated, ones; own: what `own_a` and
# `own_b` say, as they come: laplace, student_t:4, log_normal:6, outlier_channels:60, FILE.npy,
# FILE.safetensors#TENSOR, ... (rows are summed over); own_b "": another draw of own_a.
distributions = ["uniform", "normal", "correlated"]
own_a = ""
own_b = ""
# E[a b] of the correlated operands, 0 .. 1.
correlation = 0.5
# Accumulators, by name or as definitions (fused:terms=16,F=13), measured without promotion.
accumulators = ["sm90.wgmma.e4m3", "sm89.mma.e4m3", "sm100.mma.e4m3", "sequential14.rne", "sequential14.rz", "fp32", "exact"]
# Accumulators that are also measured with promotion.
promoted_accumulators = ["sm90.wgmma.e4m3", "sequential14.rne"]
# Terms between two promotions into FP32.
promotion_intervals = [32, 64, 128, 256, 512, 1024]
# Lengths at which every promotion interval is measured; 128 is measured at every k.
promotion_k = [4096, 16384]
# Rows of A and of B: rows * columns dot products a point.
rows = 16
columns = 16
# Slopes of E4M3 operands are fitted over this window: below it E4M3's products still fit into
# the accumulator's grid and little is lost, above it sums stagnate; neither is a power law.
fit_k_min = 512
fit_k_max = 4096
# Sets of operands that slopes are fitted to, for their spread.
fit_repeats = 5
# The same accumulators on BF16 operands, whose 16-bit products make the accumulator the only
# grid: lengths, and accumulators. Fitted from bf16_fit_k_min on: a step of the tensor core takes
# 32 terms, so that shorter sums are made in a few steps and follow no law of many roundings.
bf16_k = [32, 64, 128, 256, 512, 1024]
bf16_fit_k_min = 128
bf16_accumulators = ["sm90.wgmma.e4m3", "sequential14.rne", "sequential14.rz"]
# Length of the dot product whose running sum is recorded, and terms between two records.
running_sum_k = 16384
running_sum_step = 128
# Lengths at which the error is split into its stages.
split_k = [1024, 4096]
# Rows and columns of the products that check published figures (K = 4096 and 16384, U[0,1)
# and N(0,1) cast without a scale).
published_rows = 32

[quick]
k = [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
rows = 8
columns = 8
promotion_k = [4096]
split_k = [1024]
published_rows = 8

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
k = "1 to 64 of [1, 1048576]"
distributions = "1 to 5"
correlation = "[0, 1]"
accumulators = "1 to 100 of models"
promoted_accumulators = "0 to 100 of models"
promotion_intervals = "0 to 64 of [1, 1048576]"
promotion_k = "0 to 64 of [1, 1048576]"
rows = "[1, 1024]"
columns = "[1, 1024]"
fit_k_min = "[1, 1048576]"
fit_k_max = "[1, 1048576]"
fit_repeats = "[1, 1000]"
bf16_fit_k_min = "[1, 1048576]"
bf16_k = "0 to 64 of [1, 1048576]"
bf16_accumulators = "0 to 100 of models"
running_sum_k = "[1, 1048576]"
running_sum_step = "[1, 1048576]"
split_k = "0 to 64 of [1, 1048576]"
published_rows = "[1, 512]"
)toml", accumulator_drift},
      {"walkthrough", R"toml(question = "What happens, step by step, to five values with one outlier when they are cast to E4M3 per tensor and per tile?"

# Points of the curve of the relative error of a cast against |x / s|.
curve_points = 400

[quick]
curve_points = 120

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
curve_points = "[2, 1000000]"
)toml", walkthrough},
      {"seed-listings", R"toml(question = "What do the two listings of the naive-FP8 tutorial print as written, and what do they print once corrected?"

# Runs of the NumPy listing on draws of our own, beside the one on NumPy's draws.
listing_repeats = 1000
# Runs of the PyTorch listing on draws of our own.
torch_repeats = 50
# Outliers for which the PyTorch listing is repeated; the listing's is 200.
torch_outliers = [20.0, 200.0, 2000.0, 20000.0, 200000.0]

[quick]
listing_repeats = 200
torch_repeats = 5
torch_outliers = [200.0, 20000.0]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
listing_repeats = "[1, 1000000]"
torch_repeats = "[1, 1000000]"
torch_outliers = "1 to 64 of [1e-3, 1e30]"
)toml", seed_listings},
      {"recipes", R"toml(question = "Which scaling recipe has the smallest error on the same tensor, and what does it cost?"

# fp8lab recipes (fp8lab quantize --help lists them), and which operand the
# tensor is: activation, weight or gradient decides format and tile.
recipes = ["naive", "te-delayed", "te-current", "ms-amp", "torchao-tensorwise", "torchao-rowwise", "inference-static", "inference-dynamic", "deepseek-v3", "deepgemm", "deepgemm-ue8m0", "te-blockwise", "te-mxfp8", "mxfp8-floor"]
role = "activation"

# The tensors: [rows, columns]; log-normal over this number of decades (+-3 sigma), and
# Student t with this number of degrees of freedom.
tensors = ["normal", "log-normal", "student-t", "outlier-channels"]
rows = 256
columns = 2048
decades = 6.0
degrees_of_freedom = 3

# Everything is multiplied by this: what a recipe without a scale is up against.
magnitude = 1e-3

# Steps that recipes that use earlier tensors have seen before: other draws of the same tensor.
past_steps = 3

# A .npy or .safetensors file instead ("" for none); its 2-D tensors are taken.
file = ""

# How often a recipe reads memory is counted on a tensor of this size, page by page, with so
# many KiB of it in the cache.
read_rows = 1024
read_columns = 2048
read_window_kib = 1024

[quick]
read_rows = 256
read_columns = 2048
rows = 128
columns = 1024

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
recipes = "1 to 100"
tensors = "1 to 100"
rows = "[1, 65536]"
columns = "[1, 65536]"
decades = "[0, 30]"
degrees_of_freedom = "[1, 1000]"
magnitude = "[1e-30, 1e30]"
past_steps = "[1, 1000]"
read_rows = "[1, 65536]"
read_columns = "[1, 65536]"
read_window_kib = "[4, 1048576]"
)toml", recipes},
      {"int8-vs-fp8", R"toml(question = "When does FP8 beat INT8, and which split of exponent and mantissa is best?"

# Formats: exponent and mantissa bits beside the sign, with all codes used for numbers;
# INT8 (symmetric); OCP's E4M3 and E5M2, which give up codes for NaN and Inf.
formats = ["INT8", "2E5M", "3E4M", "4E3M", "5E2M", "E4M3 (OCP)", "E5M2 (OCP)"]

# Tensors: U(-1, 1), N(0, 1), Student t with this number of degrees of freedom.
tensors = ["uniform", "normal", "student-t"]
elements = 65536
degrees_of_freedom = 8

# The best scale is chosen among this number of clips per octave, down to 2^-clip_octaves of the amax.
clips_per_octave = 16
clip_octaves = 3

# The published comparison has this many elements.
published_elements = 10000

# A .npy or .safetensors file instead ("" for none); its 2-D tensors are taken.
file = ""

[quick]
elements = 8192
clips_per_octave = 8

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
formats = "1 to 100"
tensors = "1 to 100"
elements = "[2, 100000000]"
degrees_of_freedom = "[1, 1000]"
clips_per_octave = "[1, 1000]"
clip_octaves = "[1, 30]"
published_elements = "[2, 100000000]"
)toml", int8_vs_fp8},
      {"inference-linear", R"toml(question = "Do static activation scales hold up at inference, and how much calibration do they need?"

# The layer y = x w^T: x [tokens, inputs], w [outputs, inputs].
tokens = 64
inputs = 1024
outputs = 256
weight_sigma = 0.02

# Activations: N(0, 1) with one-sided outlier channels, as LLM.int8() describes them; tokens
# differ in size by this number of octaves (standard deviation).
outlier_channels = 6
outlier_magnitude = 60.0
token_octaves = 1.0

# Batches that a static scale is calibrated on, and that all are measured on.
calibration_batches = [1, 8, 64]
test_batches = 4

# The distribution shifts: test batches are multiplied by each of these.
shifts = [0.0625, 0.25, 1.0, 2.0, 4.0, 16.0]

# Partial sums move to FP32 after this number of terms.
promotion_interval = 128

[quick]
inputs = 256
outputs = 64
calibration_batches = [1, 8, 32]
test_batches = 2
shifts = [0.0625, 1.0, 4.0]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
tokens = "[1, 65536]"
inputs = "[1, 65536]"
outputs = "[1, 65536]"
weight_sigma = "[1e-9, 1e9]"
outlier_channels = "[1, 65536]"
outlier_magnitude = "[0, 1e9]"
token_octaves = "[0, 12]"
calibration_batches = "1 to 64 of [1, 1024]"
test_batches = "[1, 1024]"
shifts = "1 to 64 of [1e-9, 1e9]"
promotion_interval = "[0, 65536]"
)toml", inference_linear},
      {"delayed-dynamics", R"toml(question = "What does delayed scaling lose when a tensor's magnitude drifts, steps or spikes?"

# How the amax of a tensor moves from step to step: steady (noise only), drift
# (drift_octaves over the run), step (up by jump at half time), drop (down by
# jump), spike (one step of jump at half time), sawtooth (up by jump over period
# steps, then down). Or a file with one amax a step: .npy, or text with a line a step.
traces = ["steady", "drift", "step", "drop", "spike", "sawtooth"]
file = ""
steps = 4000
noise_octaves = 0.25
drift_octaves = 8.0
jump = 64.0
period = 200

# The recipe: history lengths, margins (the scale is 2^margin smaller) and
# algorithms; te-current is added for comparison.
histories = [1, 16, 1024]
margins = [0.0, 1.0]
algorithms = ["max", "most_recent"]
format = "e4m3fn"

# Elements of the tensor, normal with the trace's amax as its largest magnitude.
elements = 1024

[quick]
steps = 1500
elements = 256
histories = [1, 16, 256]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
traces = "1 to 100"
steps = "[2, 10000000]"
noise_octaves = "[0, 8]"
drift_octaves = "[-40, 40]"
jump = "[1e-9, 1e9]"
period = "[1, 1000000000]"
histories = "1 to 64 of [1, 1000000]"
margins = "1 to 64 of [-30, 30]"
algorithms = "1 to 100"
elements = "[1, 10000000]"
)toml", delayed_dynamics},
      {"auto-scaling", R"toml(question = "Which scaling of gradients survives an FP8 all-reduce over many ranks?"

# Gradients: each rank holds a common part plus its own normal noise, with a
# standard deviation of noise_to_signal times the common part's; magnitudes are
# log-normal over decades (+-3 sigma), so that small and large elements exist.
# One element must be less than delta: 0.001 % takes 100 000 elements.
elements = 131072
decades = 3.0
noise_to_signal = 2.0
ranks = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
format = "e4m3fn"
repeats = 5

# The rule of mu, by default the paper's: halved where more than delta of the elements are at
# max finite; else it grows, twofold over doubling_steps steps: exponential, linear, doubling (at
# once, at the end of these steps) or none; only from the clean_steps-th clean step on.
delta = 1e-5
doubling_steps = 1000
clean_steps = 0
growth = "exponential"
mu_start = 1.0

# Steps that mu gets to find its place before a reduction is measured.
settle_steps = 20

# The dynamics of mu: steps, ranks, elements, rules (set: the one above; listing: the scaler of the
# first listing as written; listing-corrected: its threshold and growth with a mu that has an
# effect). The gradient's size drifts by this many octaves until turn_at of the run, then by
# drift_back_octaves; each spike_period ends with spike_steps steps that are `spike` times as large.
steps = 12000
dynamics_ranks = 8
dynamics_elements = 131072
dynamics_rules = ["set", "listing", "listing-corrected"]
drift_octaves = 4.0
drift_back_octaves = -4.0
turn_at = 0.5
spike = 32.0
spike_steps = 1
spike_period = 2500

# The largest magnitude of the first step's gradient (a file's own, where one is given): the
# listing compares the gradient itself with max finite.
amax = 1.0

# Instead of drawn gradients: a .npy file [ranks, elements], taken as it is; "" for none.
gradients = ""

# Instead of drift and spikes: a file with the size (amax) of the gradient at each step, .npy or
# text; "" for none.
file = ""

[quick]
ranks = [2, 8, 32]
steps = 800
dynamics_ranks = 2
drift_octaves = 2.0
drift_back_octaves = -2.0
spike_period = 230
settle_steps = 10

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
elements = "[1, 10000000]"
decades = "[0, 30]"
noise_to_signal = "[0, 1e6]"
ranks = "1 to 64 of [1, 65536]"
repeats = "[1, 1000]"
delta = "[0, 1]"
doubling_steps = "[1, 1000000000]"
clean_steps = "[0, 1000000000]"
mu_start = "[1e-30, 1e30]"
settle_steps = "[1, 1000000]"
steps = "[1, 10000000]"
dynamics_ranks = "[1, 65536]"
dynamics_elements = "[1, 10000000]"
dynamics_rules = "1 to 3"
drift_octaves = "[-60, 60]"
drift_back_octaves = "[-60, 60]"
turn_at = "(0, 1]"
spike = "[1e-9, 1e9]"
spike_steps = "[0, 1000000000]"
spike_period = "[1, 1000000000]"
amax = "[1e-30, 1e30]"
)toml", auto_scaling},
      {"fp8-allreduce", R"toml(question = "How much error does a collective in FP8 add, and how much traffic does it save?"
mpi = true

# Gradients: each rank holds a common part plus its own normal noise, with a
# standard deviation of noise_to_signal times the common part's; magnitudes are
# log-normal over decades (+-3 sigma).
elements = 2048
decades = 3.0
noise_to_signal = 2.0
ranks = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]

topologies = ["ring", "tree", "direct"]
wires = ["e4m3fn", "e5m2", "f16", "bf16", "f32"]

# How FP8 gradients are scaled before the sum: unified, unified-over-n,
# requantized, shipped. Wider wires carry them unscaled.
schemes = ["unified", "unified-over-n", "requantized", "shipped"]

# Quantized all-gather: weights of standard deviation 0.02, in shards whose
# magnitudes spread over this number of octaves (standard deviation).
gather_elements = 16384
gather_ranks = [2, 8, 32, 128]
shard_octaves = 1.0

# Ranks that disagree about the scale: one rank's is 2^octaves too large.
desync_ranks = [2, 8, 64]
desync_octaves = [-4.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0]

[quick]
elements = 1024
ranks = [2, 8, 32, 128, 512]
gather_elements = 4096
gather_ranks = [2, 8, 32]
desync_ranks = [2, 16]
desync_octaves = [-3.0, -1.0, 0.0, 1.0, 3.0]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
elements = "[1, 10000000]"
decades = "[0, 30]"
noise_to_signal = "[0, 1e6]"
ranks = "1 to 64 of [1, 4096]"
topologies = "1 to 100"
wires = "1 to 100"
schemes = "1 to 100"
gather_elements = "[1, 10000000]"
gather_ranks = "1 to 64 of [1, 4096]"
shard_octaves = "[0, 16]"
desync_ranks = "1 to 64 of [1, 4096]"
desync_octaves = "1 to 64 of [-30, 30]"
)toml", fp8_allreduce},
      {"adam-states", R"toml(question = "Which Adam states survive low precision, and why does the second moment fail in FP8?"

# Quadratics: element i has curvature h_i, log-uniform over this number of decades, and
# the gradient h_i (x_i + noise normal(0, 1)). Adam divides curvature out again, so that with exact
# states every element behaves alike; what differs is the format's doing.
elements = 4096
steps = 1500
decades = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
noise = 0.5
lr = 0.01
beta1 = 0.9
beta2 = 0.95
curve_decades = 4.0
presets = ["fp32", "fp8-lm", "fp8-lm-bf16-master", "fp8-lm-fp8-master", "fp8-lm-fp8-v", "fp8-lm-unscaled", "fp8-lm-fp8-v-unscaled", "coat", "coat-unexpanded"]

# true stores gradients as the preset says; false keeps them in FP32, to see
# the states alone.
quantize_gradients = false

# v alone: gradients normal(0, 1), the stored v over FP32's after this number of steps.
stagnation_steps = 4000
stagnation_elements = 1024
betas = [0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999]

# The listing of the FP8-LM summary: weights of this size, the curvature of `listing_decades`.
listing_weights = 1.0
listing_decades = 2.0

[quick]
elements = 512
steps = 300
decades = [0.0, 2.0, 4.0, 6.0]
stagnation_steps = 600
stagnation_elements = 256
betas = [0.9, 0.95, 0.99, 0.999]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
elements = "[1, 10000000]"
steps = "[1, 10000000]"
decades = "1 to 64 of [0, 30]"
noise = "[0, 1e6]"
lr = "(0, 1000]"
beta1 = "[0, 0.999999]"
beta2 = "[0, 0.999999]"
curve_decades = "[0, 30]"
presets = "1 to 100"
stagnation_steps = "[1, 10000000]"
stagnation_elements = "[1, 10000000]"
betas = "1 to 64 of [0, 0.999999]"
listing_weights = "[-10000, 10000]"
listing_decades = "[0, 30]"
)toml", adam_states},
      {"cost", R"toml(question = "What do FP8 states, gradients and GEMMs save in memory, traffic and FLOPs, model by model?"

# Names that `fp8lab cost` knows, or TOML files, and schemes.
models = ["7b", "13b", "175b"]
schemes = ["bf16", "te-fp8", "fp8-lm"]

# The table of operations, and the share of FP8 FLOPs over sequence lengths.
blocks = ["llama-7b", "mixtral-8x7b", "175b"]
sequences = [512, 1024, 2048, 4096, 8192, 16384, 32768]

# ZeRO with whole tensors: imbalance over data ranks.
ranks = [2, 4, 8, 16, 32, 64, 128]

[quick]
sequences = [512, 2048, 8192, 32768]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
models = "1 to 100"
schemes = "1 to 100"
blocks = "1 to 100"
sequences = "1 to 64 of [1, 1000000000]"
ranks = "1 to 64 of [1, 1000000]"
)toml", cost},
      {"train", R"toml(question = "Which FP8 recipes train like BF16, which stall, and which diverge?"

# Runs to compare (variants.cpp says what each is); NAME+outliers scales feature
# channels up. The first is the reference of every gap.
variants = ["bf16", "fp32", "unscaled-e4m3", "unscaled-hybrid", "unscaled-e5m2", "e4m3-only", "e5m2-only", "no-promotion", "unscaled-e4m3+outliers", "te-current+outliers", "fix-loss-scale", "fix-formats", "fix-scales", "fix-promotion", "fix-tiles", "fix-all", "te-delayed", "te-current", "torchao-rowwise", "deepseek-v3-first", "deepgemm", "te-mxfp8", "ms-amp"]
seeds = 3

# The model: a decoder-only transformer with RMSNorm and SwiGLU.
vocabulary = 256
length = 64
width = 128
layers = 2
heads = 4
hidden = 256

# The data: the bytes of a file, or ("") the synthetic language; sequences a step.
text = ""
sequences = 2

steps = 600
warmup = 30
learning_rate = 3e-3

# Feature channels that are 2^outlier_log2 times larger than the others.
outlier_channels = 4
outlier_log2 = 10

# Each failure from mild to severe, one seed: a name and its values.
ladders = ["underflow", "outliers", "outliers-rowwise", "outliers-mx", "accumulator", "accumulator-promoted"]
underflow_log2 = [-12, -8, -4, 0, 4, 8]
outliers_log2 = [10, 14, 17, 20]
accumulator_bits = [13, 7, 5, 4, 3]

# Verdicts: the mean loss of the last steps against the reference's.
tail_share = 0.2
follow_nats = 0.02
diverge_nats = 0.2

# Steps of a run at which every cast is looked at.
samples = 5

[quick]
variants = ["bf16", "unscaled-e4m3", "unscaled-hybrid", "e5m2-only", "te-current", "te-current+outliers", "deepgemm", "te-mxfp8"]
vocabulary = 128
length = 32
width = 64
layers = 1
heads = 2
hidden = 96
steps = 100
warmup = 10
ladders = ["underflow"]
underflow_log2 = [-8, 8]
samples = 2

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
variants = "1 to 100"
seeds = "[1, 1000]"
vocabulary = "[2, 65536]"
length = "[1, 65536]"
width = "[1, 16384]"
layers = "[1, 256]"
heads = "[1, 1024]"
hidden = "[1, 65536]"
sequences = "[1, 65536]"
steps = "[1, 10000000]"
warmup = "[1, 10000000]"
learning_rate = "(0, 1000]"
outlier_channels = "[1, 65536]"
outlier_log2 = "[-60, 60]"
ladders = "0 to 100"
underflow_log2 = "0 to 64 of [-120, 120]"
outliers_log2 = "0 to 64 of [-60, 60]"
accumulator_bits = "0 to 64 of [1, 24]"
tail_share = "(0, 1]"
follow_nats = "[0, 100]"
diverge_nats = "[0, 100]"
samples = "[1, 1000000]"
)toml", train},
      {"optimizer-precision", R"toml(question = "Which optimizer states may be FP8 in a training run?"

# Rows of FP8-LM's Table 6 (rows.hpp); NAME-unscaled drops every scale. The first is
# the reference of every gap.
rows = ["bf16", "fp32", "fp8-lm", "fp8-lm-bf16-master", "fp8-lm-fp8-master", "fp8-lm-fp8-v", "coat", "fp8-lm-unscaled", "fp8-lm-bf16-master-unscaled", "fp8-lm-fp8-master-unscaled", "fp8-lm-fp8-v-unscaled", "coat-unscaled"]
seeds = 3

# The optimizer of the paper: betas 0.9 and 0.95, weight decay 0.1.
beta1 = 0.9
beta2 = 0.95
weight_decay = 0.1

# The model: a decoder-only transformer with RMSNorm and SwiGLU.
vocabulary = 256
length = 64
width = 128
layers = 2
heads = 4
hidden = 256

# The data: the bytes of a file, or ("") the synthetic language; sequences a step.
text = ""
sequences = 2

steps = 300
warmup = 30
learning_rate = 3e-3

# Verdicts: the mean loss of the last steps against the reference's.
tail_share = 0.2
follow_nats = 0.02
diverge_nats = 0.2

[quick]
rows = ["bf16", "fp32", "fp8-lm", "fp8-lm-bf16-master", "fp8-lm-fp8-master", "fp8-lm-fp8-v", "fp8-lm-unscaled", "fp8-lm-fp8-master-unscaled", "fp8-lm-fp8-v-unscaled"]
seeds = 1
vocabulary = 128
length = 32
width = 64
layers = 1
heads = 2
hidden = 96
steps = 80
warmup = 10

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
rows = "1 to 100"
seeds = "[1, 1000]"
beta1 = "[0, 0.999999]"
beta2 = "[0, 0.999999]"
weight_decay = "[0, 100]"
vocabulary = "[2, 65536]"
length = "[1, 65536]"
width = "[1, 16384]"
layers = "[1, 256]"
heads = "[1, 1024]"
hidden = "[1, 65536]"
sequences = "[1, 65536]"
steps = "[1, 10000000]"
warmup = "[1, 10000000]"
learning_rate = "(0, 1000]"
tail_share = "(0, 1]"
follow_nats = "[0, 100]"
diverge_nats = "[0, 100]"
)toml", optimizer_precision},
      {"leading-indicators", R"toml(question = "Which figures show that a run is failing before its loss does, and what does a rollback cost?"

# Runs watched beside a BF16 shadow: a variant of `train`, and after @ the optimizer
# states of `optimizer-precision`; +outliers as in `train`.
runs = ["te-current", "te-delayed", "unscaled-hybrid", "unscaled-e4m3", "te-current+outliers", "bf16@fp8-lm", "bf16@fp8-lm-fp8-v", "bf16@fp8-lm-fp8-v-unscaled", "bf16@fp8-lm-fp8-master-unscaled"]

# Alarms: ratios to the shadow outside of [1 / ratio, ratio], a loss gap in nats, each
# over a window of steps and for this number of steps in a row.
amax_ratio = 2.0
moment_ratio = 2.0
loss_gap = 0.01
window = 10
patience = 5
# The loss has left its shadow where the gap stays above this, in nats.
leave_gap = 0.1

outlier_channels = 4
outlier_log2 = 17

# One NaN in the gradients of this step (share of all steps), under this variant,
# with a snapshot every this many steps (0: no guard).
fault_at = 0.5
fault_variant = "te-delayed"
snapshot_every = [0, 1, 5, 20]

# The model and the run, as in `train`.
vocabulary = 256
length = 64
width = 128
layers = 2
heads = 4
hidden = 256
text = ""
sequences = 2
steps = 300
warmup = 30
learning_rate = 3e-3
tail_share = 0.2
follow_nats = 0.02
diverge_nats = 0.2

[quick]
runs = ["te-current", "unscaled-e4m3", "bf16@fp8-lm-fp8-v", "bf16@fp8-lm-fp8-v-unscaled"]
vocabulary = 128
length = 32
width = 64
layers = 1
heads = 2
hidden = 96
steps = 80
warmup = 10
snapshot_every = [0, 1, 5]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
runs = "1 to 100"
amax_ratio = "(1, 1e9]"
moment_ratio = "(1, 1e9]"
loss_gap = "[0, 100]"
window = "[1, 1000000]"
patience = "[1, 1000000]"
leave_gap = "[0, 100]"
outlier_channels = "[1, 65536]"
outlier_log2 = "[-60, 60]"
fault_at = "(0, 1)"
snapshot_every = "1 to 64 of [0, 1000000]"
vocabulary = "[2, 65536]"
length = "[1, 65536]"
width = "[1, 16384]"
layers = "[1, 256]"
heads = "[1, 1024]"
hidden = "[1, 65536]"
sequences = "[1, 65536]"
steps = "[1, 10000000]"
warmup = "[1, 10000000]"
learning_rate = "(0, 1000]"
tail_share = "(0, 1]"
follow_nats = "[0, 100]"
diverge_nats = "[0, 100]"
)toml", leading_indicators},
      {"data-parallel", R"toml(question = "What does an FP8 all-reduce of gradients do to a training run?"
mpi = true

# Workers, each with its own model and `sequences` sequences a step, and the wires
# between them; FP8 wires under each way to scale.
workers = [2, 8, 32]
topology = "ring"
wires = ["f32", "bf16", "e4m3fn", "e5m2"]
scalings = ["pre", "post", "auto", "shipped"]

# Arithmetic of the linear layers, a variant of `train`; or a system of `fp8-lm`, whose states
# and ZeRO are then taken too.
variant = "te-current"

# The model and the run, as in `train`.
vocabulary = 128
length = 32
width = 64
layers = 1
heads = 2
hidden = 96
text = ""
sequences = 1
steps = 160
warmup = 16
learning_rate = 3e-3

# Verdicts against FP32 wires, as in `train`; steps at which a reduction is compared with FP32's.
tail_share = 0.2
follow_nats = 0.02
diverge_nats = 0.2
samples = 5

[quick]
workers = [8]
wires = ["f32", "e4m3fn"]
steps = 32
warmup = 6
samples = 2

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
workers = "1 to 64 of [1, 4096]"
wires = "1 to 100"
scalings = "1 to 100"
vocabulary = "[2, 65536]"
length = "[1, 65536]"
width = "[1, 16384]"
layers = "[1, 256]"
heads = "[1, 1024]"
hidden = "[1, 65536]"
sequences = "[1, 65536]"
steps = "[1, 10000000]"
warmup = "[1, 10000000]"
learning_rate = "(0, 1000]"
tail_share = "(0, 1]"
follow_nats = "[0, 100]"
diverge_nats = "[0, 100]"
samples = "[1, 1000000]"
)toml", data_parallel},
      {"sweep-efficiency", R"toml(question = "How many ranks can rank 0 keep busy when it distributes the points of a sweep, and how long do the others wait for the last points?"

# A sweep of this number of points, on this number of ranks (with the dealer's own).
points = 1000000
ranks = [1, 2, 4, 10, 30, 100, 300, 1000, 3000, 10000]

# Costs of the points: constant, log_normal (sigma of the natural logarithm), pareto
# (P(cost > x) ~ x^-alpha), with these means in seconds.
distributions = ["constant", "log_normal", "pareto"]
mean_seconds = [0.1, 1.0, 10.0]
log_normal_sigma = 1.0
pareto_alpha = 2.5

# Points that a rank is given ahead; the tool's is 2.
in_hand = [1, 2, 4]

# What the dealer needs for a result (reading it, appending it to the log, sending the next
# point), for one of the first points, and a message on its way; measured, see README.md.
service_seconds = 1.5e-4
deal_seconds = 5e-6
latency_seconds = 5e-6

# Between two looks of a rank that has nothing to do: as in the tool.
pause_seconds = 5e-5

# From the start of the run to the first point: starting processes and MPI.
launch_seconds = 0.6

[quick]
points = 50000
ranks = [1, 4, 16, 100, 1000, 10000]
mean_seconds = [0.1, 1.0]
in_hand = [2]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
points = "[1, 100000000]"
ranks = "1 to 64 of [1, 1000000]"
distributions = "1 to 100"
mean_seconds = "1 to 64 of [1e-6, 1e6]"
log_normal_sigma = "[0, 6]"
pareto_alpha = "(1, 1000]"
in_hand = "1 to 64 of [1, 1000]"
service_seconds = "[0, 1000]"
deal_seconds = "[0, 1000]"
latency_seconds = "[0, 1000]"
pause_seconds = "[1e-6, 1000]"
launch_seconds = "[0, 1e6]"
)toml", sweep_efficiency},
      {"vendors", R"toml(question = "Where do AMD's and NVIDIA's FP8 products differ, by how much, and is it the format or the accumulator?"

# Instructions, by name or as definitions; each reads operands in its own FP8 formats. E5M2:
# chips = gfx942.mfma.bf8,sm89.mma.e5m2,sm90.wgmma.e5m2,sm100.tcgen05.e5m2.
chips = ["gfx942.mfma.fp8", "sm89.mma.e4m3", "sm90.wgmma.e4m3", "sm100.tcgen05.e4m3"]
# Those that are also measured with partial sums that move to FP32 after this number of terms.
promoted_chips = ["sm90.wgmma.e4m3"]
promotion_interval = 128

# Measures chips with FNUZ codes a second time, with scales half of those of the OCP format: the codes then
# stand for the same numbers, and only the accumulator is another.
align_fnuz = true

# Tensors: uniform U[0, 1); normal N(0, 1); log-normal, and outliers: A has a few large channels
# among N(0, 1), B is N(0, 1).
distributions = ["uniform", "normal", "log_normal", "outliers"]
# Decades that the middle 99.73 % of the log-normal magnitudes span.
decades = 4.0
outlier_channels = 6
outlier_magnitude = 60.0
# bf16 rounds the tensors to BF16 first, as activations are held; f32 does not.
operands = "bf16"

# One scale a tensor, or one a row: largest number of the format over the amax.
scaling = "tensor"

# Lengths of the dot products; rows * columns outputs a point; sets of tensors.
k = [256, 1024, 4096, 16384]
rows = 16
columns = 16
repeats = 5

[quick]
k = [256, 4096]
rows = 8
columns = 8
repeats = 5

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
chips = "1 to 16 of models"
promoted_chips = "0 to 16 of models"
promotion_interval = "[1, 65536]"
distributions = "1 to 4"
decades = "[0, 12]"
outlier_channels = "[1, 65536]"
outlier_magnitude = "[0, 1e9]"
k = "1 to 64 of [1, 1048576]"
rows = "[1, 1024]"
columns = "[1, 1024]"
repeats = "[1, 1000]"
)toml", vendors},
      {"claims", R"toml(question = "Which published claims about FP8 hold when they are measured again?"

# Claims by id, for example ["F1", "A2"]; "all" stands for every one.
ids = ["all"]

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
ids = "1 to 1000"
)toml", claims},
      {"failure-ladder", R"toml(question = "Does each of the four failure modes alone make a run leave the BF16 curve, and does its mitigation bring the run back?"

# range: no scale, so that small gradients become zero. outliers: one scale a tensor beside outlier
# channels. formats: E4M3 gradients under one constant scale, against E5M2. accumulator: no promotion.
modes = ["range", "outliers", "formats", "accumulator"]
seeds = 4

# From mild to severe. range and formats: log2 of the constant by which gradients are multiplied, as
# a loss scale does, or a batch of more tokens: their loss is a mean, so that 2^-16 stands for the
# gradients of 2^16 times as many tokens a step;
# outliers: log2 of the channels' magnitude; accumulator: fraction bits of every sum.
range_log2 = [0, -4, -8, -16]
outliers_log2 = [6, 10, 14, 17, 18]
formats_log2 = [8, 4, 2, 0]
accumulator_bits = [13, 7, 5, 3]
outlier_channels = 4

# The model and the run, as in `train`.
vocabulary = 128
length = 32
width = 64
layers = 1
heads = 2
hidden = 96
text = ""
sequences = 2
steps = 320
warmup = 32
learning_rate = 3e-3
tail_share = 0.2
follow_nats = 0.02
diverge_nats = 0.2

[quick]
modes = ["range"]
seeds = 2
range_log2 = [-4]
length = 16
width = 32
hidden = 48
steps = 16
warmup = 3

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
modes = "1 to 4"
seeds = "[2, 1000]"
range_log2 = "0 to 64 of [-120, 120]"
outliers_log2 = "0 to 64 of [-60, 60]"
formats_log2 = "0 to 64 of [-120, 120]"
accumulator_bits = "0 to 64 of [1, 24]"
outlier_channels = "[1, 65536]"
vocabulary = "[2, 65536]"
length = "[1, 65536]"
width = "[1, 16384]"
layers = "[1, 256]"
heads = "[1, 1024]"
hidden = "[1, 65536]"
sequences = "[1, 65536]"
steps = "[1, 10000000]"
warmup = "[1, 10000000]"
learning_rate = "(0, 1000]"
tail_share = "(0, 1]"
follow_nats = "[0, 100]"
diverge_nats = "[0, 100]"
)toml", failure_ladder},
      {"fp8-lm", R"toml(question = "Does FP8-LM as a whole train like BF16, and which of its parts are necessary?"
mpi = true

# Systems of `fp8lab train --recipe`; the first is the reference of every gap, the second
# the control whose gaps are noise.
systems = ["bf16-fp32", "fp32", "fp8-lm", "fp8-lm-bf16-products", "fp8-lm-fp32-states", "fp8-lm-fp32-gradients", "fp8-lm-pre-scaling", "fp8-lm-post-scaling", "fp8-lm-fp8-v", "fp8-lm-fp8-master", "fp8-lm-unscaled-states"]
ranks = 4
topology = "ring"
seeds = 5

# The model and the run, as in `train`; sequences of each rank.
vocabulary = 128
length = 32
width = 64
layers = 1
heads = 2
hidden = 96
text = ""
sequences = 1
steps = 160
warmup = 16
learning_rate = 3e-3
tail_share = 0.2
follow_nats = 0.02
diverge_nats = 0.2
samples = 5

[quick]
systems = ["bf16-fp32", "fp32", "fp8-lm", "fp8-lm-fp8-v"]
ranks = 2
seeds = 2
steps = 12
warmup = 3
length = 16
width = 32
hidden = 48
samples = 2

# What values make sense: of a number, of each number in a list, and how many a list has.
[range]
systems = "2 to 100"
ranks = "[1, 4096]"
seeds = "[1, 1000]"
vocabulary = "[2, 65536]"
length = "[1, 65536]"
width = "[1, 16384]"
layers = "[1, 256]"
heads = "[1, 1024]"
hidden = "[1, 65536]"
sequences = "[1, 65536]"
steps = "[1, 10000000]"
warmup = "[1, 10000000]"
learning_rate = "(0, 1000]"
tail_share = "(0, 1]"
follow_nats = "[0, 100]"
diverge_nats = "[0, 100]"
samples = "[1, 1000000]"
)toml", fp8_lm},
  };
  return kExperiments;
}

const Experiment& find_experiment(std::string_view name) {
  return find_named(all_experiments(), "experiment", name);
}

}  // namespace fp8lab
