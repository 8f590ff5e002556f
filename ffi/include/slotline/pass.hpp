// One run over a dataset, for a range-for.
#ifndef SLOTLINE_PASS_HPP
#define SLOTLINE_PASS_HPP

#include <cstddef>
#include <iterator>

#include "error.hpp"

namespace slotline {

/// One pass over the dataset. It is the loader's: asking that for another pass ends this one.
///
/// An exception is in the place of one batch. After it, a range-for over the same pass goes on with the batch behind.
template <class Loader, class Batch, class RawBatch, slotline_status (*Next)(Loader*, RawBatch**, slotline_error**)>
class basic_pass {
 public:
  /// Holds one batch, which goes when the next is asked for unless it was moved away.
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    iterator() noexcept = default;
    explicit iterator(Loader* loader) : loader_(loader) { ++*this; }

    Batch& operator*() noexcept { return batch_; }
    Batch* operator->() noexcept { return &batch_; }
    iterator& operator++() {
      batch_ = Batch();
      RawBatch* raw = nullptr;
      slotline_error* error = nullptr;
      const slotline_status code = Next(loader_, &raw, &error);
      if (code == SLOTLINE_OK) batch_ = Batch(raw);
      else if (code == SLOTLINE_END) loader_ = nullptr;
      else status(code, error).raise();
      return *this;
    }
    void operator++(int) { ++*this; }
    /// Only with the end.
    friend bool operator==(const iterator& a, const iterator& b) noexcept { return a.loader_ == b.loader_; }
    friend bool operator!=(const iterator& a, const iterator& b) noexcept { return !(a == b); }

   private:
    Loader* loader_ = nullptr;
    Batch batch_;
  };

  explicit basic_pass(Loader* loader) noexcept : loader_(loader) {}
  iterator begin() { return iterator(loader_); }
  iterator end() noexcept { return {}; }

 private:
  Loader* loader_;
};

}  // namespace slotline

#endif
