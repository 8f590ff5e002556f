// slotline feeding libtorch: DLPack tensors in the memory that the workers wrote.

#include <ATen/DLConvertor.h>
#include <torch/torch.h>

#include <slotline.hpp>

#include <cstdint>
#include <cstdio>

int main() try {
  torch::manual_seed(0);
  torch::nn::Linear model(64, 10);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  slotline::loader loader(slotline::dataset::open("digits"),
                          slotline::options().batch_size(64).shuffle(true).seed(42).num_workers(2));

  double loss = 0, first = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    loss = 0;
    for (auto& batch : loader.epoch()) {
      // Each tensor keeps the batch's memory until its last reference is dropped, wherever that is.
      at::Tensor images = at::fromDLPackVersioned(batch.dlpack(0).release());
      at::Tensor labels = at::fromDLPackVersioned(batch.dlpack(1).release());
      TORCH_CHECK(images.data_ptr() == batch.field<std::uint8_t>(0).data(), "the images were copied");

      at::Tensor error = torch::nn::functional::cross_entropy(model(images.flatten(1).to(torch::kFloat) / 16), labels);
      optimizer.zero_grad();
      error.backward();
      optimizer.step();
      loss += error.item<double>() * static_cast<double>(batch.size()) / 1797;
    }
    if (epoch == 0) first = loss;
    std::printf("epoch %d: loss %.4f\n", epoch, loss);
  }
  TORCH_CHECK(loss < first, "the loss did not decrease");
} catch (const std::exception& error) {
  std::fprintf(stderr, "libtorch: %s\n", error.what());
  return 1;
}
