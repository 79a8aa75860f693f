#include "models.hpp"

#include "fp8lab/io/files.hpp"
#include "lab/experiment/model_parameters.hpp"

namespace fp8lab::cli {

void add_models_option(Command& command, ModelFiles& files) {
  command
      .add_option("--models", files,
                  "file that names models, in tables [accumulator.NAME] of TOML or in .json; may "
                  "be given again")
      ->type_name("FILE")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
}

ModelBook load_models(const ModelFiles& files) {
  ModelBook book;
  for (const std::string& file : files) {
    const std::string text = read_file(file);
    if (file.ends_with(".json"))
      book.add_json(file, text);
    else
      book.add_toml(file, text);
  }
  return book;
}

void resolve_models(Parameters& parameters, const ModelBook& book) {
  fp8lab::resolve_models(parameters, [&](std::string_view text) {
    std::string resolved = book.resolve(text);
    (void)find_instruction_model(resolved);
    return resolved;
  });
}

}  // namespace fp8lab::cli
