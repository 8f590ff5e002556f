// Memory of the user that batches are written into.
#ifndef SLOTLINE_MEMORY_HPP
#define SLOTLINE_MEMORY_HPP

#include <cstddef>
#include <memory>

#include "error.hpp"

namespace slotline {

/// The alignment of memory for batches, in bytes.
inline constexpr std::size_t memory_align = SLOTLINE_MEMORY_ALIGN;

/// Memory for batches: at least as many bytes as were asked for, at a multiple of `memory_align`. The owner is destroyed, on any
/// thread, after the loader, its last batch and their last exported tensor.
struct memory {
  void* data;
  std::size_t size;
  std::shared_ptr<void> owner;
};

}  // namespace slotline

#endif
