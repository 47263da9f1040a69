// Chunk programs: MSCCL's language (MSCCLang, also called GC3), compiled to plans.
//
// A program moves and reduces chunks of all ranks; it says nothing of signals, receivers or, unless it wants to, thread
// blocks. The compiler makes instructions of its operations, fuses what is received and sent on, assigns channels and
// thread blocks, and synchronises them. The pipeline is that of Cowan et al., "MSCCLang: Microsoft Collective
// Communication Language" (ASPLOS 2023).
// Everything here is host code; errors are Error(InvalidUsage) whose text starts with the line of the program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mscclpp/kernels/plan/collective.hpp"
#include "mscclpp/kernels/plan/origin.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::msccl {

using plan::Collective;
using plan::Origin;

enum class Protocol {
  Simple,  ///< data, then a signal; directly to the destination where that is free
  LL,      ///< packets: lower latency, more bytes
  LL128    ///< as LL: which packets a plan uses is the executor's choice
};

enum class ThreadblockPolicy {
  Automatic,
  Manual  ///< each operation names its blocks (sendtb, recvtb)
};

struct ProgramOptions {
  std::string name;
  Collective collective;
  int instances = 1;  ///< the program is done this many times, each for a share of the data
  Protocol protocol = Protocol::Simple;
  ThreadblockPolicy threadblockPolicy = ThreadblockPolicy::Automatic;
  /// Instances of a chunk follow each other; operations of several chunks become several. Else each instance has a
  /// contiguous piece of each part.
  bool interleavedReplication = true;
  bool instrFusion = true;
  int ranksPerNode = 0;  ///< between nodes, messages go through port channels; 0: there is one node
  int threadsPerBlock = 512;
};

/// A buffer of a rank: plan::BufferKind::Input or Output, or scratch of any name.
struct BufferName {
  BufferName(plan::BufferKind kind) : name(kind == plan::BufferKind::Input ? "input" : "output") {}  // NOLINT
  BufferName(const char* text) : name(text) {}                                                       // NOLINT
  BufferName(std::string text) : name(std::move(text)) {}                                            // NOLINT
  std::string name;
};

/// Directives of an operation. -1: the compiler chooses.
struct Schedule {
  int sendtb = -1;  ///< the thread block that sends, or does a local operation
  int recvtb = -1;  ///< the thread block that receives
  int ch = -1;      ///< which of several connections of the two ranks
};

class ProgramTrace;

/// Some chunks as they are at this point of the program. A reference to chunks that were overwritten since is stale:
/// its use is an error.
class ChunkRef {
 public:
  int rank() const { return rank_; }
  const std::string& buffer() const;
  int index() const { return index_; }
  int size() const { return size_; }

  /// Copies the chunks to `buffer` of `dst`; empty: the same one. index -1: behind what is in a scratch buffer that is
  /// named, otherwise the same.
  ChunkRef copy(int dst, const BufferName& buffer = "", int index = -1, Schedule schedule = {},
                Origin origin = Origin::current()) const;
  /// Adds other to these chunks, which this reference and the returned one then mean.
  ChunkRef reduce(const ChunkRef& other, Schedule schedule = {}, Origin origin = Origin::current());
  /// `parts` references to an equal number of chunks each.
  std::vector<ChunkRef> split(int parts, Origin origin = Origin::current()) const;
  /// One reference to these chunks and `other`, which follow each other.
  ChunkRef group(const ChunkRef& other, Origin origin = Origin::current()) const;

 private:
  friend class MSCCLProgram;
  ProgramTrace* trace_ = nullptr;
  int rank_ = 0;
  int buffer_ = 0;
  int index_ = 0;
  int size_ = 0;
  std::vector<int> versions_;
};

class MSCCLProgram {
 public:
  explicit MSCCLProgram(const ProgramOptions& options, Origin origin = Origin::current());
  ~MSCCLProgram();
  MSCCLProgram(MSCCLProgram&&) noexcept;
  MSCCLProgram& operator=(MSCCLProgram&&) noexcept;

  const ProgramOptions& options() const;

  /// Chunks [index, index + size) of a buffer. An error if one of them holds nothing.
  ChunkRef chunk(int rank, const BufferName& buffer, int index, int size = 1, Origin origin = Origin::current()) const;
  /// Whether all of these chunks hold something.
  bool holds(int rank, const BufferName& buffer, int index, int size = 1, Origin origin = {}) const;
  /// Custom collectives: output chunk `index` of `rank` is to hold the sum of these (rank, input chunk).
  void expect(int rank, int index, const std::vector<std::pair<int, int>>& contributions,
              Origin origin = Origin::current());

  /// The plan; not proven to be right.
  plan::NamedPlan compile() const;
  /// Throws Error(InvalidUsage) unless the compiled plan is proven to be right: plan::verified(). MSCCL's `Check()`.
  void check() const;
  /// The instructions in MSCCL's XML. MSCCL's `XML()`.
  std::string toXml() const;

 private:
  std::unique_ptr<ProgramTrace> trace_;
};

}  // namespace mscclpp::msccl
