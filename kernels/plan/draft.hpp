// A plan as compilers and formats change it: steps that own their operands, in place of ranges of flat arrays.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mscclpp/kernels/plan/collective.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

/// An operation with its lists. The ranges of `operation` are not used.
struct Step {
  Operation operation;
  std::vector<Operand> sources = {};
  std::vector<Operand> destinations = {};
  std::vector<int> references = {};

  friend bool operator==(const Step&, const Step&) = default;
};

struct DraftChannel {
  Access access = Access::Memory;
  int peer = 0;
  BufferKind buffer = BufferKind::Input;
  std::vector<int> members = {};

  friend bool operator==(const DraftChannel&, const DraftChannel&) = default;
};

struct DraftRank {
  int inputChunks = 0;
  int outputChunks = 0;
  int scratchChunks = 0;
  std::vector<DraftChannel> channels = {};
  std::vector<int> semaphores = {};
  std::vector<std::vector<Step>> blocks = {};

  friend bool operator==(const DraftRank&, const DraftRank&) = default;
};

struct DraftExpectation {
  int rank = 0;
  int chunk = 0;
  std::vector<std::pair<int, int>> contributions = {};

  friend bool operator==(const DraftExpectation&, const DraftExpectation&) = default;
};

struct Draft {
  Header header;
  std::string name;
  std::vector<std::string> origins = {};
  std::vector<DraftRank> ranks = {};
  std::vector<DraftExpectation> expectations = {};

  /// The index of an origin, which is added if it is new; -1 for an empty one.
  int origin(const std::string& text);
};

/// Why there is no program of a collective, whatever it does: no ranks or chunks, more than can be checked, or a number
/// of instances that is impossible. Empty: there is.
std::string refusesProgram(const Collective& collective, int instances);
/// Why a program cannot have so many operations, before it is replicated: a larger plan takes long to compile, and too
/// much memory to be checked. Empty: it can.
std::string refusesOperations(int operations);

/// Throws Error(InvalidUsage) for the name of a plan that a form of plans could not hold: one that is longer than 256
/// bytes, has control characters or is not UTF-8.
void requireName(const std::string& name);

/// An empty draft with the buffers of the collective. Throws Error(InvalidUsage) for a name that requireName() refuses.
Draft makeDraft(const Header& header, std::string name);
/// Throws Error(InvalidUsage) for a plan in which a number is outside of the array that it refers to.
Draft draftOf(const NamedPlan& plan);
NamedPlan lower(const Draft& draft);

/// Where an operation stands, for messages: "rank 1, block 0, operation 3 (put.py:12)".
std::string placeOf(const Draft& draft, int rank, int block, int operation);

/// The number of chunks of a buffer of a rank.
int chunksOf(const DraftRank& rank, BufferKind buffer);

/// The chunk that a chunk of a call's output is if the call is in place: of the input, where that is the same memory.
/// The same operand otherwise. chunk: which of the operand's, from its first.
Operand canonical(const Draft& draft, Operand operand, std::int32_t chunk = 0);

}  // namespace mscclpp::plan
