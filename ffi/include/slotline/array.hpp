// Arrays in memory, for datasets that need no user code.
#ifndef SLOTLINE_ARRAY_HPP
#define SLOTLINE_ARRAY_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "error.hpp"
#include "types.hpp"

namespace slotline {

/// An array of one element type; its first dimension is the sample. Its memory is not copied. The
/// memory is released, on any thread, when the last loader and the last batch that use it are
/// destroyed. A moved-from array cannot be used in a dataset.
class array {
 public:
  /// Takes ownership of a vector's memory.
  template <class T>
  array(std::string name, std::vector<T> values, std::vector<std::int64_t> shape = {})
      : array(std::move(name), std::make_shared<const std::vector<T>>(std::move(values)), std::move(shape)) {}

  /// Shares existing memory, which `keeper` keeps alive. If `keeper` is null, the memory must
  /// outlive all loaders.
  template <class T>
  array(std::string name, const T* data, std::vector<std::int64_t> shape, std::shared_ptr<const void> keeper)
      : name_(std::move(name)), type_(dtype_of<T>), shape_(std::move(shape)), data_(std::move(keeper), data) {}

  /// Returns the array for the C API, with a reference to the memory: the caller must call its
  /// `drop`. It points into this array object.
  slotline_array release() const {
    slotline_array raw{};
    raw.struct_size = sizeof raw;
    raw.name = name_.c_str();
    raw.dtype = static_cast<std::uint32_t>(type_);
    raw.ndim = static_cast<std::uint32_t>(shape_.size());
    raw.shape = shape_.data();
    raw.data = data_.get();
    raw.user = new std::shared_ptr<const void>(data_);
    raw.drop = detail::deleted<std::shared_ptr<const void>>;
    return raw;
  }

 private:
  template <class T>
  array(std::string name, std::shared_ptr<const std::vector<T>> values, std::vector<std::int64_t> shape)
      : array(std::move(name), values->data(), std::move(shape), values) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no bools in memory: use std::uint8_t");
    if (shape_.empty()) shape_ = {static_cast<std::int64_t>(values->size())};
    std::size_t size = 1;
    for (const std::int64_t each : shape_) size *= static_cast<std::size_t>(each);
    if (size != values->size())
      detail::raise(std::invalid_argument("array " + name_ + " has " + std::to_string(values->size()) +
                                  " elements, but its shape needs " + std::to_string(size)));
  }

  std::string name_;
  dtype type_;
  std::vector<std::int64_t> shape_;
  /// Points to the elements and keeps their memory alive. One pointer does both, so that a
  /// moved-from array has neither.
  std::shared_ptr<const void> data_;
};

}  // namespace slotline

#endif
