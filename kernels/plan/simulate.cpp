#include "mscclpp/kernels/plan/simulate.hpp"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <queue>
#include <tuple>

#include "message.hpp"
#include "mscclpp/plan/fault_message.hpp"
#include "mscclpp/plan/message.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

namespace {

using Json = nlohmann::json;

/// Something that happened, and who did it.
struct Moment {
  double time = 0;
  int by = -1;  ///< an index into Simulated::operations

  void raise(const Moment& other) {
    if (other.time > time) *this = other;
  }
};

class Run {
 public:
  Run(const Plan& plan, std::uint64_t bytes, const Topology& topology)
      : plan_(plan), topology_(topology), ends_(otherEnds(plan)) {
    const bool perRank = plan.collective == CollectiveKind::AllGather ||
                         plan.collective == CollectiveKind::ReduceScatter ||
                         plan.collective == CollectiveKind::AllToAll || plan.collective == CollectiveKind::Gather ||
                         plan.collective == CollectiveKind::Scatter;
    message_ = messageOf(perRank ? bytes / static_cast<std::uint64_t>(plan.ranks) : bytes, 1, plan.chunksPerPart,
                         static_cast<std::uint64_t>(plan.alignment));
    blocks_.resize(plan.blocks.size());
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const Range range = plan.rankPlans[rank].blocks;
      for (int b = 0; b < range.count; ++b) blocks_[range.first + b].rank = rank;
    }
    counters_.resize(plan.channels.size());
    portReady_.resize(plan.channels.size());
    semaphores_.resize(plan.ranks);
    barriers_.resize(plan.ranks);
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const Range range = plan.rankPlans[rank].semaphores;
      for (int s = 0; s < range.count; ++s) {
        semaphores_[rank].emplace_back();
        for (int k = 0; k < plan.references[range.first + s]; ++k) semaphores_[rank].back().raises.push_back({});
      }
    }
  }

  Simulated run() {
    for (int b = 0; b < countOf(blocks_); ++b) ready_.push({0, b});
    while (!ready_.empty()) {
      const auto [time, b] = ready_.top();
      ready_.pop();
      // The block that is first in time goes on by one operation, so that links are used in order.
      if (step(b)) ready_.push({blocks_[b].now.time, b});
    }
    for (int b = 0; b < countOf(blocks_); ++b) {
      if (blocks_[b].next < plan_.blocks[b].operations.count) {
        reject("plan: rank ", blocks_[b].rank, ", block ", b - plan_.rankPlans[blocks_[b].rank].blocks.first,
               ", operation ", blocks_[b].next, " waits for ever");
      }
      result_.seconds = std::max(result_.seconds, blocks_[b].now.time);
    }
    return std::move(result_);
  }

 private:
  struct BlockState {
    int rank = 0;
    int next = 0;
    int loop = -1;
    std::uint64_t iteration = 0;
    Moment now;
  };
  /// Raised by some, awaited by others.
  struct Counter {
    std::vector<Moment> raises = {};
    std::size_t taken = 0;
    std::vector<int> waiting = {};
  };
  struct BarrierState {
    Moment last;
    int arrived = 0;
    std::vector<int> waiting;
  };
  using Slot = std::tuple<int, BufferKind, int>;

  void wake(std::vector<int>& waiting) {
    for (const int b : waiting) ready_.push({blocks_[b].now.time, b});
    waiting.clear();
  }

  Counter& counterOf(int rank, const Operation& operation, int reference) {
    const bool semaphore = operation.kind == OperationKind::Acquire || operation.kind == OperationKind::Release;
    if (semaphore) return semaphores_[rank][reference];
    const int channel = plan_.rankPlans[rank].channels.first + reference;
    return counters_[operation.kind == OperationKind::Signal ? ends_[channel] : channel];
  }

  LinkModel linkOf(Access access, int from, int to) const {
    const auto found = topology_.pairs.find({from, to});
    if (found != topology_.pairs.end()) return found->second;
    return access == Access::Port ? topology_.port : topology_.memory;
  }

  /// False: the block waits for something, or has finished.
  bool step(int index) {
    BlockState& block = blocks_[index];
    const Range operations = plan_.blocks[index].operations;
    if (block.next >= operations.count) return false;
    const Operation& operation = plan_.operations[operations.first + block.next];
    const Range references = operation.references;
    Moment moment = block.now;
    const int own = countOf(result_.operations);
    double duration = topology_.operationSeconds;
    switch (operation.kind) {
      case OperationKind::Transfer: {
        for (const Operand& operand : operandsOf(operation.sources)) {
          if (operand.form != Form::Packet || operand.access != Access::Local) continue;
          for (int i = 0; i < operation.chunks; ++i) {
            Counter& packets = packets_[Slot{operand.rank, operand.buffer, operand.first + i}];
            if (packets.raises.empty()) {
              packets.waiting.push_back(index);
              return false;
            }
            for (const Moment& raise : packets.raises) moment.raise(raise);
          }
        }
        const double begin = moment.time;
        const Moment end = transfer(block, operation, {begin, own});
        record(index, block.now.time, end.time, moment.by);
        block.now = {end.time, own};
        ++block.next;
        return true;
      }
      case OperationKind::Wait:
      case OperationKind::Acquire: {
        // A counter that is named several times has to be raised as often.
        std::map<const Counter*, std::size_t> wanted;
        for (int k = 0; k < references.count; ++k) {
          Counter& counter = counterOf(block.rank, operation, plan_.references[references.first + k]);
          if (counter.taken + wanted[&counter]++ < counter.raises.size()) continue;
          counter.waiting.push_back(index);
          return false;
        }
        for (int k = 0; k < references.count; ++k) {
          Counter& counter = counterOf(block.rank, operation, plan_.references[references.first + k]);
          moment.raise(counter.raises[counter.taken++]);
        }
        break;
      }
      case OperationKind::Signal:
      case OperationKind::Release:
        for (int k = 0; k < references.count; ++k) {
          const int reference = plan_.references[references.first + k];
          Counter& counter = counterOf(block.rank, operation, reference);
          Moment arrival{moment.time, own};
          if (operation.kind == OperationKind::Signal) {
            const int channel = plan_.rankPlans[block.rank].channels.first + reference;
            const Channel& of = plan_.channels[channel];
            if (of.access == Access::Port) arrival.time = std::max(arrival.time, portReady_[channel]);
            arrival.time += linkOf(of.access, block.rank, of.peer).seconds;
          }
          counter.raises.push_back(arrival);
          wake(counter.waiting);
        }
        break;
      case OperationKind::Flush:
        for (int k = 0; k < references.count; ++k) {
          const int channel = plan_.rankPlans[block.rank].channels.first + plan_.references[references.first + k];
          moment.time = std::max(moment.time, portReady_[channel]);
        }
        break;
      case OperationKind::Barrier: {
        BarrierState& barrier = barriers_[block.rank][operation.index];
        barrier.last.raise({moment.time, own});
        if (++barrier.arrived < operation.blocks) {
          record(index, moment.time, moment.time, -1);
          ++block.next;
          barrier.waiting.push_back(index);
          return false;
        }
        for (const int other : barrier.waiting) blocks_[other].now = barrier.last;
        moment = barrier.last;
        wake(barrier.waiting);
        barrier = {};
        break;
      }
      case OperationKind::LoopBegin:
        block.loop = block.next;
        block.iteration = 0;
        duration = 0;
        break;
      case OperationKind::LoopEnd:
        duration = 0;
        if (++block.iteration < iterationsOf(message_, unitOf(index, block)))
          block.next = block.loop;
        else
          block.loop = -1;
        break;
      case OperationKind::Sync:
        break;
    }
    const double begin = block.now.time;
    block.now = {moment.time + duration, own};
    record(index, begin, block.now.time, moment.by);
    ++block.next;
    return true;
  }

  std::uint64_t unitOf(int index, const BlockState& block) const {
    return plan_.operations[plan_.blocks[index].operations.first + block.loop].unitBytes;
  }

  void record(int index, double begin, double end, int cause) {
    const BlockState& block = blocks_[index];
    result_.operations.push_back(
        {block.rank, index - plan_.rankPlans[block.rank].blocks.first, block.next, begin, end, cause});
  }

  std::vector<Operand> operandsOf(const Range& range) const {
    return {plan_.operands.begin() + range.first, plan_.operands.begin() + range.first + range.count};
  }

  double bytesOf(const BlockState& block, const Operation& operation) const {
    const std::uint64_t unit = block.loop < 0 ? 0 : unitOf(static_cast<int>(&block - blocks_.data()), block);
    std::uint64_t bytes = 0;
    for (int i = 0; i < operation.chunks; ++i) {
      const std::uint64_t chunk = message_.bytesAt((operation.position + i) % plan_.chunksPerPart);
      bytes += shareOf(iterationOf(chunk, unit, block.iteration), operation.share, operation.shares).size;
    }
    return static_cast<double>(bytes);
  }

  /// Occupies a link from a time on; returns when the last byte has left.
  double occupy(std::map<std::pair<int, int>, double>& busy, std::pair<int, int> key, double begin, double seconds) {
    double& free = busy[key];
    free = std::max(free, begin) + seconds;
    return free;
  }

  Moment transfer(const BlockState& block, const Operation& operation, const Moment& begin) {
    const double bytes = bytesOf(block, operation);
    double end = begin.time + topology_.operationSeconds + bytes / topology_.local.bytesPerSecond;
    const auto cross = [&](const Operand& operand, int from, int to) {
      const LinkModel link = linkOf(operand.access, from, to);
      const double sent = bytes * (operand.form == Form::Packet ? topology_.packetFactor : 1);
      const double leaves = occupy(out_, {from, 0}, begin.time, sent / topology_.rank.bytesPerSecond);
      const double passes = occupy(links_, {from, to}, begin.time, sent / link.bytesPerSecond);
      const double enters = occupy(in_, {to, 0}, begin.time, sent / topology_.rank.bytesPerSecond);
      return std::max({leaves, passes, enters});
    };
    for (const Operand& operand : operandsOf(operation.sources)) {
      if (operand.access == Access::Memory) {
        end = std::max(end, cross(operand, operand.rank, block.rank) +
                                2 * linkOf(Access::Memory, operand.rank, block.rank).seconds);
      } else if (operand.access == Access::Switch) {
        end = std::max(end, occupy(out_, {block.rank, 0}, begin.time, bytes / topology_.switched.bytesPerSecond) +
                                topology_.switched.seconds);
      }
    }
    for (const Operand& operand : operandsOf(operation.destinations)) {
      Moment arrival{end, begin.by};
      if (operand.access == Access::Memory) {
        const double done = cross(operand, block.rank, operand.rank);
        end = std::max(end, done);
        arrival.time = done + linkOf(Access::Memory, block.rank, operand.rank).seconds;
      } else if (operand.access == Access::Port) {
        // The proxy does it; the block goes on.
        const int channel = plan_.rankPlans[block.rank].channels.first + operand.channel;
        const double done = cross(operand, block.rank, operand.rank);
        portReady_[channel] = std::max(portReady_[channel], done);
        arrival.time = done + linkOf(Access::Port, block.rank, operand.rank).seconds;
      } else if (operand.access == Access::Switch) {
        end = std::max(end, occupy(out_, {block.rank, 0}, begin.time, bytes / topology_.switched.bytesPerSecond));
        arrival.time = end + topology_.switched.seconds;
      }
      if (operand.form != Form::Packet) continue;
      std::vector<int> owners{operand.rank};
      if (operand.access == Access::Switch) {
        const Range members = plan_.channels[plan_.rankPlans[block.rank].channels.first + operand.channel].members;
        owners.assign(plan_.references.begin() + members.first,
                      plan_.references.begin() + members.first + members.count);
      }
      for (const int owner : owners) {
        for (int i = 0; i < operation.chunks; ++i) {
          Counter& packets = packets_[Slot{owner, operand.buffer, operand.first + i}];
          packets.raises.push_back(arrival);
          wake(packets.waiting);
        }
      }
    }
    return {end, begin.by};
  }

  const Plan& plan_;
  const Topology& topology_;
  std::vector<std::int32_t> ends_;
  Message message_{};
  std::vector<BlockState> blocks_;
  using Turn = std::pair<double, int>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> ready_;
  std::vector<Counter> counters_;  ///< of each receiving end of a channel
  std::vector<double> portReady_;  ///< when the proxy has done what was pushed
  std::vector<std::vector<Counter>> semaphores_;
  std::vector<std::map<int, BarrierState>> barriers_;
  std::map<Slot, Counter> packets_;
  std::map<std::pair<int, int>, double> links_, out_, in_;
  Simulated result_;
};

LinkModel readLink(const Json& json, const std::string& key, LinkModel link) {
  if (!json.is_object()) reject("topology: key \"", key, "\": expected an object with us and GBps");
  for (const auto& item : json.items()) {
    const bool isEnd = item.key() == "from" || item.key() == "to";
    if (!item.value().is_number()) reject("topology: key \"", key, "\": \"", item.key(), "\": expected a number");
    const double value = item.value().get<double>();
    if (item.key() == "us") {
      if (value < 0) reject("topology: key \"", key, "\": \"us\" is ", value, "; it is not negative");
      link.seconds = value * 1e-6;
    } else if (item.key() == "GBps") {
      if (value <= 0) reject("topology: key \"", key, "\": \"GBps\": expected a positive number");
      link.bytesPerSecond = value * 1e9;
    } else if (!isEnd) {
      reject("topology: key \"", key, "\": \"", item.key(), "\" is unknown; known are us and GBps");
    }
  }
  return link;
}

}  // namespace

Topology topologyFromJson(std::string_view text) {
  Topology topology;
  try {
    const Json json = Json::parse(text);
    for (const auto& item : json.items()) {
      const std::string& key = item.key();
      const std::initializer_list<std::pair<const char*, LinkModel*>> links = {{"local", &topology.local},
                                                                               {"memory", &topology.memory},
                                                                               {"port", &topology.port},
                                                                               {"switch", &topology.switched},
                                                                               {"rank", &topology.rank}};
      const auto* link =
          std::find_if(links.begin(), links.end(), [&](const auto& entry) { return key == entry.first; });
      if (link != links.end()) {
        *link->second = readLink(item.value(), key, *link->second);
      } else if (key == "pairs") {
        for (const Json& pair : item.value()) {
          topology.pairs[{pair.at("from").get<int>(), pair.at("to").get<int>()}] = readLink(pair, key, topology.memory);
        }
      } else if (key == "operation_us" || key == "packet_factor") {
        const double value = item.value().get<double>();
        if (value < 0) reject("topology: key \"", key, "\" is ", value, "; it is not negative");
        if (key == "operation_us") topology.operationSeconds = value * 1e-6;
        if (key == "packet_factor") topology.packetFactor = value;
      } else {
        reject("topology: key \"", key, "\" is unknown");
      }
    }
  } catch (const Json::exception& error) {
    reject("topology: ", error.what());
  }
  return topology;
}

Simulated simulate(const Plan& plan, std::uint64_t bytes, const Topology& topology) {
  if (const Fault fault = StructureCheck(plan).run()) reject(describe(plan, fault));
  return Run(plan, bytes, topology).run();
}

}  // namespace mscclpp::plan
