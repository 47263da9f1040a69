// 10: a bootstrap of one's own, over MPI. Ranks that mpirun has started find each other without an address or a token.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace example {

/// The ranks of an MPI communicator. It is called by the thread that calls the library, so MPI_Init will do; it must be
/// gone before MPI_Finalize. MPI has no timeouts: mpirun ends the job when a rank dies.
class MpiBootstrap : public mscclpp::Bootstrap {
 public:
  /// Called by all ranks of `parent`. Messages of the two do not mix.
  explicit MpiBootstrap(MPI_Comm parent) {
    check(MPI_Comm_dup(parent, &ranks_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm node = MPI_COMM_NULL;
    check(MPI_Comm_split_type(ranks_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
    MPI_Comm_size(node, &ranksPerNode_);
    MPI_Comm_free(&node);
  }
  ~MpiBootstrap() override {
    for (Message& message : sent_) MPI_Wait(&message.request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&ranks_);
  }
  MpiBootstrap(const MpiBootstrap&) = delete;
  MpiBootstrap& operator=(const MpiBootstrap&) = delete;

  int getRank() const override {
    int rank = 0;
    MPI_Comm_rank(ranks_, &rank);
    return rank;
  }
  int getNranks() const override {
    int size = 0;
    MPI_Comm_size(ranks_, &size);
    return size;
  }
  int getNranksPerNode() const override { return ranksPerNode_; }

  /// Two ranks may send to each other, or a rank to itself, before anybody receives: so a message is copied, not waited
  /// for.
  void send(void* data, int size, int peer, int tag) override {
    sent_.remove_if([](Message& message) {
      int done = 0;
      return MPI_Test(&message.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
    });
    const auto* bytes = static_cast<const char*>(data);
    Message& message = sent_.emplace_back(Message{{bytes, bytes + size}, MPI_REQUEST_NULL});
    check(MPI_Isend(message.bytes.data(), size, MPI_BYTE, peer, tag, ranks_, &message.request), "MPI_Isend");
  }
  void recv(void* data, int size, int peer, int tag) override {
    check(MPI_Recv(data, size, MPI_BYTE, peer, tag, ranks_, MPI_STATUS_IGNORE), "MPI_Recv");
  }
  void allGather(void* allData, int size) override {
    check(MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, allData, size, MPI_BYTE, ranks_), "MPI_Allgather");
  }
  void barrier() override { check(MPI_Barrier(ranks_), "MPI_Barrier"); }

 private:
  struct Message {
    std::vector<char> bytes;
    MPI_Request request;
  };

  static void check(int result, const char* call) {
    if (result == MPI_SUCCESS) return;
    char reason[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(result, reason, &length);
    throw mscclpp::Error(std::string(call) + ": " + reason, mscclpp::ErrorCode::RemoteError);
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int ranksPerNode_ = 0;
  std::list<Message> sent_;  // a list, since MPI holds the addresses
};

}  // namespace example
