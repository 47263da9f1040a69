// The sentences of failed waits and wrong calls.
#include "mscclpp/basic/wait_error.hpp"

#include <doctest/doctest.h>

using namespace mscclpp;

namespace {

WaitRecord recordOf(WaitOutcome outcome, WaitOperation operation) {
  return {2, outcome, operation, 3, 5, 17, 42, 41, 1'234'567'890};
}

}  // namespace

TEST_CASE("wait_error: a wait names both ranks, the operation and the values") {
  CHECK(sentenceOf(recordOf(WaitOutcome::Deadline, WaitOperation::Semaphore)) ==
        "rank 3, block 17, waited for a signal of rank 5 past its deadline: expected 42, saw 41 after 1234 ms");
  WaitRecord record = recordOf(WaitOutcome::Aborted, WaitOperation::Packet);
  record.peer = -1;
  CHECK(sentenceOf(record) ==
        "rank 3, block 17, waited for a packet until it was aborted: expected 42, saw 41 after 1234 ms");
  CHECK_FALSE(isInvalidCall(record));
}

TEST_CASE("wait_error: a wrong call names the difference, and what to do") {
  const auto sentence = [](WaitOutcome outcome, std::uint64_t expected, std::uint64_t seen) {
    WaitRecord record = recordOf(outcome, WaitOperation::Call);
    record.expected = expected;
    record.seen = seen;
    CHECK(isInvalidCall(record));
    return sentenceOf(record);
  };
  CHECK(sentence(WaitOutcome::OtherCount, 100, 200) ==
        "rank 5 calls a collective with 200 elements, rank 3 with 100: all ranks must pass the same count");
  CHECK(
      sentence(WaitOutcome::OtherGrid, 2 + 65536 * 64, 1 + 65536 * 32) ==
      "rank 5 calls a collective with 1 blocks of 32 threads, rank 3 with 2 blocks of 64 threads: all ranks must call "
      "it with the same numbers of blocks and threads");
  CHECK(sentence(WaitOutcome::OutputTooSmall, 100, 137) ==
        "the output of rank 5 for the rows of its experts holds 100 rows, and a dispatch sends it 137, padding "
        "included: give every rank an output of at least as many rows, or of as many as every routing needs "
        "(moe::Buffer::largestCapacity())");
  CHECK(sentence(WaitOutcome::OtherHandle, 1, 2) ==
        "rank 3 combines with a handle of another buffer or form, of a dispatch with another number of tokens, or of "
        "none that has been received: pass what that dispatch has returned");
  const auto starts = [](const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; };
  CHECK(starts(sentence(WaitOutcome::OtherCollective, 1, 2),
               "rank 5 calls another collective than rank 3 on the same scratch: all ranks must make the same calls"));
  CHECK(starts(sentence(WaitOutcome::InvalidCall, 300, 2 + 65536 * 64),
               "rank 3 calls a collective with 300 elements (of a GEMM: rows) and a grid of 2 blocks of 64 threads, "
               "which do not fit its other arguments: make the scratch for as many elements or rows"));
}

TEST_CASE("wait_error: exceptions carry the record and its sentence") {
  const WaitRecord record = recordOf(WaitOutcome::OtherCount, WaitOperation::Call);
  const InvalidCall error(record);
  CHECK(error.what() == sentenceOf(record));
  CHECK(error.record().block == 17);
}
