#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "command.hpp"

int main(int argc, char** argv) {
  using namespace fp8lab::cli;
  CLI::App app{"fp8lab: what FP8 hardware computes, bit for bit, on a CPU"};
  app.require_subcommand(1);
  app.set_version_flag("--version", FP8LAB_VERSION);
  Action action;
  add_replay(app, action);
  add_run(app, action);
  try {
    app.parse(argc, argv);
    return action();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kPass : kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fp8lab: {}\n", error.what());
    return kUsage;
  }
}
