// Compares slotline's C interface with libtorch's torch::data::DataLoader in one program, with passes in turn.
//
// To build it, in this folder, after `cargo build --release -p slotline-c`:
//
//   T=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
//   g++ -std=c++20 -O3 -march=native -I"$T/include" -I"$T/include/torch/csrc/api/include" -I../../../ffi/include beside.cpp
//       -o beside ../../../target/release/libslotline.a -L"$T/lib" -Wl,-rpath,"$T/lib" -Wl,--allow-shlib-undefined
//       -ltorch_cpu -lc10 -pthread -ldl -lm      (one line)
//
// Use: beside small|large ROUNDS. `small` is 60,000 images of 28x28 bytes in batches of 64, and `large` is 2,000 images of
// 3x224x224 bytes in batches of 32. Each image has a label. The data is in memory and shuffled; batches are delivered in
// order, with 0, 1 and 2 workers.
//
//   slotline        arrays, `slotline_loader_next`, both fields, `slotline_batch_free`
//   libtorch        a map-style dataset; Stack collates the samples of a batch
//   libtorch-bulk   a BatchDataset whose get_batch gathers a whole batch into two tensors
//
// The first pass of each contender checks every byte. Then each round times a pass of every contender, in rotating order. A
// line of the output has the median time of a batch with its quartiles, and the median and quartiles of its ratio to slotline
// in the same round. The consumer reads only the labels, as if it passed the images on.

#include <slotline.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace data = torch::data;
using Clock = std::chrono::steady_clock;

// Byte j of image i is (i + j) % 251, and its label is i.
struct Images {
  Images(int64_t count, std::vector<int64_t> shape) : labels(torch::arange(count, torch::kInt64)) {
    shape.insert(shape.begin(), count);
    images = torch::empty(shape, torch::kUInt8);
    row = images.numel() / count;
    pattern.resize(row + 251);
    for (size_t j = 0; j < pattern.size(); ++j) pattern[j] = j % 251;
    for (int64_t i = 0; i < count; ++i) std::memcpy(images.data_ptr<uint8_t>() + i * row, expected(i), row);
  }

  const uint8_t* expected(size_t i) const { return pattern.data() + i % 251; }

  torch::Tensor images, labels;
  size_t row;
  std::vector<uint8_t> pattern;
};

using All = std::shared_ptr<const Images>;

struct Rows : data::Dataset<Rows> {
  explicit Rows(All all) : all(std::move(all)) {}
  data::Example<> get(size_t i) override { return {all->images[i], all->labels[i]}; }
  std::optional<size_t> size() const override { return all->labels.numel(); }
  All all;
};

struct Bulk : data::BatchDataset<Bulk, data::Example<>> {
  explicit Bulk(All all) : all(std::move(all)) {}
  data::Example<> get_batch(c10::ArrayRef<size_t> indices) override {
    auto shape = all->images.sizes().vec();
    shape[0] = indices.size();
    torch::Tensor images = torch::empty(shape, torch::kUInt8), labels = torch::empty(shape[0], torch::kInt64);
    uint8_t* to = images.data_ptr<uint8_t>();
    for (size_t i = 0; i < indices.size(); ++i, to += all->row) {
      std::memcpy(to, all->images.data_ptr<uint8_t>() + indices[i] * all->row, all->row);
      labels.data_ptr<int64_t>()[i] = all->labels.data_ptr<int64_t>()[indices[i]];
    }
    return {images, labels};
  }
  std::optional<size_t> size() const override { return all->labels.numel(); }
  All all;
};

// The function that a pass calls with each batch: its images, its labels and their number.
using Visit = void (*)(void* to, const uint8_t* images, const int64_t* labels, size_t rows);
// Runs a pass and returns its number of batches.
using Pass = std::function<size_t(Visit visit, void* to)>;

template <class Dataset>
Pass torch_pass(Dataset dataset, size_t batch_size, size_t workers) {
  auto options = data::DataLoaderOptions(batch_size).workers(workers).enforce_ordering(true);
  auto made = data::make_data_loader<data::samplers::RandomSampler>(std::move(dataset), options);
  auto loader = std::make_shared<decltype(made)>(std::move(made));
  return [loader](Visit visit, void* to) {
    size_t batches = 0;
    for (auto& held : **loader) {
      auto batch = std::move(held);
      visit(to, batch.data.template data_ptr<uint8_t>(), batch.target.template data_ptr<int64_t>(), batch.target.numel());
      ++batches;
    }
    return batches;
  };
}

void check(slotline_status status, slotline_error* error) {
  if (status != SLOTLINE_OK) throw std::runtime_error(error ? slotline_error_message(error) : "no message");
}

Pass slotline_pass(const All& all, size_t batch_size, size_t workers) {
  slotline_error* error = nullptr;
  slotline_array arrays[2] = {};
  arrays[0] = {sizeof(slotline_array), "image", SLOTLINE_U8, uint32_t(all->images.dim()), all->images.sizes().data(),
               all->images.data_ptr<uint8_t>(), nullptr, nullptr};
  arrays[1] = {sizeof(slotline_array), "label", SLOTLINE_I64, 1, all->labels.sizes().data(),
               all->labels.data_ptr<int64_t>(), nullptr, nullptr};
  slotline_dataset* dataset = nullptr;
  check(slotline_dataset_from_arrays(arrays, 2, &dataset, &error), error);
  slotline_options options;
  slotline_options_init(&options, sizeof options);
  options.batch_size = batch_size;
  options.num_workers = workers;
  options.shuffle = 1;
  slotline_loader* raw = nullptr;
  check(slotline_loader_new(dataset, &options, &raw, &error), error);
  slotline_dataset_free(dataset);
  std::shared_ptr<slotline_loader> loader(raw, slotline_loader_free);
  return [loader, all](Visit visit, void* to) {
    slotline_error* error = nullptr;
    check(slotline_loader_epoch(loader.get(), &error), error);
    size_t batches = 0;
    for (;; ++batches) {
      slotline_batch* batch = nullptr;
      const slotline_status status = slotline_loader_next(loader.get(), &batch, &error);
      if (status == SLOTLINE_END) return batches;
      check(status, error);
      slotline_tensor images, labels;
      images.struct_size = labels.struct_size = sizeof(slotline_tensor);
      check(slotline_batch_field(batch, 0, &images, &error), error);
      check(slotline_batch_field(batch, 1, &labels, &error), error);
      visit(to, static_cast<const uint8_t*>(images.data), static_cast<const int64_t*>(labels.data), labels.shape[0]);
      slotline_batch_free(batch);
    }
  };
}

// Checks that each label is received once, with its image.
struct Ledger {
  const Images& all;
  std::vector<bool> seen;

  static void take(void* self, const uint8_t* images, const int64_t* labels, size_t rows) {
    auto& ledger = *static_cast<Ledger*>(self);
    for (size_t i = 0; i < rows; ++i, images += ledger.all.row) {
      const size_t label = labels[i];
      if (label >= ledger.seen.size() || ledger.seen[label]) throw std::runtime_error("a wrong label");
      ledger.seen[label] = true;
      if (std::memcmp(images, ledger.all.expected(label), ledger.all.row) != 0) throw std::runtime_error("a wrong image");
    }
  }
};

void verify(const Images& all, const Pass& pass) {
  Ledger ledger{all, std::vector<bool>(all.labels.numel())};
  pass(Ledger::take, &ledger);
  if (std::count(ledger.seen.begin(), ledger.seen.end(), false) != 0) throw std::runtime_error("a label is missing");
}

// Returns the time per batch in microseconds.
double timed(const Images& all, const Pass& pass) {
  int64_t total = 0;
  const auto sum = [](void* to, const uint8_t*, const int64_t* labels, size_t rows) {
    for (size_t i = 0; i < rows; ++i) *static_cast<int64_t*>(to) += labels[i];
  };
  const auto begin = Clock::now();
  const size_t batches = pass(sum, &total);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const int64_t count = all.labels.numel();
  if (total != count * (count - 1) / 2) throw std::runtime_error("a wrong sum of labels");
  return seconds * 1e6 / double(batches);
}

struct Quartiles {
  explicit Quartiles(std::vector<double> of) {
    std::sort(of.begin(), of.end());
    low = of[(of.size() - 1) / 4], median = of[of.size() / 2], high = of[of.size() - 1 - (of.size() - 1) / 4];
  }
  double low, median, high;
};

int main(int count, char** words) try {
  const std::string workload = count == 3 ? words[1] : "";
  const long rounds = count == 3 ? std::atol(words[2]) : 0;
  const bool small = workload == "small";
  if (rounds < 1 || (!small && workload != "large")) {
    std::fputs("use: beside small|large ROUNDS\n", stderr);
    return 2;
  }
  at::set_num_threads(1);  // only the loader's workers run in parallel
  torch::manual_seed(0);
  const auto all = small ? std::make_shared<const Images>(60000, std::vector<int64_t>{28, 28})
                         : std::make_shared<const Images>(2000, std::vector<int64_t>{3, 224, 224});
  const size_t batch_size = small ? 64 : 32;
  const char* names[] = {"slotline", "libtorch", "libtorch-bulk"};
  for (size_t workers = 0; workers <= 2; ++workers) {
    const Pass contenders[] = {slotline_pass(all, batch_size, workers),
                               torch_pass(Rows(all).map(data::transforms::Stack<>()), batch_size, workers),
                               torch_pass(Bulk(all), batch_size, workers)};
    for (const Pass& pass : contenders) verify(*all, pass);
    std::vector<double> times[3], ratios[3];
    for (long round = 0; round < rounds; ++round) {
      for (size_t turn = 0; turn < 3; ++turn) {
        const size_t which = (round + turn) % 3;
        times[which].push_back(timed(*all, contenders[which]));
      }
      for (size_t which = 0; which < 3; ++which) ratios[which].push_back(times[which].back() / times[0].back());
    }
    for (size_t which = 0; which < 3; ++which) {
      const Quartiles time(times[which]), ratio(ratios[which]);
      std::printf("%s, %zu workers, %-13s  %8.2f us/batch (%.2f..%.2f)  %6.2fx (%.2f..%.2f)\n", workload.c_str(), workers,
                  names[which], time.median, time.low, time.high, ratio.median, ratio.low, ratio.high);
      std::fflush(stdout);
    }
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
