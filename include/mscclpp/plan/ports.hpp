// What the proxies of a simulated plan do, and in which order.
#pragma once

#include <cstdint>
#include <vector>

#include "mscclpp/plan/clock.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// The work of a proxy for what one block pushes to one port channel: done in the order of the pushes. What different
/// blocks push follows each other only if the blocks are ordered.
struct Port {
  struct Push {
    std::int32_t interval = 0;  ///< of the block
    std::int32_t clock = -1;    ///< what is before the proxy's next action: the number of a snapshot
  };

  std::int32_t channel = -1;  ///< of the plan
  std::int32_t block = -1;    ///< of the plan
  std::int32_t actor = -1;
  std::int32_t interval = 0;
  std::int32_t certificates = 0;  ///< see SimulationState
  Clock clock;                    ///< what is before its next action
  std::vector<Push> pushes;       ///< only where several blocks use the channel
};

/// All ports of a plan.
class Ports {
 public:
  /// Notes that a block pushes to a channel of the plan.
  constexpr void note(std::int32_t channel, std::int32_t block) {
    if (countOf(ofChannel_) <= channel) ofChannel_.resize(channel + 1);
    for (const std::int32_t port : ofChannel_[channel])
      if (ports_[port].block == block) return;
    ofChannel_[channel].push_back(countOf(ports_));
    ports_.emplace_back();
    ports_.back().channel = channel;
    ports_.back().block = block;
  }
  /// After all notes: numbers the actors from `first` on, of `actors` in all.
  constexpr void start(std::int32_t first, std::int32_t actors) {
    for (Port& port : ports_) {
      port.actor = first++;
      port.clock = Clock(actors);
    }
  }
  constexpr std::int32_t count() const { return countOf(ports_); }

  /// The port for the next push of a block that knows `clock`: after its own pushes, and those of others that are
  /// ordered before.
  constexpr Port& push(std::int32_t channel, std::int32_t block, const Clock& clock, const Snapshots& snapshots) {
    Port* own = nullptr;
    for (const std::int32_t number : ofChannel_[channel])
      if (ports_[number].block == block) own = &ports_[number];
    own->clock.merge(clock);
    for (const std::int32_t number : ofChannel_[channel]) {
      const Port& other = ports_[number];
      if (&other == own) continue;
      for (std::int32_t i = countOf(other.pushes) - 1; i >= 0; --i) {
        if (clock.weak[other.block] < other.pushes[i].interval) continue;
        own->clock.merge(snapshots[other.pushes[i].clock]);
        break;
      }
    }
    return *own;
  }
  /// Notes what was pushed, for the other blocks. interval: of the block.
  constexpr void finish(Port& port, std::int32_t interval, Snapshots& snapshots) {
    if (ofChannel_[port.channel].size() > 1) port.pushes.push_back({interval, snapshots.add(port.clock)});
  }

 private:
  std::vector<Port> ports_;
  std::vector<std::vector<std::int32_t>> ofChannel_;
};

}  // namespace mscclpp::plan
