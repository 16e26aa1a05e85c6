#pragma once

// For loops over host memory that the compiler vectorizes.

/// Before a function that is neither inline nor a template: one clone a vector width, chosen when
/// the program is loaded. Helpers that it calls must be inlined into it. Sanitizers are not ready
/// by then.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PD_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define PD_CLONES
#endif

/// Before a loop in which an output may be the input of the same index, never of another one.
#if defined(__clang__)
#define PD_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define PD_INDEPENDENT _Pragma("GCC ivdep")
#endif
