// What the C++ tests check with.
#ifndef SLOTLINE_TESTS_CHECK_HPP
#define SLOTLINE_TESTS_CHECK_HPP

#include <cstdio>
#include <cstdlib>

/// Ends the program with status 1, and names the condition, unless it holds.
#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) {                                                          \
      std::fprintf(stderr, "line %d: check failed: %s\n", __LINE__, #condition); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

#endif
