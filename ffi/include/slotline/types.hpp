// Element types and fields.
#ifndef SLOTLINE_TYPES_HPP
#define SLOTLINE_TYPES_HPP

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__STDCPP_FLOAT16_T__) || defined(__STDCPP_BFLOAT16_T__)
#include <stdfloat>
#endif

#include "../slotline.h"

namespace slotline {

/// The type of elements.
enum class dtype : std::uint32_t {
  boolean = SLOTLINE_BOOL,
  u8 = SLOTLINE_U8,
  i8 = SLOTLINE_I8,
  u16 = SLOTLINE_U16,
  i16 = SLOTLINE_I16,
  u32 = SLOTLINE_U32,
  i32 = SLOTLINE_I32,
  u64 = SLOTLINE_U64,
  i64 = SLOTLINE_I64,
  f32 = SLOTLINE_F32,
  f64 = SLOTLINE_F64,
  f16 = SLOTLINE_F16,
  bf16 = SLOTLINE_BF16,
  complex64 = SLOTLINE_COMPLEX64,
  complex128 = SLOTLINE_COMPLEX128,
};

namespace detail {

/// Maps integers by size and sign: `long` and `long long` are both i64 where both have 64 bits.
template <class T>
constexpr dtype dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>) {
    static_assert(sizeof(bool) == 1, "a bool must be one byte");
    return dtype::boolean;
  } else if constexpr (std::is_same_v<U, float>) {
    return dtype::f32;
  } else if constexpr (std::is_same_v<U, double>) {
    return dtype::f64;
  } else if constexpr (std::is_same_v<U, std::complex<float>>) {
    return dtype::complex64;
  } else if constexpr (std::is_same_v<U, std::complex<double>>) {
    return dtype::complex128;
#ifdef __STDCPP_FLOAT16_T__
  } else if constexpr (std::is_same_v<U, std::float16_t>) {
    return dtype::f16;
#endif
#ifdef __STDCPP_BFLOAT16_T__
  } else if constexpr (std::is_same_v<U, std::bfloat16_t>) {
    return dtype::bf16;
#endif
  } else if constexpr (std::is_same_v<U, std::byte>) {
    return dtype::u8;
  } else {
    static_assert(std::is_integral_v<U> && sizeof(U) <= 8,
                  "slotline has no dtype for this type: use bool, an integer, float, double, std::complex of either, "
                  "slotline::float16 or slotline::bfloat16, or specialize slotline::dtype_of");
    if constexpr (sizeof(U) == 1) return std::is_signed_v<U> ? dtype::i8 : dtype::u8;
    else if constexpr (sizeof(U) == 2) return std::is_signed_v<U> ? dtype::i16 : dtype::u16;
    else if constexpr (sizeof(U) == 4) return std::is_signed_v<U> ? dtype::i32 : dtype::u32;
    else return std::is_signed_v<U> ? dtype::i64 : dtype::u64;
  }
}

}  // namespace detail

/// The dtype of a C++ type: `dtype_of<float>` is `dtype::f32`. Complex numbers are named as in
/// NumPy and PyTorch, by the total bits of both parts: `dtype_of<std::complex<float>>` is
/// `dtype::complex64`. C++23's `std::float16_t` and `std::bfloat16_t` are supported, and with any
/// compiler `slotline::float16` and `slotline::bfloat16`. For another type with the same bits, such
/// as `at::Half`, specialize this variable before its first use:
/// `template <> inline constexpr slotline::dtype slotline::dtype_of<at::Half> = slotline::dtype::f16;`
template <class T>
inline constexpr dtype dtype_of = detail::dtype_of<T>();

/// The name of a dtype, such as "f32".
inline const char* name_of(dtype type) noexcept {
  switch (type) {
    case dtype::boolean: return "bool";
    case dtype::u8: return "u8";
    case dtype::i8: return "i8";
    case dtype::u16: return "u16";
    case dtype::i16: return "i16";
    case dtype::u32: return "u32";
    case dtype::i32: return "i32";
    case dtype::u64: return "u64";
    case dtype::i64: return "i64";
    case dtype::f32: return "f32";
    case dtype::f64: return "f64";
    case dtype::f16: return "f16";
    case dtype::bf16: return "bf16";
    case dtype::complex64: return "complex64";
    case dtype::complex128: return "complex128";
  }
  return "unknown";
}

/// How the samples of a field are combined to a tensor.
enum class kind : std::uint32_t {
  /// All samples have the same shape: `[batch, ...shape]`.
  fixed = SLOTLINE_FIXED,
  /// Up to `max` elements in each sample: padded, with the length of each sample.
  padded_to_max = SLOTLINE_PADDED_TO_MAX,
  /// Any number of items in each sample, stored one after another, with the offsets where each
  /// sample begins and ends.
  packed = SLOTLINE_PACKED,
  /// Any number of elements in each sample: padded to the longest sample of the batch, with the length
  /// of each sample.
  padded_to_longest = SLOTLINE_PADDED_TO_LONGEST,
};

/// A field of a dataset's samples.
struct field {
  std::string name;
  dtype type;
  /// The shape of one sample: `{max}` or `{capacity}` for a padded field, `{room, item...}` for a
  /// packed one.
  std::vector<std::int64_t> shape;
  slotline::kind kind = kind::fixed;
  /// The bytes of the element that a padded field is padded with. Empty: zeros.
  std::vector<unsigned char> padding = {};
  /// For a field padded to the longest: the number that the length of its rows is a multiple of.
  std::size_t multiple_of = 0;
};

namespace detail {

/// Returns the bytes of an element.
template <class T>
std::vector<unsigned char> bytes_of(const T& element) {
  static_assert(std::is_trivially_copyable_v<T>, "an element is copied as bytes");
  std::vector<unsigned char> bytes(sizeof element);
  std::memcpy(bytes.data(), &element, sizeof element);
  return bytes;
}

}  // namespace detail

/// Declares a field of fixed shape: `fixed<float>("image", {8, 8})`, or `fixed<int64_t>("label")`
/// for one number.
template <class T>
field fixed(std::string name, std::vector<std::int64_t> shape = {}) {
  return {std::move(name), dtype_of<T>, std::move(shape), kind::fixed};
}

/// Declares a field of up to `max` elements, padded with `padding`.
template <class T>
field padded_to_max(std::string name, std::int64_t max, T padding = T()) {
  return {std::move(name), dtype_of<T>, {max}, kind::padded_to_max, detail::bytes_of(padding)};
}

/// Declares a field of any number of elements, padded with `padding` to the longest sample of the
/// batch, rounded up to a multiple of `multiple_of`. A batch reserves memory for `capacity` elements per
/// sample, including the padding, which its samples share. A batch is written fastest if its longest
/// sample comes first. `sample::mask` writes the mask of such a field to another one with the same
/// capacity and the same multiple.
template <class T>
field padded_to_longest(std::string name, std::int64_t capacity, T padding = T(), std::size_t multiple_of = 1) {
  return {std::move(name), dtype_of<T>, {capacity}, kind::padded_to_longest, detail::bytes_of(padding), multiple_of};
}

/// Declares a field of any number of items. A batch reserves memory for `room` items per sample,
/// which its samples share.
template <class T>
field packed(std::string name, std::int64_t room, std::vector<std::int64_t> item = {}) {
  item.insert(item.begin(), room);
  return {std::move(name), dtype_of<T>, std::move(item), kind::packed};
}

namespace detail {

/// Returns the fields for the C API; they point into `fields`.
inline std::vector<slotline_field> raw_fields(const std::vector<field>& fields) {
  std::vector<slotline_field> raw;
  for (const field& each : fields) {
    slotline_field field{};
    field.struct_size = sizeof field;
    field.name = each.name.c_str();
    field.dtype = static_cast<std::uint32_t>(each.type);
    field.kind = static_cast<std::uint32_t>(each.kind);
    field.ndim = static_cast<std::uint32_t>(each.shape.size());
    field.shape = each.shape.data();
    field.padding = each.padding.empty() ? nullptr : each.padding.data();
    field.multiple_of = each.multiple_of;
    raw.push_back(field);
  }
  return raw;
}

}  // namespace detail
}  // namespace slotline

#endif
