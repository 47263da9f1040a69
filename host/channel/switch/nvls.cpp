#include "mscclpp/host/channel/nvls.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>

#include "host/base/byte_stream.hpp"
#include "host/base/process_identity.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/channel/switch/multicast_group.hpp"
#include "host/communicator/group_setup.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/memory/device_memory.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"

namespace mscclpp {

namespace {

using detail::ByteReader;
using detail::ByteWriter;

constexpr detail::WireFormat nvlsRequestFormat{"NvlsConnection's request", 0x4e56494e, 1};
constexpr detail::WireFormat joinInfoFormat{"NvlsConnection", 0x4e56494f, 1};
constexpr detail::WireFormat bindFormat{"NvlsConnection's offer", 0x4e564f46, 1};

constexpr std::size_t semaphoreBytes = switchChannelSemaphores * SwitchChannelHandle::semaphoreStride;
// If the granularity leaves no more space after the buffer, counters for this many channels fit there.
constexpr std::size_t minChannels = 64;
// Far more than a switch connects: a larger number is invalid.
constexpr int maxRanks = 1 << 16;

/// The arguments of a rank, compared with those of the others.
struct ConnectRequest {
  std::vector<int> ranks;
  std::uint64_t bufferSize = 0;
  DeviceType where = DeviceType::Unknown;
  std::uint64_t granularity = 0;
  std::string deviceKey;

  std::vector<char> write() const {
    ByteWriter writer(nvlsRequestFormat);
    writer.put(bufferSize).put(static_cast<std::uint32_t>(where)).put(granularity).put(detail::hostHash());
    writer.putBytes({deviceKey.begin(), deviceKey.end()}).put(static_cast<std::uint64_t>(ranks.size()));
    for (const int rank : ranks) writer.put(rank);
    return writer.finish();
  }
};

/// Throws the same error on every rank if two requests differ, or two ranks share a GPU.
std::size_t checkConsistent(const ConnectRequest& own, const std::vector<std::vector<char>>& all,
                            const std::vector<int>& ranks) {
  const auto fail = [&](std::size_t position, const std::string& why) {
    throw Error("connectNvlsCollective: rank " + std::to_string(ranks[position]) + " " + why, ErrorCode::InvalidUsage);
  };
  std::size_t granularity = 1;
  std::vector<std::pair<std::uint64_t, std::vector<char>>> deviceKeys;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ByteReader reader(all[i], nvlsRequestFormat);
    const auto bufferSize = reader.get<std::uint64_t>();
    const auto where = reader.get<std::uint32_t>();
    granularity = std::max<std::size_t>(granularity, reader.get<std::uint64_t>());
    const auto host = reader.get<std::uint64_t>();
    const auto deviceKey = reader.getBytes();
    const auto count = reader.get<std::uint64_t>();
    bool sameRanks = count == own.ranks.size();
    for (std::size_t r = 0; sameRanks && r < count; ++r) sameRanks = reader.get<int>() == own.ranks[r];
    if (!sameRanks) fail(i, "names other ranks than this one; every rank of the group must name the same");
    if (where != static_cast<std::uint32_t>(own.where)) fail(i, "asks for another kind of device than this one");
    if (bufferSize != own.bufferSize) {
      fail(i, "asks for " + std::to_string(bufferSize) + " bytes, and this one for " + std::to_string(own.bufferSize) +
                  "; every rank must ask for the same");
    }
    const auto at = std::find(deviceKeys.begin(), deviceKeys.end(), std::pair{host, deviceKey});
    if (!deviceKey.empty() && at != deviceKeys.end())
      fail(i, "uses the same GPU as rank " + std::to_string(ranks[static_cast<std::size_t>(at - deviceKeys.begin())]) +
                  "; multicast requires a GPU of its own for each rank");
    deviceKeys.emplace_back(host, deviceKey);
  }
  return granularity;
}

/// The ranks of a group, in memory that the device can read.
std::shared_ptr<const std::int32_t> copyForDevice(const std::vector<int>& ranks, DeviceType where) {
  const std::size_t bytes = ranks.size() * sizeof(std::int32_t);
  const std::shared_ptr<void> memory = where == DeviceType::GPU ? detail::allocateGpuVisibleHostMemory(bytes)
                                                                : std::make_shared<std::int32_t[]>(ranks.size());
  auto* copy = static_cast<std::int32_t*>(memory.get());
  std::copy(ranks.begin(), ranks.end(), copy);
  return {memory, copy};
}

}  // namespace

// Members are destroyed in reverse order: mappings before the memory that they map.
struct SwitchChannel::State {
  std::shared_ptr<const void> connection;
  std::shared_ptr<const void> bound;
  detail::MulticastMapping mapping;
  SwitchChannelHandle handle;
};

struct NvlsConnection::State {
  State(std::shared_ptr<Communicator> owner, const std::vector<int>& ranks)
      : communicator(std::move(owner)), agreement(*communicator->bootstrap(), ranks, "connectNvlsCollective") {}

  std::shared_ptr<Communicator> communicator;
  detail::GroupAgreement agreement;
  Device device;
  std::size_t granularity = 1;
  std::size_t bufferSize = 0;
  std::size_t bufferUsed = 0;
  std::size_t counterBytes = 0;
  std::size_t channels = 0;

  /// State that channels need besides their own memory; it may outlive the connection.
  struct Shared {
    std::unique_ptr<detail::MulticastGroup> group;
    std::shared_ptr<WaitMonitor> monitor;
    std::shared_ptr<const std::int32_t> ranks;
    std::shared_ptr<void> counters;
    std::shared_ptr<void> generations;
    std::shared_ptr<const void> bound;
    detail::MulticastMapping mapping;
  };
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();

  struct BoundMemory {
    std::shared_ptr<const void> owner;
    detail::MulticastMapping mapping;
  };

  /// Binds memory of all ranks at an offset of the object. Each step starts after all ranks have completed the previous
  /// one.
  BoundMemory bind(const detail::GroupSetup& setup, std::size_t offset, void* data, std::size_t bytes) {
    detail::MulticastGroup& group = *shared->group;
    const auto messages = agreement.runStep("offer memory", [&] {
      if (data == nullptr || bytes == 0) throw Error("the size must be at least one byte", ErrorCode::InvalidUsage);
      const auto address = reinterpret_cast<std::uintptr_t>(data);
      if (address % granularity != 0 || bytes % granularity != 0) {
        throw Error("address and size must be multiples of " + std::to_string(granularity) +
                        " bytes; pass data() and bytes() of a GpuBuffer, or of a HostBuffer on CPUs",
                    ErrorCode::InvalidUsage);
      }
      if (bytes > roundUp(bufferSize, granularity) + counterBytes - offset) {
        throw Error(std::to_string(bytes) + " bytes are more than is left of the connection's " +
                        std::to_string(bufferSize) + "; connect with a larger buffer size",
                    ErrorCode::InvalidUsage);
      }
      ByteWriter writer(bindFormat);
      writer.put(static_cast<std::uint64_t>(bytes)).putBytes(group.exportMemory(data, bytes));
      return writer.finish();
    });
    std::vector<std::vector<char>> exports;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      ByteReader reader(messages[i], bindFormat);
      if (const auto theirs = reader.get<std::uint64_t>(); theirs != bytes) {
        throw Error("bindMemory: rank " + std::to_string(agreement.ranks()[i]) + " exports " + std::to_string(theirs) +
                        " bytes, and this one " + std::to_string(bytes) + "; every rank must offer the same",
                    ErrorCode::InvalidUsage);
      }
      exports.push_back(reader.getBytes());
    }
    BoundMemory result;
    agreement.runStep("attach memory", [&] {
      result.owner = group.bind(offset, data, bytes);
      return std::vector<char>();
    });
    agreement.runStep("map memory", [&] {
      result.mapping = setup.callPeers(
          [&](const detail::Deadline& deadline) { return group.map(offset, bytes, exports, deadline); });
      return std::vector<char>();
    });
    return result;
  }
};

SwitchChannel::SwitchChannel(void* devicePtr, std::shared_ptr<void> mcPtr, std::size_t bytes) {
  SwitchChannelHandle handle{};
  handle.devicePtr = devicePtr;
  handle.mcPtr = mcPtr.get();
  handle.multicast = {static_cast<std::byte*>(mcPtr.get()), 0};
  handle.bufferSize = bytes;
  state_ = std::make_shared<State>(State{nullptr, std::move(mcPtr), {}, handle});
}

const SwitchChannel::State& SwitchChannel::state() const {
  if (!state_) {
    throw Error("this switch channel is empty: NvlsConnection::bindMemory makes one", ErrorCode::InvalidUsage);
  }
  return *state_;
}
SwitchChannelHandle SwitchChannel::deviceHandle() const {
  return state().handle;
}
void* SwitchChannel::getDevicePtr() const {
  return state().handle.devicePtr;
}

// How ranks without a common bootstrap connect: over a bootstrap of their own, ranked by the order of joining.
struct NvlsConnection::JoinInfo {
  UniqueId token;
  std::size_t bufferSize;
  int ranks;
  DeviceType where;
  HostBuffer counter;            // the root's: the number of ranks that have joined
  RegisteredMemory joinCounter;  // mapped by each rank
  int rank = 0;

  int join() {
    return static_cast<int>(std::atomic_ref(*static_cast<std::uint32_t*>(joinCounter.data())).fetch_add(1));
  }
};

NvlsConnection::NvlsConnection(std::size_t bufferSize, int numDevices, DeviceType where)
    : joinInfo_(std::make_unique<JoinInfo>(JoinInfo{TcpBootstrap::createUniqueId(), bufferSize, numDevices, where,
                                                    HostBuffer(sizeof(std::uint32_t)), RegisteredMemory()})) {
  if (numDevices < 1 || numDevices > maxRanks) {
    throw Error(
        "NvlsConnection: it takes 1 to " + std::to_string(maxRanks) + " devices, not " + std::to_string(numDevices),
        ErrorCode::InvalidUsage);
  }
  joinInfo_->joinCounter =
      Context::create()->registerMemory(joinInfo_->counter.data(), sizeof(std::uint32_t), Transport::SharedMemory);
  joinInfo_->rank = joinInfo_->join();
}

NvlsConnection::NvlsConnection(const std::vector<char>& data) : joinInfo_(std::make_unique<JoinInfo>()) {
  ByteReader reader(data, joinInfoFormat);
  JoinInfo& it = *joinInfo_;
  it.token = reader.get<UniqueId>();
  it.bufferSize = reader.get<std::uint64_t>();
  it.ranks = reader.get<std::int32_t>();
  it.where = reader.getEnum(static_cast<DeviceType>(static_cast<int>(DeviceType::GPU) + 1));
  it.joinCounter = RegisteredMemory::deserialize(reader.getBytes());
  reader.expectEnd();
  if (it.ranks < 1 || it.ranks > maxRanks || it.where == DeviceType::Unknown) reader.fail("a field is out of range");
  const auto counter = reinterpret_cast<std::uintptr_t>(it.joinCounter.data());
  if (counter == 0 || counter % alignof(std::uint32_t) != 0 || it.joinCounter.size() != sizeof(std::uint32_t)) {
    reader.fail("the memory that they name is not a counter of 4 aligned bytes");
  }
  it.rank = it.join();
  if (it.rank >= it.ranks) {
    throw Error("NvlsConnection: the root has made it for " + std::to_string(it.ranks) + " ranks, and all have joined",
                ErrorCode::InvalidUsage);
  }
}

NvlsConnection::NvlsConnection(std::unique_ptr<State> state) : state_(std::move(state)) {}
NvlsConnection::~NvlsConnection() = default;

std::vector<char> NvlsConnection::serialize() const {
  if (!joinInfo_ || joinInfo_->rank != 0) {
    throw Error("NvlsConnection::serialize: only of the connection that the root has made with a buffer size",
                ErrorCode::InvalidUsage);
  }
  ByteWriter writer(joinInfoFormat);
  writer.put(joinInfo_->token).put(static_cast<std::uint64_t>(joinInfo_->bufferSize)).put(joinInfo_->ranks);
  writer.put(static_cast<std::uint32_t>(joinInfo_->where)).putBytes(joinInfo_->joinCounter.serialize());
  return writer.finish();
}

void NvlsConnection::attachBarrier(int nRanks) const {
  const int ranks = joinInfo_ ? joinInfo_->ranks : state_->agreement.size();
  if (nRanks != ranks) {
    throw Error("NvlsConnection::attachBarrier: the connection is of " + std::to_string(ranks) + " ranks, not " +
                    std::to_string(nRanks),
                ErrorCode::InvalidUsage);
  }
}

void NvlsConnection::joinGroup() {
  if (state_) return;
  const JoinInfo& it = *joinInfo_;
  auto bootstrap = std::make_shared<TcpBootstrap>(it.rank, it.ranks);
  bootstrap->initializeUntil(detail::Deadline::after(env()->bootstrapTimeout), it.token);
  std::vector<int> ranks(static_cast<std::size_t>(it.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  state_ = std::move(
      connectNvlsCollectiveOn(it.where, std::make_shared<Communicator>(bootstrap), ranks, it.bufferSize)->state_);
}

const NvlsConnection::State& NvlsConnection::state() const {
  if (!state_)
    throw Error("NvlsConnection: the ranks are connected by bindMemory: call it first", ErrorCode::InvalidUsage);
  return *state_;
}

const std::vector<int>& NvlsConnection::ranks() const {
  return state().agreement.ranks();
}
std::size_t NvlsConnection::bufferSize() const {
  return state().bufferSize;
}
std::size_t NvlsConnection::granularity() const {
  return state().granularity;
}

SwitchChannel NvlsConnection::bindMemory(void* data, std::size_t bytes) {
  joinGroup();
  State& state = *state_;
  const detail::GroupSetup setup(*state.communicator);
  const std::size_t counters = state.channels * semaphoreBytes;
  if (counters + semaphoreBytes > state.counterBytes) {
    throw Error(
        "bindMemory: one connection serves " + std::to_string(state.channels) + " channels; make another connection",
        ErrorCode::InvalidUsage);
  }
  auto bound = state.bind(setup, state.counterBytes + state.bufferUsed, data, bytes);
  const auto& shared = *state.shared;
  SwitchChannelHandle handle{};
  handle.devicePtr = data;
  handle.multicast = bound.mapping.address;
  handle.bufferSize = bytes;
  handle.mcPtr = state.device.type == DeviceType::GPU ? handle.multicast.base + handle.multicast.offset : nullptr;
  SwitchSemaphoreHandle& barrier = handle.barrier_;
  barrier.mcBarrierFlag = shared.mapping.address + counters;
  barrier.localBarrierFlag = static_cast<std::uint64_t*>(shared.counters.get()) + counters / sizeof(std::uint64_t);
  barrier.barrierGen = static_cast<std::uint64_t*>(shared.generations.get()) + counters / sizeof(std::uint64_t);
  barrier.waitControl = shared.monitor->deviceControl();
  barrier.waitTimeout = static_cast<std::uint64_t>(std::chrono::nanoseconds(env()->waitTimeout).count());
  barrier.nRanks = state.agreement.size();
  barrier.rank = state.communicator->bootstrap()->getRank();
  barrier.jobRanks = shared.ranks.get();
  state.bufferUsed += bytes;
  ++state.channels;
  return SwitchChannel(
      std::make_shared<SwitchChannel::State>(SwitchChannel::State{state.shared, bound.owner, bound.mapping, handle}));
}

std::shared_ptr<NvlsConnection> connectNvlsCollective(std::shared_ptr<Communicator> communicator,
                                                      std::vector<int> ranks, std::size_t bufferSize) {
  return connectNvlsCollectiveOn(DeviceType::GPU, std::move(communicator), std::move(ranks), bufferSize);
}

std::shared_ptr<NvlsConnection> connectNvlsCollectiveOn(DeviceType where, std::shared_ptr<Communicator> communicator,
                                                        std::vector<int> ranks, std::size_t bufferSize) {
  if (!communicator) throw Error("connectNvlsCollective: the communicator must not be null", ErrorCode::InvalidUsage);
  const detail::GroupSetup setup(*communicator);
  auto state = std::make_unique<NvlsConnection::State>(communicator, ranks);
  const auto& agreement = state->agreement;
  auto& shared = *state->shared;
  ConnectRequest request{agreement.ranks(), bufferSize, where, 0, {}};
  const auto requests = agreement.runStep("prepare", [&] {
    if (bufferSize == 0 || bufferSize > SIZE_MAX / 4)
      throw Error("the buffer size must be at least 1 and fit into memory", ErrorCode::InvalidUsage);
    shared.group = where == DeviceType::CPU ? detail::makeCpuMulticastGroup(communicator->context())
                                            : detail::makeGpuMulticastGroup();
    state->device = where == DeviceType::CPU ? Device(where) : Device(where, detail::currentGpu());
    request.granularity = shared.group->granularity();
    request.deviceKey = shared.group->deviceKey();
    return request.write();
  });
  state->granularity = checkConsistent(request, requests, agreement.ranks());
  state->bufferSize = bufferSize;
  state->counterBytes = roundUp(minChannels * semaphoreBytes, state->granularity);

  const bool root = agreement.groupRank() == 0;
  const auto objects = agreement.runStep("create the multicast object", [&] {
    const std::size_t total = state->counterBytes + roundUp(bufferSize, state->granularity);
    return root ? shared.group->create(total, agreement.size()) : std::vector<char>();
  });
  agreement.runStep("import the multicast object", [&] {
    if (!root) {
      setup.callPeers([&](const detail::Deadline& deadline) { shared.group->import(objects.front(), deadline); });
    }
    return std::vector<char>();
  });
  agreement.runStep("join the multicast object", [&] {
    shared.group->addDevice();
    return std::vector<char>();
  });
  agreement.runStep("allocate counters", [&] {
    shared.counters = detail::allocateSharedMemory(state->device, state->counterBytes);
    shared.generations = detail::allocateSharedMemory(state->device, state->counterBytes);
    shared.monitor = communicator->monitor(where);
    shared.ranks = copyForDevice(agreement.ranks(), where);
    return std::vector<char>();
  });
  auto counters = state->bind(setup, 0, shared.counters.get(), state->counterBytes);
  shared.bound = counters.owner;
  shared.mapping = counters.mapping;
  return std::shared_ptr<NvlsConnection>(new NvlsConnection(std::move(state)));
}

}  // namespace mscclpp
