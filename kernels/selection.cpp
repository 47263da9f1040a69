#include "selection.hpp"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string_view>

#include "call_arguments.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "tuning.hpp"
#include "tuning_file.hpp"

namespace mscclpp::kernels {

namespace {

using Choices = std::vector<Selection::Choice>;

/// The built-in choices for launches of at most `maxBlocks` blocks and the number of ranks that is nearest to `ranks`;
/// of two, the smaller one.
Choices builtInChoices(std::span<const TuningEntry> table, CollectiveType collective, int ranks, int maxBlocks) {
  int nearest = 0;
  for (const TuningEntry& entry : table) {
    if (entry.collective != collective) continue;
    const int distance = std::abs(entry.ranks - ranks);
    const int best = std::abs(nearest - ranks);
    if (nearest == 0 || distance < best || (distance == best && entry.ranks < nearest)) nearest = entry.ranks;
  }
  Choices choices;
  for (const TuningEntry& entry : table) {
    if (entry.collective != collective || entry.ranks != nearest) continue;
    if (std::min(maxBlocks, mostBlocks) > entry.blocks) continue;
    choices.push_back({entry.maxBytes, indexOf(collective, entry.algorithm)});
  }
  return choices;
}

std::string quoted(std::string_view text) {
  return std::string(1, '"').append(text).append(1, '"');
}

std::string knownNames(CollectiveType collective) {
  std::string names;
  for (const Algorithm& algorithm : algorithmTable) {
    if (algorithm.collective == collective) names += (names.empty() ? "" : ", ") + std::string(algorithm.name);
  }
  return names;
}

}  // namespace

std::vector<std::size_t> parseAlgorithmList(const std::string& list) {
  std::vector<std::size_t> found;
  if (list.empty()) return found;
  std::string_view rest = list;
  for (bool isLast = false; !isLast;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    isLast = comma == std::string_view::npos;
    if (!isLast) rest.remove_prefix(comma + 1);
    const std::size_t colon = item.find(':');
    const std::string_view collectiveName = item.substr(0, colon);
    const auto fail = [&](const std::string& why) {
      throw Error("MSCCLPP_ALGO=" + list + ": " + why + "; it is a list such as all_reduce:two_shot_ll128," +
                      "all_gather:pipelined",
                  ErrorCode::InvalidUsage);
    };
    if (colon == std::string_view::npos) fail(quoted(item) + " has no colon");
    const auto collective = findCollective(collectiveName);
    if (!collective) fail("there is no collective " + quoted(collectiveName));
    const std::size_t index = indexOf(*collective, item.substr(colon + 1));
    if (index == algorithmTable.size()) {
      fail(std::string(collectiveName) + " has no algorithm " + quoted(item.substr(colon + 1)) + "; it has " +
           knownNames(*collective));
    }
    found.push_back(index);
  }
  return found;
}

Selection::Selection(DeviceType deviceType, const std::string& deviceName, int ranks, int maxBlocks) {
  const bool onGpu = deviceType == DeviceType::GPU;
  for (int i = 0; i < collectiveTypes; ++i) {
    const auto collective = static_cast<CollectiveType>(i);
    const std::span<const TuningEntry> table =
        onGpu ? std::span<const TuningEntry>(gpuTuningTable) : std::span<const TuningEntry>(cpuTuningTable);
    choices_[static_cast<std::size_t>(i)] = builtInChoices(table, collective, ranks, maxBlocks);
  }
  if (!env()->tuningFile.empty()) {
    for (const MeasuredChoice& measured : readTuningFile(env()->tuningFile, deviceName, ranks)) {
      Choices& choices = choices_[static_cast<std::size_t>(algorithmTable[measured.algorithm].collective)];
      if (measured.isFirst) choices.clear();
      choices.push_back({measured.maxBytes, measured.algorithm});
    }
  }
  for (const std::size_t forced : parseAlgorithmList(env()->algo)) {
    Choices& choices = choices_[static_cast<std::size_t>(algorithmTable[forced].collective)];
    choices.insert(choices.begin(), {algorithmTable[forced].maxBytes, forced});
  }
}

std::vector<AlgorithmInUse> Selection::algorithmsInUse() const {
  std::vector<AlgorithmInUse> inUse;
  for (const AlgorithmInUse& each : allAlgorithms()) {
    const CollectiveType collective = algorithmTable[each.algorithm].collective;
    bool isChosen = each.algorithm == fallbackOf(collective);
    std::size_t longest = 0;
    for (const Choice& choice : choices(collective)) {
      if (choice.algorithm != each.algorithm) continue;
      isChosen = true;
      longest = std::max(longest, choice.maxBytes);
    }
    // What takes any size has the same scratch for all sizes.
    if (isChosen) inUse.push_back({each.algorithm, each.maxBytes == noLimit ? noLimit : longest});
  }
  return inUse;
}

std::vector<AlgorithmInUse> allAlgorithms() {
  std::vector<AlgorithmInUse> all;
  for (std::size_t i = 0; i < algorithmTable.size(); ++i) {
    if (algorithmTable[i].variants != Variants::CopyEngine) all.push_back({i, algorithmTable[i].maxBytes});
  }
  return all;
}

}  // namespace mscclpp::kernels
