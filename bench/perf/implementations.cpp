#include "implementations.hpp"

#include <algorithm>
#include <array>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::perf {

namespace {

std::vector<std::string> algorithmNames(const Options& options, const Collectives& collectives) {
  if (options.algorithms.empty()) return {""};
  const std::vector<std::string> offered = collectives.algorithms(options.collective);
  if (options.algorithms == std::vector<std::string>{"all"}) return offered;
  for (const std::string& name : options.algorithms) {
    if (std::find(offered.begin(), offered.end(), name) != offered.end()) continue;
    std::string known = "all";
    for (const std::string& each : offered) known += ", " + each;
    throw Error("unknown algorithm \"" + name + "\"; known: " + known, ErrorCode::InvalidUsage);
  }
  return options.algorithms;
}

/// The first implementation again, with buffers that are registered on all ranks.
void addRegistered(std::vector<Implementation>& all, const Options& options, Collectives& collectives, Backend& backend,
                   std::size_t inputBytes, std::size_t outputBytes) {
  const auto registered = [&](std::size_t bytes) {
    const auto memory = backend.allocateShareable(bytes);
    const auto handle = std::make_shared<RegisteredBuffers::Handle>(collectives.registerBuffer(memory.get(), bytes));
    return std::shared_ptr<void>(memory.get(), [memory, handle](void*) {});
  };
  const auto inputs = registered(inputBytes);
  const auto outputs = registered(outputBytes);
  std::vector<std::string> names{""};
  if (!options.algorithms.empty()) {
    // Those that need registration; the others were added already.
    names.clear();
    for (const std::string& name : algorithmNames(options, collectives)) {
      CollectiveCall call{.collective = options.collective, .count = 1, .type = options.type, .algorithm = name};
      const bool isForAll = collectives.supports(call);
      call.output = outputs.get();
      if (!isForAll && collectives.supports(call)) names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    Implementation copy = all.front();
    copy.name = name.empty() ? "mscclpp registered" : name + " registered";
    copy.algorithm = name;
    copy.algorithmOf = [of = copy.algorithmOf](const auto& call) { return of(call) + " registered"; };
    copy.isRegistered = true;
    copy.inputs = inputs;
    copy.outputs = outputs;
    all.push_back(copy);
  }
}

/// An all-to-all, or a send/receive, as an exchange.
void runAsExchange(Collectives& collectives, int ranks, const CollectiveCall& call) {
  std::array<SentMessage, maxSentMessages> sends;
  std::array<ReceivedMessage, maxReceivedMessages> receives;
  const std::size_t bytes = call.count * sizeOf(call.type);
  std::size_t count = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    const bool toAll = call.collective == CollectiveType::AllToAll;
    const std::size_t at = toAll ? static_cast<std::size_t>(peer) * bytes : 0;
    if (!toAll && peer > 0) break;
    sends[count] = {static_cast<const std::byte*>(call.input) + at, bytes, toAll ? peer : call.destination};
    receives[count] = {static_cast<std::byte*>(call.output) + at, bytes, toAll ? peer : call.origin};
    ++count;
  }
  collectives.exchange({sends.data(), count}, {receives.data(), count}, call.stream);
}

}  // namespace

std::vector<Implementation> implementations(const Options& options, int ranks, Collectives& collectives, Nccl* nccl,
                                            Backend& backend, std::size_t inputBytes, std::size_t outputBytes) {
  std::vector<Implementation> all;
  const auto inputs = backend.allocate(inputBytes);
  const auto outputs = backend.allocate(outputBytes);
  for (const std::string& name : algorithmNames(options, collectives)) {
    all.push_back({
        .name = name.empty() ? "mscclpp" : name,
        .algorithm = name,
        .run = [&collectives](const CollectiveCall& call) { collectives.run(call); },
        .supports = [&collectives](const auto& call) { return call.algorithm.empty() || collectives.supports(call); },
        .algorithmOf =
            [&collectives](const auto& call) {
              return call.algorithm.empty() ? collectives.selectedAlgorithm(call) : call.algorithm;
            },
        .check = [&collectives] { collectives.check(); },
        .roundsEachAddition = false,
        .canRecord = true,
        .inputs = inputs,
        .outputs = outputs,
    });
  }
  if (options.exchange) {
    all.push_back({
        .name = "exchange",
        .algorithm = "",
        .run = [&collectives, ranks](const CollectiveCall& call) { runAsExchange(collectives, ranks, call); },
        .supports = [](const auto&) { return true; },
        .algorithmOf = [](const auto&) { return std::string("exchange"); },
        .check = [&collectives] { collectives.check(); },
        .roundsEachAddition = false,
        .canRecord = true,
        .inputs = inputs,
        .outputs = outputs,
    });
  }
  if (options.registered) addRegistered(all, options, collectives, backend, inputBytes, outputBytes);
  if (nccl == nullptr) return all;
  Implementation plain{
      .name = "NCCL",
      .algorithm = "",
      .run = [nccl](const CollectiveCall& call) { nccl->run(call); },
      .supports = [](const auto&) { return true; },
      .algorithmOf = [](const auto&) { return std::string("NCCL"); },
      .check = [] {},
      .roundsEachAddition = true,
      .canRecord = false,
      .inputs = inputs,
      .outputs = outputs,
  };
  all.push_back(plain);
  if (const auto window = nccl->allocateWindow(inputBytes)) {
    Implementation symmetric = plain;
    symmetric.name = "NCCL symmetric";
    symmetric.algorithmOf = [](const auto&) { return std::string("NCCL symmetric"); };
    symmetric.inputs = window;
    symmetric.outputs = nccl->allocateWindow(outputBytes);
    all.push_back(symmetric);
  }
  return all;
}

}  // namespace mscclpp::perf
