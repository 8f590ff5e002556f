// A non-owning view of contiguous elements (C++17 has no std::span).
#ifndef SLOTLINE_SPAN_HPP
#define SLOTLINE_SPAN_HPP

#include <cstddef>
#include <iterator>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "raise.hpp"

namespace slotline {

template <class T>
class span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using iterator = T*;

  constexpr span() noexcept = default;
  constexpr span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}

  /// Creates a span of an array, a std::vector, a std::array, or any other type with data() and
  /// size(). A span of a temporary is read-only.
  template <class Range, class Element = std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>,
            class = std::enable_if_t<std::is_convertible_v<Element (*)[], T (*)[]> &&
                                     (std::is_lvalue_reference_v<Range> || std::is_const_v<T>) &&
                                     !std::is_same_v<std::decay_t<Range>, span>>>
  constexpr span(Range&& range) noexcept : data_(std::data(range)), size_(std::size(range)) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  /// Not bounds-checked, as in std::vector.
  constexpr T& operator[](std::size_t i) const noexcept { return data_[i]; }

  /// Returns `count` elements starting at `first`. Throws std::out_of_range if there are not
  /// enough.
  constexpr span subspan(std::size_t first, std::size_t count) const {
    if (first > size_ || count > size_ - first) detail::raise(std::out_of_range("slotline::span::subspan"));
    return {data_ + first, count};
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace slotline

#endif
