// The callbacks of the C API for user-defined datasets.
#ifndef SLOTLINE_USER_DATASET_HPP
#define SLOTLINE_USER_DATASET_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "error.hpp"
#include "failure.hpp"
#include "bulk_read.hpp"
#include "sample.hpp"
#include "types.hpp"

namespace slotline {

/// The worker that calls a stream's `open` or `resume`, or the function of options::worker_init.
class worker {
 public:
  explicit worker(const slotline_worker& raw, failure* failure = nullptr) noexcept : raw_(raw), failure_(failure) {}
  /// The index of the worker, from 0.
  std::size_t id() const noexcept { return raw_.id < 0 ? 0 : static_cast<std::size_t>(raw_.id); }
  /// The number of workers. 1 if there are none, since the thread that requests batches then reads
  /// the samples.
  std::size_t num_workers() const noexcept { return raw_.num_workers == 0 ? 1 : raw_.num_workers; }
  /// Whether this is a worker rather than the thread that requests batches.
  bool is_thread() const noexcept { return raw_.id >= 0; }
  /// The worker's seed in this pass: the seed of the pass plus the worker's index. 0 if this is not
  /// a worker.
  std::uint64_t seed() const noexcept { return raw_.seed; }

  /// Makes the dataset's `open` or `resume`, or the worker_init function, fail with this message,
  /// like an exception. Call it on the worker that the function received, before the function
  /// returns. The cursor that `open` or `resume` returns is then ignored.
  void fail(const std::string& message) const noexcept {
    if (failure_) failure_->fail(message);
  }

 private:
  slotline_worker raw_;
  failure* failure_;
};

namespace detail {

template <class Own, class = void>
inline constexpr bool is_map = false;
template <class Own>
inline constexpr bool is_map<
    Own, std::void_t<decltype(std::declval<const Own&>().read(std::size_t(), std::declval<sample&>()))>> = true;

template <class Own, class = void>
inline constexpr bool is_stream = false;
template <class Own>
inline constexpr bool is_stream<
    Own, std::void_t<decltype(std::declval<const Own&>().open(std::declval<const worker&>()))>> = true;

template <class Own, class = void>
inline constexpr bool has_read_many = false;
template <class Own>
inline constexpr bool has_read_many<
    Own, std::void_t<decltype(std::declval<const Own&>().read_many(std::declval<span<const std::size_t>>(),
                                                                   std::declval<sample_sink&>()))>> = true;

template <class Own, class = void>
inline constexpr bool has_prefetch = false;
template <class Own>
inline constexpr bool has_prefetch<Own, std::void_t<decltype(std::declval<const Own&>().prefetch(std::size_t()))>> = true;

template <class Own, class = void>
inline constexpr bool has_size = false;
template <class Own>
inline constexpr bool has_size<Own, std::void_t<decltype(std::declval<const Own&>().size())>> = true;

template <class Own, class = void>
inline constexpr bool has_fields = false;
template <class Own>
inline constexpr bool has_fields<
    Own, std::enable_if_t<std::is_convertible_v<decltype(std::declval<const Own&>().fields()), std::vector<field>>>> = true;

template <class Own>
using cursor_of = decltype(std::declval<const Own&>().open(std::declval<const worker&>()));

template <class Own, class = void>
inline constexpr bool has_next = false;
template <class Own>
inline constexpr bool has_next<
    Own, std::enable_if_t<std::is_convertible_v<
             decltype(std::declval<cursor_of<Own>&>().next(std::declval<sample&>())), bool>>> = true;

template <class Own, class = void>
inline constexpr bool has_resume = false;
template <class Own>
inline constexpr bool has_resume<
    Own, std::void_t<decltype(std::declval<const Own&>().resume(std::declval<const worker&>(), std::string()))>> = true;

template <class Cursor, class = void>
inline constexpr bool has_save = false;
template <class Cursor>
inline constexpr bool has_save<Cursor, std::void_t<decltype(std::declval<const Cursor&>().save())>> = true;

/// Finds the dataset in what a user passes: the object itself, or the target of a smart pointer or
/// a std::reference_wrapper.
template <class Own>
struct pointee {
  using type = Own;
  static constexpr bool by_value = true;
  static const type* of(const Own& own) noexcept { return std::addressof(own); }
};
template <class T>
struct pointee<std::shared_ptr<T>> {
  using type = std::remove_cv_t<T>;
  static constexpr bool by_value = false;
  static const type* of(const std::shared_ptr<T>& own) noexcept { return own.get(); }
};
template <class T, class Deleter>
struct pointee<std::unique_ptr<T, Deleter>> {
  using type = std::remove_cv_t<T>;
  static constexpr bool by_value = false;
  static const type* of(const std::unique_ptr<T, Deleter>& own) noexcept { return own.get(); }
};
template <class T>
struct pointee<std::reference_wrapper<T>> {
  using type = std::remove_cv_t<T>;
  static constexpr bool by_value = false;
  static const type* of(const std::reference_wrapper<T>& own) noexcept { return std::addressof(own.get()); }
};

/// A user's dataset, with the data that the callbacks for the C API need.
template <class Own>
struct own {
  Own held;
  const typename pointee<Own>::type& dataset;
  std::vector<field> fields;

  /// Takes the user's object; a pointer must not be null.
  explicit own(Own&& given) : held(std::move(given)), dataset(*pointee<Own>::of(held)), fields(dataset.fields()) {}
  own(const own&) = delete;
  own& operator=(const own&) = delete;

  static const own& at(void* user) noexcept { return *static_cast<const own*>(user); }
};

template <class Own>
struct map_calls {
  static std::int32_t read(void* user, std::size_t index, slotline_sample* raw) noexcept {
    return guarded(
        [&] {
          const use call(user);
          const own<Own>& self = own<Own>::at(user);
          sample row(raw, self.fields);
          self.dataset.read(index, row);
          return row.failed() ? -1 : 0;
        },
        raw);
  }

  static std::int32_t read_many(void* user, const std::size_t* indices, std::size_t size, slotline_sample_sink* raw,
                                slotline_failure* failure) noexcept {
    return guarded(
        [&] {
          const use call(user);
          const own<Own>& self = own<Own>::at(user);
          sample_sink samples(raw, self.fields);
          self.dataset.read_many(span<const std::size_t>(indices, size), samples);
          return 0;
        },
        failure);
  }

  static void prefetch(void* user, std::size_t index) noexcept {
    // Only a hint: if it fails, reading the sample fails as well.
    guarded(
        [&] {
          const use call(user);
          own<Own>::at(user).dataset.prefetch(index);
          return 0;
        },
        static_cast<slotline_failure*>(nullptr));
  }
};

template <class Own>
struct stream_calls {
  using cursor = cursor_of<typename pointee<Own>::type>;

  /// Creates a cursor with `make(dataset, worker)`.
  template <class Make>
  static std::int32_t made(void* user, const slotline_worker* raw, void** out, slotline_failure* failure, Make make) noexcept {
    return guarded(
        [&] {
          const use call(user);
          slotline::failure report(failure);
          std::unique_ptr<cursor> at(new cursor(make(own<Own>::at(user).dataset, worker(*raw, &report))));
          if (report.failed()) return -1;
          *out = at.release();
          handed_over(*out);
          return 0;
        },
        failure);
  }

  static std::int32_t open(void* user, const slotline_worker* raw, void** out, slotline_failure* failure) noexcept {
    return made(user, raw, out, failure, [](const auto& dataset, const worker& whose) { return dataset.open(whose); });
  }

  static std::int32_t next(void* user, void* at, slotline_sample* raw) noexcept {
    return guarded(
        [&] {
          const use call(user);
          const turn with_cursor(at);
          sample row(raw, own<Own>::at(user).fields);
          const bool more = static_cast<cursor*>(at)->next(row);
          return row.failed() ? -1 : more ? 0 : 1;
        },
        raw);
  }

  static void close(void*, void* at) noexcept { deleted<cursor>(at); }

  static std::int32_t save(void*, void* at, slotline_saved* saved) noexcept {
    return guarded(
        [&] {
          const turn with_cursor(at);
          const std::string bytes = static_cast<const cursor*>(at)->save();
          const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
          return slotline_saved_append(saved, data, bytes.size()) == SLOTLINE_OK ? 0 : -1;
        },
        // Without a saved position, a resumed pass reads the stream again from its start.
        static_cast<slotline_failure*>(nullptr));
  }

  static std::int32_t resume(void* user, const slotline_worker* raw, const std::uint8_t* saved, std::size_t size,
                             void** out, slotline_failure* failure) noexcept {
    return made(user, raw, out, failure, [&](const auto& dataset, const worker& whose) {
      return dataset.resume(whose, std::string(reinterpret_cast<const char*>(saved), size));
    });
  }
};

inline constexpr const char* null_dataset = "the pointer to the dataset is null";

/// Creates a dataset from a user's object, which is not a null pointer.
template <class Own>
status callbacks(Own&& object, slotline_dataset*& out) {
  using Object = typename pointee<Own>::type;
  auto self = std::make_unique<own<Own>>(std::move(object));
  const std::vector<slotline_field> fields = raw_fields(self->fields);
  if constexpr (is_map<Object>) {
    slotline_map_dataset raw{};
    raw.struct_size = sizeof raw;
    raw.len = self->dataset.size();
    raw.fields = fields.data();
    raw.num_fields = fields.size();
    raw.read = map_calls<Own>::read;
    if constexpr (has_read_many<Object>) raw.read_many = map_calls<Own>::read_many;
    if constexpr (has_prefetch<Object>) raw.prefetch = map_calls<Own>::prefetch;
    raw.drop = deleted<own<Own>>;
    raw.user = self.release();
    return call(slotline_dataset_from_callbacks, &raw, &out);
  } else {
    slotline_stream_dataset raw{};
    raw.struct_size = sizeof raw;
    raw.len = -1;
    if constexpr (has_size<Object>) raw.len = static_cast<std::int64_t>(self->dataset.size());
    raw.fields = fields.data();
    raw.num_fields = fields.size();
    raw.open = stream_calls<Own>::open;
    raw.next = stream_calls<Own>::next;
    raw.close = stream_calls<Own>::close;
    static_assert(has_resume<Object> == has_save<typename stream_calls<Own>::cursor>,
                  "a stream that can be resumed has both `cursor resume(const slotline::worker&, const std::string&) const` "
                  "and, in its cursor, `std::string save() const`");
    if constexpr (has_resume<Object>) {
      raw.save = stream_calls<Own>::save;
      raw.resume = stream_calls<Own>::resume;
    }
    raw.drop = deleted<own<Own>>;
    raw.user = self.release();
    return call(slotline_dataset_from_stream, &raw, &out);
  }
}

/// Creates a dataset from a user-defined class. For a class that cannot be used, a
/// static_assert fails with a message that says why.
template <class Given>
status own_dataset(Given&& given, slotline_dataset*& out) {
  using Own = std::decay_t<Given>;
  using Object = typename pointee<Own>::type;
  constexpr bool is_pointer = std::is_pointer_v<Own>;
  constexpr bool is_whole = !pointee<Own>::by_value || !std::is_polymorphic_v<Own> || std::is_final_v<Own>;
  constexpr bool can_be_held = std::is_constructible_v<Own, Given&&>;
  constexpr bool can_be_read = is_map<Object> || is_stream<Object>;
  static_assert(!is_pointer,
                "a pointer does not say how long the dataset lives: pass a std::shared_ptr or a std::unique_ptr, which keep it, "
                "or a std::ref of the object, which must outlive the loaders");
  static_assert(is_whole,
                "a class with virtual functions is not accepted by value, as a copy of its base would lose the rest: pass a "
                "std::shared_ptr, a std::unique_ptr or a std::ref of it, or declare it final");
  static_assert(can_be_held,
                "this dataset cannot be copied: if it can be moved, move it, or pass a std::shared_ptr, a std::unique_ptr or a "
                "std::ref of it");
  static_assert(is_pointer || can_be_read,
                "a dataset must have `void read(std::size_t, slotline::sample&) const`, or be a stream with "
                "`open(const slotline::worker&) const`");
  constexpr bool is_told = has_fields<Object>;
  constexpr bool is_counted = !is_map<Object> || has_size<Object>;
  constexpr bool is_sequence = is_map<Object> || has_next<Object>;
  static_assert(!can_be_read || is_told,
                "a dataset must have `std::vector<slotline::field> fields() const`, which says what its samples consist of");
  static_assert(is_counted, "a dataset with `read` must have `std::size_t size() const`, the number of its samples");
  static_assert(!can_be_read || is_sequence, "the cursor that `open` returns must have `bool next(slotline::sample&)`");
  if constexpr (!is_pointer && is_whole && can_be_held && can_be_read && is_told && is_counted && is_sequence) {
    Own object(std::forward<Given>(given));
    if (!pointee<Own>::of(object)) return {code::invalid, null_dataset};
    return callbacks<Own>(std::move(object), out);
  } else {
    return {};
  }
}

}  // namespace detail
}  // namespace slotline

#endif
