// The compiled collectives as algorithms.
#include "collective_algorithm.hpp"

#include <algorithm>
#include <array>

#include "algorithm_call.hpp"
#include "algorithms.hpp"
#include "call_arguments.hpp"
#include "comm_result.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

namespace {

using Tags = std::unordered_map<std::string, std::uint64_t>;

/// The names that MSCCL++ has for its algorithms, and what they run here: without multicast, those with nvls too.
struct KnownName {
  const char* name;
  CollectiveType collective;
  enum class Kind { OneShotPackets, Packets, AnySize, BySize } kind;
};
using Kind = KnownName::Kind;

constexpr auto knownNames = std::to_array<KnownName>({
    {"default_allreduce_allpair_packet", CollectiveType::AllReduce, Kind::OneShotPackets},
    {"default_allreduce_packet", CollectiveType::AllReduce, Kind::Packets},
    {"default_allreduce_nvls_packet", CollectiveType::AllReduce, Kind::Packets},
    {"default_allreduce_nvls_with_copy", CollectiveType::AllReduce, Kind::AnySize},
    {"default_allreduce_nvls_zero_copy", CollectiveType::AllReduce, Kind::AnySize},
    {"default_allreduce_nvls_warp_pipeline", CollectiveType::AllReduce, Kind::AnySize},
    {"default_allreduce_nvls_block_pipeline", CollectiveType::AllReduce, Kind::AnySize},
    {"default_allreduce_fullmesh", CollectiveType::AllReduce, Kind::AnySize},
    {"default_allreduce_rsag", CollectiveType::AllReduce, Kind::AnySize},
    {"default_allreduce_rsag_pipeline", CollectiveType::AllReduce, Kind::AnySize},
    {"default_allreduce_rsag_zero_copy", CollectiveType::AllReduce, Kind::AnySize},
    {"default_allgather_fullmesh", CollectiveType::AllGather, Kind::BySize},
    {"default_allgather_fullmesh2", CollectiveType::AllGather, Kind::BySize},
});

/// The packet algorithms of a collective, the two-shot ones first, if they are wanted.
std::vector<std::string> packetAlgorithms(CollectiveType collective, bool onlyOneShot) {
  std::vector<std::string> names;
  for (const Pattern pattern : {Pattern::TwoShot, Pattern::OneShot}) {
    if (onlyOneShot && pattern != Pattern::OneShot) continue;
    // From the end of the table: those for longer messages come first.
    for (auto algorithm = algorithmTable.rbegin(); algorithm != algorithmTable.rend(); ++algorithm) {
      if (algorithm->collective != collective || algorithm->pattern != pattern || takesAnySize(algorithm->protocol)) {
        continue;
      }
      names.emplace_back(algorithm->name);
    }
  }
  return names;
}

CollectiveAlgorithmOptions optionsOf(const KnownName& known) {
  CollectiveAlgorithmOptions options{.name = known.name, .collective = known.collective};
  switch (known.kind) {
    case Kind::OneShotPackets:
      options.preferred = packetAlgorithms(known.collective, true);
      break;
    case Kind::Packets:
      options.preferred = packetAlgorithms(known.collective, false);
      break;
    case Kind::AnySize:
      options.only = algorithmTable[fallbackOf(known.collective)].name;
      break;
    case Kind::BySize:
      break;
  }
  return options;
}

}  // namespace

CollectiveAlgorithm::CollectiveAlgorithm(std::shared_ptr<SharedCollectives> shared, CollectiveAlgorithmOptions options)
    : DescribedAlgorithm({options.name,
                          algorithmApiNameOf(options.collective),
                          {0, options.maxMessageSize},
                          options.collective == CollectiveType::AllToAll ? CollectiveBufferMode::OutOfPlace
                                                                         : CollectiveBufferMode::Any,
                          options.needsSymmetricMemory ? Tags{{"symmetricMemory", 1}} : Tags{},
                          {}}),
      shared_(std::move(shared)),
      options_(std::move(options)) {}

CommResult CollectiveAlgorithm::execute(std::shared_ptr<Communicator> communicator, const void* input, void* output,
                                        std::size_t inputSize, std::size_t outputSize, DataType dtype, ReduceOp op,
                                        CUstream_st* stream, std::shared_ptr<Executor>, int, int, bool symmetricMemory,
                                        const std::unordered_map<std::string, std::uintptr_t>& extras,
                                        DataType accumDtype) {
  return resultOf(options_.name, [&] {
    const Buffers buffers{input, output, inputSize, outputSize};
    requireAccepted(*this, communicator, buffers);
    const auto bootstrap = communicator->bootstrap();
    const int rank = bootstrap->getRank();
    const int ranks = bootstrap->getNranks();
    CollectiveCall call = callOf(options_.collective, buffers, dtype, op, stream, extras, accumDtype, rank, ranks);
    // Before the set-up, so that a wrong call of one rank is refused before ranks wait for each other.
    if (!requireValid(call, rank, ranks)) return CommResult::CommSuccess;
    if (options_.needsSymmetricMemory && !symmetricMemory) {
      throwInvalidCall(call,
                       "the algorithm writes the outputs of all ranks directly: pass symmetricMemory = true, and an "
                       "output at the same offset in an allocation of the same size on all ranks, or select another "
                       "algorithm");
    }
    const auto context = contextOf(communicator, stream);
    call.ignoresRegistration = !symmetricMemory;
    call.algorithm = choose(context->collectives, call);
    if (context->collectives.takesRegisteredOutput(call)) {
      registerOutput(*context, {output, outputBytesOf(call, rank, ranks)}, stream);
    }
    context->collectives.run(call);
    return CommResult::CommSuccess;
  });
}

void CollectiveAlgorithm::reset() {
  shared_->contexts.clear();
}

std::shared_ptr<CollectivesContext> CollectiveAlgorithm::contextOf(const std::shared_ptr<Communicator>& communicator,
                                                                   CUstream_st* stream) const {
  // The scratch of all algorithms is large: only those that name one that has some need it.
  const auto needsNoScratch = [&](const std::string& name) {
    return algorithmTable[indexOf(options_.collective, name)].variants == Variants::CopyEngine;
  };
  const bool isAlwaysSetUp =
      options_.preferred.empty() &&
      (options_.only.empty() || options_.only == algorithmTable[fallbackOf(options_.collective)].name ||
       needsNoScratch(options_.only));
  const CollectivesKey key{shared_->backend.currentDevice(),
                           isAlwaysSetUp ? Collectives::Algorithms::Selected : Collectives::Algorithms::All};
  if (auto found = shared_->contexts.find(communicator, key)) return found;
  if (shared_->backend.isCapturing(stream)) {
    throw UnavailableAlgorithm(
        "the first call on a communicator and device sets the collectives up, which cannot be captured in a graph: "
        "execute the algorithm once on all ranks before the capture begins");
  }
  return shared_->contexts.findOrMake(
      communicator, key, [] {},
      [&] { return std::make_shared<CollectivesContext>(communicator, shared_->deviceType, key.algorithms); });
}

void CollectiveAlgorithm::registerOutput(CollectivesContext& context, MemoryRange output, CUstream_st* stream) const {
  auto& registrations = context.registrations;
  const auto contains = [&](const RegisteredBuffers::Handle& registration) {
    const std::size_t bytes = registration.buffer().bytes();
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(output.begin) -
                               reinterpret_cast<std::uintptr_t>(registration.buffer().local());
    return offset < bytes && output.bytes <= bytes - offset;
  };
  // The ranks free memory alike, but need not all get the same address again.
  std::erase_if(registrations, [&](const auto& each) { return contains(each) && !each.buffer().isAllocated(); });
  if (std::any_of(registrations.begin(), registrations.end(), contains)) return;
  if (shared_->backend.isCapturing(stream)) {
    throw UnavailableAlgorithm(
        "the first call with symmetricMemory and an output in an allocation registers the allocation with all ranks, "
        "which cannot be captured in a graph: execute the algorithm once on all ranks with an output in that "
        "allocation before the capture begins");
  }
  const MemoryRange allocation = shared_->backend.allocationOf(output);
  registrations.push_back(context.collectives.registerBuffer(allocation.begin, allocation.bytes));
}

std::string CollectiveAlgorithm::choose(const Collectives& collectives, CollectiveCall call) const {
  if (options_.preferred.empty()) return options_.only;
  const std::string selected = collectives.selectedAlgorithm(call);
  if (std::find(options_.preferred.begin(), options_.preferred.end(), selected) != options_.preferred.end()) {
    return selected;
  }
  for (const std::string& name : options_.preferred) {
    call.algorithm = name;
    if (collectives.supports(call)) return name;
  }
  return {};
}

AlgorithmCollection collectiveAlgorithms(DeviceType deviceType) {
  if (deviceType != DeviceType::GPU && deviceType != DeviceType::CPU) {
    throw Error("a collection of algorithms is for DeviceType::GPU or DeviceType::CPU", ErrorCode::InvalidUsage);
  }
  const bool onGpu = deviceType == DeviceType::GPU;
  const auto shared = std::make_shared<SharedCollectives>(deviceType);
  AlgorithmCollection collection;
  const auto add = [&](CollectiveAlgorithmOptions options) {
    const auto algorithm = std::make_shared<CollectiveAlgorithm>(shared, std::move(options));
    collection.registerAlgorithm(algorithm->collective(), algorithm->name(), algorithm);
  };
  for (int i = 0; i < collectiveTypes; ++i) {
    const auto collective = static_cast<CollectiveType>(i);
    if (hasVariableCounts(collective)) continue;
    add({.name = std::string("mscclpp_") + algorithmApiNameOf(collective), .collective = collective});
  }
  for (const Algorithm& algorithm : algorithmTable) {
    if (!onGpu && algorithm.backends == Backends::GpuOnly) continue;
    if (hasVariableCounts(algorithm.collective)) continue;
    add({.name = std::string("mscclpp_") + algorithmApiNameOf(algorithm.collective) + "_" + algorithm.name,
         .collective = algorithm.collective,
         .maxMessageSize = algorithm.maxBytes == noLimit ? SIZE_MAX : algorithm.maxBytes,
         .only = algorithm.name,
         .needsSymmetricMemory = needsRegistration(algorithm)});
  }
  for (const KnownName& known : knownNames) add(optionsOf(known));
  return collection;
}

namespace {

/// The first plan, by name, that is made for such a call; null if there is none.
std::shared_ptr<mscclpp::Algorithm> planFor(
    const std::unordered_map<std::string, std::shared_ptr<mscclpp::Algorithm>>& algorithms,
    const CollectiveRequest& request) {
  std::shared_ptr<mscclpp::Algorithm> first;
  for (const auto& [name, algorithm] : algorithms) {
    if (algorithm->type() != AlgorithmType::DSL || request.op == ReduceOp::AVG) continue;
    const auto [ranks, ranksPerNode] = algorithm->constraint();
    const auto& [shortest, longest] = algorithm->messageRange();
    const CollectiveBufferMode mode = algorithm->bufferMode();
    if ((ranks != 0 && ranks != request.worldSize) || (ranksPerNode != 0 && ranksPerNode != request.nRanksPerNode) ||
        request.messageSize < shortest || request.messageSize > longest ||
        (mode != CollectiveBufferMode::Any && mode != request.bufferMode())) {
      continue;
    }
    if (first == nullptr || name < first->name()) first = algorithm;
  }
  return first;
}

}  // namespace

std::shared_ptr<mscclpp::Algorithm> selectBySize(const AlgorithmMap& algorithms, const CollectiveRequest& request) {
  const auto ofCollective = algorithms.find(request.collective);
  if (ofCollective == algorithms.end()) return nullptr;
  if (const auto plan = planFor(ofCollective->second, request)) return plan;
  const auto found = ofCollective->second.find("mscclpp_" + request.collective);
  return found == ofCollective->second.end() ? nullptr : found->second;
}

}  // namespace mscclpp::kernels
