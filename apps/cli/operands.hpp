#pragma once
// The options that say which product is meant, shared by the commands that
// compute one and those that check one.

#include <cstdint>
#include <optional>
#include <string>

#include "fp8lab/io/operand.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "group_options.hpp"
#include "kernel_options.hpp"
#include "models.hpp"
#include "parser.hpp"

namespace fp8lab::cli {

struct OperandOptions {
  std::string a;
  std::string b;
  std::string scale_a;
  std::string scale_b;
  std::string tiles_a;
  std::string tiles_b;
  std::string scale_layout_a = "row_major";
  std::string scale_layout_b = "row_major";
  std::string scale_format;
  std::string tensor_scale_a;
  std::string tensor_scale_b;
  std::string c;
  std::string c_enters;
  std::string dtype;
  std::string dtype_b;
  std::string recipe;
  std::string model = "sm90.wgmma.e4m3";
  std::string scale_order = "product_then_fma";
  std::string output_dtype = "f32";
  std::string profile;
  std::string call;
  EpilogueOptions epilogue;
  SplitOptions split;
  GroupOptions groups;
  std::int64_t promotion = 0;
  int threads = 0;
  ModelFiles models;
  bool transpose_b = false;
};

/// Adds the options that say what the operands are, but A and B themselves.
void add_input_options(Command& command, OperandOptions& options);

/// The same, and the options that say how they are multiplied.
void add_operand_options(Command& command, OperandOptions& options);

/// The tensor scale that `text` is, or that the file of that name holds.
float one_tensor_scale(std::string_view option, const std::string& text);

/// The tiles that an option names, if it names some.
std::optional<ScaleTiles> scale_tiles(std::string_view option, const std::string& text);

/// The type that `--dtype` names, if it names one.
std::optional<ElementType> element_type(const std::string& name);

/// Loads the operands. Throws `Error`.
GemmOperands load_operands(const OperandOptions& options);

/// With `--call`, sets the options that the call decides and that were not given. Throws `Error`
/// for one that was given and says otherwise, and for options that would count for nothing.
void use_call(const Command& command, OperandOptions& options);

/// How they are multiplied. Throws `Error`.
GemmSpec spec_of(const OperandOptions& options);

/// Loads the operands and makes the product. Throws `Error`.
Product load_product(const OperandOptions& options);

/// The same of a batched or grouped one.
GroupedProduct load_grouped_product(const OperandOptions& options, const Groups& groups);

}  // namespace fp8lab::cli
