#include "cublaslt_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "check.cuh"

namespace fp8lab::cuda {
namespace {

std::vector<std::string> places() {
  if (const char* given = std::getenv("FP8LAB_CUBLASLT")) return {given};
  std::vector<std::string> folders{""};
  if (const char* home = std::getenv("CUDA_HOME"))
    for (const char* folder : {"/lib64/", "/lib/"}) folders.push_back(std::string(home) + folder);
  for (const char* folder : {"/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"})
    folders.emplace_back(folder);
  constexpr int kMajor = CUBLAS_VERSION / 10000;
  std::vector<std::string> files;
  // What is used of the interface is the same in the versions around the headers'.
  for (const int major : {kMajor, kMajor == 12 ? 13 : 12})
    for (const std::string& folder : folders)
      files.push_back(fmt::format("{}libcublasLt.so.{}", folder, major));
  return files;
}

LtLibrary load() {
  LtLibrary library;
  std::string why;
  for (const std::string& file : places()) {
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      if (why.empty()) why = dlerror();
      continue;
    }
    library.file = file;
#define FP8LAB_LT_LOAD(name)                                                     \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, #name)); \
  if (library.name == nullptr) library.missing = fmt::format("{} has no " #name, file);
    FP8LAB_LT_FUNCTIONS(FP8LAB_LT_LOAD)
#undef FP8LAB_LT_LOAD
    return library;
  }
  library.missing = fmt::format(
      "{} (it comes with the CUDA toolkit and with the Python package "
      "nvidia-cublas; FP8LAB_CUBLASLT=FILE names it)",
      why);
  return library;
}

}  // namespace

const LtLibrary& find_lt_library() {
  static const LtLibrary kLibrary = load();
  return kLibrary;
}

const LtLibrary& lt() {
  const LtLibrary& library = find_lt_library();
  if (!library.missing.empty()) throw NoDevice("no cuBLASLt: " + library.missing);
  return library;
}

}  // namespace fp8lab::cuda
