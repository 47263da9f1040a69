#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>

#include "instructions.hpp"
#include "message.hpp"
#include "passes.hpp"

namespace mscclpp::plan {

namespace {

/// Above this the order relation takes too much memory: all messages then go through scratch.
constexpr int maxOrderedInstructions = 30000;

struct SentMessage {
  int sender = -1;  ///< an index of Lowering::nodes_
  int receiver = -1;
  Operand target;  ///< where the sender writes
  int connection = 0;
};

struct Lowered {
  int rank = 0, block = 0, step = 0;
  int in = -1, out = -1;  ///< messages
};

/// The messages of one (sender, receiver, channel).
struct Connection {
  int from = 0, to = 0;
  int fromChannel = -1, toChannel = -1;  ///< channels of the two ranks
  int channel = 0;                       ///< the program's number
  bool port = false;
  bool ready = false;  ///< the receiver says when it has started
};

class Lowering {
 public:
  explicit Lowering(const InstructionProgram& program)
      : program_(program), draft_(makeDraft(program.header, program.name)) {
    draft_.origins = program.origins;
    draft_.expectations = program.expectations;
  }

  Draft run() {
    number();
    match();
    order();
    place();
    findReadiness();
    emit();
    return std::move(draft_);
  }

 private:
  const Instruction& instruction(int node) const {
    const Lowered& at = nodes_[node];
    return program_.ranks[at.rank].blocks[at.block].steps[at.step];
  }
  const InstructionBlock& blockOf(int node) const {
    return program_.ranks[nodes_[node].rank].blocks[nodes_[node].block];
  }
  template <class... Parts>
  [[noreturn]] void fail(int node, const Parts&... why) const {
    const Lowered& at = nodes_[node];
    const int origin = instruction(node).origin;
    reject(origin >= 0 ? program_.origins[origin] + ": " : "", "rank ", at.rank, ", block ", at.block, ", step ",
           at.step, ": ", why...);
  }

  void number() {
    for (int r = 0; r < countOf(program_.ranks); ++r) {
      firsts_.emplace_back();
      const InstructionRank& rank = program_.ranks[r];
      draft_.ranks[r].inputChunks = rank.inputChunks;
      draft_.ranks[r].outputChunks = rank.outputChunks;
      draft_.ranks[r].scratchChunks = rank.scratchChunks;
      for (int b = 0; b < countOf(program_.ranks[r].blocks); ++b) {
        firsts_.back().push_back(countOf(nodes_));
        for (int s = 0; s < countOf(program_.ranks[r].blocks[b].steps); ++s) nodes_.push_back({r, b, s});
      }
    }
  }

  /// Finds the two ends of each message.
  void match() {
    using Key = std::tuple<int, int, int>;  // from, to, channel
    std::map<Key, std::pair<std::vector<int>, std::vector<int>>> ends;
    for (int n = 0; n < countOf(nodes_); ++n) {
      const InstructionBlock& block = blockOf(n);
      const InstructionKind kind = instruction(n).kind;
      const int ranks = program_.header.ranks, own = nodes_[n].rank;
      if (sends(kind)) {
        if (block.send < 0 || block.send >= ranks || block.send == own) fail(n, "the block sends to no other rank");
        ends[{own, block.send, block.channel}].first.push_back(n);
      }
      if (receives(kind)) {
        if (block.receive < 0 || block.receive >= ranks || block.receive == own) {
          fail(n, "the block receives from no other rank");
        }
        ends[{block.receive, own, block.channel}].second.push_back(n);
      }
    }
    for (const auto& [key, lists] : ends) {
      const auto& [senders, receivers] = lists;
      const auto [from, to, channel] = key;
      if (senders.size() != receivers.size()) {
        fail(senders.size() > receivers.size() ? senders[receivers.size()] : receivers[senders.size()], "rank ", from,
             " sends ", senders.size(), " messages to rank ", to, " on channel ", channel, ", which receives ",
             receivers.size());
      }
      for (const auto* list : {&senders, &receivers}) {
        for (const int n : *list) {
          if (nodes_[n].block != nodes_[list->front()].block) {
            fail(n, "two blocks of rank ", nodes_[n].rank, " have one end of channel ", channel, " from rank ", from,
                 " to rank ", to);
          }
        }
      }
      const int perNode = program_.ranksPerNode;
      const bool port = perNode > 0 && from / perNode != to / perNode;
      const Access access = port ? Access::Port : Access::Memory;
      draft_.ranks[from].channels.push_back({access, to});
      draft_.ranks[to].channels.push_back({access, from});
      connections_.push_back(
          {from, to, countOf(draft_.ranks[from].channels) - 1, countOf(draft_.ranks[to].channels) - 1, channel, port});
      for (std::size_t i = 0; i < senders.size(); ++i) {
        if (instruction(senders[i]).count != instruction(receivers[i]).count) {
          fail(receivers[i], "receives ", instruction(receivers[i]).count, " chunks of a message of ",
               instruction(senders[i]).count);
        }
        nodes_[senders[i]].out = nodes_[receivers[i]].in = countOf(messages_);
        messages_.push_back({senders[i], receivers[i], {}, countOf(connections_) - 1});
      }
    }
  }

  std::vector<int> predecessors(int n) const {
    const Lowered& node = nodes_[n];
    std::vector<int> list;
    if (node.step > 0) list.push_back(n - 1);
    if (node.in >= 0) list.push_back(messages_[node.in].sender);
    for (const auto& [block, step] : instruction(n).dependences) {
      const bool exists = block >= 0 && block < countOf(firsts_[node.rank]) && step >= 0 &&
                          step < countOf(program_.ranks[node.rank].blocks[block].steps);
      if (!exists) fail(n, "depends on block ", block, ", step ", step, ", which does not exist");
      list.push_back(firsts_[node.rank][block] + step);
    }
    return list;
  }

  /// For each instruction those that come before it in every execution.
  void order() {
    const int count = countOf(nodes_);
    std::vector<std::vector<int>> before(count), after(count);
    std::vector<int> missing(count, 0);
    std::deque<int> next;
    for (int n = 0; n < count; ++n) {
      before[n] = predecessors(n);
      missing[n] = countOf(before[n]);
      for (const int earlier : before[n]) after[earlier].push_back(n);
      if (missing[n] == 0) next.push_back(n);
    }
    words_ = count <= maxOrderedInstructions ? (count + 63) / 64 : 0;
    earlier_.assign(static_cast<std::size_t>(words_) * count, 0);
    int done = 0;
    for (; !next.empty(); ++done) {
      const int n = next.front();
      next.pop_front();
      sorted_.push_back(n);
      for (const int one : before[n]) {
        for (int w = 0; w < words_; ++w) set(n)[w] |= set(one)[w];
        if (words_ > 0) set(n)[one / 64] |= std::uint64_t{1} << (one % 64);
      }
      for (const int later : after[n]) {
        if (--missing[later] == 0) next.push_back(later);
      }
    }
    for (int n = 0; done < count && n < count; ++n) {
      if (missing[n] > 0) fail(n, "waits for itself: its dependences and messages form a cycle");
    }
  }
  std::uint64_t* set(int n) { return earlier_.data() + static_cast<std::size_t>(words_) * n; }
  bool isBefore(int a, int b) { return ((set(b)[a / 64] >> (a % 64)) & 1) != 0; }
  bool isAnyBefore(int rank, int b) {
    for (const int first : firsts_[rank]) {
      if (first < countOf(nodes_) && nodes_[first].rank == rank && isBefore(first, b)) return true;
    }
    return false;
  }

  Operand operand(int rank, const ChunkPlace& place) const {
    return {.buffer = place.buffer, .rank = static_cast<std::int16_t>(rank), .first = place.index};
  }

  /// Chooses where each message is written.
  void place() {
    // Of each rank: which instructions touch a chunk.
    std::map<std::tuple<int, BufferKind, int>, std::vector<int>> touches;
    for (int n = 0; n < countOf(nodes_); ++n) {
      const Instruction& at = instruction(n);
      if (at.kind == InstructionKind::Nop) continue;
      const auto note = [&](const ChunkPlace& chunk) {
        for (int i = 0; i < at.count; ++i) {
          const Operand each = canonical(draft_, operand(nodes_[n].rank, chunk), i);
          touches[{nodes_[n].rank, each.buffer, each.first}].push_back(n);
        }
      };
      if (at.kind == InstructionKind::Send || reduces(at.kind) || !receives(at.kind)) note(at.source);
      if (at.kind != InstructionKind::Send && at.kind != InstructionKind::ReceiveReduceSend) note(at.destination);
    }
    const auto isFree = [&](const SentMessage& message) {
      const Instruction& at = instruction(message.receiver);
      for (int i = 0; i < at.count; ++i) {
        const Operand each = canonical(draft_, operand(nodes_[message.receiver].rank, at.destination), i);
        for (const int n : touches[{each.rank, each.buffer, each.first}]) {
          if (n != message.receiver && !isBefore(message.receiver, n) && !isBefore(n, message.sender)) return false;
        }
      }
      return true;
    };
    for (SentMessage& message : messages_) {
      const Instruction& at = instruction(message.receiver);
      const Connection& connection = connections_[message.connection];
      const bool packets = program_.packets && !connection.port;
      // Packets show that they were sent, not that their block has read all that it sent: a place may not be free.
      const bool direct = !program_.packets && !reduces(at.kind) && words_ > 0 && isFree(message);
      if (direct) {
        message.target = operand(connection.to, at.destination);
        if (message.target.buffer != BufferKind::Scratch && !isAnyBefore(connection.to, message.sender)) {
          connections_[message.connection].ready = true;
        }
      } else {
        int& chunks = draft_.ranks[connection.to].scratchChunks;
        message.target = operand(connection.to, {BufferKind::Scratch, chunks});
        chunks += at.count;
        if (packets) message.target.form = Form::Packet;
      }
      message.target.access = connection.port ? Access::Port : Access::Memory;
      if (connection.port) message.target.channel = static_cast<std::int16_t>(connection.fromChannel);
      if (message.target.buffer == BufferKind::Scratch) draft_.header.doubleScratch = true;
    }
  }

  /// Of each message, whether calls of all sizes have it: signals, and packets of the first chunk of a part. Later ones
  /// are empty in short calls.
  std::vector<bool> alwaysSent() {
    std::map<std::tuple<int, BufferKind, int>, int> positions;  // in their part, of what chunks hold
    const auto placedAt = [&](int rank, const ChunkPlace& place, int i) -> int& {
      const Operand each = canonical(draft_, operand(rank, place), i);
      const int chunk = each.first % program_.header.chunksPerPart;
      return positions.try_emplace({rank, each.buffer, each.first}, chunk).first->second;
    };
    std::vector<std::vector<int>> sent(messages_.size());
    std::vector<bool> always(messages_.size(), false);
    for (const int n : sorted_) {
      const Lowered& node = nodes_[n];
      const Instruction& at = instruction(n);
      for (int i = 0; i < at.count && at.kind != InstructionKind::Nop; ++i) {
        const int position = node.in >= 0 ? sent[node.in][i] : placedAt(node.rank, at.source, i);
        if (storesReceived(at.kind) || at.kind == InstructionKind::Copy) {
          placedAt(node.rank, at.destination, i) = position;
        }
        if (node.out < 0) continue;
        sent[node.out].push_back(position);
        if (position == 0 || messages_[node.out].target.form == Form::Plain) always[node.out] = true;
      }
    }
    return always;
  }

  /// A sender into scratch that never hears of the receiver could be calls ahead of it.
  void findReadiness() {
    const int ranks = program_.header.ranks;
    std::vector<std::vector<bool>> hears(ranks, std::vector<bool>(ranks, false));  // [rank][of rank]
    if (words_ > 0) {
      const std::vector<bool> always = alwaysSent();
      std::vector<std::vector<bool>> heard(nodes_.size(), std::vector<bool>(ranks, false));
      for (const int n : sorted_) {
        const int rank = nodes_[n].rank;
        for (const int earlier : predecessors(n)) {
          const int of = nodes_[earlier].rank;
          if (of != rank && !always[nodes_[n].in]) continue;
          heard[n][of] = true;
          for (int r = 0; r < ranks; ++r) heard[n][r] = heard[n][r] || heard[earlier][r];
        }
        for (int r = 0; r < ranks; ++r) hears[rank][r] = hears[rank][r] || heard[n][r];
      }
    }
    for (const SentMessage& message : messages_) {
      Connection& connection = connections_[message.connection];
      if (message.target.buffer != BufferKind::Scratch || hears[connection.from][connection.to]) continue;
      connection.ready = true;
    }
  }

  // ---- operations

  void emit() {
    std::map<std::tuple<int, int, int>, int> semaphores;  // rank, producing block, consuming block
    // Which instructions others wait for, and with which semaphores.
    std::map<int, std::vector<int>> releases;
    std::map<int, std::vector<int>> acquires;
    for (int n = 0; n < countOf(nodes_); ++n) {
      const Lowered& node = nodes_[n];
      if (node.step == 0) known_.clear();
      for (const auto& [block, step] : instruction(n).dependences) {
        if (block == node.block) continue;
        const auto known = known_.find(block);
        if (known != known_.end() && known->second >= step) continue;
        known_[block] = step;
        const auto [found, isNew] = semaphores.try_emplace({node.rank, block, node.block}, 0);
        auto& values = draft_.ranks[node.rank].semaphores;
        if (isNew) {
          found->second = countOf(values);
          values.push_back(0);
        }
        releases[firsts_[node.rank][block] + step].push_back(found->second);
        acquires[n].push_back(found->second);
      }
    }
    for (DraftRank& rank : draft_.ranks) rank.blocks.resize(program_.ranks[&rank - draft_.ranks.data()].blocks.size());
    for (int n = 0; n < countOf(nodes_); ++n) {
      const Lowered& node = nodes_[n];
      steps_ = &draft_.ranks[node.rank].blocks[node.block];
      origin_ = instruction(n).origin;
      if (node.step == 0) announce(node);
      if (const auto found = acquires.find(n); found != acquires.end()) {
        add({{.kind = OperationKind::Acquire}, {}, {}, found->second});
      }
      emitInstruction(n);
      if (const auto found = releases.find(n); found != releases.end()) {
        add({{.kind = OperationKind::Release}, {}, {}, found->second});
      }
    }
    // What is received may now be read by the operation that needs it, which may then be fused.
    for (int pass = 0; pass < 2; ++pass) {
      forwardCopies(draft_);
      forEachBlock([&](std::vector<Step>& block) { block = fuse(draft_, block); });
    }
    dropUnreadStores(draft_);
    forEachBlock([&](std::vector<Step>& block) {
      flushPorts(block);
      block = insertSyncs(draft_, block, SyncScope::Publish);
    });
  }

  template <class Change>
  void forEachBlock(const Change& change) {
    for (DraftRank& rank : draft_.ranks) {
      for (auto& block : rank.blocks) change(block);
    }
  }

  void add(Step step) {
    step.operation.origin = origin_;
    steps_->push_back(std::move(step));
  }

  /// At the start of a receiving block: the sender may begin.
  void announce(const Lowered& node) {
    for (const Connection& connection : connections_) {
      const InstructionBlock& block = program_.ranks[node.rank].blocks[node.block];
      if (!connection.ready || connection.to != node.rank || connection.from != block.receive) continue;
      if (connection.channel != block.channel) continue;
      add({{.kind = OperationKind::Signal}, {}, {}, {connection.toChannel}});
    }
  }
  void emitInstruction(int n) {
    const Lowered& node = nodes_[n];
    const Instruction& at = instruction(n);
    const Operand source = operand(node.rank, at.source), destination = operand(node.rank, at.destination);
    std::vector<Operand> sources, destinations;
    bool stored = false;  // the message is where it is to be
    if (receives(at.kind)) {
      Operand arrived = messages_[node.in].target;
      const Connection& connection = connections_[messages_[node.in].connection];
      arrived.access = Access::Local;
      arrived.channel = -1;
      if (arrived.form == Form::Plain) add({{.kind = OperationKind::Wait}, {}, {}, {connection.toChannel}});
      stored = storesReceived(at.kind) && arrived == destination;
      if (reduces(at.kind)) sources.push_back(source);
      sources.push_back(arrived);
    } else if (at.kind == InstructionKind::Reduce) {
      sources = {destination, source};
    } else {
      sources = {source};
    }
    if (at.kind == InstructionKind::Nop) return;
    if (at.kind != InstructionKind::Send && at.kind != InstructionKind::ReceiveReduceSend && !stored) {
      destinations.push_back(destination);
    }
    if (!sends(at.kind)) return transfer(at.count, sources, destinations);
    const SentMessage& message = messages_[node.out];
    const Connection& connection = connections_[message.connection];
    const bool isFirst = node.out == 0 || messages_[node.out - 1].connection != message.connection;
    if (connection.ready && isFirst) {
      add({{.kind = OperationKind::Wait}, {}, {}, {connection.fromChannel}});
    }
    if (!connection.port) {
      destinations.push_back(message.target);
      transfer(at.count, sources, destinations);
    } else {
      // A proxy reads one plain operand.
      if (destinations.empty() && (sources.size() > 1 || sources.front().form == Form::Packet)) {
        int& chunks = draft_.ranks[node.rank].scratchChunks;
        destinations.push_back(operand(node.rank, {BufferKind::Scratch, chunks}));
        chunks += at.count;
      }
      transfer(at.count, sources, destinations);
      transfer(at.count, {destinations.empty() ? sources.front() : destinations.front()}, {message.target});
    }
    if (message.target.form == Form::Plain) {
      add({{.kind = OperationKind::Signal}, {}, {}, {connection.fromChannel}});
    }
  }

  void transfer(int chunks, const std::vector<Operand>& sources, const std::vector<Operand>& destinations) {
    if (destinations.empty()) return;
    add({{.kind = OperationKind::Transfer, .chunks = chunks}, sources, destinations});
  }

  /// What a proxy reads is flushed before the block overwrites it, and at the end.
  void flushPorts(std::vector<Step>& block) const {
    std::vector<Step> flushed;
    std::vector<std::pair<Operand, int>> pending;  // sources and chunks
    std::vector<int> channels;
    const auto flush = [&] {
      if (!channels.empty()) flushed.push_back({{.kind = OperationKind::Flush}, {}, {}, channels});
      pending.clear();
      channels.clear();
    };
    for (Step& step : block) {
      if (step.operation.kind == OperationKind::Transfer) {
        for (const Operand& operand : step.destinations) {
          for (const auto& [source, chunks] : pending) {
            const bool overlaps = overlap(draft_, operand, step.operation.chunks, source, chunks);
            if (overlaps) {
              flush();
              break;
            }
          }
        }
        if (step.destinations.front().access == Access::Port) {
          pending.emplace_back(step.sources.front(), step.operation.chunks);
          const int channel = step.destinations.front().channel;
          if (std::find(channels.begin(), channels.end(), channel) == channels.end()) channels.push_back(channel);
        }
      } else if (step.operation.kind == OperationKind::Release) {
        // Another block may overwrite it.
        flush();
      }
      flushed.push_back(std::move(step));
    }
    flush();
    block = std::move(flushed);
  }

  const InstructionProgram& program_;
  Draft draft_;
  std::vector<Lowered> nodes_;
  std::vector<std::vector<int>> firsts_;  ///< of each rank and block: its first node
  std::vector<SentMessage> messages_;
  std::vector<Connection> connections_;
  std::vector<int> sorted_;  ///< nodes_, each behind those that come before it
  std::vector<std::uint64_t> earlier_;
  int words_ = 0;
  std::map<int, int> known_;  ///< of the block: how far it knows that others are
  std::vector<Step>* steps_ = nullptr;
  int origin_ = -1;
};

}  // namespace

Draft lowerInstructions(const InstructionProgram& program) {
  return Lowering(program).run();
}

InstructionProgram replicate(const InstructionProgram& program, int instances, bool batched) {
  if (instances == 1) return program;
  InstructionProgram result = program;
  const Header& header = program.header;
  const bool custom = header.collective == CollectiveKind::Custom;
  if (!custom) result.header.chunksPerPart *= instances;
  for (int r = 0; r < countOf(program.ranks); ++r) {
    const InstructionRank& rank = program.ranks[r];
    InstructionRank& to = result.ranks[r];
    to.inputChunks *= instances;
    to.outputChunks *= instances;
    to.scratchChunks *= instances;
    to.blocks.clear();
    for (int b = 0; b < countOf(rank.blocks); ++b) {
      // Interleaved, an instruction of several chunks becomes as many: where each begins and ends.
      std::vector<std::vector<int>> starts(rank.blocks.size());
      for (std::size_t k = 0; k < rank.blocks.size(); ++k) {
        int next = 0;
        for (const Instruction& step : rank.blocks[k].steps) {
          next += batched ? 1 : step.count;
          starts[k].push_back(next - 1);
        }
      }
      for (int i = 0; i < instances; ++i) {
        InstructionBlock block = rank.blocks[b];
        block.channel = block.channel * instances + i;
        block.steps.clear();
        const auto move = [&](ChunkPlace place, int offset) {
          const int part = place.buffer == BufferKind::Scratch ? rank.scratchChunks : custom ? 1 : header.chunksPerPart;
          const int k = (place.index + offset) % std::max(part, 1);
          place.index = (place.index + offset - k) * instances + (batched ? i * part + k : k * instances + i);
          return place;
        };
        for (int s = 0; s < countOf(rank.blocks[b].steps); ++s) {
          const Instruction& step = rank.blocks[b].steps[s];
          for (int offset = 0; offset < (batched ? 1 : step.count); ++offset) {
            Instruction moved = step;
            moved.source = move(step.source, offset);
            moved.destination = move(step.destination, offset);
            if (!batched) {
              moved.count = 1;
            } else {
              for (const auto& [now, first] :
                   {std::pair{moved.source, step.source}, {moved.destination, step.destination}}) {
                if (move(first, step.count - 1).index != now.index + step.count - 1) {
                  reject(step.origin >= 0 ? program.origins[step.origin] + ": " : "", "an operation on ", step.count,
                         " chunks of several parts cannot be made in instances; split it");
                }
              }
            }
            for (auto& [otherBlock, otherStep] : moved.dependences) {
              otherStep = starts[otherBlock][otherStep];
              otherBlock = otherBlock * instances + i;
            }
            if (offset > 0) moved.dependences.clear();
            block.steps.push_back(std::move(moved));
          }
        }
        to.blocks.push_back(std::move(block));
      }
    }
  }
  result.expectations.clear();
  for (const DraftExpectation& expectation : program.expectations) {
    for (int i = 0; i < instances; ++i) {
      DraftExpectation moved = expectation;
      moved.chunk = moved.chunk * instances + i;
      for (auto& contribution : moved.contributions) contribution.second = contribution.second * instances + i;
      result.expectations.push_back(std::move(moved));
    }
  }
  return result;
}

}  // namespace mscclpp::plan
