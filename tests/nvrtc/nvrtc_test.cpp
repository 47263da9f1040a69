// Device headers and a whole collective compile at run time, without host headers. Needs no GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "kernels/jit/embedded_headers.hpp"
#include "nvrtc_program.hpp"

using namespace mscclpp;
using mscclpp::test::compileToPtx;

namespace {

std::string errorOf(const std::string& source) {
  try {
    compileToPtx(source);
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

// All headers that a kernel can include.
std::vector<std::string> deviceHeaders() {
  std::vector<std::string> names;
  for (const auto& header : jit::detail::embeddedHeaders()) names.push_back(header.name);
  return names;
}

// The folders that have headers of device code: "mscclpp/arch", ...
std::set<std::string> foldersOf(const std::vector<std::string>& headers) {
  std::set<std::string> folders;
  for (const auto& header : headers) folders.insert(std::filesystem::path(header).parent_path().string());
  folders.erase("mscclpp");       // has others too
  folders.erase("mscclpp/plan");  // likewise
  return folders;
}

}  // namespace

TEST_CASE("a host header in device code is an error that names it") {
  CHECK(errorOf("#include <thread>\n").find("thread") != std::string::npos);
}

TEST_CASE("a warning is an error") {
  CHECK(errorOf("__global__ void k() { int unused; }\n") != "");
}

TEST_CASE("no device header is missing in the library") {
  const auto headers = deviceHeaders();
  REQUIRE(headers.size() > 20);
  const auto folders = foldersOf(headers);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MSCCLPP_TEST_INCLUDE "/mscclpp")) {
    const auto name = std::filesystem::relative(entry.path(), MSCCLPP_TEST_INCLUDE);
    if (!folders.contains(name.parent_path().string()) || entry.path().extension() != ".hpp") continue;
    CAPTURE(name.string());
    CHECK(std::count(headers.begin(), headers.end(), name.string()) == 1);
  }
  for (const char* folder : {"arch", "basic", "packet", "sync", "channel", "collective", "fusion", "moe"})
    CHECK(folders.contains(std::string("mscclpp/") + folder));
}

// A header that does not include what it needs compiles in both orders only by the luck of its neighbours; that each is
// self-contained for g++ is checked in tests/headers/.
TEST_CASE("the device headers compile in one program, in any order") {
  const auto headers = deviceHeaders();
  std::string forwards, backwards;
  for (const auto& header : headers) {
    const std::string line = "#include <" + header + ">\n";
    forwards = forwards + line;
    backwards = line + backwards;
  }
  CHECK(errorOf(forwards) == "");
  CHECK(errorOf(backwards) == "");
}

TEST_CASE("a whole all-reduce compiles into a kernel") {
  const std::string ptx = compileToPtx(R"(
    #include <mscclpp/basic/source_sink.hpp>
    #include <mscclpp/basic/group.hpp>
    #include <mscclpp/collective/all_reduce.hpp>

    using namespace mscclpp;
    constexpr AllReduceConfig config{.protocol = Protocol::LL16, .pattern = Pattern::TwoShot, .ranks = 4};
    using Collective = AllReduce<float, Sum, config>;

    extern "C" __global__ void allReduce(const __grid_constant__ Collective::Args args, const float* input,
                                         float* output) {
      Collective::run(gpu::Grid(), args, ArraySource<float>(input), ArraySink<float>(output));
    }
  )");
  CHECK(ptx.find(".entry allReduce") != std::string::npos);
  CHECK(ptx.find("st.relaxed.sys.global") != std::string::npos);
}

TEST_CASE("an all-reduce fuses into a user's kernel, with a user-defined source and sink") {
  const std::string ptx = compileToPtx(R"(
    #include <mscclpp/basic/group.hpp>
    #include <mscclpp/collective/all_reduce.hpp>

    using namespace mscclpp;
    constexpr AllReduceConfig config{.protocol = Protocol::LL16, .pattern = Pattern::OneShot, .ranks = 4};
    using Collective = AllReduce<bf16, Sum, config>;

    // Blocks 0 to 3 reduce a product and add a residual to the sum; the others do other work.
    extern "C" __global__ void fused(const __grid_constant__ Collective::Args args, const float* left,
                                     const float* right, float* residual, int* others) {
      if (blockIdx.x >= 4) {
        others[blockIdx.x] = threadIdx.x;
        return;
      }
      const auto source = [=](std::size_t first, int valid) {
        Pack<bf16> pack = fromWord<bf16>(Word128{0, 0});
        for (int i = 0; i < packSize<bf16>; ++i)
          if (i < valid) pack[i] = narrow<bf16>(left[first + i] * right[first + i]);
        return pack;
      };
      const auto sink = [=](std::size_t first, const Pack<bf16>& sum, int valid) {
        for (int i = 0; i < packSize<bf16>; ++i)
          if (i < valid) residual[first + i] += widen<bf16>(sum[i]);
      };
      Collective::run(gpu::Grid(0, 4), args, source, sink);
    }
  )");
  CHECK(ptx.find(".entry fused") != std::string::npos);
  CHECK(ptx.find("st.relaxed.sys.global.b128") != std::string::npos);
  CHECK(ptx.find("ld.relaxed.sys.global.b128") != std::string::npos);
  CHECK(ptx.find("fence") == std::string::npos);  // packets need none
}

TEST_CASE("the other collectives compile into kernels, over packets and over a tile pipeline") {
  const std::string ptx = compileToPtx(R"(
    #include <mscclpp/basic/group.hpp>
    #include <mscclpp/basic/source_sink.hpp>
    #include <mscclpp/collective/all_gather.hpp>
    #include <mscclpp/collective/all_gather_v.hpp>
    #include <mscclpp/collective/all_to_all.hpp>
    #include <mscclpp/collective/all_to_all_v.hpp>
    #include <mscclpp/collective/broadcast.hpp>
    #include <mscclpp/collective/gather.hpp>
    #include <mscclpp/collective/reduce.hpp>
    #include <mscclpp/collective/reduce_scatter.hpp>
    #include <mscclpp/collective/reduce_scatter_v.hpp>
    #include <mscclpp/collective/scatter.hpp>
    #include <mscclpp/collective/send_receive.hpp>

    using namespace mscclpp;

    template <class Collective>
    __device__ bool call(const typename Collective::Args& args, const float* input, float* output) {
      return Collective::run(gpu::Grid(), args, ArraySource<float>(input), ArraySink<float>(output));
    }

    template <CollectiveConfig config>
    struct Arguments {
      typename AllGather<float, config>::Args equal;
      typename Broadcast<float, config>::Args rooted;
      typename SendReceive<float, config>::Args pair;
      typename AllGatherV<float, config>::Args parts;
      typename AllToAllV<float, config>::Args pairs;
    };

    template <CollectiveConfig config>
    __device__ void all(const Arguments<config>& args, const float* input, float* output) {
      call<AllGather<float, config>>(args.equal, input, output);
      call<ReduceScatter<float, Sum, config>>(args.equal, input, output);
      call<AllToAll<float, config>>(args.equal, input, output);
      call<Broadcast<float, config>>(args.rooted, input, output);
      call<Reduce<float, Sum, config>>(args.rooted, input, output);
      call<Gather<float, config>>(args.rooted, input, output);
      call<Scatter<float, config>>(args.rooted, input, output);
      call<SendReceive<float, config>>(args.pair, input, output);
      call<AllGatherV<float, config>>(args.parts, input, output);
      call<ReduceScatterV<float, Sum, config>>(args.parts, input, output);
      call<AllToAllV<float, config>>(args.pairs, input, output);
    }

    extern "C" __global__ void packets(const __grid_constant__ Arguments<CollectiveConfig{.ranks = 2}> args,
                                       const float* input, float* output) {
      all(args, input, output);
    }
    extern "C" __global__ void tiles(
        const __grid_constant__ Arguments<CollectiveConfig{.protocol = Protocol::Simple, .ranks = 2}> args,
        const float* input, float* output) {
      all(args, input, output);
    }
  )");
  CHECK(ptx.find(".entry packets") != std::string::npos);
  CHECK(ptx.find(".entry tiles") != std::string::npos);
}

TEST_CASE("an exchange over several protocols compiles into a kernel") {
  const std::string ptx = compileToPtx(R"(
    #include <mscclpp/basic/group.hpp>
    #include <mscclpp/basic/source_sink.hpp>
    #include <mscclpp/collective/exchange.hpp>

    using namespace mscclpp;
    constexpr int most = 16;
    using Messages = Exchange<0, most, MessageTransfer<float, CollectiveConfig{Protocol::LL16}>,
                              MessageTransfer<float, CollectiveConfig{Protocol::Simple}>>;

    extern "C" __global__ void exchange(
        const __grid_constant__ Messages::Args args,
        const __grid_constant__ MessageArrays<ArraySource<float>, const float, most> sources,
        const __grid_constant__ MessageArrays<ArraySink<float>, float, most> sinks) {
      Messages::run(gpu::LinearGrid(), args, sources, sinks);
    }
  )");
  CHECK(ptx.find(".entry exchange") != std::string::npos);
}

TEST_CASE("fused collectives compile into kernels") {
  const std::string ptx = compileToPtx(R"(
    #include <mscclpp/basic/group.hpp>
    #include <mscclpp/basic/source_sink.hpp>
    #include <mscclpp/fusion/all_reduce_fp8.hpp>
    #include <mscclpp/fusion/all_reduce_rms_norm.hpp>

    using namespace mscclpp;
    using Norm = AllReduceRmsNorm<bf16, AllReduceRmsNormConfig{.ranks = 2,
                                                               .quantisation = Quantisation::Int8PerRow,
                                                               .packsPerThread = 1}>;
    using Compressed = AllReduceFp8<bf16, AllReduceFp8Config{.ranks = 2}>;

    extern "C" __global__ void fused(const __grid_constant__ Norm::Args norm,
                                     const __grid_constant__ Compressed::Args compressed, const bf16* input,
                                     const __grid_constant__ RmsNormArrays<bf16> arrays, bf16* output) {
      Norm::run(gpu::Grid(), norm, ArraySource<bf16>(input), arrays);
      Compressed::run(gpu::Grid(), compressed, ArraySource<bf16>(input), ArraySink<bf16>(output));
    }
  )");
  CHECK(ptx.find(".entry fused") != std::string::npos);
  CHECK(ptx.find("cvt.rn.satfinite.e4m3x2") != std::string::npos);
  CHECK(ptx.find("sqrt.rn") != std::string::npos);
}

TEST_CASE("dispatch and combine compile into kernels") {
  const std::string ptx = compileToPtx(R"(
    #include <mscclpp/basic/group.hpp>
    #include <mscclpp/moe/combine.hpp>
    #include <mscclpp/moe/dispatch.hpp>

    using namespace mscclpp;
    using Dispatch = moe::Dispatch<moe::PacketTransport<Sentinel>, 2>;
    using Combine = moe::Combine<bf16, moe::StoreTransport>;

    extern "C" __global__ void experts(const __grid_constant__ Dispatch::Args dispatch,
                                       const __grid_constant__ Combine::Args combine,
                                       const __grid_constant__ moe::QuantisedRows<bf16> rows,
                                       const __grid_constant__ moe::ExpertRowArray expertRows,
                                       const __grid_constant__ moe::ExpertResults<bf16> results,
                                       const __grid_constant__ moe::TokenRows<bf16> output) {
      Dispatch::run(gpu::Grid(), dispatch, rows, expertRows);
      Combine::run(gpu::Grid(), combine, results, output);
    }
  )");
  CHECK(ptx.find(".entry experts") != std::string::npos);
  CHECK(ptx.find("cvt.rn.satfinite.e4m3x2") != std::string::npos);
}

TEST_CASE("operators with state and sources with a factor compile into kernels") {
  const std::string ptx = compileToPtx(R"(
    #include <mscclpp/basic/group.hpp>
    #include <mscclpp/basic/scaled_source.hpp>
    #include <mscclpp/collective/all_reduce.hpp>
    #include <mscclpp/collective/reduce.hpp>
    #include <mscclpp/collective/reduce_scatter.hpp>

    using namespace mscclpp;

    template <class Collective>
    __device__ void call(const typename Collective::Args& args, const f8e4m3* input, const f8e4m3* factor,
                         f8e4m3* output) {
      const ScaledArraySource<f8e4m3> source(input, ScaleFactor<f8e4m3>::at(factor));
      Collective::run(gpu::Grid(), args, source, ArraySink<f8e4m3>(output));
    }

    using Packets = AllReduce<f8e4m3, RuntimeOp, AllReduceConfig{.protocol = Protocol::LL16, .ranks = 4}>;
    extern "C" __global__ void packets(const __grid_constant__ Packets::Args args, const f8e4m3* input,
                                       const f8e4m3* factor, f8e4m3* output) {
      call<Packets>(args, input, factor, output);
    }
    using Tiles = ReduceScatter<f8e4m3, RuntimeOp, CollectiveConfig{.protocol = Protocol::Simple}>;
    extern "C" __global__ void tiles(const __grid_constant__ Tiles::Args args, const f8e4m3* input,
                                     const f8e4m3* factor, f8e4m3* output) {
      call<Tiles>(args, input, factor, output);
    }

    struct WeightedSum {
      float weight;
      __device__ float combine(float a, float b) const { return a + weight * b; }
      __device__ float finish(float total, int) const { return total; }
    };
    using Weighted = Reduce<f8e4m3, WeightedSum, CollectiveConfig{.protocol = Protocol::Sentinel, .ranks = 2}>;
    extern "C" __global__ void weighted(Weighted::Args args, const float* weight, const f8e4m3* input,
                                        const f8e4m3* factor, f8e4m3* output) {
      args.op = {*weight};
      call<Weighted>(args, input, factor, output);
    }
  )");
  for (const char* kernel : {"packets", "tiles", "weighted"}) {
    CAPTURE(kernel);
    CHECK(ptx.find(std::string(".entry ") + kernel) != std::string::npos);
  }
}
