#include "fp8lab.h"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/machine.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/verify.hpp"

using namespace fp8lab;

struct fp8lab_product {
  GemmOperands operands;
  GemmSpec spec;
  std::string report;
};

namespace {

thread_local std::string last_error;

/// Runs `body`; what it throws becomes a status and the text of the last error.
template <class Body>
fp8lab_status guarded(const Body& body) noexcept {
  try {
    body();
    return FP8LAB_OK;
  } catch (const std::bad_alloc&) {
    return FP8LAB_NO_MEMORY;
  } catch (const Error& error) {
    try {
      last_error = error.what();
    } catch (...) {
      return FP8LAB_NO_MEMORY;
    }
    return FP8LAB_BAD_ARGUMENT;
  } catch (const std::exception& error) {
    try {
      last_error = error.what();
    } catch (...) {
      return FP8LAB_NO_MEMORY;
    }
    return FP8LAB_FAILED;
  } catch (...) {
    return FP8LAB_FAILED;
  }
}

void require_pointer(const void* pointer, const char* argument) {
  require(pointer != nullptr, argument, "a pointer", "NULL");
}

std::string_view text(const char* value, const char* argument) {
  require_pointer(value, argument);
  return value;
}

/// The view of a dense matrix that the caller keeps.
TensorView matrix(ElementType type, const void* data, std::int64_t rows, std::int64_t columns,
                  const std::string& argument) {
  const std::vector<std::int64_t> shape{rows, columns};
  const auto count = static_cast<std::size_t>(element_count(shape, argument));
  require(data != nullptr || count == 0, argument, "a pointer", "NULL");
  return {type, shape, {static_cast<const std::byte*>(data), count * element_bytes(type)}, false};
}

TensorView output_of(const Product& product, const void* d, std::size_t bytes) {
  const ElementType type = find_element_type(format(product.output.format).name);
  const TensorView view = matrix(type, d, product.rows(), product.columns(), "d");
  require(bytes == view.bytes.size(), "bytes", fmt::format("{}", view.bytes.size()), bytes);
  return view;
}

std::string report_of(const VerifyReport& report) {
  return json_text(nlohmann::ordered_json{{"verdict", to_string(report.verdict)},
                                          {"outputs", report.rows * report.columns},
                                          {"mismatches", report.comparison.bit_mismatches},
                                          {"text", describe(report)}});
}

fp8lab_verdict verdict_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return FP8LAB_PASS;
    case Verdict::mismatch:
      return FP8LAB_MISMATCH;
    case Verdict::no_power:
      return FP8LAB_NO_POWER;
  }
  return FP8LAB_MISMATCH;
}

ProductOperand& operand_of(fp8lab_product& product, fp8lab_operand which) {
  return which == FP8LAB_A ? product.operands.a : product.operands.b;
}

/// The name of a row of a table, ended with a zero; NULL behind the last one.
template <class Rows>
const char* name_at(const Rows& rows, std::size_t index) {
  static const std::vector<std::string> kNames = [&] {
    std::vector<std::string> names;
    for (const auto& row : rows) names.emplace_back(row.name);
    return names;
  }();
  return index < kNames.size() ? kNames[index].c_str() : nullptr;
}

}  // namespace

extern "C" {

int fp8lab_abi(void) { return FP8LAB_ABI; }

const char* fp8lab_version(void) {
  static const std::string kVersion = build_version();
  return kVersion.c_str();
}

const char* fp8lab_last_error(void) { return last_error.c_str(); }

const char* fp8lab_format_name(size_t index) { return name_at(kFormats, index); }
const char* fp8lab_model_name(size_t index) { return name_at(instruction_models(), index); }

fp8lab_status fp8lab_encode(const char* format_name, const char* profile, float scale,
                            const float* values, size_t count, uint8_t* codes) {
  return guarded([&] {
    EncodeOptions options;
    options.format = find_format(text(format_name, "format")).id;
    options.policy = find_cast_profile(text(profile, "profile")).policy;
    options.scale = scale;
    require(count == 0 || values != nullptr, "values", "a pointer", "NULL");
    require(count == 0 || codes != nullptr, "codes", "a pointer", "NULL");
    encode(std::span(values, count), std::span(codes, count), options);
  });
}

fp8lab_status fp8lab_decode(const char* format_name, const void* codes, size_t count,
                            float* values) {
  return guarded([&] {
    const Format& f = find_format(text(format_name, "format"));
    require(count == 0 || values != nullptr, "values", "a pointer", "NULL");
    require(count == 0 || codes != nullptr, "codes", "a pointer", "NULL");
    const std::size_t bytes = count * static_cast<std::size_t>(f.bytes());
    const std::vector<float> decoded =
        decode_codes(f.id, {static_cast<const std::byte*>(codes), bytes});
    std::copy(decoded.begin(), decoded.end(), values);
  });
}

fp8lab_product* fp8lab_product_new(void) {
  fp8lab_product* made = nullptr;
  guarded([&] {
    auto product = std::make_unique<fp8lab_product>();
    product->spec.model = "sm90.wgmma.e4m3";
    made = product.release();
  });
  return made;
}

void fp8lab_product_free(fp8lab_product* product) { delete product; }

fp8lab_status fp8lab_product_operand(fp8lab_product* product, fp8lab_operand which,
                                     const char* format_name, const void* codes, int64_t rows,
                                     int64_t k) {
  return guarded([&] {
    require_pointer(product, "product");
    const ElementType type = find_element_type(text(format_name, "format"));
    operand_of(*product, which).codes = matrix(type, codes, rows, k, which == FP8LAB_A ? "a" : "b");
  });
}

fp8lab_status fp8lab_product_scales(fp8lab_product* product, fp8lab_operand which,
                                    const float* scales, int64_t rows, int64_t columns,
                                    int64_t tile_rows, int64_t tile_k) {
  return guarded([&] {
    require_pointer(product, "product");
    ProductOperand& operand = operand_of(*product, which);
    operand.scales =
        matrix(ElementType::f32, scales, rows, columns, which == FP8LAB_A ? "scale_a" : "scale_b");
    operand.tiles = ScaleTiles{tile_rows, tile_k};
  });
}

fp8lab_status fp8lab_product_model(fp8lab_product* product, const char* model, int64_t promotion) {
  return guarded([&] {
    require_pointer(product, "product");
    const std::string name(text(model, "model"));
    find_instruction_model(name);
    product->spec.model = name;
    product->spec.promotion_interval = promotion;
  });
}

fp8lab_status fp8lab_product_output(fp8lab_product* product, const char* format_name) {
  return guarded([&] {
    require_pointer(product, "product");
    product->spec.output = default_output(find_format(text(format_name, "format")).id);
  });
}

fp8lab_status fp8lab_product_compute(const fp8lab_product* product, void* d, size_t bytes,
                                     int threads) {
  return guarded([&] {
    require_pointer(product, "product");
    const Product made = make_product(product->operands, product->spec);
    output_of(made, d, bytes);
    const std::vector<std::byte> codes = golden_output(made, threads);
    std::copy(codes.begin(), codes.end(), static_cast<std::byte*>(d));
  });
}

fp8lab_status fp8lab_product_verify(fp8lab_product* product, const void* d, size_t bytes,
                                    int threads, fp8lab_verdict* verdict, const char** report) {
  return guarded([&] {
    require_pointer(product, "product");
    require_pointer(verdict, "verdict");
    const Product made = make_product(product->operands, product->spec);
    VerifyOptions options;
    options.threads = threads;
    const VerifyReport found = verify(made, {"d", output_of(made, d, bytes), nullptr}, options);
    product->report = report_of(found);
    *verdict = verdict_of(found.verdict);
    if (report != nullptr) *report = product->report.c_str();
  });
}

}  // extern "C"
