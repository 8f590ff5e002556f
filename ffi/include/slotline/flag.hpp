// Boolean parameters.
#ifndef SLOTLINE_FLAG_HPP
#define SLOTLINE_FLAG_HPP

#include <type_traits>

namespace slotline {

/// A Boolean parameter, to which numbers and pointers do not convert.
class flag {
 public:
  constexpr flag(bool on) noexcept : on_(on) {}
  /// Takes an object that converts to bool, such as a std::atomic<bool>.
  template <class Flag, std::enable_if_t<std::is_class_v<Flag>, int> = 0>
  constexpr flag(const Flag& on) noexcept : on_(on) {}
  /// Deleted: a number or a pointer was probably meant for another parameter. Pass true or false.
  template <class Number, std::enable_if_t<!std::is_class_v<Number>, char> = 0>
  constexpr flag(const Number&) = delete;
  constexpr operator bool() const noexcept { return on_; }

 private:
  bool on_;
};

}  // namespace slotline

#endif
