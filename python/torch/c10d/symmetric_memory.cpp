#include "symmetric_memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "interpreter_lock.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::torch_c10d {

namespace {

constexpr std::size_t alignment = 128;  // of the signal pad

std::size_t padOffsetOf(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
}

at::Tensor toDevice(const void* data, std::size_t count, at::ScalarType type, const c10::Device& device) {
  auto made = at::empty({static_cast<std::int64_t>(count)}, at::TensorOptions().dtype(type));
  std::memcpy(made.data_ptr(), data, count * c10::elementSize(type));
  return made.to(device);
}

}  // namespace

SymmetricBlock::SymmetricBlock(std::shared_ptr<void> memoryOf, std::size_t bytesOf, c10::Device deviceOf)
    : memory(std::move(memoryOf)),
      bytes(bytesOf),
      padOffset(padOffsetOf(bytesOf)),
      padBytes(c10d::symmetric_memory::get_signal_pad_size()),
      device(deviceOf) {}

std::size_t SymmetricBlock::allocationBytes(std::size_t bytes) {
  return padOffsetOf(bytes) + c10d::symmetric_memory::get_signal_pad_size();
}

SymmetricBlock::~SymmetricBlock() {
  if (mappings_.empty() || device.is_cpu()) return;
  try {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  } catch (...) {  // the driver has shut down
  }
}

const SymmetricMapping& SymmetricBlock::mappingFor(const c10::intrusive_ptr<Backend>& backend) {
  const std::lock_guard lock(mutex_);
  for (const auto& each : mappings_) {
    if (each->backend._unsafe_get_target() == backend.get()) return *each;
  }
  const int ranks = backend->getSize();
  if (ranks > maxTeamSize) {
    throw Error("symmetric memory is for up to " + std::to_string(maxTeamSize) + " ranks, and the group has " +
                    std::to_string(ranks),
                ErrorCode::InvalidUsage);
  }
  auto registration = backend->executorOf(device)->registerBuffer(memory.get(), padOffset + padBytes);
  auto made = std::make_unique<SymmetricMapping>(
      SymmetricMapping{c10::weak_intrusive_ptr<Backend>(backend), std::move(registration), {}, {}, {}, {}});
  made->memory = made->registration.buffer().window();
  std::vector<std::int64_t> addresses;
  for (const std::size_t offset : {std::size_t{0}, padOffset}) {
    for (int r = 0; r < ranks; ++r) addresses.push_back(reinterpret_cast<std::int64_t>(made->memory.at(r, offset)));
  }
  made->deviceAddresses = toDevice(addresses.data(), addresses.size(), at::kLong, device);
  for (const auto rank : backend->ownOptions()->global_ranks_in_group) {
    made->globalRanks.push_back(static_cast<int>(rank));
  }
  made->deviceGlobalRanks = toDevice(made->globalRanks.data(), made->globalRanks.size(), at::kInt, device);
  mappings_.push_back(std::move(made));
  return *mappings_.back();
}

SymmetricMemory::SymmetricMemory(std::shared_ptr<SymmetricBlock> block, const SymmetricMapping& mapping,
                                 std::size_t offset)
    : block_(std::move(block)),
      mapping_(mapping),
      team_(mapping.registration.buffer().rank(), mapping.registration.buffer().nRanks()),
      offset_(offset) {}

std::vector<void*> SymmetricMemory::addresses(std::size_t offset) const {
  std::vector<void*> all;
  for (int r = 0; r < team_.size(); ++r) all.push_back(mapping_.memory.at(r, offset));
  return all;
}

std::vector<void*> SymmetricMemory::get_buffer_ptrs() {
  return addresses(0);
}
std::vector<void*> SymmetricMemory::get_signal_pad_ptrs() {
  return addresses(block_->padOffset);
}
void** SymmetricMemory::get_buffer_ptrs_dev() {
  return static_cast<void**>(mapping_.deviceAddresses.data_ptr());
}
void** SymmetricMemory::get_signal_pad_ptrs_dev() {
  return get_buffer_ptrs_dev() + team_.size();
}

const std::vector<int>& SymmetricMemory::get_rank_to_global_rank() {
  if (mapping_.globalRanks.empty()) {
    throw Error("the group does not know the global ranks of its members: make it with the backend mscclpp",
                ErrorCode::InvalidUsage);
  }
  return mapping_.globalRanks;
}
int* SymmetricMemory::get_rank_to_global_rank_dev() {
  get_rank_to_global_rank();
  return mapping_.deviceGlobalRanks.data_ptr<int>();
}

std::uint64_t SymmetricMemory::bitOf(const char* call, int peer) const {
  if (peer < 0 || peer >= team_.size()) {
    throw Error(std::string(call) + ": there is no rank " + std::to_string(peer) + ", the group has ranks 0 to " +
                    std::to_string(team_.size() - 1),
                ErrorCode::InvalidUsage);
  }
  return std::uint64_t{1} << peer;
}

void SymmetricMemory::barrier(int channel, std::size_t timeoutMilliseconds) {
  std::uint64_t peers = 0;
  for (int r = 0; r < team_.size(); ++r) peers |= r == team_.rank() ? 0 : bitOf("barrier", r);
  exchange("barrier", channel, peers, peers, timeoutMilliseconds);
}
void SymmetricMemory::put_signal(int to, int channel, std::size_t timeoutMilliseconds) {
  exchange("put_signal", channel, bitOf("put_signal", to), 0, timeoutMilliseconds);
}
void SymmetricMemory::wait_signal(int from, int channel, std::size_t timeoutMilliseconds) {
  exchange("wait_signal", channel, 0, bitOf("wait_signal", from), timeoutMilliseconds);
}

void SymmetricMemory::exchange(const char* call, int channel, std::uint64_t to, std::uint64_t from,
                               std::size_t timeoutMilliseconds) {
  const std::size_t channels = kernels::PadChannel::channelsOf(block_->padBytes, team_.size());
  if (channel < 0 || static_cast<std::size_t>(channel) >= channels) {
    throw Error(std::string(call) + ": there is no channel " + std::to_string(channel) + ", the signal pads of " +
                    std::to_string(block_->padBytes) + " bytes have " + std::to_string(channels) +
                    " channels: call set_signal_pad_size() before the memory is allocated",
                ErrorCode::InvalidUsage);
  }
  const auto backend = mapping_.backend.lock();
  if (!backend) throw Error("the process group of the symmetric memory was destroyed", ErrorCode::Aborted);
  kernels::ExchangePadSignals::Args args{};
  args.channel = {team_, mapping_.memory.subWindow(block_->padOffset), channel};
  args.to = to;
  args.from = from;
  const WithoutInterpreterLock unlocked;
  backend->executorOf(block_->device)->exchangeSignals(args, std::chrono::milliseconds(timeoutMilliseconds));
}

}  // namespace mscclpp::torch_c10d
