// The verdict of each claim at both sides of every limit that its criterion names.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "claims/claim.hpp"
#include "train/standing.hpp"

namespace fp8lab::experiments::claim_limits_test {
namespace {

// `CLAIM: NAME NUMBER, ... -> VERDICT`, and below it changes of these values with the verdict that
// they give. 5+ and 5- are the numbers next to 5. Lines that are indented further go on.
constexpr const char* kLimits = R"(
F1: kept_5_decades 0.9, kept_6_decades 0.9, kept_7_decades 0.9, kept_5_decades_flushed 0.9,
      kept_6_decades_flushed 0.9, kept_7_decades_flushed 0.9 -> holds
  kept_5_decades 0.999 -> holds with a correction
  kept_5_decades 0.999- -> holds
  kept_5_decades_flushed 0.999 -> does not hold
  kept_5_decades_flushed 0.999- -> holds
  kept_6_decades 0.999 -> holds with a correction
  kept_6_decades 0.999- -> holds
  kept_6_decades_flushed 0.999 -> does not hold
  kept_6_decades_flushed 0.999- -> holds
  kept_7_decades 0.999 -> holds with a correction
  kept_7_decades 0.999- -> holds
  kept_7_decades_flushed 0.999 -> does not hold
  kept_7_decades_flushed 0.999- -> holds
F1a: e4m3_ratio_normal 28672, e5m2_ratio_normal 940000000, e4m3_decades_normal 4.5, e4m3_decades
      4, e5m2_decades_normal 9, e5m2_decades 8 -> holds
  e4m3_ratio_normal 28671 -> does not hold
  e4m3_ratio_normal 28673 -> does not hold
  e5m2_ratio_normal 930694000 -> holds
  e5m2_ratio_normal 930506000 -> does not hold
  e5m2_ratio_normal 949306000 -> holds
  e5m2_ratio_normal 949494000 -> does not hold
  e4m3_decades_normal 4.41045 -> holds
  e4m3_decades_normal 4.40955 -> does not hold
  e4m3_decades_normal 4.58955 -> holds
  e4m3_decades_normal 4.59045 -> does not hold
  e5m2_decades_normal 8.8209 -> holds
  e5m2_decades_normal 8.8191 -> does not hold
  e5m2_decades_normal 9.1791 -> holds
  e5m2_decades_normal 9.1809 -> does not hold
  e4m3_decades 4.5 -> holds
  e4m3_decades 4.5+ -> holds with a correction
  e5m2_decades 9 -> holds
  e5m2_decades 9+ -> holds with a correction
F2: bulk_error_100 0.8, bulk_error_100_flushed 0.8, bulk_error_1000 0.8, bulk_error_1000_flushed
      0.8 -> holds
  bulk_error_100 0.8- -> holds with a correction
  bulk_error_100_flushed 0.8- -> holds with a correction
  bulk_error_1000 0.8- -> holds with a correction
  bulk_error_1000_flushed 0.8- -> holds with a correction
F2: bulk_error_100 0.8-, bulk_error_100_flushed 0.8-, bulk_error_1000 0.8-,
      bulk_error_1000_flushed 0.8- -> does not hold
  bulk_error_100 0.8 -> holds with a correction
  bulk_error_100_flushed 0.8 -> holds with a correction
  bulk_error_1000 0.8 -> holds with a correction
  bulk_error_1000_flushed 0.8 -> holds with a correction
F2a: exponent_in_tile 1, crushed_4096_elements 100, crushed_65536_elements 100 -> holds
  exponent_in_tile 0.8 -> does not hold
  exponent_in_tile 0.8+ -> holds
  exponent_in_tile 1.2 -> does not hold
  exponent_in_tile 1.2- -> holds
  crushed_65536_elements 150 -> does not hold
  crushed_65536_elements 150- -> holds
F3: gradient_zero_share_e4m3 0.5, gradient_zero_share_e5m2 0.125, gradient_zero_share_e4m3_tiles
      0.25, activation_error_e4m3 0.25, activation_error_e5m2 0.5, activation_error_e4m3_tiles
      0.25 -> holds
  gradient_zero_share_e5m2 0.25 -> does not hold
  gradient_zero_share_e5m2 0.25- -> holds
  activation_error_e5m2 0.375 -> does not hold
  activation_error_e5m2 0.375+ -> holds
  gradient_zero_share_e4m3_tiles 0.25- -> holds with a correction
  gradient_zero_share_e4m3_tiles 0.1, activation_error_e4m3_tiles 0.2624 -> holds with a
      correction
  gradient_zero_share_e4m3_tiles 0.1, activation_error_e4m3_tiles 0.2626 -> holds
F4: uniform_exponent 1, uniform_error 1, uniform_error_promoted 0.05, uniform_bias -0.1,
      normal_exponent 1, normal_error 2, normal_error_promoted 0.1 -> holds
  uniform_exponent 0.8 -> does not hold
  uniform_exponent 0.8+ -> holds
  uniform_error_promoted 0.1 -> does not hold
  uniform_error_promoted 0.0999 -> holds
  uniform_bias 0 -> does not hold
  uniform_bias -1e-09 -> holds
  normal_exponent 0.8 -> holds with a correction
  normal_exponent 0.8+ -> holds
  normal_error_promoted 0.2 -> holds with a correction
  normal_error_promoted 0.1999 -> holds
F4a: nearest_exponent 0.85, truncation_exponent 1 -> holds
  nearest_exponent 0.85- -> holds with a correction
  nearest_exponent 0.65 -> holds with a correction
  nearest_exponent 0.65- -> does not hold
  nearest_exponent 0.5, truncation_exponent 0.85 -> holds with a correction
  nearest_exponent 0.5, truncation_exponent 0.85+ -> does not hold
F4b: share_of_products 0.016, share_of_flops 0.008 -> holds
  share_of_flops 0.00751 -> holds
  share_of_flops 0.00749 -> does not hold
  share_of_flops 0.00849 -> holds
  share_of_flops 0.00851 -> does not hold
F4b: share_of_products 0.008, share_of_flops 0.004 -> holds with a correction
  share_of_products 0.00749 -> does not hold
  share_of_products 0.00851 -> does not hold
F4c: error 0.027, error_promoted 0.0006 -> holds
  error 0.0135 -> holds
  error 0.0135- -> does not hold
  error 0.054 -> holds
  error 0.054+ -> does not hold
  error_promoted 0.0003 -> holds
  error_promoted 0.0003- -> does not hold
  error_promoted 0.0012 -> holds
  error_promoted 0.0012+ -> does not hold
L1: listing_grid_size 112, listing_grid_max 448, e4m3_positive_normals 112 -> holds
  listing_grid_size 119 -> does not hold
  listing_grid_max 240 -> does not hold
  e4m3_positive_normals 119 -> does not hold
L2: listing 256, e4m3 256 -> holds
  e4m3 240 -> holds
  listing 240 -> holds with a correction
  listing 240, e4m3 240 -> does not hold
L3: crushed_per_tensor 3, crushed_per_tile 0, relative_l2_per_tensor 0.043, relative_l2_per_tile
      0.011, corrected_crushed_per_tensor 9, corrected_crushed_per_tile 9,
      corrected_relative_l2_per_tensor 9, corrected_relative_l2_per_tile 9 -> holds
  crushed_per_tensor 2 -> does not hold
  crushed_per_tensor 4 -> does not hold
  crushed_per_tile 1 -> does not hold
  relative_l2_per_tensor 0.04249 -> does not hold
  relative_l2_per_tensor 0.04351 -> does not hold
  relative_l2_per_tile 0.01049 -> does not hold
  relative_l2_per_tile 0.01151 -> does not hold
  relative_l2_per_tensor 0.04251 -> holds
  relative_l2_per_tensor 0.04349 -> holds
  relative_l2_per_tile 0.01051 -> holds
  relative_l2_per_tile 0.01149 -> holds
L3: crushed_per_tensor 9, crushed_per_tile 9, relative_l2_per_tensor 9, relative_l2_per_tile 9,
      corrected_crushed_per_tensor 3, corrected_crushed_per_tile 0,
      corrected_relative_l2_per_tensor 0.043, corrected_relative_l2_per_tile 0.011 -> holds with a
      correction
  corrected_crushed_per_tensor 2 -> does not hold
  corrected_crushed_per_tensor 4 -> does not hold
  corrected_crushed_per_tile 1 -> does not hold
  corrected_relative_l2_per_tensor 0.04249 -> does not hold
  corrected_relative_l2_per_tensor 0.04351 -> does not hold
  corrected_relative_l2_per_tile 0.01049 -> does not hold
  corrected_relative_l2_per_tile 0.01151 -> does not hold
  corrected_relative_l2_per_tensor 0.04251 -> holds with a correction
  corrected_relative_l2_per_tensor 0.04349 -> holds with a correction
  corrected_relative_l2_per_tile 0.01051 -> holds with a correction
  corrected_relative_l2_per_tile 0.01149 -> holds with a correction
L4: naive_off 2.7, promoted_off 0.06, share_promoted_nearer 0 -> holds
  naive_off 2.6951 -> holds
  naive_off 2.6949 -> does not hold
  naive_off 2.7049 -> holds
  naive_off 2.7051 -> does not hold
  promoted_off 0.0551 -> holds
  promoted_off 0.0549 -> does not hold
  promoted_off 0.0649 -> holds
  promoted_off 0.0651 -> does not hold
  naive_off 3, share_promoted_nearer 0.9 -> does not hold
  naive_off 3, share_promoted_nearer 0.9+ -> holds with a correction
  naive_off 2.5, promoted_off 0.25, share_promoted_nearer 1 -> does not hold
  naive_off 2.5+, promoted_off 0.25, share_promoted_nearer 1 -> holds with a correction
L5: ratio 40, per_tensor 0.2 -> holds
  ratio 30 -> holds
  ratio 30- -> does not hold
  ratio 50 -> holds
  ratio 50+ -> does not hold
  per_tensor 0.1501 -> holds
  per_tensor 0.1499 -> holds with a correction
  per_tensor 0.2499 -> holds
  per_tensor 0.2501 -> holds with a correction
L6: printed_casts 10, agree_preserved 10, agree_flushed 3 -> holds
  agree_preserved 9 -> does not hold
  agree_preserved 9, agree_flushed 10 -> holds with a correction
  agree_preserved 9, agree_flushed 9 -> does not hold
L7: fp32_scale_fp8_elements 1, fp32_scale_bf16_elements 1, e8m0_scale_fp8_elements 1 -> does not
      hold
  fp32_scale_fp8_elements 0.00045 -> holds
  fp32_scale_bf16_elements 0.00045 -> holds with a correction
  e8m0_scale_fp8_elements 0.00045 -> holds with a correction
  fp32_scale_fp8_elements 0.00045- -> does not hold
  fp32_scale_bf16_elements 0.00045- -> does not hold
  e8m0_scale_fp8_elements 0.00045- -> does not hold
  fp32_scale_fp8_elements 0.00055- -> holds
  fp32_scale_bf16_elements 0.00055- -> holds with a correction
  e8m0_scale_fp8_elements 0.00055- -> holds with a correction
  fp32_scale_fp8_elements 0.00055 -> does not hold
  fp32_scale_bf16_elements 0.00055 -> does not hold
  e8m0_scale_fp8_elements 0.00055 -> does not hold
L8: reductions 4000000, least_steps 16000 -> holds
  reductions 3801000 -> holds
  reductions 3799000 -> does not hold
  reductions 4199000 -> holds
  reductions 4201000 -> does not hold
  least_steps 12001 -> holds
  least_steps 12000 -> holds with a correction
  least_steps 19999 -> holds
  least_steps 20000 -> holds with a correction
L9: operands_in_e4m3 1, operands_in_e4m3_recorded 1, weights_with_gradient 1 -> holds
  operands_in_e4m3 1- -> holds with a correction
  operands_in_e4m3_recorded 1- -> holds with a correction
  weights_with_gradient 0 -> holds with a correction
  operands_in_e4m3 0.5, weights_with_gradient 0 -> does not hold
  operands_in_e4m3_recorded 0.5, weights_with_gradient 0 -> does not hold
L10: outputs_changed 1, outputs_changed_recorded 1 -> holds
  outputs_changed 0 -> does not hold
  outputs_changed_recorded 0 -> does not hold
L11: mu_differs 1, halved_in_warmup 0 -> holds
  halved_in_warmup 1 -> holds with a correction
  mu_differs 0 -> does not hold
A1: pre_underflows 1, post_overflows 1, auto_underflows 0, auto_overflows 0 -> holds
  pre_underflows 0 -> does not hold
  post_overflows 0 -> does not hold
  auto_underflows 1 -> holds with a correction
  auto_overflows 1 -> holds with a correction
  auto_underflows 1, auto_overflows 1 -> does not hold
A2: paper_threshold 0.001, seed_threshold 0.1, paper_mu 1, seed_mu 2, paper_saturated 3,
      seed_saturated 4 -> does not hold
  paper_threshold 0.1 -> holds
  paper_mu 2 -> does not hold
  paper_saturated 4 -> does not hold
  paper_mu 2, paper_saturated 4 -> holds
A3: after_999 0, after_1999 1, after_20000 1 -> holds
  after_999 1e-09 -> does not hold
  after_1999 1.00099 -> holds
  after_1999 1.00101 -> does not hold
  after_1999 0.99901 -> holds
  after_1999 0.99899 -> does not hold
  after_20000 1+ -> holds with a correction
A4: first 0, middle 0, last 0 -> does not hold
  first 1 -> does not hold
  first 1+ -> holds
  last 1 -> does not hold
  last 1+ -> holds
A5: standing_fp8-lm follows, standing_fp8-lm-fp8-v leaves, standing_fp8-lm-fp8-master leaves,
      diverged_fp8-lm-fp8-v 3, diverged_fp8-lm-fp8-master 3 -> holds
  diverged_fp8-lm-fp8-v 2 -> holds with a correction
  diverged_fp8-lm-fp8-master 2 -> holds with a correction
  standing_fp8-lm leaves -> does not hold
  standing_fp8-lm undecided -> cannot tell
  standing_fp8-lm lower -> cannot tell
  standing_fp8-lm-fp8-v follows -> does not hold
  standing_fp8-lm-fp8-v undecided -> cannot tell
  standing_fp8-lm-fp8-master follows -> does not hold
  standing_fp8-lm-fp8-master undecided -> cannot tell
  standing_fp8-lm-fp8-master lower -> cannot tell
A8: min_normal_log2 -6, min_subnormal_log2 -9 -> does not hold
  min_normal_log2 -13 -> holds
  min_normal_log2 -13+ -> does not hold
  min_subnormal_log2 -15 -> holds
  min_subnormal_log2 -15- -> does not hold
A6: steps_as_written 200, first_update_ratio 1 -> holds
  steps_as_written 199 -> does not hold
  first_update_ratio 0.9901 -> holds
  first_update_ratio 0.9899 -> holds with a correction
  first_update_ratio 1.0099 -> holds
  first_update_ratio 1.0101 -> holds with a correction
A7: adam 16, fp8_lm 6, sixteen_to_eight_saved 50, traffic_saved_7b 61, traffic_saved_13b 62,
      traffic_saved_175b 66, traffic_saved_published_7b 61, traffic_saved_published_13b 62,
      traffic_saved_published_175b 66 -> holds with a correction
  sixteen_to_eight_saved 63 -> holds
  sixteen_to_eight_saved 63- -> holds with a correction
  sixteen_to_eight_saved 65 -> holds
  sixteen_to_eight_saved 65+ -> holds with a correction
  adam 16.1584 -> holds with a correction
  adam 16.1616 -> does not hold
  adam 15.8416 -> holds with a correction
  adam 15.8384 -> does not hold
  fp8_lm 6.0594 -> holds with a correction
  fp8_lm 6.0606 -> does not hold
  fp8_lm 5.9406 -> holds with a correction
  fp8_lm 5.9394 -> does not hold
  traffic_saved_7b 64, traffic_saved_published_7b 62 -> holds with a correction
  traffic_saved_7b 64.01, traffic_saved_published_7b 62 -> does not hold
  traffic_saved_7b 59.99, traffic_saved_published_7b 62 -> does not hold
  traffic_saved_13b 64, traffic_saved_published_13b 62 -> holds with a correction
  traffic_saved_13b 64.01, traffic_saved_published_13b 62 -> does not hold
  traffic_saved_13b 59.99, traffic_saved_published_13b 62 -> does not hold
  traffic_saved_175b 64, traffic_saved_published_175b 62 -> holds with a correction
  traffic_saved_175b 64.01, traffic_saved_published_175b 62 -> does not hold
  traffic_saved_175b 59.99, traffic_saved_published_175b 62 -> does not hold
A9: published_memory 13, published_speed 75, micro_batch_fp8 2, micro_batch_bf16 2 -> holds
  published_memory 12.51 -> holds
  published_memory 12.5 -> does not hold
  published_memory 13.49 -> holds
  published_memory 13.5 -> does not hold
  published_speed 74.51 -> holds
  published_speed 74.5 -> does not hold
  published_speed 75.49 -> holds
  published_speed 75.5 -> does not hold
  micro_batch_fp8 4 -> holds with a correction
  micro_batch_fp8 1 -> holds with a correction
S11: listed_gemms_llama-7b_2048 8, deployed_gemms_llama-7b_2048 8, listed_share_llama-7b_2048 95+,
      listed_share_causal_llama-7b_2048 95+, listed_gemms_llama-7b_8192 8,
      deployed_gemms_llama-7b_8192 8, listed_share_llama-7b_8192 95+,
      listed_share_causal_llama-7b_8192 95+, listed_gemms_mixtral-8x7b_2048 8,
      deployed_gemms_mixtral-8x7b_2048 8, listed_share_mixtral-8x7b_2048 95+,
      listed_share_causal_mixtral-8x7b_2048 95+, listed_gemms_mixtral-8x7b_8192 8,
      deployed_gemms_mixtral-8x7b_8192 8, listed_share_mixtral-8x7b_8192 95+,
      listed_share_causal_mixtral-8x7b_8192 95+ -> holds
  listed_gemms_llama-7b_2048 7 -> does not hold
  deployed_gemms_llama-7b_2048 7 -> holds with a correction
  listed_share_llama-7b_2048 95 -> does not hold
  listed_share_causal_llama-7b_2048 95 -> does not hold
  listed_gemms_llama-7b_8192 7 -> does not hold
  deployed_gemms_llama-7b_8192 7 -> holds with a correction
  listed_share_llama-7b_8192 95 -> holds with a correction
  listed_share_causal_llama-7b_8192 95 -> holds with a correction
  listed_gemms_mixtral-8x7b_2048 7 -> does not hold
  deployed_gemms_mixtral-8x7b_2048 7 -> holds with a correction
  listed_share_mixtral-8x7b_2048 95 -> holds with a correction
  listed_share_causal_mixtral-8x7b_2048 95 -> holds with a correction
  listed_gemms_mixtral-8x7b_8192 7 -> does not hold
  deployed_gemms_mixtral-8x7b_8192 7 -> holds with a correction
  listed_share_mixtral-8x7b_8192 95 -> holds with a correction
  listed_share_causal_mixtral-8x7b_8192 95 -> holds with a correction
S1: int8_mse_0_outliers 1.2e-05, e4m3_mse_0_outliers 1.8e-05, int8_mse_100_outliers 0.00084,
      e4m3_mse_100_outliers 0.00031, int8_mse_500_outliers 0.0042, e4m3_mse_500_outliers 0.00098
      -> holds
  int8_mse_0_outliers 2.388e-05, e4m3_mse_0_outliers 3.582e-05 -> holds
  int8_mse_0_outliers 2.412e-05, e4m3_mse_0_outliers 3.582e-05 -> holds with a correction
  int8_mse_0_outliers 6.036e-06, e4m3_mse_0_outliers 9.054e-06 -> holds
  int8_mse_0_outliers 5.964e-06, e4m3_mse_0_outliers 9.054e-06 -> holds with a correction
  e4m3_mse_0_outliers 3.582e-05, int8_mse_0_outliers 2.388e-05 -> holds
  e4m3_mse_0_outliers 3.618e-05, int8_mse_0_outliers 2.388e-05 -> holds with a correction
  e4m3_mse_0_outliers 9.054e-06, int8_mse_0_outliers 6.036e-06 -> holds
  e4m3_mse_0_outliers 8.946e-06, int8_mse_0_outliers 6.036e-06 -> holds with a correction
  int8_mse_100_outliers 0.0016716, e4m3_mse_100_outliers 0.0006169 -> holds
  int8_mse_100_outliers 0.0016884, e4m3_mse_100_outliers 0.0006169 -> holds with a correction
  int8_mse_100_outliers 0.00042252, e4m3_mse_100_outliers 0.00015593 -> holds
  int8_mse_100_outliers 0.00041748, e4m3_mse_100_outliers 0.00015593 -> holds with a correction
  e4m3_mse_100_outliers 0.0006169, int8_mse_100_outliers 0.0016716 -> holds
  e4m3_mse_100_outliers 0.0006231, int8_mse_100_outliers 0.0016716 -> holds with a correction
  e4m3_mse_100_outliers 0.00015593, int8_mse_100_outliers 0.00042252 -> holds
  e4m3_mse_100_outliers 0.00015407, int8_mse_100_outliers 0.00042252 -> holds with a correction
  int8_mse_500_outliers 0.008358, e4m3_mse_500_outliers 0.0019502 -> holds
  int8_mse_500_outliers 0.008442, e4m3_mse_500_outliers 0.0019502 -> holds with a correction
  int8_mse_500_outliers 0.0021126, e4m3_mse_500_outliers 0.00049294 -> holds
  int8_mse_500_outliers 0.0020874, e4m3_mse_500_outliers 0.00049294 -> holds with a correction
  e4m3_mse_500_outliers 0.0019502, int8_mse_500_outliers 0.008358 -> holds
  e4m3_mse_500_outliers 0.0019698, int8_mse_500_outliers 0.008358 -> holds with a correction
  e4m3_mse_500_outliers 0.00049294, int8_mse_500_outliers 0.0021126 -> holds
  e4m3_mse_500_outliers 0.00048706, int8_mse_500_outliers 0.0021126 -> holds with a correction
  int8_mse_0_outliers 1.8e-05, e4m3_mse_0_outliers 1.2e-05 -> does not hold
  int8_mse_100_outliers 0.00031, e4m3_mse_100_outliers 0.00084 -> does not hold
  int8_mse_500_outliers 0.00098, e4m3_mse_500_outliers 0.0042 -> does not hold
S1a: printed_ratio_off 0.05, ratio_0 0.5, ratio_6 0.5, ratio_20 0.5, ratio_60 0.5 -> does not hold
  ratio_0 1 -> does not hold
  ratio_0 1+ -> cannot tell
  ratio_0 1+, printed_ratio_off 0.05+ -> does not hold
  ratio_6 1 -> does not hold
  ratio_6 1+ -> cannot tell
  ratio_6 1+, printed_ratio_off 0.05+ -> does not hold
  ratio_20 1 -> does not hold
  ratio_20 1+ -> cannot tell
  ratio_20 1+, printed_ratio_off 0.05+ -> does not hold
  ratio_60 1 -> does not hold
  ratio_60 1+ -> cannot tell
  ratio_60 1+, printed_ratio_off 0.05+ -> does not hold
S2: finite_values 240 -> holds
  finite_values 239 -> does not hold
  finite_values 241 -> does not hold
S3: overflow_scale_too_small 1e-09, overflow_scale_too_large 0 -> holds
  overflow_scale_too_small 0 -> does not hold
  overflow_scale_too_large 1e-09 -> holds with a correction
S5: first_spike 0, second_spike 0, first_spike_margin_6 0 -> holds
  first_spike 1e-09 -> holds with a correction
  second_spike 1e-09 -> does not hold
  first_spike_margin_6 1e-09 -> does not hold
S6: stale_steps 0 -> holds
  stale_steps 1 -> does not hold
S12: profiles_inf 1, profiles_finite 0 -> holds
  profiles_finite 1 -> holds with a correction
  profiles_inf 0 -> does not hold
S4: delayed_remembered 112, listing_remembered 112, delayed_forgotten 1, listing_forgotten 1 -> holds
  delayed_forgotten 112 -> holds with a correction
  listing_forgotten 112 -> holds with a correction
  delayed_remembered 1 -> does not hold
  listing_remembered 1 -> does not hold
S8: scales 1, distinct 1 -> holds
  scales 2 -> does not hold
  scales 8, distinct 8 -> holds with a correction
  scales 8, distinct 7 -> does not hold
S9: passed_history 16, default_history 1024 -> holds
  passed_history 17 -> does not hold
  passed_history 15, default_history 16 -> holds with a correction
  passed_history 15, default_history 17 -> does not hold
S10: e4m3_throughout 0, e4m3_tiles 0.5, e5m2_tensor 0.5 -> holds
  e4m3_throughout 1 -> does not hold
  e4m3_throughout 1, e4m3_tiles 0.5+ -> holds with a correction
T1: standing_unscaled-e4m3 leaves, first_left_unscaled-e4m3 150, last_left_unscaled-e4m3 300,
      standing_unscaled-hybrid leaves, first_left_unscaled-hybrid 150, last_left_unscaled-hybrid
      300, standing_e5m2-only leaves, first_left_e5m2-only 150, last_left_e5m2-only 300,
      standing_no-promotion leaves, first_left_no-promotion 150, last_left_no-promotion 300 ->
      holds
  first_left_unscaled-e4m3 149 -> holds with a correction
  last_left_unscaled-e4m3 301 -> holds with a correction
  standing_unscaled-e4m3 follows -> cannot tell
  standing_unscaled-e4m3 undecided -> cannot tell
  standing_unscaled-e4m3 lower -> cannot tell
  first_left_unscaled-hybrid 149 -> holds with a correction
  last_left_unscaled-hybrid 301 -> holds with a correction
  standing_unscaled-hybrid follows -> cannot tell
  standing_unscaled-hybrid undecided -> cannot tell
  standing_unscaled-hybrid lower -> cannot tell
  first_left_e5m2-only 149 -> holds with a correction
  last_left_e5m2-only 301 -> holds with a correction
  standing_e5m2-only follows -> cannot tell
  standing_e5m2-only undecided -> cannot tell
  standing_e5m2-only lower -> cannot tell
  first_left_no-promotion 149 -> holds with a correction
  last_left_no-promotion 301 -> holds with a correction
  standing_no-promotion follows -> cannot tell
  standing_no-promotion undecided -> cannot tell
  standing_no-promotion lower -> cannot tell
T2: standing_range leaves, standing_range_mended follows, standing_formats leaves,
      standing_formats_mended follows, standing_outliers leaves, standing_outliers_mended follows,
      standing_accumulator leaves, standing_accumulator_mended follows -> holds with a correction
  standing_range_mended leaves -> does not hold
  standing_range_mended undecided -> cannot tell
  standing_range_mended lower -> cannot tell
  standing_range follows -> cannot tell
  standing_range undecided, standing_range_mended leaves -> cannot tell
  standing_formats_mended leaves -> does not hold
  standing_formats_mended undecided -> cannot tell
  standing_formats_mended lower -> cannot tell
  standing_formats follows -> cannot tell
  standing_formats undecided, standing_formats_mended leaves -> cannot tell
  standing_outliers_mended leaves -> does not hold
  standing_outliers_mended undecided -> cannot tell
  standing_outliers_mended lower -> cannot tell
  standing_outliers follows -> cannot tell
  standing_outliers undecided, standing_outliers_mended leaves -> cannot tell
  standing_accumulator_mended leaves -> does not hold
  standing_accumulator_mended undecided -> cannot tell
  standing_accumulator_mended lower -> cannot tell
  standing_accumulator follows -> cannot tell
  standing_accumulator undecided, standing_accumulator_mended leaves -> cannot tell
T3: left 3, gradient_leads 3, moment_leads 3, one_leads 3, false_alarms 0 -> holds
  left 0 -> cannot tell
  gradient_leads 2 -> holds with a correction
  moment_leads 2 -> holds with a correction
  false_alarms 1 -> holds with a correction
  gradient_leads 2, one_leads 2 -> does not hold
T4: steps 40, finite_unguarded 39, finite_guarded 40, replayed 6, copied 50-, same_weights 1 ->
      holds
  finite_unguarded 40 -> does not hold
  finite_guarded 39 -> does not hold
  replayed 7 -> holds with a correction
  copied 50 -> holds with a correction
  same_weights 0 -> holds with a correction
T5: a 0, b 0, c 0 -> cannot tell
  a 1 -> holds
  c 1 -> holds
T6: standing_unscaled-e4m3 leaves, standing_restarted leaves -> holds
  standing_restarted lower -> cannot tell
  standing_unscaled-e4m3 undecided -> cannot tell
T7: standing_full_rate leaves, standing_third_of_the_rate leaves, first_left_full_rate 10,
      last_left_full_rate 50, first_left_third_of_the_rate 51, last_left_third_of_the_rate 90 ->
      holds
  first_left_third_of_the_rate 50 -> holds with a correction
  standing_full_rate undecided -> cannot tell
  standing_third_of_the_rate follows -> cannot tell
P1: off_gpt_3_175b 0.01, utilization_gpt_3_175b 20, off_llama_2_70b 0.01, utilization_llama_2_70b
      20, off_llama_7b 0.01, utilization_llama_7b 20, off_mistral_7b 0.01, utilization_mistral_7b
      20 -> holds
  off_gpt_3_175b 0.01+ -> does not hold
  utilization_gpt_3_175b 20- -> holds with a correction
  off_llama_2_70b 0.01+ -> does not hold
  utilization_llama_2_70b 20- -> holds with a correction
  off_llama_7b 0.01+ -> does not hold
  utilization_llama_7b 20- -> holds with a correction
  off_mistral_7b 0.01+ -> does not hold
  utilization_mistral_7b 20- -> holds with a correction
P2: needed_share 1 -> cannot tell
  needed_share 1+ -> does not hold
P3: needed_share 1 -> cannot tell
  needed_share 1+ -> does not hold
P4: optimizer_saved 64, weights_saved 34 -> holds
  optimizer_saved 60, weights_saved 30 -> holds
  optimizer_saved 64.01 -> holds with a correction
  optimizer_saved 59.99 -> holds with a correction
  weights_saved 34.01 -> holds with a correction
  weights_saved 29.99 -> holds with a correction
  optimizer_saved 59.99, weights_saved 34.01 -> does not hold
P5: rms 32 -> holds
  rms 40 -> holds
  rms 40+ -> holds with a correction
  rms 24 -> holds
  rms 23.99 -> holds with a correction
  rms 16 -> holds with a correction
  rms 16- -> does not hold
P6: tax_12288 4, tax_4096 16 -> holds with a correction
  tax_12288 4- -> does not hold
  tax_4096 16+ -> does not hold
F1b: rows 13, explained_kept 7, explained_flushed 13 -> holds
  explained_kept 13 -> cannot tell
  explained_flushed 12 -> cannot tell
  explained_kept 13, explained_flushed 12 -> does not hold
F1c: signed_sigmas_clipping 5, signed_sigmas_underflow_normal 5, signed_sigmas_underflow_log_normal
      -5, magnitude_sigmas_clipping -5, magnitude_sigmas_underflow_normal -5,
      magnitude_sigmas_underflow_log_normal 0 -> holds
  signed_sigmas_clipping 4 -> holds with a correction
  signed_sigmas_clipping 4+ -> holds
  signed_sigmas_underflow_normal 4 -> holds with a correction
  signed_sigmas_underflow_log_normal -4 -> holds with a correction
  signed_sigmas_underflow_log_normal -4- -> holds
  signed_sigmas_clipping 0, magnitude_sigmas_clipping -4 -> does not hold
  signed_sigmas_clipping 0, magnitude_sigmas_clipping 5 -> does not hold
  signed_sigmas_clipping 0, magnitude_sigmas_underflow_normal -4 -> does not hold
  signed_sigmas_clipping 0, magnitude_sigmas_underflow_normal 0,
      magnitude_sigmas_underflow_log_normal -5 -> holds with a correction
F2b: values 100, crushed 99, crushed_flushed 99 -> holds
  crushed 98.9 -> holds with a correction
  crushed 98.9, crushed_flushed 98.9 -> does not hold
F3a: share_above 0.02, share_above_summed 0, share_above_loss_scale 0 -> holds
  share_above 0.01 -> does not hold
  share_above 0.01+ -> holds
  share_above 0, share_above_summed 0.01+ -> holds with a correction
  share_above 0, share_above_loss_scale 0.01+ -> holds with a correction
  share_above 0, share_above_summed 0.01, share_above_loss_scale 0.01 -> does not hold
F4d: gain_uniform_16384 50, gain_normal_16384 50 -> holds
  gain_uniform_16384 50- -> holds with a correction
  gain_normal_16384 50- -> holds with a correction
  gain_uniform_16384 50-, gain_normal_16384 50- -> does not hold
F4e: rows 20, nearer_rounded 11, explained_exact 20 -> holds
  nearer_rounded 10 -> does not hold
  nearer_rounded 10, explained_exact 19 -> cannot tell
F5: product_error 0.1, ring_256 1, ring_1024 1, tree_256 1, tree_1024 1, direct_256 1, direct_1024 1
      -> holds
  direct_256 0.29 -> holds with a correction
  direct_1024 0.29 -> holds with a correction
  direct_256 0.29, ring_256 0.29 -> holds with a correction
  direct_256 0.29, ring_256 0.29, tree_1024 0.29 -> does not hold
  product_error 0.34 -> does not hold
L12: e4m3_of_450 448, e4m3_of_1000 448, e5m2_infinite 0, nan_in_older_releases 0 -> holds
  e4m3_of_450 450 -> does not hold
  e4m3_of_1000 1000 -> does not hold
  e5m2_infinite 1 -> holds with a correction
  nan_in_older_releases 1 -> holds with a correction
S13: error_128 1, error_16384 2, error_unpromoted_128 1, error_unpromoted_16384 1 -> holds
  error_16384 1.5 -> does not hold
  error_16384 1.5+ -> holds
  error_16384 1, error_unpromoted_16384 1.5+ -> holds with a correction
  error_16384 1, error_unpromoted_16384 1.5 -> does not hold
S14: share_attention 1, share_experts 1, share_gating 1 -> holds
  share_gating 0 -> holds with a correction
  share_attention 0.8 -> does not hold
  share_experts 0.5 -> does not hold
S15: wgmma_executed_m 64, wgmma_executed_n 64, wgmma_executed_k 32, wgmma_least_m 64, wgmma_least_n
      16, wgmma_least_k 32, mma_m 16, mma_n 16, mma_k 32 -> holds
  mma_n 32 -> holds with a correction
  mma_n 8 -> does not hold
  mma_m 8, mma_k 16 -> holds
  mma_n 32, mma_k 16 -> holds
S16: step_bf16_gradients 1.9, gathers_of_model 1.9 -> holds
  step_bf16_gradients 1.9- -> holds with a correction
  step_bf16_gradients 1.9-, gathers_of_model 1.9- -> does not hold
T8: channel_ratio_early 19, channel_ratio_late 20 -> holds with a correction
  channel_ratio_early 20 -> does not hold
  channel_ratio_late 20- -> cannot tell
P7: gain 37.4, utilization 34.2, utilization_causal 30 -> holds
  gain 37.1 -> does not hold
  gain 37.7 -> does not hold
  utilization 33.1 -> does not hold
  utilization 35.3 -> does not hold
  utilization 33.1, utilization_causal 34 -> holds with a correction
P8: all_gather_saved 34, saved_13b 33.5, published_13b 34, saved_175b 33.5, published_175b 34
      -> holds
  all_gather_saved 50 -> holds with a correction
  all_gather_saved 50, saved_13b 32.9 -> does not hold
  all_gather_saved 50, published_13b 35.1 -> does not hold
  all_gather_saved 50, saved_175b 35.1 -> does not hold
  all_gather_saved 50, published_175b 32.9 -> does not hold
P9: memory_of_gpu 74, memory_fp8-lm 74, memory_bf16 75, memory_te-fp8 75 -> holds
  memory_fp8-lm 74+ -> does not hold
  memory_bf16 74 -> holds with a correction
  memory_te-fp8 74 -> holds with a correction
)";

using Named = std::vector<std::pair<std::string, double>>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double number_of(const std::string& text) {
  const std::vector<std::pair<std::string, Standing>> standings{
      {"follows", Standing::follows},
      {"leaves", Standing::leaves},
      {"undecided", Standing::cannot_tell},
      {"lower", Standing::lower}};
  for (const auto& standing : standings)
    if (text == standing.first) return static_cast<double>(standing.second);
  double number = 0.0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string rest(read.ptr, text.data() + text.size());
  REQUIRE((read.ec == std::errc() && (rest.empty() || rest == "+" || rest == "-")));
  return rest.empty() ? number : std::nextafter(number, rest == "+" ? kInfinity : -kInfinity);
}

/// The values before ` -> ` and the verdict behind it.
std::pair<Named, std::string> read_line(const std::string& line) {
  INFO(line);
  const std::size_t arrow = line.find(" -> ");
  REQUIRE(arrow != std::string::npos);
  std::istringstream words(line.substr(0, arrow));
  Named values;
  for (std::string name, number; words >> name >> number;) {
    if (number.ends_with(',')) number.pop_back();
    values.emplace_back(name, number_of(number));
  }
  return {values, line.substr(arrow + 4)};
}

void check_verdict(const Claim& claim, const Named& base, const std::string& line) {
  std::vector<MeasuredValue> values;
  for (const auto& value : base) values.push_back({value.first, "1", value.second});
  const auto [changes, verdict] = read_line(line);
  INFO(claim.id << ": " << line);
  for (const auto& change : changes) {
    bool known = false;
    for (MeasuredValue& value : values)
      if (value.name == change.first) {
        value.value = change.second;
        known = true;
      }
    REQUIRE(known);
  }
  CHECK(to_string(claim.judge(values)) == verdict);
}

}  // namespace

TEST_CASE("each claim's verdict changes at every limit of its criterion, and nowhere else",
          "[experiments]") {
  std::vector<std::string> lines;
  std::istringstream text(kLimits);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("    "))
      lines.back() += line.substr(line.find_first_not_of(' ') - 1);
    else if (!line.empty())
      lines.push_back(line);
  }
  const Claim* claim = nullptr;
  Named base;
  std::vector<std::string> judged;
  for (const std::string& line : lines) {
    if (line.starts_with("  ")) {
      check_verdict(*claim, base, line);
      continue;
    }
    const std::size_t colon = line.find(": ");
    claim = &find_claim(line.substr(0, colon));
    judged.emplace_back(claim->id);
    base = read_line(line.substr(colon + 1)).first;
    check_verdict(*claim, base, line.substr(colon + 1));
  }
  // S7 has a test of its own, from what it measures.
  judged.emplace_back("S7");
  for (const Claim& one : all_claims()) {
    INFO(one.id);
    CHECK(std::find(judged.begin(), judged.end(), one.id) != judged.end());
  }
}

}  // namespace fp8lab::experiments::claim_limits_test
