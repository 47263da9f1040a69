// Programs compiled at run time: kernels, messages, headers, and the cache. Needs NVRTC, and no GPU.
#include "mscclpp/jit/program.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/jit/cache.hpp"
#include "mscclpp/jit/collective.hpp"
#include "mscclpp/jit/toolchain.hpp"
#include "temporary_folder.hpp"
#include "tests/test_case_filter.hpp"

using namespace mscclpp;
using mscclpp::test::TemporaryFolder;

namespace {

// Before the first use of the environment: the cases share an empty cache. Processes that they start have their own.
const TemporaryFolder cacheFolder;
const int cacheIsSet = std::getenv("MSCCLPP_JIT_TEST_PROCESS") == nullptr
                           ? ::setenv("MSCCLPP_CACHE_DIR", cacheFolder.path().c_str(), 1)
                           : 0;

constexpr char scaleSource[] = R"(
  template <class T>
  __global__ void scale(T* data, T factor) {
    data[threadIdx.x] *= factor;
  }
)";

jit::CompileRequest scaleRequest() {
  return {
      .source = scaleSource, .name = "scale.cu", .kernels = {"scale<float>", "scale<int>"}, .architecture = "sm_90a"};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string errorOf(const jit::CompileRequest& request, ErrorCode code = ErrorCode::InvalidUsage) {
  try {
    jit::compile(request);
    return "";
  } catch (const Error& error) {
    CHECK(error.getErrorCode() == code);
    return error.what();
  }
}

/// Starts this program to run one test case, with variables "NAME=value ..." in its environment.
std::FILE* start(const std::string& testCase, const std::string& variables) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "MSCCLPP_JIT_TEST_PROCESS=1 " + variables + " '" + self + "' --no-skip --test-case='" +
                              test::asFilter(testCase) + "' 2>&1";
  std::FILE* process = ::popen(command.c_str(), "r");
  REQUIRE(process != nullptr);
  return process;
}

/// Waits for it to end, which must be a success; returns what it printed.
std::string finish(std::FILE* process) {
  std::string output;
  char buffer[4096];
  while (const std::size_t bytes = std::fread(buffer, 1, sizeof(buffer), process)) output.append(buffer, bytes);
  const int status = ::pclose(process);
  INFO(output);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  return output;
}

}  // namespace

TEST_CASE("a template compiles for the types that are asked for") {
  const auto program = jit::compile(scaleRequest());
  CHECK(program.architecture() == "sm_90a");
  CHECK(program.image().substr(1, 3) == "ELF");
  CHECK(program.log() == "");
  CHECK(program.loweredName("scale<float>") != program.loweredName("scale<int>"));
  CHECK(contains(program.image(), program.loweredName("scale<int>")));
  try {
    program.loweredName("scale<double>");
    FAIL_CHECK("a kernel that was not compiled has a name");
  } catch (const Error& error) {
    CHECK(contains(error.what(), "scale<double>"));
    CHECK(contains(error.what(), "scale<float>"));
  }
}

TEST_CASE("PTX is text") {
  auto request = scaleRequest();
  request.architecture = "compute_90";
  const auto program = jit::compile(request);
  CHECK(contains(program.image(), ".target sm_90"));
  CHECK(contains(program.image(), ".entry " + program.loweredName("scale<float>")));
  CHECK(program.image().back() != '\0');
}

TEST_CASE("an error has the name of the file, the line and the message") {
  auto request = scaleRequest();
  request.source = "\n\n__global__ void broken() { undeclared = 1; }\n";
  request.name = "my_kernels.cu";
  request.kernels = {"broken"};
  const std::string error = errorOf(request);
  CHECK(contains(error, "my_kernels.cu(3)"));
  CHECK(contains(error, "\"undeclared\" is undefined"));
  CHECK(contains(error, "sm_90a"));
}

TEST_CASE("wrong requests are answered with what is allowed") {
  auto request = scaleRequest();
  request.kernels = {};
  CHECK(contains(errorOf(request), "CompileRequest::kernels"));
  request = scaleRequest();
  request.kernels = {"scale<float>", "missing"};
  CHECK(contains(errorOf(request), "missing"));
  request = scaleRequest();
  request.architecture = "90";
  CHECK(contains(errorOf(request), "sm_90a"));
  request.architecture = "sm_35";
  CHECK(contains(errorOf(request), "90"));
  for (const char* option :
       {"-I/tmp", "--include-path=/tmp", "-arch=sm_80", "--gpu-architecture=sm_80", "-include=x"}) {
    request = scaleRequest();
    request.options = {option};
    CHECK(contains(errorOf(request), option));
  }
}

TEST_CASE("warnings are in the log") {
  auto request = scaleRequest();
  request.source += "__global__ void other() { int unused; }\n";
  const auto program = jit::compile(request);
  CHECK(contains(program.log(), "unused"));
  CHECK(jit::compile(request).log() == program.log());  // from the cache
}

TEST_CASE("headers are texts, or files of folders, and options are passed on") {
  const TemporaryFolder folder;
  folder.write("sub/file.hpp", "#include <sub/other.hpp>\n");
  folder.write("sub/other.hpp", "constexpr int fromFile = 3;\n");
  const jit::CompileRequest request{.source =
                                        "#include \"text.hpp\"\n#include <sub/file.hpp>\n"
                                        "static_assert(fromText + fromFile + WIDTH == 12);\n__global__ void k() {}\n",
                                    .kernels = {"k"},
                                    .architecture = "sm_90a",
                                    .options = {"-DWIDTH=8"},
                                    .includeFolders = {folder.path().string()},
                                    .headers = {{"text.hpp", "constexpr int fromText = 1;\n"}}};
  CHECK(errorOf(request) == "");
  // A file of the current folder is not found by accident.
  const auto current = std::filesystem::current_path();
  std::filesystem::current_path(folder.path() / "sub");
  CHECK(contains(
      errorOf(
          {.source = "#include \"other.hpp\"\n__global__ void k() {}\n", .kernels = {"k"}, .architecture = "sm_90a"}),
      "other.hpp"));
  std::filesystem::current_path(current);
}

TEST_CASE("an all-reduce with a source functor given as text") {
  jit::KernelRequest request{
      .text = R"(
#include <mscclpp/collective/all_reduce.hpp>
struct Scaled {
  mscclpp::ArraySource<float> input;
  float factor;
  MSCCLPP_DEVICE mscclpp::Pack<float> operator()(std::size_t first, int valid) const {
    auto pack = input(first, valid);
    for (int i = 0; i < mscclpp::packSize<float>; ++i) pack[i] *= factor;
    return pack;
  }
};
)",
      .collective = "AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL16, .pattern = Pattern::TwoShot}>",
      .source = "Scaled",
      .sink = "ArraySink<float>",
      .name = "scaled.cu",
      .architecture = "compute_90a"};
  const auto program = jit::compileCollective(request);
  CHECK(program.log() == "");
  CHECK(contains(program.image(), "st.relaxed.sys.global.b128"));
  CHECK(contains(program.image(), ".maxntid 512"));

  const auto errorOfRequest = [&] {
    try {
      jit::compileCollective(request);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const std::string right = request.text;
  request.text += "syntax error\n";
  CHECK(contains(errorOfRequest(), "scaled.cu(12)"));
  request.text = right;
  request.source = "Unknown";
  CHECK(contains(errorOfRequest(), "KernelRequest::source(1)"));
  // A functor that does not fit is answered by the sentence of the collective.
  request.source = "ArraySource<double>";
  CHECK(contains(errorOfRequest(), "source must be a const callable"));
}

TEST_CASE("the second compilation comes from the cache, and any change is another program") {
  const TemporaryFolder folder;
  folder.write("width.hpp", "constexpr int width = 4;\n");
  jit::CompileRequest request{.source = "#include \"width.hpp\"\n__global__ void k(int* p) { *p = width; }\n",
                              .kernels = {"k"},
                              .architecture = "sm_90a",
                              .includeFolders = {folder.path().string()}};
  const auto first = jit::compile(request);
  CHECK_FALSE(first.fromCache());
  const auto second = jit::compile(request);
  CHECK(second.fromCache());
  CHECK(second.image() == first.image());
  CHECK(second.loweredName("k") == first.loweredName("k"));

  const auto isNew = [&](auto&& change) {
    auto changed = request;
    change(changed);
    return !jit::compile(changed).fromCache();
  };
  CHECK(isNew([](auto& r) { r.cached = false; }));
  CHECK(isNew([](auto& r) { r.source += " "; }));
  CHECK(isNew([](auto& r) { r.name = "other.cu"; }));
  CHECK(isNew([](auto& r) { r.options = {"-lineinfo"}; }));
  CHECK(isNew([](auto& r) { r.architecture = "sm_80"; }));
  CHECK(isNew([](auto& r) { r.headers = {{"unused.hpp", ""}}; }));
  folder.write("width.hpp", "constexpr int width = 8;\n");
  const auto other = jit::compile(request);
  CHECK_FALSE(other.fromCache());
  CHECK(other.image() != first.image());
  folder.write("width.hpp", "constexpr int width = 4;\n");
  CHECK(jit::compile(request).fromCache());
}

TEST_CASE("a damaged file of the cache is compiled again") {
  const auto request = scaleRequest();
  const auto right = jit::compile(request);
  for (const auto& entry : std::filesystem::directory_iterator(cacheFolder.path() / "jit")) {
    std::filesystem::resize_file(entry.path(), std::filesystem::file_size(entry.path()) / 2);
  }
  const auto again = jit::compile(request);
  CHECK_FALSE(again.fromCache());
  CHECK(again.image() == right.image());
  CHECK(jit::compile(request).fromCache());
}

TEST_CASE("the cache can be emptied") {
  jit::compile(scaleRequest());
  CHECK(jit::pruneCache(1ull << 40) > 0);
  CHECK(jit::pruneCache(0) == 0);
  CHECK_FALSE(jit::compile(scaleRequest()).fromCache());
}

TEST_CASE("process: compiles and says whether it took it from the cache" * doctest::skip()) {
  std::printf(jit::compile(scaleRequest()).fromCache() ? "from the cache\n" : "compiled it\n");
}

TEST_CASE("of eight processes at once, one compiles") {
  const TemporaryFolder cache;
  std::vector<std::FILE*> processes;
  for (int i = 0; i < 8; ++i) {
    processes.push_back(start("process: compiles*", "MSCCLPP_CACHE_DIR=" + cache.path().string()));
  }
  int compiled = 0, found = 0;
  for (auto* process : processes) {
    const std::string output = finish(process);
    compiled += contains(output, "compiled it");
    found += contains(output, "from the cache");
  }
  CHECK(compiled == 1);
  CHECK(found == 7);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cache.path() / "jit")) {
    CHECK(entry.path().extension() == ".bin");
    ++files;
  }
  CHECK(files == 1);
}

TEST_CASE("of several threads at once, one compiles") {
  const jit::CompileRequest request{
      .source = "__global__ void ofThreads() {}\n", .kernels = {"ofThreads"}, .architecture = "sm_90a"};
  std::atomic<int> compiled = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { compiled += !jit::compile(request).fromCache(); });
  for (auto& thread : threads) thread.join();
  CHECK(compiled == 1);
}

TEST_CASE("a cache that cannot be written does not matter") {
  const TemporaryFolder folder;
  const auto file = folder.write("file", "");
  const std::string output =
      finish(start("process: compiles*", "MSCCLPP_LOG_LEVEL=WARN MSCCLPP_CACHE_DIR=" + (file / "below").string()));
  CHECK(contains(output, "compiled it"));
  const auto warning = output.find("MSCCLPP_CACHE_DIR");
  CHECK(warning != std::string::npos);
  CHECK(output.find("MSCCLPP_CACHE_DIR", warning + 1) == std::string::npos);  // one warning
}

TEST_CASE("process: prints why nothing compiles" * doctest::skip()) {
  try {
    jit::compile(scaleRequest());
  } catch (const Error& error) {
    std::printf("%s: %s\n", errorToString(error.getErrorCode()).c_str(), error.what());
  }
}

TEST_CASE("without NVRTC or headers, the error says which variable is wrong") {
  const TemporaryFolder empty;
  for (const char* variable :
       {"MSCCLPP_NVRTC_LIB_PATH", "MSCCLPP_INCLUDE_DIR", "MSCCLPP_CCCL_INCLUDE_DIR", "MSCCLPP_CUDA_INCLUDE_DIR"}) {
    const std::string setting = std::string(variable) + "=" + empty.path().string();
    const std::string output = finish(start("process: prints why*", setting));
    CHECK(contains(output, "InvalidUsage: " + setting));
  }
}

TEST_CASE("headers of a folder replace those that are part of the library") {
  const TemporaryFolder cache;
  const std::string variables =
      "MSCCLPP_CACHE_DIR=" + cache.path().string() + " MSCCLPP_INCLUDE_DIR=" MSCCLPP_TEST_INCLUDE;
  CHECK(contains(finish(start("an all-reduce with a source functor*", variables)), "1 passed"));
  CHECK(jit::toolchain().mscclppInclude == (std::getenv("MSCCLPP_INCLUDE_DIR") ? MSCCLPP_TEST_INCLUDE : ""));
}

TEST_CASE("the tool chain is what was found") {
  const auto& tools = jit::toolchain();
  CHECK(contains(tools.nvrtc, "libnvrtc"));
  CHECK(tools.nvrtcMajor >= 12);
  CHECK(std::filesystem::exists(tools.ccclInclude + "/cuda/std/cstddef"));
  CHECK(std::filesystem::exists(tools.cudaInclude + "/cuda_fp16.h"));
  CHECK(std::find(tools.architectures.begin(), tools.architectures.end(), 90) != tools.architectures.end());
}
