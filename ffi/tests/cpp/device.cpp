// Uses every function for batches on a device. Without a device, the program prints why there is
// none.

#include <slotline.hpp>

#include <cstdint>
#include <cstdio>

// The first members of DLPack's structs, including the deleter.
struct DLManagedTensorVersioned {
  std::uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
};
struct DLManagedTensor {
  struct {
    void* data;
    std::int32_t device_type, device_id, ndim;
    std::uint8_t code, bits;
    std::uint16_t lanes;
    std::int64_t *shape, *strides;
    std::uint64_t byte_offset;
  } dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};

int main() try {
  std::printf("%zu devices\n", slotline::device_count());
  slotline_device_options device{};
  device.resumable = 1;
  slotline::loader loader(slotline::dataset::open("digits"), slotline::options().batch_size(64), device);
  std::size_t count = 0;
  auto state = loader.state();
  for (auto& batch : loader) {
    batch.ready_on(nullptr);
    if (batch.tensor(0).shape()[0] != static_cast<std::int64_t>(batch.size()) || batch.num_fields() != 2) return 1;
    std::optional<slotline::view<std::uint8_t>> view;
    if (batch.device() != 0 || batch.try_field(0, view).code() != slotline::code::invalid) return 1;
    batch.dlpack(0, nullptr);
    batch.dlpack_unversioned(1, nullptr);
    batch.wait();
    if (batch.batch_index() == 3) state = loader.state();
    batch.release_on(nullptr);
    ++count;
  }
  loader.load_state(state);
  for (auto& batch : loader) count -= batch.batch_index() >= 4 ? 1 : 0;
  if (count != 4) return 2;
  loader.epoch();
  while (loader.next()) loader.stop();
} catch (const slotline::error& error) {
  std::puts(error.what());
  return error.code() != slotline::code::device && error.code() != slotline::code::stopped;
}
