#pragma once
// What readers of `quantization_config` share.

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "training/model_files/stored_quantization.hpp"

namespace fp8lab {

/// The first 80 characters of a value, for messages.
std::string brief(const nlohmann::ordered_json& value);

/// The text of a member; empty where it has none.
std::string text_of(const nlohmann::ordered_json& value, const char* key);

/// The number of a member; 0 where it has none.
std::int64_t unsigned_of(const nlohmann::ordered_json& value, const char* key);

/// Whether a value is an object with a member that is not null.
bool has_value(const nlohmann::ordered_json& value, const char* key);

/// Whether a value has the member of Mistral's params.json that describes quantized weights: in its
/// own words, or in those of another `quant_method`.
bool describes_mistral(const nlohmann::ordered_json& value);

/// Reads a list of two sizes, or "128x128", into the blocks of a form; null changes nothing.
/// Throws `Error` for anything else.
void read_block(const nlohmann::ordered_json& said, const std::string& where, WeightForm& form);

/// Groups of 32 elements under E8M0, or of 16 under two levels.
WeightForm group_form(FormatId format, ScaleKind scales);

/// The patterns of a list of names. Throws `Error` for anything else than a list of texts.
std::vector<NamePattern> read_patterns(const nlohmann::ordered_json& config, const char* key,
                                       PatternKind kind, const std::string& where);

/// Adds the modules that stay, from the lists under some keys.
void read_ignored(const nlohmann::ordered_json& config, std::initializer_list<const char*> keys,
                  PatternKind kind, StoredQuantization& stored);

/// Reads whether and how the KV cache is quantized.
void read_kv_scheme(const nlohmann::ordered_json& config, const char* key,
                    StoredQuantization& stored);

/// Reads the form of a group. One that cannot be read is a fault of the weights that have it.
template <class Read>
void read_form(FormGroup& group, const Read& read) {
  try {
    group.form = read();
  } catch (const Error& error) {
    group.fault = error.what();
  }
}

}  // namespace fp8lab
