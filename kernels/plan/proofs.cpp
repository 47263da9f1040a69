#include "kernels/plan/proofs.hpp"

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/plan/completions.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/kernels/plan/verify.hpp"
#include "mscclpp/plan/check.hpp"

namespace mscclpp::plan {

namespace {

using jit::detail::ContentHash;

/// For other processes that prove the same plan.
constexpr std::chrono::minutes lockTimeout(1);

/// Of the proof that numbers of iterations may change: a second, in the first call that changes it.
constexpr CheckLimits mixedIterationsLimits{.steps = std::uint64_t{1} << 29, .numbers = std::uint64_t{1} << 25};
/// What is kept of it.
constexpr std::string_view mayChange = "may change";
constexpr std::string_view mayNotChange = "may not change";

/// All numbers of a plan, in order.
class Content {
 public:
  template <class... Values>
  void add(Values... values) {
    (numbers_.push_back(static_cast<std::int64_t>(values)), ...);
  }
  void add(const Range& range) { add(range.first, range.count); }
  template <class List, class Add>
  void addList(const List& list, const Add& addEntry) {
    add(list.size());
    for (const auto& entry : list) addEntry(entry);
  }
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(numbers_.data()), numbers_.size() * sizeof(std::int64_t)};
  }

 private:
  std::vector<std::int64_t> numbers_;
};

/// What is found out of each operation when a plan is proven.
struct Finding {
  std::int32_t position;
  std::int32_t completes;
};

std::string findingsOf(const Plan& plan) {
  std::vector<Finding> findings;
  for (const Operation& operation : plan.operations)
    findings.push_back({operation.position, operation.completes ? 1 : 0});
  return {reinterpret_cast<const char*>(findings.data()), findings.size() * sizeof(Finding)};
}

/// False if these are not those of the plan's operations.
bool setFindings(Plan& plan, const std::string& bytes) {
  if (bytes.size() != plan.operations.size() * sizeof(Finding)) return false;
  for (std::size_t i = 0; i < plan.operations.size(); ++i) {
    Finding finding{};
    std::memcpy(&finding, bytes.data() + i * sizeof(Finding), sizeof(Finding));
    plan.operations[i].position = finding.position;
    plan.operations[i].completes = finding.completes != 0;
  }
  return true;
}

}  // namespace

ContentHash::Digest digestOf(const Plan& plan) {
  Content content;
  content.add(plan.collective, plan.ranks, plan.root, plan.chunksPerPart, plan.inPlace, plan.threadsPerBlock,
              plan.alignment, plan.minBytes, plan.maxBytes, plan.doubleScratch, plan.reuseResources);
  content.addList(plan.rankPlans, [&](const RankPlan& rank) {
    content.add(rank.inputChunks, rank.outputChunks, rank.scratchChunks);
    content.add(rank.blocks);
    content.add(rank.channels);
    content.add(rank.semaphores);
  });
  content.addList(plan.blocks, [&](const Block& block) { content.add(block.operations); });
  content.addList(plan.operations, [&](const Operation& operation) {
    content.add(operation.kind, operation.relaxed, operation.chunks, operation.position, operation.index,
                operation.blocks, operation.share, operation.shares, operation.unitBytes);
    content.add(operation.sources);
    content.add(operation.destinations);
    content.add(operation.references);
  });
  content.addList(plan.operands, [&](const Operand& operand) {
    content.add(operand.buffer, operand.form, operand.access, operand.rank, operand.channel, operand.first);
  });
  content.addList(plan.channels, [&](const Channel& channel) {
    content.add(channel.access, channel.peer, channel.buffer);
    content.add(channel.members);
  });
  content.addList(plan.references, [&](std::int32_t reference) { content.add(reference); });
  content.addList(plan.expectations, [&](const Expectation& expectation) {
    content.add(expectation.rank, expectation.chunk);
    content.add(expectation.contributions);
  });
  return ContentHash().add(content.bytes()).finish();
}

std::string proofKeyOf(const Plan& plan) {
  const ContentHash::Digest digest = digestOf(plan);
  ContentHash hash;
  hash.add(checkerVersion()).add({reinterpret_cast<const char*>(digest.data()), digest.size()});
  return hash.finishAsText();
}

std::string mixedIterationsKeyOf(const Plan& plan) {
  const auto text = [](std::uint64_t number) { return std::to_string(number) + ";"; };
  return ContentHash()
      .add(proofKeyOf(plan))
      .add("mixed iterations;" + text(mixedIterationsLimits.steps) + text(mixedIterationsLimits.numbers))
      .finishAsText();
}

Proofs Proofs::ofUser() {
  return Proofs(std::filesystem::path(env()->cacheDir) / "plans");
}

template <class Read, class Prove>
void Proofs::findOrProve(const std::string& key, const Read& read, const Prove& prove) const {
  const auto isKnown = [&] {
    const std::optional<jit::detail::CachedProgram> found = cache_.find(key);
    return found && read(found->image);
  };
  if (isKnown()) return;
  const auto lock = cache_.lock(key, mscclpp::detail::Deadline::after(lockTimeout));
  if (isKnown()) return;
  cache_.store(key, {prove(), {}, {}});
}

NamedPlan Proofs::verified(NamedPlan plan) const {
  findOrProve(
      proofKeyOf(plan), [&](const std::string& findings) { return setFindings(plan, findings); },
      [&] {
        plan = plan::verified(std::move(plan));
        setCompletions(plan);
        return findingsOf(plan);
      });
  return plan;
}

bool Proofs::allowMixedIterations(const Plan& plan) const {
  bool may = false;
  findOrProve(
      mixedIterationsKeyOf(plan),
      [&](const std::string& answer) {
        may = answer == mayChange;
        return may || answer == mayNotChange;
      },
      [&] {
        may = !checkMixedIterations(plan, mixedIterationsLimits);
        return std::string(may ? mayChange : mayNotChange);
      });
  return may;
}

}  // namespace mscclpp::plan
