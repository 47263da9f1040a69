// The mover: agreement of the ranks on its options, argument checks, and the schedule of each call.
#include "mscclpp/kernels/copy_engine_mover.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "host/base/byte_stream.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "kernels/movers/schedule.hpp"
#include "kernels/movers/team_engine.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

namespace {

using namespace kernels;

constexpr int mostCopiesPerTransfer = 8;
constexpr detail::WireFormat optionsFormat{"options of a CopyEngineMover", 0x45504f43, 1};

[[noreturn]] void throwInvalidUsage(const std::string& why) {
  throw Error("CopyEngineMover: " + why, ErrorCode::InvalidUsage);
}

/// Collective: the ranks' barriers would not match otherwise.
void requireSameOptions(Communicator& communicator, DeviceType deviceType, const CopyEngineOptions& options) {
  const detail::GroupAgreement agreement(*communicator.bootstrap(), "CopyEngineMover");
  const auto all = agreement.runStep("state its options", [&] {
    if (deviceType != DeviceType::GPU && deviceType != DeviceType::CPU) {
      throwInvalidUsage("the device type must be DeviceType::GPU or DeviceType::CPU");
    }
    if (agreement.size() > maxTeamSize) {
      throwInvalidUsage("a team has at most " + std::to_string(maxTeamSize) + " ranks, the communicator has " +
                        std::to_string(agreement.size()) + ": split it");
    }
    if (options.copiesPerTransfer < 1 || options.copiesPerTransfer > mostCopiesPerTransfer) {
      throwInvalidUsage("CopyEngineOptions::copiesPerTransfer is " + std::to_string(options.copiesPerTransfer) +
                        "; it must be 1 to " + std::to_string(mostCopiesPerTransfer));
    }
    return detail::ByteWriter(optionsFormat)
        .put(static_cast<std::uint64_t>(deviceType))
        .put(static_cast<std::uint64_t>(options.permutationPieceBytes))
        .put(static_cast<std::uint64_t>(options.broadcastPieceBytes))
        .finish();
  });
  constexpr std::array names{"device type", "CopyEngineOptions::permutationPieceBytes",
                             "CopyEngineOptions::broadcastPieceBytes"};
  const auto read = [&](const std::vector<char>& bytes) {
    detail::ByteReader reader(bytes, optionsFormat);
    std::array<std::uint64_t, names.size()> values{};
    for (auto& value : values) value = reader.get<std::uint64_t>();
    reader.expectEnd();
    return values;
  };
  const auto first = read(all[0]);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const auto other = read(all[rank]);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (other[i] == first[i]) continue;
      throwInvalidUsage(std::string("the ") + names[i] + " is " + std::to_string(first[i]) + " on rank 0, but " +
                        std::to_string(other[i]) + " on rank " + std::to_string(rank) + "; it must be the same");
    }
  }
}

}  // namespace

class CopyEngineMover::State {
 public:
  State(Communicator& communicator, DeviceType deviceType, const CopyEngineOptions& options,
        std::shared_ptr<WaitMonitor> monitor)
      : options_(options),
        onGpu_(deviceType == DeviceType::GPU),
        team_(communicator, deviceType, options.copiesPerTransfer, std::move(monitor), "CopyEngineMover") {}

  void move(CollectiveType collective, const void* input, const Window<>& outputs, std::size_t bytes, int root,
            CUstream_st* stream) {
    team_.check();
    requireValid(collective, input, outputs, bytes, root);
    if (bytes == 0) return;
    const std::size_t pieceBytes =
        collective == CollectiveType::Broadcast ? options_.broadcastPieceBytes : options_.permutationPieceBytes;
    team_.engine().use(stream);
    perform({collective, team_.ranks(), root, bytes, pieceBytes}, team_.rank(), static_cast<const std::byte*>(input),
            outputs, team_.engine());
    if (!onGpu_) team_.check();
  }

  void check() const { team_.check(); }

 private:
  void requireValid(CollectiveType collective, const void* input, const Window<>& outputs, std::size_t bytes,
                    int root) const {
    const int ranks = team_.ranks();
    const auto fail = [&](const std::string& why) { throwInvalidUsage(std::string(nameOf(collective)) + ": " + why); };
    if (!CopySchedule::supports(collective)) {
      fail("it is not a copy; the mover performs all_gather, all_to_all, broadcast, gather and scatter");
    }
    if (root < 0 || root >= ranks) {
      fail("the root is " + std::to_string(root) + ", and the ranks are 0 to " + std::to_string(ranks - 1));
    }
    if (bytes == 0) return;
    if (bytes > std::numeric_limits<std::size_t>::max() / 2 / static_cast<std::size_t>(ranks)) {
      fail("it is called with more bytes than the address space has; was it a negative number?");
    }
    const CopySchedule schedule{collective, ranks, root, bytes, 0};
    if (input == nullptr && schedule.hasInput(team_.rank())) fail("the input is null");
    for (int rank = 0; rank < ranks; ++rank) {
      if (schedule.hasOutput(rank) && outputs.at(rank) == nullptr) {
        fail("the output of rank " + std::to_string(rank) + " is null");
      }
    }
    if (collective == CollectiveType::AllToAll) requireSeparate(input, outputs.at(team_.rank()), bytes, ranks);
  }

  /// Peers write the output while this rank still reads its input.
  static void requireSeparate(const void* input, const void* output, std::size_t bytes, int ranks) {
    const auto from = reinterpret_cast<std::uintptr_t>(input);
    const auto to = reinterpret_cast<std::uintptr_t>(output);
    const std::size_t length = bytes * static_cast<std::size_t>(ranks);
    if (from < to + length && to < from + length) {
      throwInvalidUsage("all_to_all: the input overlaps the output; use another buffer for one of them");
    }
  }

  CopyEngineOptions options_;
  bool onGpu_;
  TeamEngine team_;
};

CopyEngineMover::CopyEngineMover(Communicator& communicator, DeviceType deviceType, const CopyEngineOptions& options,
                                 std::shared_ptr<WaitMonitor> monitor) {
  const detail::GroupSetup setup(communicator);
  requireSameOptions(communicator, deviceType, options);
  state_ = std::make_unique<State>(communicator, deviceType, options, std::move(monitor));
}
CopyEngineMover::~CopyEngineMover() = default;

bool CopyEngineMover::supports(CollectiveType collective) noexcept {
  return CopySchedule::supports(collective);
}

void CopyEngineMover::move(CollectiveType collective, const void* input, const Window<>& outputs, std::size_t bytes,
                           int root, CUstream_st* stream) {
  state_->move(collective, input, outputs, bytes, root, stream);
}

void CopyEngineMover::check() const {
  state_->check();
}

}  // namespace mscclpp
