// The order of the calls of a moe::Buffer, without any.
#include <doctest/doctest.h>

#include "invalid_usage.hpp"
#include "kernels/moe/split_calls.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using moe::Form;
using moe::Phase;
using moe::detail::CallArguments;
using moe::detail::CombineArrays;
using moe::detail::DispatchArrays;
using moe::detail::SplitCalls;

namespace {

/// Two handles in memory of their own, and one in the memory of the second.
const char handles[3] = {};
const char memory[2] = {};

CallArguments dispatchWith(int handle, std::uint32_t tokens = 5) {
  return {&handles[handle], &memory[handle > 0 ? 1 : 0], DispatchArrays{{.tokens = tokens}, {.capacity = 40}}};
}
CallArguments combineWith(int handle, const void* results = nullptr) {
  return {&handles[handle], &memory[handle > 0 ? 1 : 0], CombineArrays{results, nullptr}};
}

std::uint64_t make(SplitCalls& calls, Form form, const CallArguments& arguments, Phase phase) {
  calls.requireNext(form, arguments, phase);
  return calls.record(form, arguments, phase);
}
void expectRefusal(const char* part, const SplitCalls& calls, Form form, const CallArguments& arguments, Phase phase) {
  expectInvalidUsage(part, [&] { calls.requireNext(form, arguments, phase); });
}

}  // namespace

TEST_CASE("calls that are not split come in any order") {
  SplitCalls calls;
  for (const Form form : {Form::LowLatency, Form::Bandwidth, Form::Bandwidth}) {
    CHECK(make(calls, form, combineWith(0), Phase::Both) == 0);
    CHECK(make(calls, form, dispatchWith(0), Phase::Both) == 0);
  }
  CHECK_FALSE(calls.isSent(0));
}

TEST_CASE("a call is received once, after it has been sent") {
  SplitCalls calls;
  expectRefusal("there is no dispatch to receive", calls, Form::Bandwidth, dispatchWith(0), Phase::Receive);
  expectRefusal("there is no combine to receive", calls, Form::LowLatency, combineWith(0), Phase::Receive);
  const std::uint64_t first = make(calls, Form::Bandwidth, dispatchWith(0), Phase::Send);
  CHECK(calls.isSent(first));
  expectRefusal("there is no dispatch to receive", calls, Form::LowLatency, dispatchWith(0), Phase::Receive);
  expectRefusal("there is no combine to receive", calls, Form::Bandwidth, combineWith(0), Phase::Receive);
  CHECK(make(calls, Form::Bandwidth, dispatchWith(0), Phase::Receive) == 0);
  CHECK_FALSE(calls.isSent(first));
  expectRefusal("there is no dispatch to receive", calls, Form::Bandwidth, dispatchWith(0), Phase::Receive);
  const std::uint64_t second = make(calls, Form::Bandwidth, dispatchWith(0), Phase::Send);
  CHECK(second != first);
  CHECK_FALSE(calls.isSent(first));
  CHECK(calls.isSent(second));
}

TEST_CASE("a call is received with the arguments that it was sent with") {
  SplitCalls calls;
  make(calls, Form::LowLatency, dispatchWith(1), Phase::Send);
  make(calls, Form::Bandwidth, combineWith(0, &memory), Phase::Send);
  expectRefusal("the dispatch was sent with other arguments", calls, Form::LowLatency, dispatchWith(1, 6),
                Phase::Receive);
  expectRefusal("the dispatch was sent with other arguments", calls, Form::LowLatency, dispatchWith(2), Phase::Receive);
  expectRefusal("the combine was sent with other arguments", calls, Form::Bandwidth, combineWith(0), Phase::Receive);
  make(calls, Form::LowLatency, dispatchWith(1), Phase::Receive);
  make(calls, Form::Bandwidth, combineWith(0, &memory), Phase::Receive);
}

TEST_CASE("one call of each kind and form is on its way") {
  SplitCalls calls;
  make(calls, Form::LowLatency, dispatchWith(0), Phase::Send);
  for (const Phase phase : {Phase::Both, Phase::Send}) {
    expectRefusal("the dispatch before has been sent and not received", calls, Form::LowLatency, dispatchWith(1),
                  phase);
    make(calls, Form::Bandwidth, dispatchWith(1), Phase::Both);
    make(calls, Form::LowLatency, combineWith(1), Phase::Both);
  }
  make(calls, Form::LowLatency, combineWith(1), Phase::Send);
  expectRefusal("the combine before has been sent and not received", calls, Form::LowLatency, combineWith(0),
                Phase::Both);
  make(calls, Form::LowLatency, dispatchWith(0), Phase::Receive);
  make(calls, Form::LowLatency, dispatchWith(0), Phase::Send);
}

TEST_CASE("the memory of a handle is that of one call on its way") {
  SplitCalls calls;
  make(calls, Form::LowLatency, dispatchWith(1), Phase::Send);
  for (const int handle : {1, 2}) {
    CAPTURE(handle);
    expectRefusal("a dispatch with this handle has been sent and not received", calls, Form::Bandwidth,
                  dispatchWith(handle), Phase::Both);
    expectRefusal("a dispatch with this handle has been sent and not received", calls, Form::LowLatency,
                  combineWith(handle), Phase::Send);
  }
  make(calls, Form::LowLatency, dispatchWith(1), Phase::Receive);
  make(calls, Form::Bandwidth, combineWith(2), Phase::Send);
  expectRefusal("a combine with this handle has been sent and not received", calls, Form::LowLatency, dispatchWith(1),
                Phase::Both);
}
