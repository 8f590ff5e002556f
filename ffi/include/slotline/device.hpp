// Loaders for NVIDIA GPUs. Requires a library that was built with SLOTLINE_CUDA.
#ifndef SLOTLINE_DEVICE_HPP
#define SLOTLINE_DEVICE_HPP

#include "../slotline.h"

#ifdef SLOTLINE_HAS_CUDA

#include <cstddef>

#include "error.hpp"

namespace slotline {

/// Returns the number of devices. Throws slotline::error if there is no driver.
inline std::size_t device_count() {
  std::size_t devices = 0;
  detail::check(slotline_device_probe, &devices);
  return devices;
}

}  // namespace slotline

#endif
#endif
