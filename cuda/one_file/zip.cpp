// libzip's functions, looked up in its shared form when one is first called: only
// .npz files need it, and a program that is one file must start without it.

#include <dlfcn.h>
#include <zip.h>

#include "fp8lab/core/error.hpp"

namespace {

void* function(const char* name) {
  static void* const library = [] {
    void* found = nullptr;
    for (const char* file : {"libzip.so.5", "libzip.so.4"})
      if (found == nullptr) found = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    return found;
  }();
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr)
    throw fp8lab::Error(".npz files need libzip, which is not on this machine (libzip.so.4 or .5)");
  return found;
}

}  // namespace

// NAME: the function. PARAMETERS and ARGUMENTS: its parameters, with and without types.
#define FP8LAB_FORWARD(RESULT, NAME, PARAMETERS, ARGUMENTS)                      \
  RESULT NAME PARAMETERS {                                                       \
    static const auto call = reinterpret_cast<decltype(&NAME)>(function(#NAME)); \
    return call ARGUMENTS;                                                       \
  }

extern "C" {

FP8LAB_FORWARD(int, zip_close, (zip_t * a), (a))
FP8LAB_FORWARD(void, zip_discard, (zip_t * a), (a))
FP8LAB_FORWARD(void, zip_error_fini, (zip_error_t * a), (a))
FP8LAB_FORWARD(void, zip_error_init, (zip_error_t * a), (a))
FP8LAB_FORWARD(void, zip_error_init_with_code, (zip_error_t * a, int b), (a, b))
FP8LAB_FORWARD(const char*, zip_error_strerror, (zip_error_t * a), (a))
FP8LAB_FORWARD(int, zip_fclose, (zip_file_t * a), (a))
FP8LAB_FORWARD(zip_int64_t, zip_file_add,
               (zip_t * a, const char* b, zip_source_t* c, zip_flags_t d), (a, b, c, d))
FP8LAB_FORWARD(int, zip_file_set_dostime,
               (zip_t * a, zip_uint64_t b, zip_uint16_t c, zip_uint16_t d, zip_flags_t e),
               (a, b, c, d, e))
FP8LAB_FORWARD(const char*, zip_file_strerror, (zip_file_t * a), (a))
FP8LAB_FORWARD(zip_file_t*, zip_fopen_index, (zip_t * a, zip_uint64_t b, zip_flags_t c), (a, b, c))
FP8LAB_FORWARD(zip_int64_t, zip_fread, (zip_file_t * a, void* b, zip_uint64_t c), (a, b, c))
FP8LAB_FORWARD(const char*, zip_get_name, (zip_t * a, zip_uint64_t b, zip_flags_t c), (a, b, c))
FP8LAB_FORWARD(zip_int64_t, zip_get_num_entries, (zip_t * a, zip_flags_t b), (a, b))
FP8LAB_FORWARD(zip_t*, zip_open, (const char* a, int b, int* c), (a, b, c))
FP8LAB_FORWARD(zip_t*, zip_open_from_source, (zip_source_t * a, int b, zip_error_t* c), (a, b, c))
FP8LAB_FORWARD(int, zip_set_file_compression,
               (zip_t * a, zip_uint64_t b, zip_int32_t c, zip_uint32_t d), (a, b, c, d))
FP8LAB_FORWARD(zip_source_t*, zip_source_buffer_create,
               (const void* a, zip_uint64_t b, int c, zip_error_t* d), (a, b, c, d))
FP8LAB_FORWARD(zip_source_t*, zip_source_buffer_fragment,
               (zip_t * a, const zip_buffer_fragment_t* b, zip_uint64_t c, int d), (a, b, c, d))
FP8LAB_FORWARD(int, zip_source_close, (zip_source_t * a), (a))
FP8LAB_FORWARD(zip_error_t*, zip_source_error, (zip_source_t * a), (a))
FP8LAB_FORWARD(void, zip_source_free, (zip_source_t * a), (a))
FP8LAB_FORWARD(void, zip_source_keep, (zip_source_t * a), (a))
FP8LAB_FORWARD(int, zip_source_open, (zip_source_t * a), (a))
FP8LAB_FORWARD(zip_int64_t, zip_source_read, (zip_source_t * a, void* b, zip_uint64_t c), (a, b, c))
FP8LAB_FORWARD(int, zip_stat_index, (zip_t * a, zip_uint64_t b, zip_flags_t c, zip_stat_t* d),
               (a, b, c, d))
FP8LAB_FORWARD(const char*, zip_strerror, (zip_t * a), (a))

}  // extern "C"
