// More entry points of the public headers in every floating-point mode of the caller.
// `float_modes.txt` says for each public function of floats which job runs it, and
// `float_modes_listed.py` that none is left out.

#include <cmath>
#include <numbers>
#include <optional>
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
#include "fp8lab/attention/sage.hpp"
#include "fp8lab/attention/verify.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/cast/triton_interpreter.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/short_number.hpp"
#include "fp8lab/formats/definition.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/identify/grouped.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/identify/identify.hpp"
#include "fp8lab/linear/linear.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "fp8lab/linear/multiply.hpp"
#include "fp8lab/metrics/kill_switch.hpp"
#include "fp8lab/metrics/tensor.hpp"
#include "fp8lab/metrics/ulp.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/scale_layouts.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/reveal/reveal.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"
#include "fp8lab/scaling/cast_search.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/scale_rule.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/tensors/slices.hpp"
#include "fp8lab/verify/attention_gates.hpp"
#include "fp8lab/verify/expect.hpp"
#include "fp8lab/verify/grouped.hpp"
#include "fp8lab/verify/verify.hpp"
#include "lab/experiment/parameters.hpp"
#include "lab/experiment/table.hpp"
#include "lab/plots/plot_json.hpp"
#include "lab/plots/vega.hpp"
#include "lab/report/compare.hpp"
#include "lab/report/dependence.hpp"
#include "lab/sweep/grid.hpp"
#include "lab/sweep/sweep.hpp"
#include "product/products.hpp"
#include "sweep/toy.hpp"
#include "training/collectives/collectives.hpp"
#include "training/collectives/transport.hpp"
#include "training/model/block.hpp"
#include "training/model/cost.hpp"
#include "training/model/shape.hpp"
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
  std::vector<double> exact{x.begin(), x.end()};
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
  jobs.push_back({"KillSwitch", [](Bits& bits) {
                    KillSwitch watch({.window = 3});
                    const StepFigures shadow{3.0, 0.2, 3e-7};
                    for (const StepFigures& run :
                         {StepFigures{3.1, 0.3, 1e-7}, StepFigures{3.41, 0.27, 1.1e-7},
                          StepFigures{3.72, 0.25, 1.2e-7}, StepFigures{4.03, 0.23, 1.3e-7}}) {
                      watch.observe(run, shadow);
                      for (const Indicator one : kIndicators) bits.add(watch.value(one));
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
  jobs.push_back(
      {"verify_quantizer", [](Bits& bits) {
         const Inputs& in = inputs();
         const Recipe& recipe = find_preset("deepgemm").recipe(TensorRole::activation);
         QuantizedTensor q = Quantizer(recipe).quantize({in.x, 8, 128});
         q.codes[3] ^= 1;
         q.inverse_scales[5] *= 1.5F;
         const Operand scales{
             "scale", view_of(ElementType::f32, {8, 1}, std::span<const float>(q.inverse_scales)),
             nullptr};
         const Operand codes{
             "got", view_of(ElementType::e4m3fn, {8, 128}, std::span<const std::uint8_t>(q.codes)),
             nullptr};
         bits.add(describe(verify_quantizer(
             recipe, "deepgemm (activation)",
             {"x", view_of(ElementType::f32, {8, 128}, std::span<const float>(in.x)), nullptr},
             &scales, codes)));
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
         const AttentionGates gates(all, options, FormatId::bf16);
         bits.add(gates.flash_attention_limit());
         for (const bool passes : gates.pass(gates.compare(result.o))) bits.add(passes ? 1.0 : 0.0);
       }});
  jobs.push_back(
      {"SageAttention", [](Bits& bits) {
         const Inputs& in = inputs();
         const auto floats = [&](const Floats& x) { return std::span<const float>(x).first(1024); };
         const SageInputs all{floats(in.x), floats(in.y), floats(in.z), {1, 1, 16, 16, 64, 64}};
         const std::vector<AttentionRows> some{{0, 3, 7}};
         for (const SageKernel& kernel : sage_kernels()) {
           add(bits, sage_attention(all, kernel, {}));
           add(bits, sage_rows(all, kernel, {}, {}, some));
           add(bits, quantize_sage(all, kernel, {}, 0).k.scales);
           const AttentionVerdict verdict =
               verify_sage_attention(all, kernel, {.softmax_scale = 0.2F},
                                     sage_attention(all, kernel, {}), FormatId::f32, 1e-9);
           bits.add(verdict.distance);
           bits.add(verdict.text());
         }
         bits.add(std::span<const double>(sage_reference(all, {})));
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
         all.a.codes = view_of(ElementType::e4m3fn, {2, 12, 512}, codes);
         all.b.codes = view_of(ElementType::e4m3fn, {2, 12, 512}, codes);
         all.a.tensor_scale = 0.3F;
         all.a.scales = view_of(ElementType::f32, {2, 12}, std::span<const float>(in.vector));
         const GroupedProduct product =
             make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::batched, {}, 0});
         add(bits, compute(product, 2));
         std::vector<std::byte> d = golden_output(product);
         bits.add(std::span<const std::byte>(d));
         d[403] ^= std::byte{0x40};
         const Operand got{"got", {ElementType::f32, {2, 12, 12}, d}, nullptr};
         bits.add(describe(verify(product, got, {.threads = 2})));
         bits.add(describe(identify(product, got, 2)));
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
  jobs.push_back({"linear", [](Bits& bits) {
                    const Inputs& in = inputs();
                    const auto matrix = [](const Floats& values) {
                      train::Matrix<float> m(128, 128);
                      for (std::size_t i = 0; i < m.values.size(); ++i)
                        m.values[i] = values[i * 7 % values.size()];
                      return m;
                    };
                    for (const char* recipe : {"fp32", "bf16", "te-current", "deepgemm"}) {
                      train::Linear<float> layer("layer", 128, 128,
                                                 train::find_linear_recipe(recipe));
                      layer.weight().value = matrix(in.y).values;
                      add(bits, layer.forward(matrix(in.x), {}).values);
                      add(bits, layer.backward(matrix(in.z), {}).values);
                      add(bits, layer.weight().gradient);
                    }
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

void add_numbers(std::vector<Job>& jobs) {
  jobs.push_back(
      {"formats", [](Bits& bits) {
         for (const Format& f : kFormats) {
           for (const double value : {f.max_finite(), f.min_normal(), f.min_subnormal()})
             bits.add(value);
           for (std::uint32_t code = 0; code < 256; ++code) bits.add(decode(f, code));
           if (f.code_bits() <= 16) bits.add(decode_table(f.id));
         }
         // Its smallest values are binary32 subnormals.
         const Format& defined = find_format("float:e=8,m=3,bias=140,signed=no");
         for (const FormatTables& tables : {format_tables(defined), tables_of_defined(defined.id)})
           bits.add(std::span<const float>(tables.values));
       }});
  jobs.push_back({"cast", [](Bits& bits) {
                    for (const char* profile : {"nvidia_satfinite", "ml_dtypes", "ocp_saturating"})
                      for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::f16})
                        for (const float x : std::span(inputs().x).first(300)) {
                          const CastPolicy& policy = find_cast_profile(profile).policy;
                          bits.add(cast(format(id), policy, x).code);
                          bits.add(encode(format(id), policy, x));
                          bits.add(round_trip(format(id), policy, x));
                        }
                  }});
  jobs.push_back(
      {"RandomStream", [](Bits& bits) {
         const RandomStream random(3, "modes");
         for (std::uint64_t i = 0; i < 300; ++i)
           for (const double value : {random.uniform(i), random.normal(i), random.student_t(i, 3)})
             bits.add(value);
       }});
  jobs.push_back({"values of codes", [](Bits& bits) {
                    std::vector<std::byte> codes(512);
                    for (std::size_t i = 0; i < codes.size(); ++i)
                      codes[i] = static_cast<std::byte>(i * 37);
                    for (const FormatId id : {FormatId::e4m3fn, FormatId::bf16, FormatId::f32})
                      add(bits, decode_codes(id, codes));
                    add(bits, to_float_exactly(view_of(ElementType::f64, {32, 32},
                                                       std::span<const double>(inputs().exact)),
                                               "x"));
                    const auto scales = std::span(inputs().x).first(8);
                    const ScaleGrid grid =
                        read_scales("scale_a", view_of(ElementType::f32, {4, 2}, scales),
                                    ScaleLayout::row_major, ScaleTiles{4, 128}, 16, 256);
                    add(bits, Floats(grid.values.begin(), grid.values.end()));
                  }});
  jobs.push_back({"losses", [](Bits& bits) {
                    const Inputs& in = inputs();
                    Floats zeros = in.x;
                    for (std::size_t i = 0; i < zeros.size(); i += 7) zeros[i] = 0.0F;
                    bits.add(tensor_statistics(zeros).zero_share());
                    std::vector<std::uint8_t> codes(in.x.size());
                    for (std::size_t i = 0; i < codes.size(); ++i)
                      codes[i] = static_cast<std::uint8_t>(i);
                    const QuantizationLoss loss = quantization_loss(
                        in.x, codes, format(FormatId::e4m3fn), std::vector<float>{0.7F});
                    for (const double value : {loss.underflow_percent, loss.overflow_percent,
                                               loss.saturated_percent, loss.nan_percent})
                      bits.add(value);
                    const UlpHistogram ulp = ulp_histogram(std::span<const float>(in.x),
                                                           std::span(in.y).first(in.x.size()));
                    bits.add(std::span<const std::uint64_t>(ulp.counts));
                    bits.add(ExplanationClass{{}, 1, 3}.rate());
                  }});
  jobs.push_back({"cost", [](Bits& bits) {
                    for (const TrainingSetup& setup : training_setups()) {
                      const auto rows = block_operations(setup.shape, AttentionCount::causal);
                      for (const BlockOperation& row : rows) bits.add(row.flops());
                      bits.add(fp8_share(rows, Fp8Gemms::listed));
                      bits.add(gemm_share(rows));
                      for (const TrainingScheme& scheme : training_schemes()) {
                        const ParameterBytes bytes = parameter_bytes(scheme);
                        bits.add(bytes.total());
                        bits.add(bytes.optimizer());
                        const TrainingCost cost = training_cost(setup, scheme);
                        for (const double value :
                             {cost.memory(), cost.parameters, cost.gradients, cost.activations,
                              cost.gradient_traffic, cost.weight_traffic, cost.activation_traffic,
                              cost.fp8_flop_share})
                          bits.add(value);
                        for (const KeptActivation& kept : kept_activations(setup.shape, scheme))
                          bits.add(kept.bytes());
                      }
                    }
                  }});
  jobs.push_back({"search_cast", [](Bits& bits) {
                    const FloatMatrix x{std::span(inputs().y).first(1024), 8, 128};
                    const QuantizedTensor q = quantize(find_preset("deepseek-v3").activation, x);
                    bits.add(describe(search_cast({x, q.format, q.codes, q.inverse_scales}), 5));
                  }});
}

void add_reports(std::vector<Job>& jobs) {
  jobs.push_back({"texts of numbers", [](Bits& bits) {
                    for (const double x : {0.1, 2.0 / 3.0, 5e-324, 1e300, 9999.5, 12345.6, 1e-5}) {
                      bits.add(short_number(x));
                      bits.add(to_csv(Cell{x}));
                      bits.add(csv_line({Cell{x}, Cell{std::int64_t{1}}}));
                      const std::string text = to_csv(Cell{x});
                      bits.add(number_in(text).value_or(0.0));
                      bits.add(difference_of("0.3", text));
                      bits.add(ratio_of("0.3", text));
                    }
                  }});
  jobs.push_back({"plots", [](Bits& bits) {
                    const std::vector<double> x{0.001, 0.3, 7.0};
                    const std::vector<double> y{1e-9, 2.0 / 3.0, 1e300};
                    const Axis axis{"x", true, 10, SecondScale{"s", 0.3}};
                    const Axis powers{"y", true, 2, {}};
                    bits.add(plot_json(Plot{"p", "t", axis, powers, {{"s", x, y}, {"r", y, x}}}));
                    bits.add(plot_json(
                        HeatMap{"h", "t", "x", "y", "v", {"a", "b"}, {"c"}, {0.1, 1e-7}, true}));
                    bits.add(json_numbers(y).dump());
                    for (const Axis* one : {&axis, &powers}) {
                      bits.add(log_labels(*one, 0.0003, 4096.7, 0.3));
                      bits.add(labels_are_powers(*one, 1e-4, 1e4));
                    }
                  }});
  jobs.push_back({"axes that matter", [](Bits& bits) {
                    for (const double tail : {0.005, 0.3})
                      for (const std::size_t freedom : {1U, 5U, 24U})
                        bits.add(student_t(tail, freedom));
                    GridDraws draws;
                    for (std::size_t i = 0; i < 24; ++i)
                      draws[{i % 4, i % 3}].push_back(double{inputs().y[3 * i + 1]} +
                                                      0.1 * static_cast<double>(i % 4));
                    const std::optional<std::vector<bool>> found = axes_that_matter(draws, 2);
                    for (const bool matters : found.value()) bits.add(matters);
                  }});
  jobs.push_back(
      {"sweep", [](Bits& bits) {
         const Parameters base = Parameters::from_toml(kToyToml, false);
         for (const char* text : {"gain=0.1:0.9:+0.1", "gain=0.01:1:*1.7", "gain=1e-310,0.3"})
           for (const AxisValue& value : parse_axis(text, base).values) {
             bits.add(value.toml);
             bits.add(to_csv(value.cell));
           }
         const SweepPlan plan = toy_plan({"gain=0.1:0.5:+0.1"}, 2);
         for (std::int64_t point = 0; point < plan.points(); ++point)
           for (const auto& table : run_point(plan, point, 1).rows)
             for (const auto& row : table)
               for (const auto& cell : row) bits.add(cell);
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
  add_numbers(jobs);
  add_reports(jobs);
  check_modes(jobs, 2, 10);
}
