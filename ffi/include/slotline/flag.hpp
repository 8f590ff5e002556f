// Parameters that are yes or no.
#ifndef SLOTLINE_FLAG_HPP
#define SLOTLINE_FLAG_HPP

#include <type_traits>

namespace slotline {

/// A parameter that is `true` or `false`.
class flag {
 public:
  constexpr flag(bool on) noexcept : on_(on) {}
  /// An object that is one, such as a std::atomic<bool>.
  template <class Flag, std::enable_if_t<std::is_class_v<Flag>, int> = 0>
  constexpr flag(const Flag& on) noexcept : on_(on) {}
  /// Deleted: a number or a pointer, which C++ would convert, is meant for another parameter. Pass true or false.
  template <class Number, std::enable_if_t<!std::is_class_v<Number>, char> = 0>
  constexpr flag(const Number&) = delete;
  constexpr operator bool() const noexcept { return on_; }

 private:
  bool on_;
};

}  // namespace slotline

#endif
