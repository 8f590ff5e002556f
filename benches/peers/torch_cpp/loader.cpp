// libtorch's torch::data::DataLoader as a peer of the loader comparison.
//
// One g++ command builds it against the libtorch inside a Python `torch` package:
//
//   T=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
//   g++ -std=c++20 -O3 -march=native -I"$T/include" -I"$T/include/torch/csrc/api/include" loader.cpp -o loader
//       -L"$T/lib" -Wl,-rpath,"$T/lib" -Wl,--allow-shlib-undefined -ltorch_cpu -lc10 -pthread      (one line)
//
// The code is C++17, but the headers of torch 2.15 need C++20. If torch._C._GLIBCXX_USE_CXX11_ABI is False, add
// -D_GLIBCXX_USE_CXX11_ABI=0.
//
// Use: loader --peer PEER --workload W --workers N --data DIR
//
//   libtorch        a map-style dataset; Stack collates the samples of a batch
//   libtorch-bulk   a BatchDataset whose get_batch gathers a whole batch into one tensor
//
// The program runs a warm-up pass, in which it checks every byte, and prints a line {"ready":true,…}. For each line `pass` on
// stdin, it runs a timed pass and prints {"batches":…,"seconds":…,"check":…}. It exits on `quit` or at the end of its input.
// If the peer does not support the workload, it prints {"absent":"why"}. For wrong content, it prints a message on stderr and
// exits with code 1.

#include <torch/torch.h>
#include <torch/version.h>

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace data = torch::data;
using torch::Tensor;
using Indices = c10::ArrayRef<size_t>;
using Sequential = data::samplers::SequentialSampler;
using Random = data::samplers::RandomSampler;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string peer, workload, data;
  size_t workers = 0;
  bool bulk() const { return peer == "libtorch-bulk"; }
};

[[noreturn]] void wrong(const std::string& what) { throw std::runtime_error(what); }

// Checks that each label occurs at most once in a pass and, if the order is kept, that labels count up from 0.
class Ledger {
 public:
  Ledger(size_t size, bool ordered) : seen_(size), ordered_(ordered) {}

  void take(int64_t label) {
    const bool known = label >= 0 && size_t(label) < seen_.size();
    if (!known || seen_[label] || (ordered_ && size_t(label) != count_))
      wrong("label " + std::to_string(label) + " was received at position " + std::to_string(count_));
    seen_[label] = true;
    ++count_;
  }

  void close(size_t expected) const {
    if (count_ != expected)
      wrong("a pass of " + std::to_string(count_) + " samples instead of " + std::to_string(expected));
  }

  size_t count() const { return count_; }

 private:
  std::vector<bool> seen_;
  bool ordered_;
  size_t count_ = 0;
};

// The dataset of empty-items and slow-samples. A sample is its index; in slow-samples it is returned after a sleep.

constexpr size_t NUMBERS = 200000;
constexpr size_t SLEEPERS = 200;

struct Numbers : data::Dataset<Numbers, int64_t> {
  explicit Numbers(bool sleep) : sleep(sleep) {}
  int64_t get(size_t index) override {
    if (sleep) std::this_thread::sleep_for(std::chrono::milliseconds(index % 16 == 0 ? 50 : 1));
    return int64_t(index);
  }
  std::optional<size_t> size() const override { return sleep ? SLEEPERS : NUMBERS; }
  bool sleep;
};

// A batch is only the number.
struct BulkNumbers : data::BatchDataset<BulkNumbers, int64_t> {
  int64_t get_batch(Indices indices) override { return int64_t(indices[0]); }
  std::optional<size_t> size() const override { return NUMBERS; }
};

int64_t total_of(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t(0));
}
int64_t total_of(int64_t number) { return number; }
int64_t total_of(const Tensor& numbers) {
  const int64_t* first = numbers.data_ptr<int64_t>();
  return std::accumulate(first, first + numbers.numel(), int64_t(0));
}

void verify(const std::vector<int64_t>& numbers, Ledger& ledger) {
  for (int64_t n : numbers) ledger.take(n);
}
void verify(int64_t number, Ledger& ledger) { ledger.take(number); }

// small-images, large-images and first-batch: byte i of all images is i * 31 % 251, label j is j.

constexpr size_t PERIOD = 251;

struct Images {
  Images(int64_t count, std::vector<int64_t> shape) : labels(torch::arange(count, torch::kInt64)) {
    shape.insert(shape.begin(), count);
    images = torch::empty(shape, torch::kUInt8);
    row = images.numel() / count;
    pattern.resize(row + PERIOD);
    for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = i * 31 % PERIOD;
    for (int64_t i = 0; i < count; ++i) std::memcpy(images.data_ptr<uint8_t>() + i * row, expected(i), row);
  }

  const uint8_t* expected(size_t index) const { return pattern.data() + index * row % PERIOD; }

  void verify(const data::Example<>& batch, Ledger& ledger) const {
    for (int64_t i = 0; i < batch.target.numel(); ++i) {
      const int64_t label = batch.target.data_ptr<int64_t>()[i];
      ledger.take(label);
      if (std::memcmp(batch.data.data_ptr<uint8_t>() + i * row, expected(label), row) != 0)
        wrong("wrong bytes in image " + std::to_string(label));
    }
  }

  Tensor images, labels;
  size_t row;
  std::vector<uint8_t> pattern;
};

struct ImageRows : data::Dataset<ImageRows> {
  explicit ImageRows(std::shared_ptr<Images> all) : all(std::move(all)) {}
  data::Example<> get(size_t index) override { return {all->images[index], all->labels[index]}; }
  std::optional<size_t> size() const override { return all->labels.numel(); }
  std::shared_ptr<Images> all;
};

struct BulkImages : data::BatchDataset<BulkImages, data::Example<>> {
  explicit BulkImages(std::shared_ptr<Images> all) : all(std::move(all)) {}
  data::Example<> get_batch(Indices indices) override {
    auto shape = all->images.sizes().vec();
    shape[0] = indices.size();
    Tensor images = torch::empty(shape, torch::kUInt8);
    Tensor labels = torch::empty(shape[0], torch::kInt64);
    for (size_t i = 0; i < indices.size(); ++i) {
      std::memcpy(images.data_ptr<uint8_t>() + i * all->row,
                  all->images.data_ptr<uint8_t>() + indices[i] * all->row, all->row);
      labels.data_ptr<int64_t>()[i] = all->labels.data_ptr<int64_t>()[indices[i]];
    }
    return {images, labels};
  }
  std::optional<size_t> size() const override { return all->labels.numel(); }
  std::shared_ptr<Images> all;
};

// token-crops: crop k is the 1,025 tokens from splitmix64(k) % (tokens - 1,024) on; x drops the last one, y the first.

constexpr size_t CROP = 1024;
constexpr size_t CROPS = 16000;

class Tokens {
 public:
  explicit Tokens(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY);
    struct stat about {};
    if (file < 0 || fstat(file, &about) != 0) wrong("cannot read " + path);
    size_ = about.st_size / sizeof(uint16_t);
    if (size_ <= CROP) wrong(path + " is too short");
    void* mapped = mmap(nullptr, about.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) wrong("cannot map " + path);
    tokens_ = static_cast<const uint16_t*>(mapped);
  }

  size_t start(uint64_t k) const {
    k += 0x9e3779b97f4a7c15;
    k = (k ^ (k >> 30)) * 0xbf58476d1ce4e5b9;
    k = (k ^ (k >> 27)) * 0x94d049bb133111eb;
    return (k ^ (k >> 31)) % (size_ - CROP);
  }

  const uint16_t* crop(size_t k) const { return tokens_ + start(k); }

  void verify(const data::Example<>& batch, Ledger& ledger) const {
    const int64_t* x = batch.data.data_ptr<int64_t>();
    const int64_t* y = batch.target.data_ptr<int64_t>();
    for (int64_t row = 0; row < batch.data.size(0); ++row, x += CROP, y += CROP) {
      const size_t first = start(ledger.count());
      for (size_t i = 0; i < CROP; ++i)
        if (x[i] != token(first + i) || y[i] != token(first + i + 1))
          wrong("wrong token in crop " + std::to_string(ledger.count()));
      ledger.take(ledger.count());
    }
  }

 private:
  static int64_t token(size_t i) { return i * 7919 % 50257; }

  const uint16_t* tokens_;  // mapped for as long as the process lives
  size_t size_;
};

int64_t first_tokens(const Tensor& x) {
  int64_t total = 0;
  for (int64_t row = 0; row < x.size(0); ++row) total += x.data_ptr<int64_t>()[row * CROP];
  return total;
}

struct CropRows : data::Dataset<CropRows> {
  explicit CropRows(std::shared_ptr<Tokens> all) : all(std::move(all)) {}
  data::Example<> get(size_t index) override {
    auto* crop = const_cast<uint16_t*>(all->crop(index));
    Tensor wide = torch::from_blob(crop, int64_t(CROP + 1), torch::kUInt16).to(torch::kInt64);
    return {wide.slice(0, 0, CROP), wide.slice(0, 1, CROP + 1)};
  }
  std::optional<size_t> size() const override { return CROPS; }
  std::shared_ptr<Tokens> all;
};

struct BulkCrops : data::BatchDataset<BulkCrops, data::Example<>> {
  explicit BulkCrops(std::shared_ptr<Tokens> all) : all(std::move(all)) {}
  data::Example<> get_batch(Indices indices) override {
    const int64_t rows = indices.size();
    Tensor x = torch::empty({rows, int64_t(CROP)}, torch::kInt64);
    Tensor y = torch::empty_like(x);
    for (int64_t row = 0; row < rows; ++row) {
      const uint16_t* crop = all->crop(indices[row]);
      widen(crop, x.data_ptr<int64_t>() + row * CROP);
      widen(crop + 1, y.data_ptr<int64_t>() + row * CROP);
    }
    return {x, y};
  }
  static void widen(const uint16_t* __restrict from, int64_t* __restrict to) {
    for (size_t i = 0; i < CROP; ++i) to[i] = from[i];
  }
  std::optional<size_t> size() const override { return CROPS; }
  std::shared_ptr<Tokens> all;
};

// Builds the loader, warms up and answers the parent. With `first_batch`, each pass builds a loader and takes one batch (first-batch).
// `verify(batch, ledger)` checks a whole batch; `check` reads only what the checksum needs.
template <class Sampler, class Dataset, class Verify, class Check>
void serve(const Options& options, data::DataLoaderOptions loading, bool first_batch, Dataset dataset, Verify verify,
           Check check) {
  loading.workers(options.workers);
  const size_t size = *dataset.size();
  const size_t batch_size = loading.batch_size();
  auto build = [&] { return data::make_data_loader<Sampler>(dataset, loading); };
  std::unique_ptr<std::decay_t<decltype(*build())>> loader;
  // Move the batch out of the loader's iterator, which would keep it alive until the next one is made.
  auto walk = [&](auto visit) {
    if (first_batch || !loader) loader = build();
    size_t batches = 0;
    for (auto& held : *loader) {
      auto batch = std::move(held);
      visit(batch);
      ++batches;
      if (first_batch) break;
    }
    return batches;
  };

  // In a real program, the first batch is in new pages. glibc would raise the size from which allocations get new
  // pages, so it is fixed here.
  if (first_batch) mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  Ledger ledger(size, std::is_same_v<Sampler, Sequential> && loading.enforce_ordering());
  walk([&](auto& batch) { verify(batch, ledger); });
  ledger.close(first_batch ? batch_size : loading.drop_last() ? size / batch_size * batch_size : size);
  std::printf("{\"ready\":true,\"peer\":\"%s\",\"version\":\"%s\"}\n", options.peer.c_str(), TORCH_VERSION);
  std::fflush(stdout);

  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    if (line != "pass") wrong("unknown command " + line);
    if (first_batch) loader.reset();
    int64_t total = 0;
    const auto begin = Clock::now();
    const size_t batches = walk([&](auto& batch) { total += check(batch); });
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::printf("{\"batches\":%zu,\"seconds\":%.9f,\"check\":%" PRId64 "}\n", batches, seconds, total);
    std::fflush(stdout);
  }
}

void absent(const char* why) { std::printf("{\"absent\":\"%s\"}\n", why); }

void run(const Options& o) {
  const std::string& w = o.workload;
  if (w == "empty-items") {
    auto look = [](auto& batch, Ledger& ledger) { verify(batch, ledger); };
    auto check = [](auto& batch) { return total_of(batch); };
    if (o.bulk()) return serve<Sequential>(o, 1, false, BulkNumbers(), look, check);
    return serve<Sequential>(o, 1, false, Numbers(false), look, check);
  }
  if (w == "small-images" || w == "large-images" || w == "first-batch") {
    auto all = w == "small-images" ? std::make_shared<Images>(60000, std::vector<int64_t>{28, 28})
                         : std::make_shared<Images>(2000, std::vector<int64_t>{3, 224, 224});
    auto loading = data::DataLoaderOptions(w == "small-images" ? 64 : 32).drop_last(w == "small-images");
    auto look = [all](auto& batch, Ledger& ledger) { all->verify(batch, ledger); };
    auto check = [](auto& batch) { return total_of(batch.target); };
    if (o.bulk()) return serve<Random>(o, loading, w == "first-batch", BulkImages(all), look, check);
    return serve<Random>(o, loading, w == "first-batch", ImageRows(all).map(data::transforms::Stack<>()), look, check);
  }
  if (w == "token-crops") {
    auto all = std::make_shared<Tokens>(o.data + "/tokens.u16");
    auto look = [all](auto& batch, Ledger& ledger) { all->verify(batch, ledger); };
    auto check = [](auto& batch) { return first_tokens(batch.data); };
    if (o.bulk()) return serve<Sequential>(o, 16, false, BulkCrops(all), look, check);
    return serve<Sequential>(o, 16, false, CropRows(all).map(data::transforms::Stack<>()), look, check);
  }
  if (w == "jpegs") return absent("libtorch does not decode JPEGs");
  const std::string slow = "slow-samples-";
  if (w.rfind(slow, 0) == 0) {
    if (o.bulk()) return absent("the same as libtorch: the workload has no bulk gather");
    const auto ends = [&](const std::string& with) { return w.size() > with.size() && w.substr(w.size() - with.size()) == with; };
    auto loading = data::DataLoaderOptions(std::stoul(w.substr(slow.size()))).enforce_ordering(!ends("arrival"));
    if (ends("prefetch-16")) loading.max_jobs(16 * o.workers);
    auto look = [](auto& batch, Ledger& ledger) { verify(batch, ledger); };
    auto check = [](auto& batch) { return total_of(batch); };
    return serve<Sequential>(o, loading, false, Numbers(true), look, check);
  }
  absent("this peer does not support this workload");
}

int main(int count, char** words) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < count; i += 2) flags[words[i]] = words[i + 1];
  Options options{flags["--peer"], flags["--workload"], flags["--data"]};
  const std::string workers = flags["--workers"];
  const bool number = !workers.empty() && workers.find_first_not_of("0123456789") == std::string::npos;
  if (count != 9 || flags.size() != 4 || !number || (options.peer != "libtorch" && !options.bulk())) {
    std::cerr << "use: loader --peer libtorch|libtorch-bulk --workload W --workers N --data DIR\n";
    return 2;
  }
  try {
    options.workers = std::stoul(workers);
    at::set_num_threads(1);  // only the loader's workers run in parallel
    torch::manual_seed(0);
    run(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
