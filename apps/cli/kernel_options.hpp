#pragma once
// The options that say what a kernel does around its sum: its name, K in parts, the epilogue.

#include <cstdint>
#include <string>

#include "fp8lab/product/product.hpp"
#include "parser.hpp"

namespace fp8lab::cli {

struct EpilogueOptions {
  std::string bias;
  std::string row_scales;
  std::string column_scales;
  std::string beta;
  std::string output_scale;
  std::string activation = "none";
  float alpha = 1.0F;
  float slope = 0.01F;
  float ulps = 4.0F;
};

struct SplitOptions {
  int parts = 1;
  std::int64_t tile = 0;
  std::string cut = "contiguous";
  std::string order = "serial";
};

void add_epilogue_options(Command& command, EpilogueOptions& options);
void add_split_options(Command& command, SplitOptions& options);

/// Throw `Error` for names and numbers that are none.
EpilogueSpec epilogue_of(const EpilogueOptions& options);
SplitK split_of(const SplitOptions& options);

}  // namespace fp8lab::cli
