// Batch memory provided by the user.
#ifndef SLOTLINE_MEMORY_HPP
#define SLOTLINE_MEMORY_HPP

#include <cstddef>
#include <memory>

#include "error.hpp"

namespace slotline {

/// The alignment of memory for batches, in bytes.
inline constexpr std::size_t memory_align = SLOTLINE_MEMORY_ALIGN;

/// Memory for batches: at least the requested number of bytes, at a multiple of `memory_align`. The
/// owner is destroyed, on any thread, after the loader, its last batch and the last tensor exported
/// from a batch.
struct memory {
  void* data;
  std::size_t size;
  std::shared_ptr<void> owner;
};

}  // namespace slotline

#endif
