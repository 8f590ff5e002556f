// Loads the digits with two or more processes of MPI, each of which loads its share. After 5 steps,
// their states are merged into one, from which any number of processes can continue. Checks that all
// processes take equally many steps, and that no digit is missed.
//
//     mpicxx -std=c++17 mpi.cpp -o mpi $(pkg-config --cflags --libs slotline) && mpirun -n 2 ./mpi

#include <mpi.h>
#include <slotline.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

/// Returns whether all processes have another batch. Loaders that divide a pass among ranks end at
/// the same step. Streams may end at different steps, and without this call a process that still has
/// a batch would wait for the others forever.
bool all_have(bool one) {
  int mine = one, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}

/// Returns the states of all processes, in process 0.
std::vector<std::string> gather(const std::string& state, int world_size) {
  int length = static_cast<int>(state.size());
  std::vector<int> lengths(static_cast<std::size_t>(world_size)), starts;
  MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  int total = 0;
  for (int each : lengths) {
    starts.push_back(total);
    total += each;
  }
  std::string bytes(static_cast<std::size_t>(total), '\0');
  MPI_Gatherv(state.data(), length, MPI_CHAR, bytes.data(), lengths.data(), starts.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
  std::vector<std::string> states;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    states.push_back(bytes.substr(static_cast<std::size_t>(starts[i]), static_cast<std::size_t>(lengths[i])));
  return states;
}

std::string broadcast(std::string bytes) {
  int length = static_cast<int>(bytes.size());
  MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
  bytes.resize(static_cast<std::size_t>(length));
  MPI_Bcast(bytes.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD);
  return bytes;
}

int run() {
  const auto ranks = slotline::ranks::from_env();
  int rank = 0, world_size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (ranks.rank != std::size_t(rank) || ranks.world_size != std::size_t(world_size)) {
    std::fprintf(stderr, "MPI has rank %d of %d\n", rank, world_size);
    return 1;
  }

  const auto options = slotline::options().batch_size(32).shuffle().num_workers(1).ranks(ranks);
  slotline::loader first(slotline::dataset::open("digits"), options);
  std::vector<int> seen(1797);
  std::string state;
  int steps = 0;
  for (auto& batch : first) {
    for (std::int64_t index : batch.indices()) ++seen[static_cast<std::size_t>(index)];
    if (++steps == 5) {
      state = first.state();
      break;
    }
  }

  // In a real program process 0 writes this to a file.
  const auto states = gather(state, world_size);
  state = broadcast(rank == 0 ? slotline::merge_states(states) : std::string());

  slotline::loader resumed(slotline::dataset::open("digits"), options);
  resumed.load_state(state);
  auto pass = resumed.epoch();
  auto batch = pass.begin();
  while (all_have(batch != pass.end())) {
    for (std::int64_t index : batch->indices()) ++seen[static_cast<std::size_t>(index)];
    ++steps;
    ++batch;
  }

  std::vector<int> all(seen.size());
  MPI_Allreduce(seen.data(), all.data(), static_cast<int>(seen.size()), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int missed = 0, repeated = 0;
  for (int times : all) {
    missed += times == 0;
    repeated += times - 1;
  }
  if (missed > 0 || repeated >= world_size) return 1;
  if (rank == 0)
    std::printf("%d processes, %d steps each: %zu digits, %d of them twice\n", world_size, steps, all.size(), repeated);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int result = 1;
  try {
    result = run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  if (result != 0) MPI_Abort(MPI_COMM_WORLD, result);
  MPI_Finalize();
  return result;
}
