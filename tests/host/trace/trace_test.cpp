// Traces on the host: clocks, tracks of threads, and the written file, parsed.
#include "mscclpp/host/trace/trace.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <climits>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "host/trace/clock_map.hpp"
#include "host/trace/device_clock.hpp"
#include "host/trace/trace_state.hpp"
#include "mscclpp/basic/serial_group.hpp"
#include "mscclpp/basic/trace.hpp"
#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "tests/host/ranks.hpp"
#include "trace_file.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using detail::ClockMap;

namespace {

constexpr TraceId work = userTraceId(0), note = userTraceId(1);

double microsecondsNow() {
  return static_cast<double>(arch::nanoseconds()) / 1000;
}

/// Several chunks of file text from few events.
void recordManyEvents(Trace& trace) {
  constexpr int spans = 2000;
  trace.name(work, std::string(1000, 'x'));
  const auto track = trace.track("thread");
  for (int i = 0; i < spans; ++i) {
    track->begin(work);
    track->end(work);
  }
}

/// A bootstrap that reports the messages it forwards.
class InstrumentedBootstrap : public Bootstrap {
 public:
  std::function<void(int peer, long bytes)> onSend = [](int, long) {};      // before
  std::function<void(int peer, long bytes)> onReceived = [](int, long) {};  // after

  explicit InstrumentedBootstrap(TcpBootstrap& tcp) : tcp_(tcp) {}
  int getRank() const override { return tcp_.getRank(); }
  int getNranks() const override { return tcp_.getNranks(); }
  int getNranksPerNode() const override { return tcp_.getNranksPerNode(); }
  void send(void* data, int size, int peer, int tag) override {
    onSend(peer, size);
    tcp_.send(data, size, peer, tag);
  }
  void recv(void* data, int size, int peer, int tag) override {
    tcp_.recv(data, size, peer, tag);
    onReceived(peer, size);
  }
  void allGather(void* allData, int size) override { tcp_.allGather(allData, size); }
  void barrier() override { tcp_.barrier(); }

 private:
  TcpBootstrap& tcp_;
};

std::string contentOf(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}
void setContent(const std::string& path, const std::string& content) {
  std::ofstream(path) << content;
}
bool hasPart(const std::string& path) {
  return std::filesystem::exists(path + ".part");
}

template <class F>
ErrorCode codeOf(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.getErrorCode();
  }
  FAIL("nothing was thrown");
  return {};
}

}  // namespace

TEST_CASE("clock map: offset, drift, and times outside the comparisons") {
  ClockMap map;
  CHECK(map.map(123) == 123);
  CHECK(map.error() == 0);
  constexpr std::int64_t base = 1'700'000'000'000'000'000;
  map.add({base, 5000, 40});
  CHECK(map.map(base + 77) == 5077);
  // A clock that runs 100 ppm fast, and then 50 ppm slow.
  map.add({base + 1'000'100, 1'005'000, 60});
  map.add({base + 1'000'100 + 999'950, 2'005'000, 50});
  CHECK(map.map(base) == 5000);
  CHECK(map.map(base + 500'050) == 505'000);
  CHECK(map.map(base + 1'000'100) == 1'005'000);
  CHECK(map.map(base + 1'000'100 + 499'975) == 1'505'000);
  CHECK(map.map(base - 1'000'100) == 5000 - 1'000'000);
  CHECK(map.map(base + 1'000'100 + 2 * 999'950) == 3'005'000);
  CHECK(map.error() == 60);
}

TEST_CASE("clock map: a time is reconstructed from its low 48 bits") {
  constexpr std::int64_t period = std::int64_t{1} << 48;
  for (const std::int64_t around : {5 * period + 10, 5 * period - 10, 5 * period + period / 2}) {
    for (const std::int64_t distance : {0ll, 5ll, -5ll, 50ll, -50ll, 1ll << 40, -(1ll << 40)}) {
      const std::int64_t time = around + distance;
      CHECK(detail::unwrapTimestamp(static_cast<std::uint64_t>(time) & noTraceArgument, around) == time);
    }
  }
}

TEST_CASE("launches: cycles are converted by the timestamps of each launch, and open spans end with it") {
  const auto event = [](std::uint64_t time, TraceKind kind, std::uint64_t argument) {
    return TraceEvent{time, TraceEvent::wordOf(kind, work, argument)};
  };
  constexpr std::int64_t base = 3'000'000'000'000;
  ClockMap clock;
  clock.add({base, base + 700, 10});
  using enum TraceKind;
  // 2 cycles per nanosecond, then 1, from a counter that restarted.
  const std::vector<TraceEvent> events{
      event(1000, Open, base), event(1200, Begin, 1),           event(1400, Begin, 2),
      event(1600, End, 3),     event(5000, Close, base + 2000), event(10, Open, base + 9000),
      event(20, Point, 4),     event(110, Close, base + 9100)};
  std::vector<detail::TimedEvent> timed;
  detail::appendLaunchEvents(events, clock, timed);
  REQUIRE(timed.size() == 5);
  const std::int64_t times[] = {100, 200, 300, 2000, 9010};
  const TraceKind kinds[] = {Begin, Begin, End, End, Point};
  for (int i = 0; i < 5; ++i) {
    CHECK(timed[i].time == base + 700 + times[i]);
    CHECK(timed[i].kind == kinds[i]);
  }
}

TEST_CASE("clock synchronisation: every round gets a response, and every wait is bounded") {
  ClockSync exchange{};
  std::thread device([&] {
    emulation::launch({.ranks = 1, .blocks = 1, .threads = 2},
                      [&](int, const auto& grid) { ClockSyncResponder::run(grid, {&exchange}, {}, {}); });
  });
  for (std::uint64_t round = 1; round <= ClockSync::rounds; ++round) {
    const std::uint64_t before = arch::nanoseconds();
    arch::store<arch::Order::Release, arch::Scope::System>(&exchange.request, round);
    while (arch::load<arch::Order::Acquire, arch::Scope::System>(&exchange.response) != round) {
      std::this_thread::yield();
    }
    CHECK(exchange.nanoseconds >= before);
    CHECK(exchange.nanoseconds <= arch::nanoseconds());
  }
  device.join();
  ClockSync unasked{};
  respondToClockSync(unasked, 20'000'000);
  CHECK(unasked.response == 0);
}

TEST_CASE("a trace of blocks and threads: tracks, names, arguments, and one clock") {
  const TemporaryFile file("trace.json");
  Trace first({.rank = 0, .blocks = 2, .eventsPerRecorder = 64});
  Trace second({.rank = 1, .blocks = 2, .eventsPerRecorder = 64});
  first.name(work, "matrix \"product\"", "tile");
  const double start = microsecondsNow();
  std::thread host([track = first.track("helper")] {
    track->begin(work, 7);
    track->point(note, 8);
    track->end(work, 9);
    track->begin(note);
  });
  host.join();
  for (int launch = 0; launch < 2; ++launch) {
    emulation::launch<2>({.ranks = 2, .blocks = 2, .threads = 4}, [&](int rank, const auto& grid) {
      BlockTrace trace((rank == 0 ? first : second).buffer(), grid);
      const TraceSpan span(trace, work, 5);
      grid.block().sync();
    });
    first.collect();
  }
  const double end = microsecondsNow();
  writeTrace(file.path(), {&first, &second});

  const Json json = file.read();
  const auto tracks = tracksOf(json);
  std::map<std::string, std::string> names;
  for (const auto& [key, track] : tracks) {
    names[std::to_string(key.first) + ": " + track.name] = phasesOf(track);
    for (const Json& event : track.events) {
      CHECK(event.at("ts").get<double>() >= start);
      CHECK(event.at("ts").get<double>() <= end);
    }
  }
  CHECK(names == std::map<std::string, std::string>{{"0: block 0", "BEBE"},
                                                    {"0: block 0, last warp", "BEBE"},
                                                    {"0: block 1", "BEBE"},
                                                    {"0: block 1, last warp", "BEBE"},
                                                    {"0: helper", "BiEBE"},
                                                    {"1: block 0", "BEBE"},
                                                    {"1: block 0, last warp", "BEBE"},
                                                    {"1: block 1", "BEBE"},
                                                    {"1: block 1, last warp", "BEBE"}});
  for (const auto& [key, track] : tracks) {
    if (track.name == "helper") {
      CHECK(track.events[0].at("name") == "matrix \"product\"");
      CHECK(track.events[0].at("args") == Json{{"tile", 7}});
      CHECK(track.events[1].at("args") == Json{{"value", 8}});
      CHECK(track.events[2].at("args") == Json{{"result", 9}});
      CHECK_FALSE(track.events[3].contains("args"));
      CHECK(track.events[4].at("args") == Json{{"unfinished", true}});
    } else {
      CHECK(track.events[0].at("name") == (key.first == 0 ? "matrix \"product\"" : "event 1024"));
    }
  }
  CHECK(json.at("otherData").at("ranks").size() == 2);
  CHECK(json.at("otherData").at("ranks")[1].at("lostEvents") == 0);
  CHECK(first.clockError() == 0);
  CHECK(first.track("helper") == first.track("helper"));
  CHECK(first.track("helper") != first.track("other"));
}

TEST_CASE("dropped events are counted in the file, for blocks and threads") {
  const TemporaryFile file("lost.json");
  Trace trace({.blocks = 1, .eventsPerRecorder = 6, .eventsPerThread = 5});
  const auto track = trace.track("thread");
  const auto record = [](auto& to) {
    to.begin(work);
    for (int i = 0; i < 3; ++i) {
      to.begin(note);
      to.end(note);
    }
    to.point(note);
    to.end(work);
    to.end(work);  // without a begin
  };
  record(*track);
  {
    BlockTrace block(trace.buffer(), cpu::SerialGrid());
    record(block);
  }
  trace.collect();
  {  // a collect frees slots in the buffer
    BlockTrace block(trace.buffer(), cpu::SerialGrid());
    block.point(note);
  }
  writeTrace(file.path(), {&trace});
  // Of 10 events a thread's buffer holds 5, a block's holds 4 besides its timestamps.
  CHECK(trace.lost() == (10 - 5) + (10 - 4));
  std::map<std::string, std::string> phases;
  std::map<std::string, int> lost;
  const Json json = file.read();
  for (const auto& [key, read] : tracksOf(json)) {
    phases[read.name] = phasesOf(read);
    CHECK(read.events.back().at("name") == "lost events");
    lost[read.name] = read.events.back().at("args").at("count");
  }
  CHECK(phases == std::map<std::string, std::string>{{"block 0", "BBEEii"}, {"thread", "BBEiEi"}});
  CHECK(lost == std::map<std::string, int>{{"block 0", 6}, {"thread", 5}});
  CHECK(json.at("otherData").at("ranks")[0].at("lostEvents") == 11);
}

TEST_CASE("a collect frees slots for threads as for blocks") {
  const TemporaryFile file("refilled.json");
  Trace trace({.blocks = 1, .eventsPerThread = 4});
  const auto track = trace.track("thread");
  track->begin(work);
  track->begin(work);
  track->begin(note);  // dropped
  trace.collect();
  track->begin(note);  // dropped with the enclosing span
  track->end(note);
  track->end(note);
  trace.collect();
  track->begin(note);
  track->end(note);
  track->end(work);
  track->end(work);
  CHECK(trace.lost() == 4);
  writeTrace(file.path(), {&trace});
  CHECK(phasesOf(tracksOf(file.read()).begin()->second) == "BBBEEEi");
}

TEST_CASE("comparisons of the clocks do not overlap") {
  constexpr int compares = 20;
  std::mutex mutex;
  std::vector<std::thread> devices;
  std::atomic<int> active = 0;
  std::atomic<int> mostActive = 0;
  detail::DeviceClock clock(std::make_shared<ClockSync>(), [&](ClockSync* exchange) {
    if (++active > mostActive) mostActive = active.load();
    const std::lock_guard lock(mutex);
    devices.emplace_back([&active, exchange] {
      respondToClockSync(*exchange);
      --active;
    });
  });
  const auto compare = [&] {
    for (int i = 0; i < compares; ++i) clock.compare();
  };
  std::thread other(compare);
  compare();
  other.join();
  for (auto& device : devices) device.join();
  CHECK(devices.size() == 2 * compares);
  CHECK(mostActive <= 2);
  // Both clocks are the same here; beyond the last comparison the errors of two of them would add up.
  const detail::ClockMap map = clock.map();
  CHECK(std::abs(map.map(map.last()) - map.last()) <= map.error());
}

TEST_CASE("threads record while others collect") {
  const TemporaryFile file("threads.json");
  Trace trace({.blocks = 1, .eventsPerRecorder = 16});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([track = trace.track("thread " + std::to_string(t))] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        track->begin(work, i);
        track->end(work);
      }
    });
  }
  writeTrace(file.path(), {&trace});
  tracksOf(file.read());
  for (auto& thread : threads) thread.join();
  writeTrace(file.path(), {&trace});
  const auto tracks = tracksOf(file.read());
  REQUIRE(tracks.size() == 3);
  for (const auto& [key, track] : tracks) CHECK(track.events.size() == 4000);
}

TEST_CASE("ranks write one file together, in chunks") {
  const TemporaryFile file("ranks.json");
  constexpr int ranks = 3;
  constexpr std::uint64_t spans = 8'000;  // more than one chunk
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(ranks, [&](int rank) {
    TcpBootstrap bootstrap(rank, ranks);
    bootstrap.initialize(id);
    Trace trace({.rank = rank, .blocks = 1});
    const auto track = trace.track("thread");
    for (std::uint64_t i = 0; i < spans; ++i) {
      track->begin(work, i);
      track->end(work);
    }
    writeTrace(file.path(), trace, bootstrap);
    bootstrap.barrier();
  });
  CHECK(outcomes == Outcomes(ranks));
  const Json json = file.read();
  const auto tracks = tracksOf(json);
  REQUIRE(tracks.size() == ranks);
  for (const auto& [key, track] : tracks) {
    REQUIRE(track.events.size() == 2 * spans);
    CHECK(track.events[2 * spans - 2].at("args").at("value") == spans - 1);
  }
  std::set<int> summaries;
  for (const Json& rank : json.at("otherData").at("ranks")) summaries.insert(rank.at("rank").get<int>());
  CHECK(summaries == std::set<int>{0, 1, 2});
}

TEST_CASE("a proxy records its running handlers and its sleep") {
  const TemporaryFile file("proxy.json");
  Trace trace({.blocks = 1});
  Proxy proxy([](ProxyTrigger) {}, ProxyOptions{.thread = {.device = DeviceType::CPU,
                                                           .sleepAfter = std::chrono::microseconds(1),
                                                           .trace = trace.track("proxy")}});
  auto fifo = proxy.fifo()->deviceHandle();
  const auto spans = [&](const std::string& name) {
    writeTrace(file.path(), {&trace});
    return spansOf(tracksOf(file.read()).begin()->second, name);
  };
  proxy.start(true);
  constexpr std::uint64_t each = 10;
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < each; ++i) fifo.push(ProxyTrigger{i + 1, 0});
    // It sleeps when idle; the next round wakes it.
    const auto start = std::chrono::steady_clock::now();
    while (spans("idle").size() < static_cast<std::size_t>(round) + 1) {
      REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
      std::this_thread::yield();
    }
  }
  proxy.stop();
  const auto triggers = spans("trigger");
  REQUIRE(triggers.size() == 2 * each);
  for (std::uint64_t i = 0; i < triggers.size(); ++i) CHECK(triggers[i].args.at("position") == i);
  for (const ReadSpan& sleep : spans("idle")) {
    CHECK_FALSE(sleep.args.contains("unfinished"));
    for (const ReadSpan& work : triggers) CHECK((work.end <= sleep.begin || work.begin >= sleep.end));
  }
}

TEST_CASE("a proxy service records its requests, and the waits of a flush") {
  constexpr int ranks = 2;
  constexpr std::size_t bytes = 4096;
  const TemporaryFile file("service.json");
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(ranks, [&](int rank) {
    const auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
    bootstrap->initialize(id);
    Communicator communicator(bootstrap);
    Trace trace({.rank = rank, .blocks = 1});
    const HostBuffer outbox(bytes);
    const SymmetricMemory inboxes(communicator, bytes, DeviceType::CPU);
    ProxyService service(ProxyServiceOptions{.thread = {.device = DeviceType::CPU, .trace = trace.track("proxy")}});
    const auto connection =
        communicator.connect(EndpointConfig(Transport::SharedMemory, DeviceType::CPU), 1 - rank).get();
    const auto semaphore = service.buildAndAddSemaphore(communicator, connection);
    const auto dst = service.addMemory(inboxes.memory(1 - rank));
    const auto src = service.addMemory(communicator.registerMemory(outbox.data(), bytes, Transport::SharedMemory));
    service.startProxy();
    auto channel = service.portChannel(semaphore, dst, src).deviceHandle();
    channel.put(0, 0, 1024);
    channel.putWithSignal(1024, 1024, 512);
    bool good = channel.wait();
    good = channel.flush() && good;
    good = channel.putWithSignalAndFlush(0, 0, bytes) && good;
    good = channel.wait() && good;
    service.stopProxy();
    if (!good) throw std::runtime_error("a wait failed");
    writeTrace(file.path(), trace, *bootstrap);
    bootstrap->barrier();
  });
  CHECK(outcomes == Outcomes(ranks));
  const auto tracks = tracksOf(file.read());
  REQUIRE(tracks.size() == ranks);
  for (const auto& [key, track] : tracks) {
    CHECK(track.name == "proxy");
    std::vector<std::string> requests;
    int flushed = 0;
    for (const Json& event : track.events) {
      if (event.at("ph") == "i")
        flushed += event.at("name") == "flush_complete" && event.at("args").at("semaphore") == 0;
      if (event.at("ph") == "E" && event.at("name") != "trigger") CHECK(event.at("args").at("semaphore") == 0);
      if (event.at("ph") != "B" || event.at("name") == "trigger") continue;
      requests.push_back(event.at("name").get<std::string>() + " " + event.at("args").at("bytes").dump());
    }
    CHECK(requests == std::vector<std::string>{"put 1024", "put + signal 512", "flush 0", "put + signal + flush 4096"});
    CHECK(flushed == 2);
    CHECK(spansOf(track, "trigger").size() == requests.size());
  }
}

TEST_CASE("a file that cannot be written is an error on every rank") {
  Trace trace({.blocks = 1});
  CHECK_THROWS_AS(writeTrace("/no/such/folder/trace.json", {&trace}), SysError);
  CHECK_THROWS_AS(writeTrace("/dev/full", {&trace}), SysError);
  struct Case {
    std::string path;
    bool isLong;
  };
  for (const Case& each : {Case{"/no/such/folder/trace.json", false}, {"/dev/full", false}, {"/dev/full", true}}) {
    const UniqueId fresh = TcpBootstrap::createUniqueId();
    const auto outcomes = onThreads(2, [&](int rank) {
      TcpBootstrap bootstrap(rank, 2);
      bootstrap.initialize(fresh);
      Trace mine({.rank = rank, .blocks = 1});
      if (each.isLong) recordManyEvents(mine);
      std::string what;
      try {
        writeTrace(each.path, mine, bootstrap);
      } catch (const std::exception& error) {
        what = error.what();
      }
      bootstrap.barrier();
      const bool names = what.find(each.path) != std::string::npos;
      const bool blames = rank == 0 || what.find("rank 0") != std::string::npos;
      if (!names || !blames) throw std::runtime_error(what);
    });
    CHECK(outcomes == Outcomes(2));
  }
  CHECK(std::filesystem::is_character_file("/dev/full"));
}

TEST_CASE("peers are asked for one chunk at a time, and get a message from rank 0 between any two") {
  const TemporaryFile file("flow.json");
  constexpr int ranks = 3;
  constexpr long small = 4096;
  const UniqueId id = TcpBootstrap::createUniqueId();
  std::array<std::atomic<long>, ranks> unread{};
  std::array<long, ranks> mostUnread{};  // written by the rank
  int pieces = 0;                        // this and the following belong to rank 0
  std::array<int, ranks> silence{};      // chunks since the last message of rank 0 to each
  int longestSilence = 0;
  const auto outcomes = onThreads(ranks, [&](int rank) {
    TcpBootstrap tcp(rank, ranks);
    tcp.initialize(id);
    InstrumentedBootstrap bootstrap(tcp);
    bootstrap.onSend = [&, rank](int peer, long bytes) {
      if (rank == 0) silence[peer] = 0;
      if (rank == 0 || bytes <= small) return;
      mostUnread[rank] = std::max(mostUnread[rank], unread[rank] += bytes);
    };
    bootstrap.onReceived = [&, rank](int peer, long bytes) {
      if (rank != 0 || bytes <= small) return;
      unread[peer] -= bytes;
      ++pieces;
      for (int waiting = 1; waiting < ranks; ++waiting) longestSilence = std::max(longestSilence, ++silence[waiting]);
    };
    Trace trace({.rank = rank, .blocks = 1});
    recordManyEvents(trace);
    writeTrace(file.path(), trace, bootstrap);
    tcp.barrier();
  });
  CHECK(outcomes == Outcomes(ranks));
  CHECK(pieces >= 3 * (ranks - 1));
  for (int rank = 1; rank < ranks; ++rank) CHECK(mostUnread[rank] < 2 << 20);
  CHECK(longestSilence == 1);
  CHECK(tracksOf(file.read()).size() == ranks);
}

TEST_CASE("a rank that fails halfway is an error on every rank, and the old file stays") {
  const TemporaryFile file("halfway.json");
  setContent(file.path(), "old");
  constexpr int ranks = 3;
  const UniqueId id = TcpBootstrap::createUniqueId();
  const auto outcomes = onThreads(ranks, [&](int rank) {
    TcpBootstrap tcp(rank, ranks);
    tcp.initialize(id);
    InstrumentedBootstrap bootstrap(tcp);
    int large = 0;
    bootstrap.onSend = [&](int, long bytes) {
      if (rank == 1 && bytes > 4096 && ++large == 2) throw std::runtime_error("cut off");
    };
    Trace trace({.rank = rank, .blocks = 1});
    recordManyEvents(trace);
    writeTrace(file.path(), trace, bootstrap);
  });
  CHECK(outcomes[0] != "");
  CHECK(outcomes[1] == "cut off");
  CHECK(outcomes[2] != "");
  CHECK(contentOf(file.path()) == "old");
  CHECK_FALSE(hasPart(file.path()));
}

TEST_CASE("a file is replaced once the new one is complete, also through a symbolic link") {
  const TemporaryFile file("replaced.json");
  const TemporaryFile link("link.json");
  setContent(file.path(), "old");
  std::filesystem::create_symlink(file.path(), link.path());
  Trace trace({.blocks = 1});
  Trace same({.blocks = 1});
  CHECK(codeOf([&] { writeTrace(link.path(), {&trace, &same}); }) == ErrorCode::InvalidUsage);
  CHECK(codeOf([&] { writeTrace(link.path(), {&trace, nullptr}); }) == ErrorCode::InvalidUsage);
  CHECK(contentOf(file.path()) == "old");
  CHECK_FALSE(hasPart(file.path()));
  writeTrace(link.path(), {&trace});
  CHECK(std::filesystem::is_symlink(link.path()));
  CHECK(file.read().at("otherData").at("ranks").size() == 1);
  CHECK_FALSE(hasPart(file.path()));
  CHECK_FALSE(hasPart(link.path()));
}

TEST_CASE("invalid options are rejected") {
  CHECK_THROWS_AS(Trace({.blocks = 0}), Error);
  CHECK_THROWS_AS(Trace({.eventsPerRecorder = 1}), Error);
  CHECK_THROWS_AS(Trace({.device = DeviceType::Unknown}), Error);
  CHECK_THROWS_AS(Trace({.device = DeviceType::GPU}), Error);
  // More tracks than ids; more memory than exists; and both, with a byte count that overflows 64 bits.
  CHECK(codeOf([] { Trace({.blocks = 500'000}); }) == ErrorCode::InvalidUsage);
  CHECK(codeOf([] { Trace({.blocks = 499'999, .eventsPerRecorder = INT_MAX}); }) == ErrorCode::InvalidUsage);
  CHECK(codeOf([] { Trace({.blocks = INT_MAX, .eventsPerRecorder = INT_MAX}); }) == ErrorCode::InvalidUsage);
}
