// Worker processes that a command starts.
#ifndef SLOTLINE_SPAWNED_HPP
#define SLOTLINE_SPAWNED_HPP

#include <cstddef>
#include <cstdint>
#include <string>

#include "dataset.hpp"
#include "error.hpp"

namespace slotline {

/// Runs as a worker if a loader has started this process as one (`options::spawn`); otherwise
/// returns immediately.
///
///     int main() {
///       slotline::work_if_spawned([](const std::string& setup) { return multiples{std::stoll(setup)}; });
///       auto options = slotline::options().num_workers(2).processes().spawn({"/proc/self/exe"}, "3");
///       slotline::loader loader(multiples{3}, options);
///
/// Call this at the start of `main`: code before the call runs in each worker, code after it does
/// not. `make` returns the dataset of the worker, or anything that converts to one. It must have
/// the same length and fields as the loader's, and cannot be a stream. If it differs, or if `make`
/// throws, the loader fails with code::worker_died and the reason. A worker ends its process with
/// `exit`, so local variables of `main` are not destroyed. See `slotline_work_if_spawned`.
template <class Make>
void work_if_spawned(Make make) {
  const slotline_make_dataset call = [](void* user, const std::uint8_t* setup, std::size_t size, slotline_dataset** out,
                                        slotline_failure* failure) -> std::int32_t {
    return detail::guarded(
        [&] {
          const dataset made = (*static_cast<Make*>(user))(std::string(reinterpret_cast<const char*>(setup), size));
          *out = slotline_dataset_clone(made.raw());
          return 0;
        },
        failure);
  };
  slotline_work_if_spawned(call, &make);
}

}  // namespace slotline

#endif
