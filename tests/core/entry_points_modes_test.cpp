// More entry points of the public headers in every floating-point mode of the caller.
// `float_modes.txt` says for each public function of floats which job runs it, and
// `float_modes_listed.py` that none is left out.

#include <cmath>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/float_modes.hpp"
#include "fp8lab/attention/attention.hpp"
#include "fp8lab/attention/backward.hpp"
#include "fp8lab/attention/kv_cache.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/attention/report.hpp"
#include "fp8lab/attention/verify.hpp"
#include "fp8lab/cast/triton_interpreter.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/linear/multiply.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/reveal/reveal.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"
#include "fp8lab/scaling/scale_rule.hpp"
#include "fp8lab/verify/expect.hpp"
#include "lab/experiment/parameters.hpp"
#include "product/products.hpp"
#include "training/collectives/collectives.hpp"
#include "training/collectives/transport.hpp"
#include "training/optim/adamw.hpp"
#include "training/optim/expansion.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using Floats = std::vector<float>;

/// Made in the default mode.
struct Inputs {
  Floats x = values_of(2 * 16 * 32, 11);
  Floats y = values_of(2 * 32 * 32, 12);
  Floats z = values_of(2 * 32 * 32, 13);
  RandomProduct scaled{{.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {20, 4}}};
  RandomProduct plain{{}, {.shape = {8, 8, 128}}};
  Floats vector = values_of(24, 14);
};

const Inputs& inputs() {
  static const Inputs made = [] {
    const FloatEnvironment environment;
    return Inputs();
  }();
  return made;
}

void add(Bits& bits, const Floats& values) { bits.add(std::span<const float>(values)); }

void add_scaling(std::vector<Job>& jobs) {
  jobs.push_back({"AutoScaler", [](Bits& bits) {
                    for (const char* law : {"exponential", "linear", "doubling", "none"}) {
                      AutoScaler scaler(
                          {.threshold = 0.1, .steps_to_double = 7, .growth = find_growth_law(law)},
                          1.1);
                      for (int step = 0; step < 20; ++step) {
                        scaler.update(step == 15 ? 0.5 : 0.01);
                        bits.add(scaler.mu());
                      }
                    }
                  }});
  jobs.push_back({"shipped_scaling", [](Bits& bits) {
                    for (const float amax : {0.3F, 1e-40F, 1e30F}) {
                      const ShippedScaling s = shipped_scaling(amax, 7, 3.0F);
                      bits.add(s.scale);
                      bits.add(s.inverse_scale);
                    }
                  }});
  jobs.push_back({"tile_scale", [](Bits& bits) {
                    for (int rule = 0; rule <= static_cast<int>(ScaleRule::vllm_group); ++rule) {
                      const ScaleOptions options{.rule = static_cast<ScaleRule>(rule)};
                      for (const float amax : {0.3F, 1e-40F, 1e30F, 448.5F}) {
                        const TileScale scale = tile_scale(options, amax);
                        bits.add(scale.scale);
                        bits.add(scale.inverse_scale);
                      }
                    }
                  }});
  jobs.push_back({"triton_interpreter_code", [](Bits& bits) {
                    for (const float x : inputs().x)
                      bits.add(triton_interpreter_code(format(FormatId::e5m2), x));
                  }});
}

void add_attention(std::vector<Job>& jobs) {
  jobs.push_back(
      {"attention", [](Bits& bits) {
         const Inputs& in = inputs();
         const QuantizedHeads q = quantize_heads(in.x, 2, 16, 32);
         const QuantizedHeads k = quantize_heads(in.y, 2, 32, 32);
         const QuantizedHeads v = quantize_heads(in.z, 2, 32, 32);
         const AttentionInputs all{q.operand(), k.operand(), v.operand()};
         const AttentionOptions options{.q_tile = 16,
                                        .kv_tile = 32,
                                        .softmax_scale = 0.1F,
                                        .p_offset = 7.3F,
                                        .rescale_threshold = 0.7F};
         const AttentionResult result = attention(all, options);
         add(bits, result.o);
         bits.add(result.tiles[0].p_max);
         bits.add(std::span<const double>(attention_reference(all, in.x, in.y, in.z, options)));
         const AttentionGradients g =
             attention_backward(all, in.x, in.y, in.z, result.o, in.x, options);
         for (const Floats* one : {&g.dq, &g.dk, &g.dv}) add(bits, *one);
         add(bits, dequantize(all.q));
         add(bits, attention_tensor(in.x, 2, 16, 32).operand.inverse_scales.empty()
                       ? Floats{}
                       : Floats(q.inverse_scales));
         add(bits, inverse_scales_of_heads("scale_q", {0.3F}, 2));
         for (const CacheRule& rule : cache_rules())
           add(bits, dequantize(cached_tensor(in.x, 2, 16, 32, rule).operand));
         const Floats row(in.x.begin(), in.x.begin() + 576);
         add(bits, read_deepseek_rows(pack_deepseek_rows(row)));
         AttentionOptions other = options;
         other.softmax_scale = 0.2F;
         const AttentionVerdict verdict =
             verify_attention(all, other, result.o, FormatId::f32, 1e-9);
         bits.add(verdict.distance);
         bits.add(verdict.text());
       }});
}

void add_products_in_modes(std::vector<Job>& jobs) {
  jobs.push_back(
      {"epilogue and split K", [](Bits& bits) {
         const Inputs& in = inputs();
         for (const Activation activation : activations()) {
           Product product = in.scaled.product;
           product.split = {2, 128};
           product.epilogue = {.alpha = 0.1F,
                               .row_scales = in.vector,
                               .column_scales = std::span(in.vector).first(20),
                               .bias = std::span(in.vector).first(20),
                               .activation = activation,
                               .slope = 0.013F,
                               .output_scale = 0.7F};
           const Floats d = compute(product, 2);
           add(bits, d);
           bits.add(std::span<const std::byte>(cast_output(d, default_output(FormatId::bf16))));
           bits.add(activation_value(product.epilogue, 0.3));
           bits.add(before_activation(product.epilogue, 0.3F, 1, 2, 20));
           bits.add(describe(product.epilogue));
         }
         Product product = in.scaled.product;
         for (const SplitOrder order : {SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree})
           add(bits, add_up({in.x, in.x, in.x}, order));
         add(bits, compute_sums(product, 2));
         add(bits, compute_missing_promotion(product).value_or(Floats{}));
         add(bits, compute_split_k(product, 2).value_or(Floats{}));
       }});
  jobs.push_back(
      {"grouped product", [](Bits& bits) {
         const Inputs& in = inputs();
         GemmOperands all;
         const std::span<const std::uint8_t> codes(in.scaled.a);
         all.a = view_of(ElementType::e4m3fn, {2, 12, 512}, codes);
         all.b = view_of(ElementType::e4m3fn, {2, 12, 512}, codes);
         all.tensor_scale_a = 0.3F;
         all.scale_a = view_of(ElementType::f32, {2, 12}, std::span<const float>(in.vector));
         const GroupedProduct product = make_grouped_product(all, {}, {GroupKind::batched, {}, 0});
         add(bits, compute(product, 2));
         bits.add(std::span<const std::byte>(golden_output(product)));
       }});
  jobs.push_back({"hypotheses", [](Bits& bits) {
                    const Inputs& in = inputs();
                    for (const OutputRounding& rounding : output_roundings(FormatId::bf16))
                      bits.add(std::span<const std::uint32_t>(round_output(in.x, rounding)));
                    const auto accumulators = accumulators_for(in.scaled.product.problem);
                    const Accumulation one{.promotion_interval = 128};
                    const Floats sums = sums_of(in.scaled.product, one, accumulators, 2);
                    add(bits, sums);
                    add(bits, result_of(in.scaled.product, one, accumulators, sums));
                  }});
}

void add_searches(std::vector<Job>& jobs) {
  jobs.push_back({"expect_errors", [](Bits& bits) {
                    ExpectOptions options;
                    options.m = options.n = 16;
                    options.k = 128;
                    options.trials = 10;
                    options.risk = 1e-5;
                    options.recipe = "te-current";
                    bits.add(describe(expect_errors(options)));
                  }});
  jobs.push_back({"reveal", [](Bits& bits) {
                    const ProbeKernel kernel =
                        kernel_of_model("sm90.wgmma.e4m3", 64, {}, FormatId::f32);
                    bits.add(describe(reveal({.m = 8, .n = 8, .k = 128}, kernel)));
                  }});
}

void add_training(std::vector<Job>& jobs) {
  jobs.push_back(
      {"AdamW", [](Bits& bits) {
         const Inputs& in = inputs();
         for (const StateScaling scaling : {StateScaling::none, StateScaling::tensor,
                                            StateScaling::group, StateScaling::expanded}) {
           AdamWOptions options;
           options.m = {FormatId::e4m3fn, scaling};
           options.v = {FormatId::f16,
                        scaling == StateScaling::none ? scaling : StateScaling::group};
           options.gradient = {FormatId::e5m2, StateScaling::tensor};
           const Parameter parameter{"w", {2, 16, 32}, in.x};
           AdamW optimizer(options, std::span(&parameter, 1));
           const std::span<const float> gradient(std::span(in.y).first(in.x.size()));
           for (int step = 0; step < 3; ++step) optimizer.step(std::span(&gradient, 1), 0.013);
           Floats out(in.x.size());
           optimizer.copy_weights(0, out);
           add(bits, out);
           optimizer.copy_m(0, out);
           add(bits, out);
           bits.add(optimizer.memory().bytes_per_parameter());
         }
         const Expansion e = expansion_of(std::span(in.x).first(128), format(FormatId::e4m3fn));
         for (const float value :
              {e.exponent, e.centre, e.inverse_scale, e.expand(0.3F), e.contract(0.3F)})
           bits.add(value);
       }});
  jobs.push_back(
      {"all_reduce", [](Bits& bits) {
         for (const WireFormat& wire : kWireFormats) {
           RankBuffers buffers;
           for (int rank = 0; rank < 4; ++rank) {
             Message message(64 * static_cast<std::size_t>(format(wire.format).storage_bits) / 8);
             for (std::size_t i = 0; i < message.size(); ++i)
               message[i] =
                   static_cast<std::byte>((i * 37 + static_cast<std::size_t>(rank) * 11) % 60);
             buffers.push_back(std::move(message));
           }
           (void)all_reduce(in_process_fabric(), {Topology::ring, {wire, ReduceOp::sum}, 4, 64},
                            buffers);
           for (const Message& one : buffers) bits.add(std::span<const std::byte>(one));
         }
         bits.add(
             all_reduce_max(in_process_fabric(), Topology::ring, 4, {1e-40F, 0.3F, 0.1F, 0.2F}));
       }});
  jobs.push_back({"multiply", [](Bits& bits) {
                    const Inputs& in = inputs();
                    train::Matrix<float> d(32, 32);
                    train::multiply({in.y.data(), 32, 1}, {in.z.data(), 32, 1},
                                    {d.values.data(), 32}, {32, 32, 32}, 2);
                    add(bits, d.values);
                    const std::vector<double> wide(in.y.begin(), in.y.end());
                    train::Matrix<double> e(32, 32);
                    train::multiply({wide.data(), 32, 1}, {wide.data() + 1024, 32, 1},
                                    {e.values.data(), 32}, {32, 32, 32}, 2);
                    bits.add(std::span<const double>(e.values));
                  }});
  jobs.push_back({"Parameters", [](Bits& bits) {
                    Parameters parameters = Parameters::from_toml(
                        "a = 0.1\nb = 5e-324\nc = 1.7976931348623157e308\nd = [0.3, 0.7]\n", false);
                    parameters.set("a=0.123456789012345678");
                    parameters.set("d=0.1,1e-310");
                    for (const char* name : {"a", "b", "c"}) bits.add(parameters.real(name));
                    bits.add(std::span<const double>(parameters.reals("d")));
                    bits.add(parameters.to_toml("a") + parameters.to_toml("d"));
                  }});
}

}  // namespace

TEST_CASE("entry points of public headers give the same bits in every floating-point mode",
          "[core][environment]") {
  std::vector<Job> jobs;
  add_scaling(jobs);
  add_attention(jobs);
  add_products_in_modes(jobs);
  add_searches(jobs);
  add_training(jobs);
  check_modes(jobs, 2, 10);
}
