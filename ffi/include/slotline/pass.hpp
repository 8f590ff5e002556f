// One run over a dataset, for a range-for.
#ifndef SLOTLINE_PASS_HPP
#define SLOTLINE_PASS_HPP

#include <cstddef>
#include <iterator>

#include "error.hpp"

namespace slotline {

/// What is behind the last batch of a pass.
struct end_of_pass {};

/// One pass over the dataset, for C++20's ranges an input range. It is the loader's: asking that for another pass ends this
/// one.
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

    explicit iterator(Loader* loader) : loader_(loader) { ++*this; }

    Batch& operator*() const noexcept { return batch_; }
    Batch* operator->() const noexcept { return &batch_; }
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
    friend bool operator==(const iterator& at, end_of_pass) noexcept { return !at.loader_; }
    friend bool operator!=(const iterator& at, end_of_pass) noexcept { return at.loader_; }
    friend bool operator==(end_of_pass, const iterator& at) noexcept { return !at.loader_; }
    friend bool operator!=(end_of_pass, const iterator& at) noexcept { return at.loader_; }

   private:
    Loader* loader_;
    /// To be moved away by whoever looks at it, which C++20's ranges do through a const iterator.
    mutable Batch batch_;
  };

  explicit basic_pass(Loader* loader) noexcept : loader_(loader) {}
  iterator begin() { return iterator(loader_); }
  end_of_pass end() noexcept { return {}; }

 private:
  Loader* loader_;
};

}  // namespace slotline

#endif
