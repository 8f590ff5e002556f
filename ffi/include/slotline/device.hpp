// Batches on NVIDIA GPUs. Requires a library that was built with CUDA; its CMake package and slotline.pc define
// SLOTLINE_CUDA.
#ifndef SLOTLINE_DEVICE_HPP
#define SLOTLINE_DEVICE_HPP

#include "../slotline.h"

#if defined(SLOTLINE_CUDA)

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "batch.hpp"
#include "dataset.hpp"
#include "error.hpp"
#include "options.hpp"
#include "pass.hpp"

namespace slotline {

/// Returns the number of devices. Throws slotline::error if there is no driver.
inline std::size_t device_count() {
  std::size_t devices = 0;
  detail::check(slotline_device_probe, &devices);
  return devices;
}

/// A batch on a device, which may still be on its way there. Streams are of type `cudaStream_t`.
class device_batch {
 public:
  device_batch() noexcept = default;
  explicit device_batch(slotline_device_batch* raw) noexcept : raw_(raw) {}

  explicit operator bool() const noexcept { return raw_ != nullptr; }
  std::size_t size() const noexcept { return slotline_device_batch_len(raw_.get()); }
  std::size_t batch_index() const noexcept { return slotline_device_batch_task(raw_.get()); }
  std::uint32_t epoch() const noexcept { return slotline_device_batch_epoch(raw_.get()); }
  span<const std::int64_t> indices() const noexcept { return {slotline_device_batch_indices(raw_.get()), size()}; }
  std::size_t num_fields() const noexcept { return slotline_device_batch_num_fields(raw_.get()); }

  /// A field, with device addresses, for kernels on streams that the batch was made ready on.
  slotline::tensor tensor(std::size_t field) const {
    slotline_tensor out;
    out.struct_size = sizeof out;
    detail::check(slotline_device_batch_field, raw_.get(), field, &out);
    return slotline::tensor(out);
  }

  /// Makes a stream wait for the copy; the host does not wait. The batch's memory is not reused before the work that
  /// was launched on the stream has finished.
  void ready_on(void* stream) const { detail::check(slotline_device_batch_ready_on, raw_.get(), stream); }
  /// Releases the batch: its memory is filled again once the stream has reached this point.
  void release_on(void* stream) { detail::check(slotline_device_batch_release_on, raw_.release(), stream); }
  /// Blocks this thread until the copy is complete.
  void wait() const { detail::check(slotline_device_batch_wait, raw_.get()); }

  /// A field as a DLPack tensor on the device, for use on this stream, which waits for the copy.
  template <class Managed = DLManagedTensorVersioned>
  slotline::dlpack<Managed> dlpack(std::size_t field, void* stream) const {
    Managed* out = nullptr;
    detail::check(slotline_device_batch_dlpack, raw_.get(), field, stream, &out);
    return slotline::dlpack<Managed>(out);
  }
  template <class Managed = DLManagedTensor>
  slotline::dlpack<Managed> dlpack_unversioned(std::size_t field, void* stream) const {
    Managed* out = nullptr;
    detail::check(slotline_device_batch_dlpack_unversioned, raw_.get(), field, stream, &out);
    return slotline::dlpack<Managed>(out);
  }

  slotline_device_batch* raw() const noexcept { return raw_.get(); }

 private:
  detail::owned<slotline_device_batch, slotline_device_batch_free> raw_;
};

using device_pass =
    basic_pass<slotline_device_loader, device_batch, slotline_device_batch, slotline_device_loader_next>;

/// A loader that delivers batches on a device, copied from page-locked memory.
class device_loader {
 public:
  /// Except for the size, zeros in `device` are the defaults. Throws slotline::error, also if there is no driver.
  explicit device_loader(const dataset& dataset, const options& options = {}, slotline_device_options device = {})
      : rethrow_(options.rethrow_) {
    device.struct_size = sizeof device;
    slotline_device_loader* raw = nullptr;
    const slotline_options given = options.raw();
    detail::check(slotline_device_loader_new, dataset.raw(), &given, &device, &raw);
    raw_.reset(raw);
  }

  /// Makes a loader without exceptions: OK and a loader, or the failure.
  static status try_make(const dataset& dataset, const options& options, slotline_device_options device,
                         std::optional<device_loader>& out) {
    device.struct_size = sizeof device;
    slotline_device_loader* raw = nullptr;
    const slotline_options given = options.raw();
    status result = detail::call(slotline_device_loader_new, dataset.raw(), &given, &device, &raw);
    if (raw) out.emplace(device_loader(raw, options.rethrow_));
    return result;
  }

  /// Starts a pass: `for (auto& batch : loader.epoch())`.
  device_pass epoch() & {
    try_epoch().raise(rethrow_);
    return device_pass(raw_.get(), rethrow_);
  }
  /// Deleted: a temporary loader would be destroyed before the first batch.
  device_pass epoch() && = delete;
  /// Starts a pass, like `epoch()`.
  device_pass::iterator begin() { return epoch().begin(); }
  end_of_pass end() noexcept { return {}; }

  /// Returns the next batch of the pass, or nothing at its end.
  basic_next<device_batch> next() {
    device_batch out;
    const status result = try_next(out);
    if (result.at_end()) return std::nullopt;
    result.raise(rethrow_);
    return out;
  }

  /// The same as for slotline::loader.
  status try_epoch() noexcept { return detail::call(slotline_device_loader_epoch, raw_.get()); }
  status try_next(device_batch& out) noexcept {
    out = device_batch();
    slotline_device_batch* raw = nullptr;
    status result = detail::call(slotline_device_loader_next, raw_.get(), &raw);
    if (raw) out = device_batch(raw);
    return result;
  }

  /// Stops the loader, from where a slotline::loader can be stopped. Batches that are on the device already are delivered before
  /// code::stopped.
  void stop() noexcept { slotline_device_loader_stop(raw_.get()); }
  std::int64_t size() const noexcept { return slotline_device_loader_len(raw_.get()); }
  std::uint32_t next_epoch() const noexcept { return slotline_device_loader_next_epoch(raw_.get()); }

  /// The same as for slotline::loader; during a pass only with `resumable`.
  std::string state() { return detail::text(slotline_device_loader_state, raw_.get()); }
  status try_state(std::string& out) { return detail::try_text(slotline_device_loader_state, raw_.get(), out); }
  void load_state(const std::string& state) { try_load_state(state).raise(); }
  status try_load_state(const std::string& state) noexcept {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(state.data());
    return detail::call(slotline_device_loader_load_state, raw_.get(), bytes, state.size());
  }
  std::string warnings() { return detail::text(slotline_device_loader_warnings, raw_.get()); }

  slotline_device_loader* raw() const noexcept { return raw_.get(); }

 private:
  device_loader(slotline_device_loader* raw, bool rethrow) noexcept : raw_(raw), rethrow_(rethrow) {}

  detail::owned<slotline_device_loader, slotline_device_loader_free> raw_;
  bool rethrow_;
};

}  // namespace slotline

#endif
#endif
