// Failures in programs compiled with or without exceptions.
#ifndef SLOTLINE_RAISE_HPP
#define SLOTLINE_RAISE_HPP

#include <cstdio>
#include <cstdlib>

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define SLOTLINE_EXCEPTIONS 1
#endif

namespace slotline {
namespace detail {

/// Throws an exception. In a program compiled without exceptions, writes its message to the
/// standard error and aborts.
template <class Exception>
[[noreturn]] void raise(const Exception& exception) {
#ifdef SLOTLINE_EXCEPTIONS
  throw exception;
#else
  std::fprintf(stderr, "slotline: %s\n", exception.what());
  std::abort();
#endif
}

/// A variable whose address identifies a type, also without RTTI.
template <class T>
inline char type_tag = 0;

}  // namespace detail
}  // namespace slotline

#endif
