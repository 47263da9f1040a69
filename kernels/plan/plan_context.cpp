#include "plan_context.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "host/bootstrap/group_agreement.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/plan/program_windows.hpp"

namespace mscclpp::kernels {

namespace {

/// Counters that peers increment lie this far apart, so that they share no line.
constexpr std::size_t counterPitch = 128;
/// Of a program in shared memory: every GPU since sm_80 has more per block. Longer ones are copied in parts.
constexpr std::size_t mostSharedBytes = std::size_t{96} << 10;
/// Of the connections and semaphores of Port channels, of which each pair of ranks makes the same ones in order.
constexpr int portTag = 32001;

std::size_t slotPitchOf(const plan::RankProgram& program, std::size_t slotBytes, plan::PacketFormat format) {
  const std::size_t aligned = roundUp(slotBytes, 128);
  return program.usesPackets ? plan::packetBytes(format, aligned) : aligned;
}

/// The port channels of a rank, by the index of the channel; others are empty.
std::vector<WideBasePortChannel> makePorts(Communicator& communicator, DeviceType where,
                                           const plan::RankProgram& program, WideProxyService& service) {
  const EndpointConfig endpoint(where == DeviceType::GPU ? Transport::CudaIpc : Transport::SharedMemory);
  std::map<int, std::shared_future<Connection>> connections;
  for (const plan::Channel& channel : program.channels) {
    if (channel.access == plan::Access::Port && !connections.contains(channel.peer))
      connections[channel.peer] = communicator.connect(endpoint, channel.peer, portTag);
  }
  std::vector<std::shared_future<Semaphore>> semaphores(program.channels.size());
  for (auto& [peer, connection] : connections) connection.wait();
  // The n-th channel to a peer meets the peer's n-th to this rank: semaphores are built in this order on both sides.
  for (std::size_t c = 0; c < program.channels.size(); ++c) {
    const plan::Channel& channel = program.channels[c];
    if (channel.access == plan::Access::Port)
      semaphores[c] = communicator.buildSemaphore(connections.at(channel.peer).get(), channel.peer, portTag);
  }
  std::vector<WideBasePortChannel> ports(program.channels.size());
  for (std::size_t c = 0; c < ports.size(); ++c) {
    if (semaphores[c].valid()) ports[c] = service.basePortChannel(service.addSemaphore(semaphores[c].get()));
  }
  return ports;
}

}  // namespace

std::size_t scratchBytesOf(const plan::RankProgram& program, bool doubleScratch, std::size_t slotBytes,
                           plan::PacketFormat format) {
  return static_cast<std::size_t>(program.scratchChunks) * slotPitchOf(program, slotBytes, format) *
         (doubleScratch ? 2 : 1);
}

template <class T>
T* PlanMemory::upload(const Backend& backend, const std::vector<T>& values) {
  if (values.empty()) return nullptr;
  local_.push_back(backend.allocate(values.size() * sizeof(T)));
  backend.upload(local_.back().get(), values.data(), values.size() * sizeof(T));
  return static_cast<T*>(local_.back().get());
}

PlanMemory::PlanMemory(Communicator& communicator, DeviceType where, const Backend& backend,
                       const plan::RankProgram& program, bool doubleScratch, std::size_t slotBytes,
                       plan::PacketFormat format, const std::shared_ptr<WideProxyService>& service)
    : service_(service), blocks_(plan::countOf(program.blocks)) {
  const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), "Executor");
  const int rank = communicator.bootstrap()->getRank();
  const int ranks = communicator.bootstrap()->getNranks();
  // Other ranks may have more channels than this one.
  std::size_t channels = 0;
  for (const auto& ofRank : agreement.runStep("count its channels", [&] {
         const std::size_t own = program.channels.size();
         const auto* bytes = reinterpret_cast<const char*>(&own);
         return std::vector<char>(bytes, bytes + sizeof(own));
       })) {
    std::size_t count = 0;
    std::copy(ofRank.begin(), ofRank.end(), reinterpret_cast<char*>(&count));
    channels = std::max(channels, count);
  }
  scratchOffset_ = channels * counterPitch;
  const std::size_t scratchBytes = scratchBytesOf(program, doubleScratch, slotBytes, format);
  symmetric_ =
      std::make_unique<SymmetricMemory>(communicator, std::max<std::size_t>(scratchOffset_ + scratchBytes, 1), where);
  if (program.usesPorts) ports_ = makePorts(communicator, where, program, *service_);

  agreement.runStep("fill the memory of a plan", [&] {
    args_.buffers[static_cast<int>(plan::BufferKind::Scratch)] = symmetric_->window().subWindow(scratchOffset_);
    args_.slotPitch = slotPitchOf(program, slotBytes, format);
    args_.scratchHalf = doubleScratch ? scratchBytes / 2 : 0;
    args_.state.epochs = upload(backend, std::vector<std::uint64_t>(program.blocks.size(), 1));
    args_.state.barriers = upload(backend, std::vector<GridBarrier>(static_cast<std::size_t>(program.barriers)));
    args_.state.semaphores =
        upload(backend, std::vector<std::uint64_t>(program.semaphores.begin(), program.semaphores.end()));
    args_.rank = rank;
    args_.ranks = ranks;
    args_.format = format;

    auto* const consumed = upload(backend, std::vector<std::uint64_t>(program.channels.size()));
    std::vector<plan::ChannelEnd> ends(program.channels.size());
    for (std::size_t c = 0; c < ends.size(); ++c) {
      plan::ChannelEnd& end = ends[c];
      end.access = program.channels[c].access;
      end.peer = program.channels[c].peer;
      if (end.access == plan::Access::Port) {
        end.port = ports_[c].deviceHandle();
        end.outbound = nullptr;
        end.inbound = end.port.semaphore_.inboundToken;
        end.consumed = end.port.semaphore_.expectedInboundToken;
      } else {
        const auto counter = [&](int of, std::size_t index) {
          return reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(symmetric_->peer(of)) + index * counterPitch);
        };
        end.outbound = counter(end.peer, static_cast<std::size_t>(program.peerChannels[c]));
        end.inbound = counter(rank, c);
        end.consumed = consumed + c;
      }
    }
    args_.channels = upload(backend, ends);

    std::vector<plan::BlockProgram> programs;
    for (const plan::BlockLists& lists : program.blocks) {
      const plan::BlockLists block = plan::stepsOf(lists);
      const plan::ProgramWindows windows = plan::windowsOf(plan::viewOf(block), mostSharedBytes);
      if (windows.bytes > mostSharedBytes) {
        throw Error("Executor: an operation of the plan has too many operands: " + std::to_string(windows.bytes) +
                        " bytes, of at most " + std::to_string(mostSharedBytes) + "; divide it",
                    ErrorCode::InvalidUsage);
      }
      sharedBytes_ = std::max(sharedBytes_, windows.bytes);
      programs.push_back({upload(backend, block.operations), upload(backend, block.operands),
                          upload(backend, block.references), upload(backend, windows.ofOperations),
                          plan::countOf(block.operations), plan::countOf(block.operands),
                          plan::countOf(block.references)});
    }
    args_.programs = upload(backend, programs);
    return std::vector<char>();
  });
}

}  // namespace mscclpp::kernels
