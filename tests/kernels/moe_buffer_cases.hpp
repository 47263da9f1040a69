// Cases of kernels/moe_buffer.hpp, for a rank: all formats and both forms, against the expected rows and sums.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"
#include "tests/kernels/invalid_usage.hpp"

namespace mscclpp::test {

/// Memory of the buffer's device: allocates, reads, writes, and waits for the calls.
struct MoeMemory {
  DeviceType where;
  std::function<std::shared_ptr<void>(std::size_t bytes)> allocate;
  std::function<void(void* to, const void* from, std::size_t bytes)> copy;
  std::function<void()> synchronise;

  template <class T>
  std::shared_ptr<void> of(const std::vector<T>& values) const {
    auto memory = allocate(values.size() * sizeof(T) + 16);
    if (!values.empty()) copy(memory.get(), values.data(), values.size() * sizeof(T));
    return memory;
  }
  template <class T>
  std::vector<T> read(const std::shared_ptr<void>& memory, std::size_t count) const {
    std::vector<T> values(count);
    if (count > 0) copy(static_cast<void*>(values.data()), memory.get(), count * sizeof(T));
    return values;
  }
};

/// The inputs of a rank, which every rank can compute.
struct MoeTokens {
  std::vector<bf16> rows;
  std::vector<f8e4m3> quantised;
  std::vector<float> scales, weights;
  std::vector<std::int64_t> experts;
  std::uint32_t count;

  MoeTokens(const moe::BufferConfig& config, std::uint32_t most, int rank, int call) {
    std::mt19937 random(static_cast<unsigned>(rank * 100 + call));
    count = rank == call % 3 ? 0 : random() % (most + 1);
    for (std::uint32_t token = 0; token < count; ++token) {
      const auto first = static_cast<std::int64_t>(random() % static_cast<unsigned>(config.experts));
      for (int j = 0; j < config.topk; ++j) {
        experts.push_back(random() % 7 == 0 ? -1 : (first + j) % config.experts);
        weights.push_back(static_cast<float>(random() % 9) / 8);
      }
    }
    for (std::size_t i = 0; i < std::size_t{count} * config.hidden; ++i) {
      rows.push_back(narrow<bf16>(static_cast<float>(random() % 65) / 32 - 1));
      quantised.push_back(narrow<f8e4m3>(static_cast<float>(random() % 17) - 8));
    }
    for (std::uint32_t i = 0; i < count * ((config.hidden + 127) / 128); ++i) {
      scales.push_back(static_cast<float>(random() % 100));
    }
  }
};

/// Calls of a rank with a configuration. Throws where a result is wrong.
inline void checkMoeBuffer(Communicator& communicator, const MoeMemory& memory, const moe::BufferConfig& config) {
  moe::Buffer buffer(communicator, memory.where, config);
  const int rank = buffer.rank();
  const auto perRank = static_cast<std::size_t>(config.experts / buffer.ranks());
  const auto capacity = std::max(buffer.largestCapacity(), buffer.lowLatencyCapacity());
  const bool isFp8 = config.format != moe::RowFormat::Bf16;
  const std::size_t rowBytes = config.hidden * (isFp8 ? 1 : 2);
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error("rank " + std::to_string(rank) + ": wrong " + what);
  };
  moe::DispatchHandle handle = buffer.makeHandle();
  for (int call = 0; call < 8; ++call) {
    const bool isLowLatency = call % 2 == 1;
    const bool isSplit = call % 4 >= 2;
    const std::uint32_t most = isLowLatency ? config.maxLowLatencyTokens : config.maxTokens;
    const MoeTokens own(config, most, rank, call);
    const auto rows = config.format == moe::RowFormat::Fp8 ? memory.of(own.quantised) : memory.of(own.rows);
    const auto scales = memory.of(own.scales), weights = memory.of(own.weights), experts = memory.of(own.experts);
    const std::vector<std::byte> poison(capacity * rowBytes, std::byte{0xa5});
    const auto received = memory.of(poison);
    const auto receivedScales = memory.of(std::vector<float>(capacity * (buffer.scaleGroups() + 1), -5));
    const auto counts = memory.of(std::vector<std::uint32_t>(perRank, 77));
    const auto offsets = memory.of(std::vector<std::uint32_t>(perRank + 1, 77));
    const auto origins = memory.of(std::vector<moe::RowOrigin>(capacity, {-1, 0, 0, 0}));
    const moe::Tokens tokens{rows.get(), static_cast<float*>(scales.get()), static_cast<std::int64_t*>(experts.get()),
                             static_cast<float*>(weights.get()), own.count};
    const moe::ExpertBatch batch{received.get(),
                                 static_cast<float*>(receivedScales.get()),
                                 static_cast<std::uint32_t*>(counts.get()),
                                 static_cast<std::uint32_t*>(offsets.get()),
                                 static_cast<moe::RowOrigin*>(origins.get()),
                                 isLowLatency ? buffer.lowLatencyCapacity() : buffer.largestCapacity()};
    if (isLowLatency) {
      const auto hook = buffer.lowLatencyDispatch(tokens, batch, handle, nullptr, isSplit);
      if (hook) hook();
      require(static_cast<bool>(hook) == isSplit, "hook");
    } else if (isSplit) {
      buffer.dispatch(tokens, batch, handle, nullptr, moe::Phase::Send);
      buffer.dispatch(tokens, batch, handle, nullptr, moe::Phase::Receive);
    } else {
      buffer.dispatch(tokens, batch, handle);
    }
    memory.synchronise();
    buffer.check();

    // Every row is that of its origin, and every choice has one row.
    const auto got = memory.read<std::byte>(received, capacity * rowBytes);
    const auto gotScales = memory.read<float>(receivedScales, capacity * buffer.scaleGroups());
    const auto gotOrigins = memory.read<moe::RowOrigin>(origins, capacity);
    const auto gotCounts = memory.read<std::uint32_t>(counts, perRank);
    const auto gotOffsets = memory.read<std::uint32_t>(offsets, perRank + 1);
    std::vector<bf16> results(std::size_t{capacity} * config.hidden, narrow<bf16>(1e9f));
    std::size_t wantedRows = 0, gotRows = 0;
    std::vector<MoeTokens> all;
    for (int r = 0; r < buffer.ranks(); ++r) all.emplace_back(config, most, r, call);
    for (const MoeTokens& of : all) {
      for (const std::int64_t expert : of.experts) {
        wantedRows += expert >= 0 && static_cast<std::size_t>(expert) / perRank == static_cast<std::size_t>(rank);
      }
    }
    for (std::size_t expert = 0; expert < perRank; ++expert) {
      gotRows += gotCounts[expert];
      if (!isLowLatency) require(gotOffsets[expert] % config.alignment == 0, "alignment");
      for (std::uint32_t row = gotOffsets[expert]; row < gotOffsets[expert] + gotCounts[expert]; ++row) {
        const moe::RowOrigin& origin = gotOrigins[row];
        require(origin.rank >= 0 && origin.rank < buffer.ranks(), "origin");
        const MoeTokens& from = all[static_cast<std::size_t>(origin.rank)];
        const std::size_t first = static_cast<std::size_t>(origin.token) * config.hidden;
        for (std::size_t i = 0; i < config.hidden; ++i) {
          float value = 0;
          float wanted = widen<bf16>(from.rows[first + i]);
          const std::size_t group = row * std::size_t{buffer.scaleGroups()} + i / 128;
          if (!isFp8) {
            bf16 element;
            std::memcpy(static_cast<void*>(&element), &got[row * rowBytes + i * 2], 2);
            value = widen<bf16>(element);
            require(value == wanted, "row");
          } else {
            value = widen<f8e4m3>(arch::bitCast<f8e4m3>(got[row * rowBytes + i])) * gotScales[group];
            if (config.format == moe::RowFormat::Fp8) {
              const std::size_t at = static_cast<std::size_t>(origin.token) * buffer.scaleGroups() + i / 128;
              wanted = widen<f8e4m3>(from.quantised[first + i]) * from.scales[at];
              require(value == wanted, "fp8 row");
            } else {
              require(std::fabs(value - wanted) <= 1.001f / 28, "quantised row");
            }
          }
          // The result of an expert: its number, plus the exact value of the token.
          results[std::size_t{row} * config.hidden + i] =
              narrow<bf16>(widen<bf16>(from.rows[first + i]) +
                           static_cast<float>(static_cast<std::size_t>(rank) * perRank + expert));
        }
      }
    }
    require(gotRows == wantedRows, "number of rows");

    const auto computed = memory.of(results);
    const auto output = memory.of(std::vector<bf16>(own.rows.size(), narrow<bf16>(-3.0f)));
    if (isLowLatency) {
      const auto hook = buffer.lowLatencyCombine(computed.get(), output.get(), handle, nullptr, isSplit);
      if (hook) hook();
    } else if (isSplit) {
      buffer.combine(computed.get(), output.get(), handle, nullptr, moe::Phase::Send);
      buffer.combine(computed.get(), output.get(), handle, nullptr, moe::Phase::Receive);
    } else {
      buffer.combine(computed.get(), output.get(), handle);
    }
    memory.synchronise();
    buffer.check();
    const auto sums = memory.read<bf16>(output, own.rows.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t token = i / config.hidden;
      double wanted = 0, magnitude = 0;
      for (std::size_t j = 0; j < static_cast<std::size_t>(config.topk); ++j) {
        const std::int64_t expert = own.experts[token * static_cast<std::size_t>(config.topk) + j];
        if (expert < 0) continue;
        const double term =
            static_cast<double>(own.weights[token * static_cast<std::size_t>(config.topk) + j]) *
            static_cast<double>(widen<bf16>(narrow<bf16>(widen<bf16>(own.rows[i]) + static_cast<float>(expert))));
        wanted += term;
        magnitude += std::fabs(term);
      }
      require(std::fabs(static_cast<double>(widen<bf16>(sums[i])) - wanted) <= magnitude / 120, "sum");
    }

    const auto perRankCounts = memory.of(std::vector<std::uint32_t>(static_cast<std::size_t>(buffer.ranks()), 9));
    const auto perExpert = memory.of(std::vector<std::uint32_t>(static_cast<std::size_t>(config.experts), 9));
    const auto rankIndex =
        memory.of(std::vector<std::int32_t>(own.count * static_cast<std::size_t>(buffer.ranks()), 9));
    const auto expertIndex = memory.of(std::vector<std::int32_t>(own.experts.size(), 9));
    buffer.getDispatchLayout(
        tokens, {static_cast<std::uint32_t*>(perRankCounts.get()), static_cast<std::uint32_t*>(perExpert.get()),
                 static_cast<std::int32_t*>(rankIndex.get()), static_cast<std::int32_t*>(expertIndex.get())});
    memory.synchronise();
    std::vector<std::uint32_t> wantedPerExpert(static_cast<std::size_t>(config.experts), 0);
    for (const std::int64_t expert : own.experts) {
      if (expert >= 0) ++wantedPerExpert[static_cast<std::size_t>(expert)];
    }
    require(memory.read<std::uint32_t>(perExpert, wantedPerExpert.size()) == wantedPerExpert, "layout");
    communicator.bootstrap()->barrier();
  }
}

inline moe::BufferConfig moeConfig(int ranks, moe::RowFormat format) {
  return {.maxTokens = 30,
          .maxLowLatencyTokens = 9,
          .topk = 3,
          .experts = ranks * 4,
          .hidden = 272,
          .format = format,
          .alignment = 8,
          .blocks = 8,
          .lowLatencyBlocks = 4};
}

inline void checkMoeMisuse(Communicator& communicator, const MoeMemory& memory) {
  const int ranks = communicator.bootstrap()->getNranks();
  const auto expect = [&](const char* part, const std::function<void(moe::BufferConfig&)>& change) {
    moe::BufferConfig config = moeConfig(ranks, moe::RowFormat::Bf16);
    change(config);
    expectInvalidUsage(part, [&] { moe::Buffer(communicator, memory.where, config); });
  };
  expect("hidden is 12; it must be a positive multiple of 8", [](moe::BufferConfig& config) { config.hidden = 12; });
  for (const auto format : {moe::RowFormat::Fp8, moe::RowFormat::QuantiseBf16}) {
    expect("hidden is 264; it must be a positive multiple of 16 for rows of fp8", [&](moe::BufferConfig& config) {
      config.hidden = 264;
      config.format = format;
    });
  }
  expect("topk is 9", [](moe::BufferConfig& config) { config.topk = 9; });
  expect("must be a positive multiple of the", [](moe::BufferConfig& config) { config.experts = 7; });
  expect("hidden is 0; it must be a positive multiple of 8", [](moe::BufferConfig& config) { config.hidden = 0; });
  expect("alignment is 0; it must be 1 (none) to 65536", [](moe::BufferConfig& config) { config.alignment = 0; });
  expect("the number of blocks is negative", [](moe::BufferConfig& config) { config.sendingBlocks = -1; });
  expect("the number of blocks is negative", [](moe::BufferConfig& config) { config.combineSendingBlocks = -2; });
  expect("maxTokens and maxLowLatencyTokens are 0",
         [](moe::BufferConfig& config) { config.maxTokens = config.maxLowLatencyTokens = 0; });
  expect("maxLowLatencyTokens is 1025; a low-latency call has at most 1024",
         [](moe::BufferConfig& config) { config.maxLowLatencyTokens = 1025; });
  expect("2^31 rows or more", [&](moe::BufferConfig& config) {
    config.experts = ranks * 65535;
    config.topk = 8;
    config.maxTokens = 65535;
    config.alignment = 65536;
  });
  if (ranks > 1) {
    const bool isLast = communicator.bootstrap()->getRank() == ranks - 1;
    const std::string last = " on rank " + std::to_string(ranks - 1) + "; every rank must make the same buffer";
    const auto expectOther = [&](const std::string& part, const std::function<void(moe::BufferConfig&)>& change) {
      expect((part + last).c_str(), [&](moe::BufferConfig& config) {
        if (isLast) change(config);
      });
    };
    expectOther("maxTokens is 30 on rank 0, but 31", [](moe::BufferConfig& config) { config.maxTokens = 31; });
    expectOther("maxLowLatencyTokens is 9 on rank 0, but 0",
                [](moe::BufferConfig& config) { config.maxLowLatencyTokens = 0; });
    expectOther("topk is 3 on rank 0, but 2", [](moe::BufferConfig& config) { config.topk = 2; });
    expectOther("experts is " + std::to_string(4 * ranks) + " on rank 0, but " + std::to_string(8 * ranks),
                [](moe::BufferConfig& config) { config.experts *= 2; });
    expectOther("hidden is 272 on rank 0, but 256", [](moe::BufferConfig& config) { config.hidden = 256; });
    expectOther("format is 0 on rank 0, but 2",
                [](moe::BufferConfig& config) { config.format = moe::RowFormat::QuantiseBf16; });
    expectOther("alignment is 8 on rank 0, but 1", [](moe::BufferConfig& config) { config.alignment = 1; });
  }
  moe::Buffer buffer(communicator, memory.where, moeConfig(ranks, moe::RowFormat::Bf16));
  const moe::Buffer other(communicator, memory.where, moeConfig(ranks, moe::RowFormat::Bf16));
  moe::DispatchHandle handle = buffer.makeHandle(), second = buffer.makeHandle(), foreign = other.makeHandle(), empty;
  const std::uint32_t capacity = std::max(buffer.largestCapacity(), buffer.lowLatencyCapacity());
  const auto data = memory.allocate(capacity * buffer.rowBytes() + 16);
  const auto words = memory.allocate(1024);
  auto* const counts = static_cast<std::uint32_t*>(words.get());
  const moe::ExpertBatch batch{data.get(), nullptr, counts, counts + 64, nullptr, capacity};
  const auto misaligned = [](void* address) {
    return reinterpret_cast<moe::RowOrigin*>(static_cast<char*>(address) + 8);
  };
  const moe::Tokens many{data.get(), nullptr, static_cast<std::int64_t*>(data.get()), nullptr, 31};
  expectInvalidUsage("31 tokens, but the buffer is for 30", [&] { buffer.dispatch(many, batch, handle); });
  const moe::Tokens none{};
  expectInvalidUsage("the handle is empty", [&] { buffer.dispatch(none, batch, empty); });
  expectInvalidUsage("the handle is empty", [&] { static_cast<void>(empty.view()); });
  expectInvalidUsage("the handle is of another buffer", [&] { buffer.dispatch(none, batch, foreign); });
  expectInvalidUsage("the handle's memory is not at a multiple of 16",
                     [&] { buffer.makeHandle(misaligned(data.get())); });
  expectInvalidUsage("ExpertBatch::rows is null", [&] { buffer.dispatch(none, {}, handle); });
  expectInvalidUsage("ExpertBatch::origins is not at a multiple of 16 bytes", [&] {
    buffer.dispatch(none, {data.get(), nullptr, counts, counts, misaligned(data.get()), capacity}, handle);
  });
  expectInvalidUsage("Tokens::rows is not at a multiple of 16 bytes", [&] {
    buffer.dispatch({misaligned(data.get()), nullptr, many.experts, nullptr, 1}, batch, handle);
  });
  expectInvalidUsage("low-latency calls need", [&] {
    buffer.lowLatencyDispatch(none, {data.get(), nullptr, counts, counts, nullptr, 3}, handle);
  });

  // The order of the calls. The wrong ones have no effect: all ranks go on.
  const auto combine = [&](const moe::DispatchHandle& of) { buffer.combine(data.get(), data.get(), of); };
  const auto fastCombine = [&](const moe::DispatchHandle& of, bool isSplit = false) {
    return buffer.lowLatencyCombine(data.get(), data.get(), of, nullptr, isSplit);
  };
  expectInvalidUsage("no dispatch with this handle has been received", [&] { combine(handle); });
  expectInvalidUsage("there is no dispatch to receive",
                     [&] { buffer.dispatch(none, batch, handle, nullptr, moe::Phase::Receive); });
  auto hook = buffer.lowLatencyDispatch(none, batch, handle, nullptr, true);
  expectInvalidUsage("the dispatch before has been sent and not received",
                     [&] { buffer.lowLatencyDispatch(none, batch, second); });
  expectInvalidUsage("a dispatch with this handle has been sent and not received", [&] { fastCombine(handle); });
  expectInvalidUsage("a dispatch with this handle has been sent and not received",
                     [&] { buffer.dispatch(none, batch, handle); });
  buffer.dispatch(none, batch, second);  // of the other form: in between
  hook();
  expectInvalidUsage("a hook is called twice", hook);
  expectInvalidUsage("the handle is of a dispatch of the low-latency form", [&] { combine(handle); });
  expectInvalidUsage("the handle is of a dispatch of the bandwidth form", [&] { fastCombine(second); });
  hook = fastCombine(handle, true);
  expectInvalidUsage("the combine before has been sent and not received", [&] { fastCombine(handle); });
  expectInvalidUsage("a combine with this handle has been sent and not received",
                     [&] { buffer.lowLatencyDispatch(none, batch, handle); });
  hook();
  buffer.dispatch(none, batch, handle, nullptr, moe::Phase::Send);
  moe::ExpertBatch smaller = batch;
  --smaller.capacity;
  expectInvalidUsage("the dispatch was sent with other arguments",
                     [&] { buffer.dispatch(none, smaller, handle, nullptr, moe::Phase::Receive); });
  buffer.dispatch(none, batch, handle, nullptr, moe::Phase::Receive);
  combine(handle);
  combine(buffer.restoreHandle(const_cast<std::int32_t*>(handle.view().rankIndex), moe::Form::Bandwidth, 0));
  memory.synchronise();
  buffer.check();
  {
    moe::Buffer brief(communicator, memory.where, moeConfig(ranks, moe::RowFormat::Bf16));
    moe::DispatchHandle own = brief.makeHandle();
    hook = brief.lowLatencyDispatch(none, batch, own, nullptr, true);
    memory.synchronise();
    communicator.bootstrap()->barrier();
  }
  expectInvalidUsage("a hook is called after its buffer has been destroyed", hook);
  communicator.bootstrap()->barrier();
}

/// Memory that a handle of another buffer, of the other form or of another number of tokens has been in.
inline void checkOtherHandles(Communicator& communicator, const MoeMemory& memory) {
  const moe::BufferConfig config = moeConfig(communicator.bootstrap()->getNranks(), moe::RowFormat::Bf16);
  for (int kind = 0; kind < 4; ++kind) {
    CAPTURE(kind);
    moe::Buffer buffer(communicator, memory.where, config), other(communicator, memory.where, config);
    const auto data = memory.allocate(std::max(buffer.largestCapacity(), buffer.lowLatencyCapacity()) *
                                      std::size_t{config.hidden} * 2);
    const auto words = memory.allocate(1024);
    auto* const counts = static_cast<std::uint32_t*>(words.get());
    const moe::ExpertBatch batch{data.get(),  nullptr, counts,
                                 counts + 64, nullptr, std::max(buffer.largestCapacity(), buffer.lowLatencyCapacity())};
    moe::DispatchHandle handle = buffer.makeHandle(), foreign = other.makeHandle();
    buffer.dispatch({}, batch, handle);
    other.dispatch({}, batch, foreign);
    const auto combine = [&](const moe::DispatchHandle& from, std::uint32_t tokens) {
      void* const at = const_cast<std::int32_t*>(from.view().rankIndex);
      buffer.combine(data.get(), data.get(), buffer.restoreHandle(at, moe::Form::Bandwidth, tokens));
      memory.synchronise();
      buffer.check();
    };
    combine(handle, 0);  // the right one
    if (kind == 1) buffer.lowLatencyDispatch({}, batch, handle);
    if (kind == 3) handle = buffer.makeHandle();
    expectInvalidUsage("combines with a handle of another buffer or form",
                       [&] { combine(kind == 0 ? foreign : handle, kind == 2 ? 1 : 0); });
    communicator.bootstrap()->barrier();
  }
}

/// The output of one rank is too small: every rank gets an error that names it, long before a wait times out.
inline void checkSmallMoeOutput(Communicator& communicator, const MoeMemory& memory) {
  const int ranks = communicator.bootstrap()->getNranks();
  for (const bool isSplit : {false, true}) {
    moe::Buffer buffer(communicator, memory.where, moeConfig(ranks, moe::RowFormat::Bf16));
    const bool isSmall = buffer.rank() == 1;
    const std::uint32_t count = 5;
    std::vector<std::int64_t> chosen;
    for (std::uint32_t i = 0; i < count * 3; ++i) chosen.push_back(4 + i % 3);  // experts of rank 1
    const auto rows = memory.allocate(count * buffer.rowBytes()), experts = memory.of(chosen);
    const auto received = memory.allocate(buffer.largestCapacity() * buffer.rowBytes());
    const auto words = memory.allocate(1024);
    auto* const counts = static_cast<std::uint32_t*>(words.get());
    const moe::Tokens tokens{rows.get(), nullptr, static_cast<std::int64_t*>(experts.get()), nullptr, count};
    const moe::ExpertBatch batch{received.get(), nullptr, counts,
                                 counts + 64,    nullptr, isSmall ? 9u : buffer.largestCapacity()};
    moe::DispatchHandle handle = buffer.makeHandle();
    const auto start = std::chrono::steady_clock::now();
    // 5 tokens of each rank for 3 experts each, padded to 8.
    const std::string needed = std::to_string(3 * ((5 * ranks + 7) / 8 * 8));
    const std::string sentence =
        "the output of rank 1 for the rows of its experts holds 9 rows, and a dispatch sends it " + needed;
    expectInvalidUsage(sentence.c_str(), [&] {
      buffer.dispatch(tokens, batch, handle, nullptr, isSplit ? moe::Phase::Send : moe::Phase::Both);
      if (isSplit) buffer.dispatch(tokens, batch, handle, nullptr, moe::Phase::Receive);
      memory.synchronise();
      buffer.check();
    });
    expectInvalidUsage("the output of rank 1", [&] { buffer.combine(received.get(), received.get(), handle); });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    CHECK(taken.count() < 10);
    communicator.bootstrap()->barrier();
  }
}

}  // namespace mscclpp::test
