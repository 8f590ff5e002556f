// Uses every function of the device layer, so that it is compiled. It can also run without a device.

#include <slotline.hpp>

#include <cstdio>

struct DLManagedTensorVersioned {
  void (*deleter)(DLManagedTensorVersioned*);
};
struct DLManagedTensor {
  void (*deleter)(DLManagedTensor*);
};

int main() try {
  std::printf("%zu devices\n", slotline::device_count());
  slotline_device_options device{};
  device.resumable = 1;
  slotline::device_loader loader(slotline::dataset::open("digits"), slotline::options().batch_size(64), device);
  for (auto& batch : loader) {
    batch.ready_on(nullptr);
    if (batch.tensor(0).shape()[0] != static_cast<std::int64_t>(batch.size()) || batch.num_fields() != 2) return 1;
    batch.dlpack(0, nullptr);
    batch.dlpack_unversioned(1, nullptr);
    batch.wait();
    if (batch.task() == 3) loader.load_state(loader.state());
    batch.release_on(nullptr);
  }
  loader.epoch();
  while (loader.next()) loader.stop();
} catch (const slotline::error& error) {
  std::puts(error.what());
  return error.code() != slotline::code::device && error.code() != slotline::code::stopped;
}
