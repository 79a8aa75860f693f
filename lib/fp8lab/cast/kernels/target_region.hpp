#pragma once
// Compiles a region of a source for one instruction set, whatever the flags of the build. Only
// our own functions may stand in a region: standard headers come before it, so that no
// inline function of theirs is compiled for a processor that the program may not run on.

#define FP8LAB_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define FP8LAB_BEGIN_TARGET(features) \
  FP8LAB_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define FP8LAB_END_TARGET FP8LAB_PRAGMA(clang attribute pop)
#else
#define FP8LAB_BEGIN_TARGET(features) \
  FP8LAB_PRAGMA(GCC push_options) FP8LAB_PRAGMA(GCC target(features))
#define FP8LAB_END_TARGET FP8LAB_PRAGMA(GCC pop_options)
#endif

#define FP8LAB_INLINE inline __attribute__((always_inline))
