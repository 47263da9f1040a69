// The order of calls over streams and captures, on a model of CUDA's streams.
#include "kernels/call_order.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "stream_model.hpp"

using namespace mscclpp::kernels;
using mscclpp::test::StreamModel;

namespace {

CUstream_st* const one = StreamModel::stream(1);
CUstream_st* const two = StreamModel::stream(2);
CUstream_st* const three = StreamModel::stream(3);
using Calls = StreamModel::Calls;

Calls call(StreamModel& streams, CallOrder& order, CUstream_st* stream, int number, GraphLaunches graphs) {
  auto turn = order.begin(stream, graphs);
  Calls before = streams.call(stream, number);
  turn.end();
  return before;
}

/// The calls of an object.
struct Object {
  StreamModel& streams;
  CallOrder order{streams};

  Calls call(CUstream_st* stream, int number) {
    return ::call(streams, order, stream, number, GraphLaunches::Unordered);
  }
};

Calls callInChain(StreamModel& streams, CallOrder& chain, CUstream_st* stream, int number) {
  return call(streams, chain, stream, number, GraphLaunches::Ordered);
}

}  // namespace

TEST_CASE("stream order: calls on one stream wait for no event, on the default stream too") {
  for (CUstream_st* const stream : {one, static_cast<CUstream_st*>(nullptr)}) {
    StreamModel streams;
    Object object{streams};
    object.call(stream, 1);
    CHECK(object.call(stream, 2) == Calls{1});
    streams.beginCapture(1, {stream});
    object.call(stream, 3);
    CHECK(object.call(stream, 4) == Calls{3});
    streams.endCapture({stream});
    CHECK(object.call(stream, 5) == Calls{1, 2});
    CHECK(streams.records == 5);
    CHECK(streams.waits == 1);  // in the capture, where it adds no node
    CHECK(streams.graphNodes == 0);
    CHECK(streams.errors == 0);
  }
}

TEST_CASE("stream order: eager calls on several streams run one after another, and streams may be destroyed") {
  StreamModel streams;
  Object object{streams};
  object.call(one, 1);
  streams.destroy(one);
  CHECK(object.call(two, 2) == Calls{1});
  CHECK(object.call(two, 3) == Calls{1, 2});
  CHECK(object.call(three, 4) == Calls{1, 2, 3});
  streams.destroy(three);
  CHECK(object.call(nullptr, 5) == Calls{1, 2, 3, 4});
  CHECK(streams.errors == 0);
}

TEST_CASE("stream order: a new stream with the address of a destroyed one") {
  StreamModel streams;
  Object object{streams};
  object.call(one, 1);
  streams.destroy(one);
  streams.create(one);
  CHECK(object.call(one, 2) == Calls{1});
  streams.beginCapture(1, {one, two});
  object.call(two, 3);
  object.call(one, 4);
  streams.destroy(one);
  streams.create(one);
  streams.beginCapture(1, {one});
  CHECK(object.call(one, 5) == Calls{3, 4});
  CHECK(streams.errors == 0);
}

TEST_CASE("stream order: calls on several streams of one capture run one after another") {
  for (const bool isFirstCallEager : {false, true}) {
    CAPTURE(isFirstCallEager);
    StreamModel streams;
    Object object{streams};
    if (isFirstCallEager) object.call(one, 0);
    streams.beginCapture(7, {one, two});
    object.call(one, 1);
    CHECK(object.call(two, 2) == Calls{1});
    CHECK(object.call(one, 3) == Calls{1, 2});
    CHECK(object.call(one, 4) == Calls{1, 2, 3});
    CHECK(object.call(two, 5) == Calls{1, 2, 3, 4});
    streams.endCapture({one, two});
    CHECK(streams.errors == 0);
  }
}

TEST_CASE("stream order: captured calls between eager ones neither join them nor hide them") {
  StreamModel streams;
  Object object{streams};
  object.call(one, 1);
  streams.beginCapture(1, {two});
  object.call(two, 2);
  object.call(two, 3);
  streams.endCapture({two});
  SUBCASE("the stream of the capture") {
    CHECK(object.call(two, 4) == Calls{1});
  }
  SUBCASE("a third stream, and the captured one no longer exists") {
    streams.destroy(two);
    CHECK(object.call(three, 4) == Calls{1});
  }
  SUBCASE("the stream of the last eager call no longer exists") {
    streams.destroy(one);
    CHECK(object.call(two, 4) == Calls{1});
  }
  SUBCASE("another capture after the stream of the first was destroyed") {
    streams.destroy(two);
    streams.beginCapture(2, {three});
    CHECK(object.call(three, 4).empty());
    streams.endCapture({three});
    CHECK(object.call(three, 5) == Calls{1});
  }
  SUBCASE("two captures at once") {
    streams.beginCapture(2, {two});
    streams.beginCapture(3, {three});
    object.call(two, 4);
    CHECK(object.call(three, 5).empty());
    object.call(two, 6);
    streams.endCapture({two, three});
  }
  CHECK(streams.errors == 0);
}

TEST_CASE("stream order: an eager call while the stream of the last one captures runs after that one") {
  StreamModel streams;
  Object object{streams};
  object.call(one, 1);
  streams.beginCapture(1, {one});
  object.call(one, 2);
  CHECK(object.call(two, 3) == Calls{1});
  streams.endCapture({one});
  CHECK(object.call(one, 4) == Calls{1, 3});
  CHECK(streams.errors == 0);
}

TEST_CASE("stream order: the first call is captured, and its stream is destroyed") {
  StreamModel streams;
  Object object{streams};
  streams.beginCapture(1, {one});
  object.call(one, 1);
  streams.endCapture({one});
  streams.destroy(one);
  CHECK(object.call(two, 2).empty());
  CHECK(object.call(three, 3) == Calls{2});
  CHECK(streams.errors == 0);
}

TEST_CASE("chain: eager calls run one after another, and those on one stream wait for no event") {
  StreamModel streams;
  CallOrder chain(streams);
  CHECK(callInChain(streams, chain, one, 1).empty());
  CHECK(callInChain(streams, chain, two, 2) == Calls{1});
  streams.destroy(two);
  CHECK(callInChain(streams, chain, one, 3) == Calls{1, 2});
  CHECK(callInChain(streams, chain, three, 4) == Calls{1, 2, 3});
  const int waits = streams.waits;
  callInChain(streams, chain, three, 5);
  CHECK(streams.waits == waits);
  CHECK(streams.errors == 0);
}

TEST_CASE("chain: an eager call runs after a graph that was launched after the call before it, on its own stream too") {
  StreamModel streams;
  CallOrder chain(streams);
  callInChain(streams, chain, one, 1);
  streams.beginCapture(1, {two});
  callInChain(streams, chain, two, 10);
  streams.endCapture({two});
  streams.launch(1, two);
  CHECK(callInChain(streams, chain, one, 2) == Calls{1, 10});
  CHECK(streams.errors == 0);
}

TEST_CASE("chain: launches of graphs and eager calls run one after another") {
  StreamModel streams;
  CallOrder chain(streams);
  callInChain(streams, chain, one, 1);
  streams.beginCapture(1, {one, two});
  streams.beginCapture(2, {three});
  callInChain(streams, chain, one, 10);
  callInChain(streams, chain, three, 20);
  CHECK(callInChain(streams, chain, two, 11) == Calls{10});
  CHECK(callInChain(streams, chain, one, 12) == Calls{10, 11});
  CHECK(callInChain(streams, chain, three, 21) == Calls{20});
  streams.endCapture({one, two, three});
  // Three streams with nothing in common but the chain.
  CUstream_st* const first = StreamModel::stream(11);
  CUstream_st* const second = StreamModel::stream(12);
  CUstream_st* const third = StreamModel::stream(13);
  CHECK(streams.launch(1, first) == Calls{1});
  CHECK(streams.launch(2, second) == Calls{1, 10, 11, 12});
  CHECK(callInChain(streams, chain, third, 2) == Calls{1, 10, 11, 12, 20, 21});
  CHECK(streams.launch(1, second) == Calls{1, 2, 10, 11, 12, 20, 21});
  CHECK(streams.errors == 0);
}

TEST_CASE("chain: many captures") {
  StreamModel streams;
  CallOrder chain(streams);
  for (int capture = 1; capture < 300; ++capture) {
    streams.beginCapture(static_cast<std::uint64_t>(capture), {one, two});
    callInChain(streams, chain, one, 1);
    CHECK(callInChain(streams, chain, two, 2) == Calls{1});
    streams.endCapture({one, two});
  }
  CHECK(streams.errors == 0);
}

TEST_CASE("chain: threads") {
  StreamModel streams;  // without a lock: that of the chain protects it
  CallOrder chain(streams);
  std::vector<std::thread> threads;
  std::vector<char> isOrdered(4, 1);
  int calls = 0;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 100; ++i) {
        auto turn = chain.begin(StreamModel::stream(thread + 1), GraphLaunches::Ordered);
        const Calls before = streams.call(StreamModel::stream(thread + 1), calls);
        if (before.size() != static_cast<std::size_t>(calls)) isOrdered[static_cast<std::size_t>(thread)] = 0;
        ++calls;
        turn.end();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(calls == 400);
  CHECK(isOrdered == std::vector<char>(4, 1));
}
