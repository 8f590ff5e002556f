// Checks that the C++ tests share.
#ifndef SLOTLINE_TESTS_CHECK_HPP
#define SLOTLINE_TESTS_CHECK_HPP

#include <cstdio>
#include <cstdlib>
#include <string>

#include <slotline.hpp>

/// Ends the program with status 1, and names the condition, unless it holds.
#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) {                                                          \
      std::fprintf(stderr, "line %d: check failed: %s\n", __LINE__, #condition); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

inline bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

#if defined(__cpp_exceptions)
/// Returns the error that a function throws.
template <class Function>
slotline::error thrown(Function function) {
  try {
    function();
  } catch (const slotline::error& error) {
    return error;
  }
  std::fprintf(stderr, "nothing was thrown\n");
  std::exit(1);
}
#endif

#endif
