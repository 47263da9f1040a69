#include "registered_tensors.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::torch_c10d {

namespace {

constexpr std::size_t mostBlocks = 1024;

/// What a rank asks for, and the blocks that it could take.
struct Proposal {
  std::uint64_t bytes = 0;
  std::array<std::uint64_t, mostBlocks / 64> free{};

  void add(std::size_t block) { free[block / 64] |= std::uint64_t{1} << block % 64; }
  bool has(std::size_t block) const { return (free[block / 64] >> block % 64 & 1) != 0; }
};

}  // namespace

struct RegisteredTensors::Table {
  struct Entry {
    std::size_t bytes;
    std::int64_t stream;
    bool isFree;
    RegisteredBlock block;
  };
  std::mutex mutex;
  std::vector<Entry> entries;
};

RegisteredTensors::RegisteredTensors(nccl::RankSet ranks, std::function<RegisteredBlock(std::size_t)> registerMemory)
    : ranks_(std::move(ranks)), registerMemory_(std::move(registerMemory)), table_(std::make_shared<Table>()) {}

at::Tensor RegisteredTensors::allocate(std::int64_t elements, const at::TensorOptions& options, std::int64_t stream) {
  if (elements < 0) throw Error("allocate_tensor: the size is negative", ErrorCode::InvalidUsage);
  Proposal own;
  own.bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  {
    const std::lock_guard lock(table_->mutex);
    for (std::size_t i = 0; i < table_->entries.size(); ++i) {
      const Table::Entry& entry = table_->entries[i];
      if (entry.isFree && entry.bytes == own.bytes && entry.stream == stream) own.add(i);
    }
  }
  const auto ranks = static_cast<std::size_t>(ranks_.size());
  std::vector<Proposal> all(ranks);
  const auto answers =
      detail::GroupAgreement(*ranks_.bootstrap(), "the process group").runStep("allocate a tensor", [&] {
        const auto* const bytes = reinterpret_cast<const char*>(&own);
        return std::vector<char>(bytes, bytes + sizeof(own));
      });
  for (std::size_t r = 0; r < ranks; ++r) std::memcpy(&all[r], answers[r].data(), sizeof(Proposal));
  for (std::size_t r = 0; r < ranks; ++r) {
    if (all[r].bytes == all[0].bytes) continue;
    throw Error("allocate_tensor: rank " + std::to_string(r) + " asks for " + std::to_string(all[r].bytes) +
                    " bytes, and rank 0 for " + std::to_string(all[0].bytes) + ": all ranks ask for the same",
                ErrorCode::InvalidUsage);
  }
  if (own.bytes == 0) return at::empty({elements}, options);
  std::size_t chosen = 0;
  const auto isFreeOnAll = [&] {
    return std::all_of(all.begin(), all.end(), [&](const Proposal& proposal) { return proposal.has(chosen); });
  };
  while (chosen < mostBlocks && !isFreeOnAll()) ++chosen;
  void* data = nullptr;
  if (chosen == mostBlocks) {
    RegisteredBlock made = registerMemory_(own.bytes);
    data = made.memory.get();
    const std::lock_guard lock(table_->mutex);
    chosen = table_->entries.size();
    if (chosen == mostBlocks) {
      throw Error("allocate_tensor: there are " + std::to_string(mostBlocks) + " tensors already: allocate fewer",
                  ErrorCode::InvalidUsage);
    }
    table_->entries.push_back({own.bytes, stream, false, std::move(made)});
  } else {
    const std::lock_guard lock(table_->mutex);
    table_->entries[chosen].isFree = false;
    data = table_->entries[chosen].block.memory.get();
  }
  return at::from_blob(
      data, {elements},
      [table = table_, chosen](void*) {
        const std::lock_guard lock(table->mutex);
        table->entries[chosen].isFree = true;
      },
      options);
}

}  // namespace mscclpp::torch_c10d
