#include "group_agreement.hpp"

#include <algorithm>
#include <exception>

#include "byte_stream.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

namespace {

constexpr Form form{"step of a group", 0x47525053, 1};

std::vector<char> bytesOfText(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string textOf(const std::vector<char>& bytes) {
  return {bytes.begin(), bytes.end()};
}

struct Outcome {
  std::string step;
  bool failed;
  std::vector<char> result;  ///< the reason, if failed
};

std::vector<char> write(const Outcome& outcome) {
  ByteWriter writer(form);
  writer.putBytes(bytesOfText(outcome.step)).put(static_cast<std::uint32_t>(outcome.failed)).putBytes(outcome.result);
  return writer.finish();
}

Outcome read(const std::vector<char>& bytes) {
  ByteReader reader(bytes, form);
  Outcome outcome;
  outcome.step = textOf(reader.getBytes());
  outcome.failed = reader.get<std::uint32_t>() != 0;
  outcome.result = reader.getBytes();
  reader.end();
  return outcome;
}

}  // namespace

GroupAgreement::GroupAgreement(std::shared_ptr<Bootstrap> bootstrap, std::vector<int> ranks, std::string what)
    : bootstrap_(std::move(bootstrap)), ranks_(std::move(ranks)), what_(std::move(what)) {
  std::sort(ranks_.begin(), ranks_.end());
  const auto own = std::find(ranks_.begin(), ranks_.end(), bootstrap_->getRank());
  if (own == ranks_.end()) {
    throw Error(what_ + ": rank " + std::to_string(bootstrap_->getRank()) + " is not among the ranks of the group",
                ErrorCode::InvalidUsage);
  }
  if (std::adjacent_find(ranks_.begin(), ranks_.end()) != ranks_.end() || ranks_.front() < 0 ||
      ranks_.back() >= bootstrap_->getNranks()) {
    throw Error(what_ + ": the ranks of the group must be different and lie in [0, " +
                    std::to_string(bootstrap_->getNranks()) + ")",
                ErrorCode::InvalidUsage);
  }
  position_ = static_cast<int>(own - ranks_.begin());
}

std::vector<std::vector<char>> GroupAgreement::take(const std::string& step,
                                                    const std::function<std::vector<char>()>& body) const {
  Outcome own{step, false, {}};
  std::exception_ptr failure;
  try {
    own.result = body();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    own.failed = true;
    own.result = bytesOfText(error.what());
  }
  const std::vector<char> message = write(own);
  for (const int rank : ranks_) {
    if (rank != bootstrap_->getRank()) bootstrap_->send(message, rank, Bootstrap::GroupAgreementTag);
  }
  std::vector<Outcome> outcomes;
  for (const int rank : ranks_) {
    if (rank == bootstrap_->getRank()) {
      outcomes.push_back(std::move(own));
      continue;
    }
    std::vector<char> received;
    bootstrap_->recv(received, rank, Bootstrap::GroupAgreementTag);
    outcomes.push_back(read(received));
  }
  if (failure) std::rethrow_exception(failure);
  std::vector<std::vector<char>> results;
  for (int i = 0; i < size(); ++i) {
    Outcome& outcome = outcomes[static_cast<std::size_t>(i)];
    const std::string who = what_ + ": rank " + std::to_string(ranks_[static_cast<std::size_t>(i)]);
    if (outcome.step != step) {
      throw Error(who + " is about to " + outcome.step + ", and this rank to " + step +
                      ": every rank of the group must make the same calls",
                  ErrorCode::InvalidUsage);
    }
    if (outcome.failed) throw Error(who + " failed to " + step + ": " + textOf(outcome.result), ErrorCode::RemoteError);
    results.push_back(std::move(outcome.result));
  }
  return results;
}

}  // namespace mscclpp::detail
