#include "mscclpp/host/symmetric_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#include "device_memory.hpp"
#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {

namespace {

// What every rank tells the others after a step: what it asked for, and whether the step went well.
struct Report {
  std::uint64_t bytes;
  DeviceType where;
  std::uint32_t handleBytes;
  std::int32_t failed;
  char reason[244];
};

std::vector<Report> exchange(Bootstrap& bootstrap, const Report& own) {
  std::vector<Report> reports(static_cast<std::size_t>(bootstrap.getNranks()));
  reports[static_cast<std::size_t>(bootstrap.getRank())] = own;
  bootstrap.allGather(reports.data(), sizeof(Report));
  for (Report& report : reports) report.reason[sizeof(report.reason) - 1] = '\0';
  return reports;
}

void note(Report& report, const std::exception& error) {
  report.failed = 1;
  std::strncpy(report.reason, error.what(), sizeof(report.reason) - 1);
}

// This rank's own failure as it was thrown; else the first other's.
void throwFailure(const std::vector<Report>& reports, std::exception_ptr own) {
  if (own) std::rethrow_exception(own);
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].failed == 0) continue;
    throw Error("SymmetricMemory: failed on rank " + std::to_string(rank) + ": " + reports[rank].reason,
                ErrorCode::RemoteError);
  }
}

void throwDisagreement(const std::vector<Report>& reports) {
  const Report& first = reports.front();
  for (std::size_t rank = 1; rank < reports.size(); ++rank) {
    const Report& other = reports[rank];
    if (other.bytes == first.bytes && other.where == first.where) continue;
    auto describe = [](const Report& report) {
      return std::to_string(report.bytes) + " bytes on " + nameOf(report.where);
    };
    throw Error("SymmetricMemory: rank 0 asks for " + describe(first) + ", but rank " + std::to_string(rank) + " for " +
                    describe(other) + "; every rank must ask for the same",
                ErrorCode::InvalidUsage);
  }
}

}  // namespace

SymmetricMemory::SymmetricMemory(Communicator& communicator, std::size_t bytes, DeviceType where)
    : rank_(communicator.bootstrap()->getRank()), bytes_(bytes) {
  Bootstrap& bootstrap = *communicator.bootstrap();
  const auto nRanks = static_cast<std::size_t>(bootstrap.getNranks());
  Report report{};
  report.bytes = bytes;
  report.where = where;
  std::exception_ptr failure;
  const auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (const std::exception& error) {
      note(report, error);
      failure = std::current_exception();
    }
  };

  // A rank on which a step fails still takes part in the exchange after it: the others learn why instead of waiting.
  RegisteredMemory own;
  std::vector<char> ownHandle;
  attempt([&] {
    if (bytes == 0) throw Error("SymmetricMemory: it takes at least one byte", ErrorCode::InvalidUsage);
    storage_ = detail::allocateSharedMemory(where, bytes);
    own = communicator.registerMemory(storage_.get(), bytes, detail::localTransport(where));
    ownHandle = own.serialize();
    report.handleBytes = static_cast<std::uint32_t>(ownHandle.size());
  });
  const std::vector<Report> allocated = exchange(bootstrap, report);
  throwDisagreement(allocated);
  throwFailure(allocated, failure);

  std::size_t slot = 0;
  for (const Report& other : allocated) slot = std::max<std::size_t>(slot, other.handleBytes);
  std::vector<char> handles(slot * nRanks);
  std::copy(ownHandle.begin(), ownHandle.end(), handles.begin() + static_cast<std::ptrdiff_t>(slot) * rank_);
  bootstrap.allGather(handles.data(), static_cast<int>(slot));

  attempt([&] {
    for (std::size_t rank = 0; rank < nRanks; ++rank) {
      if (static_cast<int>(rank) == rank_) {
        parts_.push_back(own);
        continue;
      }
      const char* begin = handles.data() + slot * rank;
      parts_.push_back(RegisteredMemory::deserialize({begin, begin + allocated[rank].handleBytes}));
      if (parts_.back().size() != bytes) {
        throw Error("SymmetricMemory: rank " + std::to_string(rank) + " sent another memory", ErrorCode::RemoteError);
      }
    }
  });
  throwFailure(exchange(bootstrap, report), failure);
}

const RegisteredMemory& SymmetricMemory::memory(int rank) const {
  if (rank < 0 || rank >= nRanks()) {
    throw Error("SymmetricMemory: there is no rank " + std::to_string(rank) + " among " + std::to_string(nRanks()),
                ErrorCode::InvalidUsage);
  }
  return parts_[static_cast<std::size_t>(rank)];
}

Window<> SymmetricMemory::window() const {
  if (nRanks() > maxTeamSize) {
    throw Error("SymmetricMemory: a window has up to " + std::to_string(maxTeamSize) + " ranks, and here are " +
                    std::to_string(nRanks()),
                ErrorCode::InvalidUsage);
  }
  Window<> window{};
  for (int rank = 0; rank < nRanks(); ++rank) window.base[rank] = static_cast<std::byte*>(peer(rank));
  return window;
}

}  // namespace mscclpp
