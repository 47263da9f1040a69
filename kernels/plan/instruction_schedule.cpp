#include "instruction_schedule.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "message.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "passes.hpp"

namespace mscclpp::plan {

namespace {

/// An instruction before it has a block.
struct Scheduled {
  Instruction instruction;
  int rank = 0;
  int from = -1, to = -1;        ///< peers
  int in = -1, out = -1;         ///< the nodes that send to it and receive from it
  int block = -1, channel = -1;  ///< the program's wishes
  std::vector<int> after = {};   ///< nodes of the rank that come before
  bool fused = false;            ///< gone: part of the node that receives what it sends
};

class Scheduler {
 public:
  Scheduler(InstructionProgram& program, const Draft& buffers, const ScheduleOptions& options)
      : program_(program), buffers_(buffers), options_(options) {}

  void run(const std::vector<TracedOperation>& operations) {
    for (const TracedOperation& operation : operations) trace(operation);
    if (options_.fuse) fuse();
    // What is in conflict is separated, until nothing is.
    for (;;) {
      sort();
      assignChannels();
      if (!assignBlocks()) continue;
      if (separateCrossingMessages()) continue;
      break;
    }
    emit();
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Scheduled& node, const Parts&... why) const {
    const int origin = node.instruction.origin;
    reject(origin >= 0 ? program_.origins[origin] + ": " : "", why...);
  }

  // ---- instructions and what they depend on

  struct SlotUse {
    int node;
    bool reads, writes;
  };
  using Slot = std::tuple<int, BufferKind, int>;

  Slot slotOf(int rank, const ChunkPlace& place, int offset) const {
    const Operand operand = canonical(
        buffers_, {.buffer = place.buffer, .rank = static_cast<std::int16_t>(rank), .first = place.index + offset});
    return {rank, operand.buffer, operand.first};
  }

  void use(int n, const ChunkPlace& place, bool reads, bool writes) {
    Scheduled& node = nodes_[n];
    for (int i = 0; i < node.instruction.count; ++i) {
      auto& uses = uses_[slotOf(node.rank, place, i)];
      // After the last write, and a write also after the reads since.
      for (auto it = uses.rbegin(); it != uses.rend(); ++it) {
        if (it->node != n && (it->writes || writes)) node.after.push_back(it->node);
        if (it->writes && it->node != n) break;
      }
      uses.push_back({n, reads, writes});
    }
    std::sort(node.after.begin(), node.after.end());
    node.after.erase(std::unique(node.after.begin(), node.after.end()), node.after.end());
  }

  int add(Scheduled node) {
    nodes_.push_back(std::move(node));
    return countOf(nodes_) - 1;
  }

  void trace(const TracedOperation& operation) {
    const TracedOperation::Place& source = operation.source;
    const TracedOperation::Place& destination = operation.destination;
    const bool reduces = operation.reduces;
    using K = InstructionKind;
    const bool local = source.rank == destination.rank;
    const auto make = [&](K kind, const ChunkPlace& from, const ChunkPlace& to) {
      return Instruction{kind, from, to, operation.count, {}, operation.origin};
    };
    if (local) {
      Scheduled node{make(reduces ? K::Reduce : K::Copy, source.place, destination.place), source.rank};
      node.block = operation.sendBlock >= 0 ? operation.sendBlock : operation.receiveBlock;
      const int n = add(std::move(node));
      use(n, source.place, true, false);
      use(n, destination.place, reduces, true);
      return;
    }
    Scheduled sender{make(K::Send, source.place, source.place), source.rank};
    Scheduled receiver{make(reduces ? K::ReceiveReduceCopy : K::Receive, destination.place, destination.place),
                       destination.rank};
    sender.to = destination.rank;
    receiver.from = source.rank;
    sender.block = operation.sendBlock;
    receiver.block = operation.receiveBlock;
    sender.channel = receiver.channel = operation.channel;
    const int s = add(std::move(sender)), r = add(std::move(receiver));
    nodes_[s].out = r;
    nodes_[r].in = s;
    use(s, source.place, true, false);
    use(r, destination.place, reduces, true);
  }

  // ---- fusion

  /// A rank that sends on what it has received does it in one instruction: rcs, rrcs, or rrs if the sum is not used
  /// here otherwise.
  void fuse() {
    for (int r = 0; r < countOf(nodes_); ++r) {
      const InstructionKind kind = nodes_[r].instruction.kind;
      if (kind != InstructionKind::Receive && kind != InstructionKind::ReceiveReduceCopy) continue;
      const auto& uses = uses_[slotOf(nodes_[r].rank, nodes_[r].instruction.destination, 0)];
      for (auto it = next(uses, r); it != uses.end() && !it->writes; ++it) {
        if (!fits(r, it->node)) continue;
        join(r, it->node);
        break;
      }
    }
  }
  static std::vector<SlotUse>::const_iterator next(const std::vector<SlotUse>& uses, int node) {
    return std::find_if(uses.begin(), uses.end(), [&](const SlotUse& use) { return use.node == node; }) + 1;
  }

  bool fits(int r, int s) const {
    const Scheduled& receiver = nodes_[r];
    const Scheduled& sender = nodes_[s];
    if (sender.instruction.kind != InstructionKind::Send || sender.fused) return false;
    return sender.after == std::vector{r} && sender.instruction.count == receiver.instruction.count &&
           slotOf(sender.rank, sender.instruction.source, 0) ==
               slotOf(receiver.rank, receiver.instruction.destination, 0) &&
           sender.channel == receiver.channel && sender.block == receiver.block && sender.to != receiver.rank;
  }

  void join(int r, int s) {
    Scheduled& receiver = nodes_[r];
    Scheduled& sender = nodes_[s];
    const bool reduces = receiver.instruction.kind == InstructionKind::ReceiveReduceCopy;
    bool isDead = reduces;  // nobody else reads the sum
    for (int i = 0; i < receiver.instruction.count && isDead; ++i) {
      const Slot slot = slotOf(receiver.rank, receiver.instruction.destination, i);
      const auto& uses = uses_.at(slot);
      auto it = next(uses, r);
      isDead = it != uses.end() && it->node == s;
      if (isDead && ++it != uses.end()) {
        isDead = it->writes && !it->reads;
      } else if (isDead) {
        isDead = std::get<1>(slot) == BufferKind::Scratch;
      }
    }
    receiver.instruction.kind = !reduces ? InstructionKind::ReceiveCopySend
                                : isDead ? InstructionKind::ReceiveReduceSend
                                         : InstructionKind::ReceiveReduceCopySend;
    receiver.to = sender.to;
    receiver.out = sender.out;
    nodes_[sender.out].in = r;
    sender.fused = true;
    joined_[r] = s;
  }

  /// Undoes join().
  void separate(int r) {
    const int s = joined_.at(r);
    joined_.erase(r);
    Scheduled& receiver = nodes_[r];
    Scheduled& sender = nodes_[s];
    receiver.instruction.kind = receiver.instruction.kind == InstructionKind::ReceiveCopySend
                                    ? InstructionKind::Receive
                                    : InstructionKind::ReceiveReduceCopy;
    sender.fused = false;
    sender.out = receiver.out;
    nodes_[sender.out].in = s;
    receiver.to = receiver.out = -1;
  }

  // ---- order

  /// What comes before a node: of the rank, and the sender of its message.
  std::vector<int> predecessors(int n) const {
    std::vector<int> list;
    for (const int earlier : nodes_[n].after) list.push_back(representative(earlier));
    if (nodes_[n].in >= 0) list.push_back(nodes_[n].in);
    return list;
  }
  /// A fused sender is where the node is that it was joined to, its only predecessor.
  int representative(int n) const { return nodes_[n].fused ? nodes_[n].after.front() : n; }

  /// By depth, then by how much depends on it: the order of instructions in all blocks.
  void sort() {
    const int count = countOf(nodes_);
    std::vector<int> depth(count, 0), height(count, 0);
    for (int n = 0; n < count; ++n) {
      if (nodes_[n].fused) continue;
      for (const int earlier : predecessors(n)) depth[n] = std::max(depth[n], depth[earlier] + 1);
    }
    for (int n = count - 1; n >= 0; --n) {
      if (nodes_[n].fused) continue;
      for (const int earlier : predecessors(n)) height[earlier] = std::max(height[earlier], height[n] + 1);
    }
    order_.clear();
    for (int n = 0; n < count; ++n) {
      if (!nodes_[n].fused) order_.push_back(n);
    }
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return std::pair(depth[a], -height[a]) < std::pair(depth[b], -height[b]); });
  }

  // ---- channels

  /// Messages that fused instructions connect go through one channel, and other messages that share a part of their
  /// way only through others.
  void assignChannels() {
    using Hop = std::pair<int, int>;
    channels_.assign(nodes_.size(), -1);
    std::map<std::pair<std::set<Hop>, int>, int> channelOfFlow;  // with the number of a separated message
    std::map<Hop, std::set<int>> used;
    for (const Scheduled& node : nodes_) {
      if (!node.fused && node.channel >= 0 && node.to >= 0) used[{node.rank, node.to}].insert(node.channel);
    }
    for (const int first : order_) {
      const bool starts = sends(nodes_[first].instruction.kind) && nodes_[first].in < 0;
      if (!starts) continue;
      std::set<Hop> hops;
      std::vector<int> flow{first};
      int moved = 0;
      for (int n = first; nodes_[n].out >= 0;) {
        hops.insert({nodes_[n].rank, nodes_[n].to});
        const auto found = moved_.find(n);
        if (found != moved_.end()) moved = std::max(moved, found->second);
        n = nodes_[n].out;
        flow.push_back(n);
      }
      int channel = nodes_[first].channel;
      if (channel < 0 || moved > 0) {
        const auto known = channelOfFlow.find({hops, moved});
        if (known != channelOfFlow.end()) {
          channel = known->second;
        } else {
          channel = 0;
          while (std::any_of(hops.begin(), hops.end(), [&](const Hop& hop) { return used[hop].contains(channel); })) {
            ++channel;
          }
          for (const Hop& hop : hops) used[hop].insert(channel);
          channelOfFlow[{hops, moved}] = channel;
        }
      }
      for (const int n : flow) channels_[n] = channel;
    }
  }

  // ---- blocks

  struct Block {
    int send = -1, receive = -1, channel = -1;
  };

  /// False: an instruction was separated, begin again.
  bool assignBlocks() {
    blocks_.assign(program_.header.ranks, {});
    block_.assign(nodes_.size(), -1);
    if (options_.manualBlocks) {
      for (const int n : order_) place(n);
      return true;
    }
    // An instruction that receives and sends decides which two connections are one block's.
    for (const int n : order_) {
      if (nodes_[n].from < 0 || nodes_[n].to < 0) continue;
      if (blockFor(n, nodes_[n].from, nodes_[n].to)) continue;
      separate(n);
      return false;
    }
    for (const int n : order_) {
      const Scheduled& node = nodes_[n];
      if (node.from >= 0 && node.to >= 0) continue;
      if (node.from < 0 && node.to < 0) {
        block_[n] = blockOfLocal(n);
      } else {
        blockFor(n, node.from, node.to);
      }
    }
    return true;
  }

  bool blockFor(int n, int from, int to) {
    auto& blocks = blocks_[nodes_[n].rank];
    const int channel = channels_[n];
    int receiving = -1, sending = -1, open = -1;
    for (int b = 0; b < countOf(blocks); ++b) {
      if (blocks[b].channel != channel) continue;
      if (from >= 0 && blocks[b].receive == from) receiving = b;
      if (to >= 0 && blocks[b].send == to) sending = b;
      // A block that serves the same peer in the other direction, or whose other side is free.
      if (from < 0 && blocks[b].send < 0 && blocks[b].receive == to) open = b;
      if (to < 0 && blocks[b].receive < 0 && blocks[b].send == from) open = b;
    }
    int block = receiving >= 0 ? receiving : sending;
    if (receiving >= 0 && sending >= 0 && receiving != sending) return false;
    if (block < 0) block = open;
    if (block < 0) {
      blocks.push_back({-1, -1, channel});
      block = countOf(blocks) - 1;
    }
    Block& found = blocks[block];
    if (from >= 0 && found.receive >= 0 && found.receive != from) return false;
    if (to >= 0 && found.send >= 0 && found.send != to) return false;
    if (from >= 0) found.receive = from;
    if (to >= 0) found.send = to;
    block_[n] = block;
    return true;
  }

  /// Where the last instruction is that it depends on; else where there is one at all.
  int blockOfLocal(int n) {
    int block = 0, last = -1;
    for (const int earlier : nodes_[n].after) {
      const int e = representative(earlier);
      if (block_[e] >= 0 && e > last) {
        block = block_[e];
        last = e;
      }
    }
    auto& blocks = blocks_[nodes_[n].rank];
    if (blocks.empty()) blocks.push_back({-1, -1, 0});
    return block;
  }

  void place(int n) {
    const Scheduled& node = nodes_[n];
    if (node.block < 0) fail(node, "the program assigns blocks itself, but this operation names none (sendtb, recvtb)");
    auto& blocks = blocks_[node.rank];
    if (countOf(blocks) <= node.block) blocks.resize(node.block + 1);
    Block& block = blocks[node.block];
    const auto settle = [&](int& has, int wanted, const char* what) {
      if (wanted < 0) return;
      if (has >= 0 && has != wanted) {
        fail(node, "block ", node.block, " of rank ", node.rank, " already ", what, " ", has, ", and cannot serve ",
             wanted, " too; use another block");
      }
      has = wanted;
    };
    settle(block.send, node.to, "sends to rank");
    settle(block.receive, node.from, "receives from rank");
    if (node.to >= 0 || node.from >= 0) settle(block.channel, channels_[n], "uses channel");
    for (int b = 0; b < countOf(blocks); ++b) {
      if (b == node.block || blocks[b].channel != block.channel) continue;
      const bool same = (block.send >= 0 && blocks[b].send == block.send) ||
                        (block.receive >= 0 && blocks[b].receive == block.receive);
      if (same) {
        fail(node, "blocks ", b, " and ", node.block, " of rank ", node.rank, " have the same peer and channel ",
             block.channel, "; give one another channel (ch)");
      }
    }
    block_[n] = node.block;
  }

  /// Messages of a connection arrive in the order in which they are sent. Separates those that would not.
  bool separateCrossingMessages() {
    std::vector<int> position(nodes_.size(), 0);
    for (int i = 0; i < countOf(order_); ++i) position[order_[i]] = i;
    std::map<std::tuple<int, int, int>, int> lastReceived;  // of a connection: the receiver of its last message
    std::vector<int> crossing;
    for (const int n : order_) {
      if (nodes_[n].out < 0) continue;
      const int receiver = nodes_[n].out;
      auto [last, isNew] = lastReceived.try_emplace({nodes_[n].rank, nodes_[n].to, channels_[n]}, receiver);
      if (!isNew && position[receiver] < position[last->second]) {
        crossing.push_back(n);
      } else {
        last->second = receiver;
      }
    }
    std::set<int> changed;
    for (const int n : crossing) {
      const int receiver = nodes_[n].out;
      if (changed.contains(n) || changed.contains(receiver)) continue;
      changed.insert(n);
      changed.insert(receiver);
      if (joined_.contains(n)) {
        separate(n);
      } else if (joined_.contains(receiver)) {
        separate(receiver);
      } else {
        if (options_.manualBlocks) {
          fail(nodes_[n], "messages of rank ", nodes_[n].rank, " to rank ", nodes_[n].to, " on channel ", channels_[n],
               " are not received in the order in which they are sent; give them different channels (ch)");
        }
        ++moved_[n];
      }
    }
    return !crossing.empty();
  }

  // ---- the result

  void emit() {
    for (int r = 0; r < program_.header.ranks; ++r) {
      auto& blocks = program_.ranks[r].blocks;
      blocks.clear();
      for (const Block& block : blocks_[r]) blocks.push_back({block.send, block.receive, std::max(block.channel, 0)});
    }
    std::vector<int> steps(nodes_.size(), -1);
    for (const int n : order_) {
      auto& blocks = program_.ranks[nodes_[n].rank].blocks;
      auto& list = blocks[block_[n]].steps;
      Instruction instruction = nodes_[n].instruction;
      // Of each other block the last instruction that matters, unless this block knows that already.
      std::map<int, int> last;
      for (const int earlier : nodes_[n].after) {
        const int e = representative(earlier);
        if (block_[e] == block_[n]) continue;
        auto [found, isNew] = last.try_emplace(block_[e], steps[e]);
        found->second = std::max(found->second, steps[e]);
      }
      auto& known = known_[{nodes_[n].rank, block_[n]}];
      for (const auto& [block, step] : last) {
        auto [found, isNew] = known.try_emplace(block, -1);
        if (found->second >= step) continue;
        found->second = step;
        instruction.dependences.emplace_back(block, step);
      }
      steps[n] = countOf(list);
      list.push_back(std::move(instruction));
    }
  }

  InstructionProgram& program_;
  const Draft& buffers_;
  ScheduleOptions options_;
  std::vector<Scheduled> nodes_;
  std::map<Slot, std::vector<SlotUse>> uses_;
  std::map<int, int> joined_;  ///< receivers, and the senders that were joined to them
  std::map<int, int> moved_;   ///< senders whose messages take a channel of their own: how often moved
  std::vector<int> order_;
  std::vector<int> channels_;  ///< of each node
  std::vector<int> block_;     ///< of each node
  std::vector<std::vector<Block>> blocks_;
  std::map<std::pair<int, int>, std::map<int, int>> known_;
};

/// The same without transfers of several chunks: these may hold data of different positions in the message.
Draft splitChunks(Draft draft) {
  for (DraftRank& rank : draft.ranks) {
    for (auto& block : rank.blocks) {
      std::vector<Step> steps;
      for (const Step& step : block) {
        for (int i = 0; i < std::max(step.operation.chunks, 1); ++i) {
          steps.push_back(step);
          if (step.operation.kind != OperationKind::Transfer) continue;
          steps.back().operation.chunks = 1;
          for (auto* list : {&steps.back().sources, &steps.back().destinations}) {
            for (Operand& operand : *list) operand.first += i;
          }
        }
      }
      block = std::move(steps);
    }
  }
  return draft;
}

}  // namespace

void schedule(InstructionProgram& program, const Draft& buffers, const std::vector<TracedOperation>& operations,
              const ScheduleOptions& options) {
  Scheduler(program, buffers, options).run(operations);
}

NamedPlan compileInstructions(const InstructionProgram& program) {
  const Draft draft = lowerInstructions(program);
  Draft joined = draft;
  joinChunks(joined);
  NamedPlan plan = lower(joined);
  if (!place(plan)) {
    NamedPlan split = lower(splitChunks(draft));
    if (place(split)) return split;
  }
  return plan;
}

}  // namespace mscclpp::plan
