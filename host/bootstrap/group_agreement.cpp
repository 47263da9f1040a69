#include "host/bootstrap/group_agreement.hpp"

#include <algorithm>
#include <exception>
#include <numeric>

#include "host/base/byte_stream.hpp"
#include "host/base/error_message.hpp"
#include "host/base/printable_text.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

constexpr WireFormat format{"step of a group", 0x47525053, 1};

std::vector<char> toBytes(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string toString(const std::vector<char>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<int> allRanks(const Bootstrap& bootstrap) {
  std::vector<int> ranks(static_cast<std::size_t>(bootstrap.getNranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

struct GroupAgreement::StepResult {
  std::string step;
  bool failed;
  std::vector<char> result;  ///< the reason, if failed

  std::vector<char> serialize() const;
  static StepResult deserialize(const std::vector<char>& bytes);
};

std::vector<char> GroupAgreement::StepResult::serialize() const {
  ByteWriter writer(format);
  writer.putBytes(toBytes(step)).put(static_cast<std::uint32_t>(failed)).putBytes(result);
  return writer.finish();
}

GroupAgreement::StepResult GroupAgreement::StepResult::deserialize(const std::vector<char>& bytes) {
  ByteReader reader(bytes, format);
  StepResult stepResult;
  stepResult.step = toString(reader.getBytes());
  stepResult.failed = reader.get<std::uint32_t>() != 0;
  stepResult.result = reader.getBytes();
  reader.expectEnd();
  return stepResult;
}

GroupAgreement::GroupAgreement(Bootstrap& bootstrap, std::string errorPrefix)
    : GroupAgreement(bootstrap, allRanks(bootstrap), std::move(errorPrefix)) {}

GroupAgreement::GroupAgreement(Bootstrap& bootstrap, std::vector<int> ranks, std::string errorPrefix)
    : bootstrap_(bootstrap), ranks_(std::move(ranks)), errorPrefix_(std::move(errorPrefix)) {
  std::sort(ranks_.begin(), ranks_.end());
  const auto own = std::find(ranks_.begin(), ranks_.end(), bootstrap_.getRank());
  if (own == ranks_.end()) {
    throw Error(
        errorPrefix_ + ": rank " + std::to_string(bootstrap_.getRank()) + " is not among the ranks of the group",
        ErrorCode::InvalidUsage);
  }
  if (std::adjacent_find(ranks_.begin(), ranks_.end()) != ranks_.end() || ranks_.front() < 0 ||
      ranks_.back() >= bootstrap_.getNranks()) {
    throw Error(errorPrefix_ + ": the ranks of the group must be different and lie in [0, " +
                    std::to_string(bootstrap_.getNranks()) + ")",
                ErrorCode::InvalidUsage);
  }
  groupRank_ = static_cast<int>(own - ranks_.begin());
}

std::vector<GroupAgreement::StepResult> GroupAgreement::exchange(StepResult own) const {
  const std::string step = own.step;
  const std::vector<char> message = own.serialize();
  std::vector<StepResult> stepResults;
  int peer = bootstrap_.getRank();
  try {
    for (const int rank : ranks_) {
      peer = rank;
      if (rank != bootstrap_.getRank()) bootstrap_.send(message, rank, Bootstrap::GroupAgreementTag);
    }
    for (const int rank : ranks_) {
      peer = rank;
      if (rank == bootstrap_.getRank()) {
        stepResults.push_back(std::move(own));
        continue;
      }
      std::vector<char> received;
      bootstrap_.recv(received, rank, Bootstrap::GroupAgreementTag);
      stepResults.push_back(StepResult::deserialize(received));
    }
  } catch (const Error& error) {
    throw Error(
        errorPrefix_ + ": while waiting for rank " + std::to_string(peer) + " to " + step + ": " + messageOf(error),
        error.getErrorCode());
  }
  return stepResults;
}

void GroupAgreement::requireSize(std::size_t index, const std::vector<char>& result, std::size_t bytes) const {
  if (result.size() == bytes) return;
  throw Error(errorPrefix_ + ": rank " + std::to_string(ranks_[index]) + " sends " + std::to_string(result.size()) +
                  " bytes where this rank has " + std::to_string(bytes) +
                  ": use the same version of mscclpp on all ranks",
              ErrorCode::InvalidUsage);
}

std::vector<std::vector<char>> GroupAgreement::runStep(const std::string& step,
                                                       const std::function<std::vector<char>()>& body) const {
  StepResult own{step, false, {}};
  std::exception_ptr failure;
  try {
    own.result = body();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    own.failed = true;
    own.result = toBytes(error.what());
  }
  const std::vector<StepResult> stepResults = exchange(std::move(own));
  if (failure) std::rethrow_exception(failure);
  std::vector<std::vector<char>> results;
  for (int i = 0; i < size(); ++i) {
    const StepResult& stepResult = stepResults[static_cast<std::size_t>(i)];
    const std::string who = errorPrefix_ + ": rank " + std::to_string(ranks_[static_cast<std::size_t>(i)]);
    if (stepResult.step != step) {
      throw Error(who + " is about to " + printableText(stepResult.step) + ", and this rank to " + step +
                      ": every rank of the group must make the same calls",
                  ErrorCode::InvalidUsage);
    }
    if (stepResult.failed)
      throw Error(who + " failed to " + step + ": " + printableText(toString(stepResult.result)),
                  ErrorCode::RemoteError);
    results.push_back(stepResult.result);
  }
  return results;
}

}  // namespace mscclpp::detail
