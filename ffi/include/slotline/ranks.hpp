// The ranks of a distributed run.
#ifndef SLOTLINE_RANKS_HPP
#define SLOTLINE_RANKS_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "error.hpp"

namespace slotline {

/// The rank of this process among the processes that train together: `options.ranks(slotline::ranks::from_env())`, or
/// `options.ranks({2, 8})`.
struct ranks {
  /// The index of this process, from 0.
  std::size_t rank = 0;
  /// The number of processes.
  std::size_t world_size = 1;
  /// The index of this process and the number of processes on this machine, if the launcher reports
  /// them.
  std::optional<std::size_t> local_rank{};
  std::optional<std::size_t> local_world_size{};
  /// The launcher whose variables were found, such as "torchrun"; empty if there is none.
  std::string launcher{};

  /// Reads the rank of this process from the environment, as described at
  /// `slotline_ranks_from_env`; rank 0 of 1 without a launcher. Throws slotline::error if variables
  /// are incomplete or contradictory.
  static ranks from_env() {
    ranks out;
    try_from_env(out).raise();
    return out;
  }
  /// Works like `from_env`, without exceptions.
  static status try_from_env(ranks& out) {
    slotline_ranks raw;
    raw.struct_size = sizeof raw;
    status result = detail::call(slotline_ranks_from_env, &raw);
    if (!result) return result;
    out = ranks{raw.rank, raw.world_size, {}, {}, {}};
    if (raw.local_rank >= 0) out.local_rank = static_cast<std::size_t>(raw.local_rank);
    if (raw.local_world_size >= 0) out.local_world_size = static_cast<std::size_t>(raw.local_world_size);
    if (raw.launcher) out.launcher = raw.launcher;
    return result;
  }
};

/// Merges the states of all ranks (`loader.state()`) into one state, which any number of ranks can
/// load. Does not throw.
inline status try_merge_states(const std::vector<std::string>& states, std::string& out) {
  std::vector<const std::uint8_t*> data;
  std::vector<std::size_t> lens;
  for (const std::string& state : states) {
    data.push_back(reinterpret_cast<const std::uint8_t*>(state.data()));
    lens.push_back(state.size());
  }
  slotline_bytes* raw = nullptr;
  status result = detail::call(slotline_state_merge, data.data(), lens.data(), states.size(), &raw);
  const detail::owned<slotline_bytes, slotline_bytes_free> bytes(raw);
  if (raw) out.assign(reinterpret_cast<const char*>(slotline_bytes_data(raw)), slotline_bytes_len(raw));
  return result;
}
/// Merges the states of all ranks. Throws slotline::error, with code::state if the states are not
/// from the same run and the same step.
inline std::string merge_states(const std::vector<std::string>& states) {
  std::string out;
  try_merge_states(states, out).raise();
  return out;
}

}  // namespace slotline

#endif
