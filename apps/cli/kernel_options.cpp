#include "kernel_options.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cli {
namespace {

float number_of(std::string_view option, const std::string& text, std::string_view expected) {
  char* end = nullptr;
  const float x = std::strtof(text.c_str(), &end);
  require(!text.empty() && *end == '\0', option, expected, fmt::format("'{}'", text));
  return x;
}

}  // namespace

void add_epilogue_options(Command& command, EpilogueOptions& o) {
  command.add_option("--alpha", o.alpha, "the sum times this")->capture_default_str();
  command.add_option("--bias", o.bias, "file of the bias, floats [n]");
  command.add_option("--row-scales", o.row_scales,
                     "file of row scales, floats [m], applied after the sum");
  command.add_option("--column-scales", o.column_scales,
                     "file of column scales, floats [n], applied after the sum");
  command.add_option("--beta", o.beta, "factor of C, which is added after alpha and bias");
  command
      .add_option("--activation", o.activation,
                  "none, relu, leaky_relu, gelu, gelu_tanh, silu or swiglu (columns of gates, then "
                  "columns that they multiply: half as many outputs)")
      ->capture_default_str();
  command.add_option("--slope", o.slope, "of leaky_relu")->capture_default_str();
  command
      .add_option(
          "--activation-ulps", o.ulps,
          "largest allowed error of a kernel's gelu or silu, in units in the last place of FP32")
      ->capture_default_str();
  command.add_option("--output-scale", o.output_scale,
                     "factor of the result before its cast; amax: largest finite value / amax");
}

void add_split_options(Command& command, SplitOptions& o) {
  command.add_option("--split-k", o.parts, "parts of K that are summed separately")
      ->capture_default_str();
  command
      .add_option("--split-cut", o.cut, "contiguous or modulo: which tiles of K belong to a part")
      ->capture_default_str();
  command
      .add_option("--split-order", o.order,
                  "serial, pairwise (cuBLASLt's on Ada) or tree: how the parts are added")
      ->capture_default_str();
  command
      .add_option("--split-tile", o.tile,
                  "terms of a tile; 0: the promotion interval, or without promotion one step")
      ->capture_default_str();
}

EpilogueSpec epilogue_of(const EpilogueOptions& o) {
  EpilogueSpec spec;
  spec.alpha = o.alpha;
  if (!o.beta.empty()) spec.beta = number_of("--beta", o.beta, "a number");
  spec.activation = find_activation(o.activation);
  spec.slope = o.slope;
  spec.activation_ulps = o.ulps;
  spec.scale_by_amax = o.output_scale == "amax";
  if (!o.output_scale.empty() && !spec.scale_by_amax)
    spec.output_scale = number_of("--output-scale", o.output_scale, "a number or amax");
  return spec;
}

SplitK split_of(const SplitOptions& o) {
  return {.parts = o.parts,
          .tile = o.tile,
          .cut = find_split_cut(o.cut),
          .order = find_split_order(o.order)};
}

}  // namespace fp8lab::cli
