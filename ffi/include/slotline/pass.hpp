// A pass over a dataset, for a range-based for loop.
#ifndef SLOTLINE_PASS_HPP
#define SLOTLINE_PASS_HPP

#include <cstddef>
#include <iterator>

#include "batch.hpp"
#include "error.hpp"

namespace slotline {

/// The end of a pass.
struct end_of_pass {};

/// A pass over the dataset, usable as an input range of C++20. It refers to its loader; starting
/// another pass ends this one.
///
/// An exception takes the place of one batch. After it, a range-based for loop over the same pass
/// continues with the next batch.
class pass {
 public:
  /// Holds one batch, which is destroyed when the next one is requested, unless it was moved from.
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = batch;
    using difference_type = std::ptrdiff_t;
    using pointer = batch*;
    using reference = batch&;

    explicit iterator(slotline_loader* loader, bool rethrow = false) : loader_(loader), rethrow_(rethrow) { ++*this; }

    batch& operator*() const noexcept { return batch_; }
    batch* operator->() const noexcept { return &batch_; }
    iterator& operator++() {
      batch_ = batch();
      slotline_batch* raw = nullptr;
      slotline_error* error = nullptr;
      const slotline_status code = slotline_loader_next(loader_, &raw, &error);
      if (code == SLOTLINE_OK) batch_ = batch(raw);
      else if (code == SLOTLINE_END) loader_ = nullptr;
      else status(code, error).raise(rethrow_);
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& at, end_of_pass) noexcept { return !at.loader_; }
    friend bool operator!=(const iterator& at, end_of_pass) noexcept { return at.loader_; }
    friend bool operator==(end_of_pass, const iterator& at) noexcept { return !at.loader_; }
    friend bool operator!=(end_of_pass, const iterator& at) noexcept { return at.loader_; }

   private:
    slotline_loader* loader_;
    /// Mutable, so that callers can move the batch out; C++20's ranges do that through a const
    /// iterator.
    mutable batch batch_;
    bool rethrow_;
  };

  explicit pass(slotline_loader* loader, bool rethrow = false) noexcept : loader_(loader), rethrow_(rethrow) {}
  iterator begin() { return iterator(loader_, rethrow_); }
  end_of_pass end() noexcept { return {}; }

 private:
  slotline_loader* loader_;
  /// Whether to throw a callback's own exception.
  bool rethrow_;
};

}  // namespace slotline

#endif
