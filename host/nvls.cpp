#include "mscclpp/host/nvls.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>

#include "byte_stream.hpp"
#include "device_memory.hpp"
#include "gpu_backend.hpp"
#include "group_agreement.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/host_buffer.hpp"
#include "multicast_group.hpp"
#include "process_identity.hpp"

namespace mscclpp {

namespace {

using detail::ByteReader;
using detail::ByteWriter;

constexpr detail::Form intentForm{"NvlsConnection's intent", 0x4e56494e, 1};
constexpr detail::Form invitationForm{"NvlsConnection", 0x4e56494f, 1};
constexpr detail::Form offerForm{"NvlsConnection's offer", 0x4e564f46, 1};

constexpr std::size_t semaphoreBytes = switchChannelSemaphores * SwitchChannelHandle::semaphoreStride;
// Counters of this many channels fit beside the buffer where the granularity does not say more.
constexpr std::size_t minChannels = 64;
// Far more than a switch connects: what is larger is garbage.
constexpr int maxRanks = 1 << 16;

std::size_t roundUp(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// What a rank asks for, to be compared with the others.
struct Intent {
  std::vector<int> ranks;
  std::uint64_t bufferSize = 0;
  DeviceType where = DeviceType::Unknown;
  std::uint64_t granularity = 0;
  std::string place;

  std::vector<char> write() const {
    ByteWriter writer(intentForm);
    writer.put(bufferSize).put(static_cast<std::uint32_t>(where)).put(granularity).put(detail::hostHash());
    writer.putBytes({place.begin(), place.end()}).put(static_cast<std::uint64_t>(ranks.size()));
    for (const int rank : ranks) writer.put(rank);
    return writer.finish();
  }
};

/// Throws on every rank alike if two differ, or share a GPU.
std::size_t compare(const Intent& own, const std::vector<std::vector<char>>& all, const std::vector<int>& ranks) {
  const auto fail = [&](std::size_t position, const std::string& why) {
    throw Error("connectNvlsCollective: rank " + std::to_string(ranks[position]) + " " + why, ErrorCode::InvalidUsage);
  };
  std::size_t granularity = 1;
  std::vector<std::pair<std::uint64_t, std::vector<char>>> places;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ByteReader reader(all[i], intentForm);
    const auto bufferSize = reader.get<std::uint64_t>();
    const auto where = reader.get<std::uint32_t>();
    granularity = std::max<std::size_t>(granularity, reader.get<std::uint64_t>());
    const auto host = reader.get<std::uint64_t>();
    const auto place = reader.getBytes();
    const auto count = reader.get<std::uint64_t>();
    bool sameRanks = count == own.ranks.size();
    for (std::size_t r = 0; sameRanks && r < count; ++r) sameRanks = reader.get<int>() == own.ranks[r];
    if (!sameRanks) fail(i, "names other ranks than this one; every rank of the group must name the same");
    if (where != static_cast<std::uint32_t>(own.where)) fail(i, "asks for another kind of device than this one");
    if (bufferSize != own.bufferSize) {
      fail(i, "asks for " + std::to_string(bufferSize) + " bytes, and this one for " + std::to_string(own.bufferSize) +
                  "; every rank must ask for the same");
    }
    const auto at = std::find(places.begin(), places.end(), std::pair{host, place});
    if (!place.empty() && at != places.end())
      fail(i, "uses the same GPU as rank " + std::to_string(ranks[static_cast<std::size_t>(at - places.begin())]) +
                  "; multicast takes a GPU of its own for each rank");
    places.emplace_back(host, place);
  }
  return granularity;
}

}  // namespace

// Members are destroyed from the last to the first: mappings before what they map.
struct SwitchChannel::State {
  std::shared_ptr<const void> connection;
  std::shared_ptr<const void> attached;
  detail::MulticastMapping mapping;
  SwitchChannelHandle handle;
};

struct NvlsConnection::State {
  State(std::shared_ptr<Communicator> owner, const std::vector<int>& ranks)
      : communicator(std::move(owner)), agreement(communicator->bootstrap(), ranks, "connectNvlsCollective") {}

  std::shared_ptr<Communicator> communicator;
  detail::GroupAgreement agreement;
  Device device;
  std::size_t granularity = 1;
  std::size_t bufferSize = 0;
  std::size_t bufferUsed = 0;
  std::size_t counterBytes = 0;
  std::size_t channels = 0;

  /// What a channel needs beside its own memory, and may outlive the connection with.
  struct Shared {
    std::unique_ptr<detail::MulticastGroup> group;
    std::shared_ptr<WaitMonitor> monitor;
    std::shared_ptr<void> counters;
    std::shared_ptr<void> generations;
    std::shared_ptr<const void> attached;
    detail::MulticastMapping mapping;
  };
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();

  struct Attached {
    std::shared_ptr<const void> owner;
    detail::MulticastMapping mapping;
  };

  /// Memory of all ranks at an offset of the object. Each step waits for all to have taken the one before.
  Attached attach(std::size_t offset, void* data, std::size_t bytes) {
    detail::MulticastGroup& group = *shared->group;
    const auto messages = agreement.take("offer memory", [&] {
      if (data == nullptr || bytes == 0) throw Error("it takes at least one byte of memory", ErrorCode::InvalidUsage);
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
      ByteWriter writer(offerForm);
      writer.put(static_cast<std::uint64_t>(bytes)).putBytes(group.offer(data, bytes));
      return writer.finish();
    });
    std::vector<std::vector<char>> offers;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      ByteReader reader(messages[i], offerForm);
      if (const auto theirs = reader.get<std::uint64_t>(); theirs != bytes) {
        throw Error("bindAllocatedMemory: rank " + std::to_string(agreement.ranks()[i]) + " offers " +
                        std::to_string(theirs) + " bytes, and this one " + std::to_string(bytes) +
                        "; every rank must offer the same",
                    ErrorCode::InvalidUsage);
      }
      offers.push_back(reader.getBytes());
    }
    Attached result;
    agreement.take("attach memory", [&] {
      result.owner = group.attach(offset, data, bytes);
      return std::vector<char>();
    });
    agreement.take("map memory", [&] {
      result.mapping = group.map(offset, bytes, offers);
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
    throw Error("this switch channel is empty: NvlsConnection::bindAllocatedMemory makes one", ErrorCode::InvalidUsage);
  }
  return *state_;
}
SwitchChannelHandle SwitchChannel::deviceHandle() const {
  return state().handle;
}
void* SwitchChannel::getDevicePtr() const {
  return state().handle.devicePtr;
}

// How ranks meet that share no bootstrap: over one of their own, in the order in which they have joined.
struct NvlsConnection::Invitation {
  UniqueId token;
  std::size_t bufferSize;
  int ranks;
  DeviceType where;
  HostBuffer counter;            // the root's: how many have joined
  RegisteredMemory counterHere;  // mapped by each rank
  int rank = 0;

  int join() {
    return static_cast<int>(std::atomic_ref(*static_cast<std::uint32_t*>(counterHere.data())).fetch_add(1));
  }
};

NvlsConnection::NvlsConnection(std::size_t bufferSize, int numDevices, DeviceType where)
    : invitation_(std::make_unique<Invitation>(Invitation{TcpBootstrap::createUniqueId(), bufferSize, numDevices, where,
                                                          HostBuffer(sizeof(std::uint32_t)), RegisteredMemory()})) {
  if (numDevices < 1 || numDevices > maxRanks) {
    throw Error(
        "NvlsConnection: it takes 1 to " + std::to_string(maxRanks) + " devices, not " + std::to_string(numDevices),
        ErrorCode::InvalidUsage);
  }
  invitation_->counterHere =
      Context::create()->registerMemory(invitation_->counter.data(), sizeof(std::uint32_t), Transport::SharedMemory);
  invitation_->rank = invitation_->join();
}

NvlsConnection::NvlsConnection(const std::vector<char>& data) : invitation_(std::make_unique<Invitation>()) {
  ByteReader reader(data, invitationForm);
  Invitation& it = *invitation_;
  it.token = reader.get<UniqueId>();
  it.bufferSize = reader.get<std::uint64_t>();
  it.ranks = reader.get<std::int32_t>();
  it.where = reader.getEnum(static_cast<DeviceType>(static_cast<int>(DeviceType::GPU) + 1));
  it.counterHere = RegisteredMemory::deserialize(reader.getBytes());
  reader.end();
  if (it.ranks < 1 || it.ranks > maxRanks || it.where == DeviceType::Unknown) reader.fail("a field is out of range");
  const auto counter = reinterpret_cast<std::uintptr_t>(it.counterHere.data());
  if (counter == 0 || counter % alignof(std::uint32_t) != 0 || it.counterHere.size() != sizeof(std::uint32_t)) {
    reader.fail("the memory in them is no counter");
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
  if (!invitation_ || invitation_->rank != 0) {
    throw Error("NvlsConnection::serialize: only of the connection that the root has made with a buffer size",
                ErrorCode::InvalidUsage);
  }
  ByteWriter writer(invitationForm);
  writer.put(invitation_->token).put(static_cast<std::uint64_t>(invitation_->bufferSize)).put(invitation_->ranks);
  writer.put(static_cast<std::uint32_t>(invitation_->where)).putBytes(invitation_->counterHere.serialize());
  return writer.finish();
}

void NvlsConnection::attachBarrier(int nRanks) const {
  const int ranks = invitation_ ? invitation_->ranks : state_->agreement.size();
  if (nRanks != ranks) {
    throw Error("NvlsConnection::attachBarrier: the connection is of " + std::to_string(ranks) + " ranks, not " +
                    std::to_string(nRanks),
                ErrorCode::InvalidUsage);
  }
}

void NvlsConnection::meet() {
  if (state_) return;
  const Invitation& it = *invitation_;
  auto bootstrap = std::make_shared<TcpBootstrap>(it.rank, it.ranks);
  bootstrap->initialize(it.token);
  std::vector<int> ranks(static_cast<std::size_t>(it.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  state_ = std::move(
      connectNvlsCollective(std::make_shared<Communicator>(bootstrap), ranks, it.bufferSize, it.where)->state_);
}

const NvlsConnection::State& NvlsConnection::state() const {
  if (!state_) throw Error("NvlsConnection: the ranks meet in bindAllocatedMemory", ErrorCode::InvalidUsage);
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

SwitchChannel NvlsConnection::bindAllocatedMemory(void* data, std::size_t bytes) {
  meet();
  State& state = *state_;
  const std::size_t counters = state.channels * semaphoreBytes;
  if (counters + semaphoreBytes > state.counterBytes) {
    throw Error("bindAllocatedMemory: one connection serves " + std::to_string(state.channels) +
                    " channels; make another connection",
                ErrorCode::InvalidUsage);
  }
  auto attached = state.attach(state.counterBytes + state.bufferUsed, data, bytes);
  const auto& shared = *state.shared;
  SwitchChannelHandle handle{};
  handle.devicePtr = data;
  handle.multicast = attached.mapping.address;
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
  state.bufferUsed += bytes;
  ++state.channels;
  return SwitchChannel(std::make_shared<SwitchChannel::State>(
      SwitchChannel::State{state.shared, attached.owner, attached.mapping, handle}));
}

std::shared_ptr<NvlsConnection> connectNvlsCollective(std::shared_ptr<Communicator> communicator,
                                                      std::vector<int> ranks, std::size_t bufferSize,
                                                      DeviceType where) {
  if (!communicator) throw Error("connectNvlsCollective: the communicator must not be null", ErrorCode::InvalidUsage);
  auto state = std::make_unique<NvlsConnection::State>(communicator, ranks);
  const auto& agreement = state->agreement;
  auto& shared = *state->shared;
  Intent intent{agreement.ranks(), bufferSize, where, 0, {}};
  const auto intents = agreement.take("prepare", [&] {
    if (bufferSize == 0 || bufferSize > SIZE_MAX / 4)
      throw Error("the buffer size must be at least 1 and fit into memory", ErrorCode::InvalidUsage);
    shared.group = where == DeviceType::CPU ? detail::makeCpuMulticastGroup(communicator->context())
                                            : detail::makeGpuMulticastGroup();
    state->device = where == DeviceType::CPU ? Device(where) : Device(where, detail::currentGpu());
    intent.granularity = shared.group->granularity();
    intent.place = shared.group->place();
    return intent.write();
  });
  state->granularity = compare(intent, intents, agreement.ranks());
  state->bufferSize = bufferSize;
  state->counterBytes = roundUp(minChannels * semaphoreBytes, state->granularity);

  const bool root = agreement.position() == 0;
  const auto objects = agreement.take("create the multicast object", [&] {
    const std::size_t total = state->counterBytes + roundUp(bufferSize, state->granularity);
    return root ? shared.group->create(total, agreement.size()) : std::vector<char>();
  });
  agreement.take("import the multicast object", [&] {
    if (!root) shared.group->import(objects.front());
    return std::vector<char>();
  });
  agreement.take("join the multicast object", [&] {
    shared.group->join();
    return std::vector<char>();
  });
  agreement.take("allocate counters", [&] {
    shared.counters = detail::allocateSharedMemory(state->device, state->counterBytes);
    shared.generations = detail::allocateSharedMemory(state->device, state->counterBytes);
    shared.monitor = communicator->monitor(where);
    return std::vector<char>();
  });
  auto counters = state->attach(0, shared.counters.get(), state->counterBytes);
  shared.attached = counters.owner;
  shared.mapping = counters.mapping;
  return std::shared_ptr<NvlsConnection>(new NvlsConnection(std::move(state)));
}

}  // namespace mscclpp
